package redsync_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/adapters/redsync"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/locktest"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// definite makes a refusal what it says: no request is repeated.
func definite(o *redis.Options) {
	o.MaxRetries, o.DialerRetries = -1, 1
}

func start(t *testing.T, n int) []*redistest.Server {
	t.Helper()
	servers := make([]*redistest.Server, n)
	for i := range servers {
		servers[i] = redistest.Start(t)
	}
	return servers
}

func clients(t *testing.T, servers []*redistest.Server) []redis.UniversalClient {
	t.Helper()
	var all []redis.UniversalClient
	for _, s := range servers {
		all = append(all, s.Client(t, definite))
	}
	return all
}

// lease is one in which a busy machine gets something done: the library gives a
// request a twentieth of it.
const lease = 2 * time.Second

func TestContract(t *testing.T) {
	t.Parallel()
	servers := start(t, 1)
	locktest.Run(t, func(t *testing.T) lock.Locker {
		t.Helper()
		all := clients(t, servers)
		require.NoError(t, all[0].FlushAll(t.Context()).Err())
		return redsync.New(all, redsync.Config{Pause: 5 * time.Millisecond})
	}, locktest.Features{Lease: lease, Callers: 100})
}

// A dead server of three is in nobody's way. Two live ones are the majority only
// together, so that callers who each get one of them ask again.
func TestContractWithAMinorityDead(t *testing.T) {
	t.Parallel()
	servers := start(t, 3)
	all := clients(t, servers)
	servers[0].Kill()
	for _, c := range locktest.Checks(locktest.Features{SplitVotes: true, Lease: lease, Callers: 40}) {
		switch c.Name {
		case "a held lock is refused", "a wait ends with a refusal", "a cancelled wait leaves nothing behind",
			"a second release is refused", "many waiters take turns":
			for _, rdb := range all[1:] {
				require.NoError(t, rdb.FlushAll(t.Context()).Err())
			}
			require.NoError(t, c.Run(t.Context(), redsync.New(all, redsync.Config{Pause: 5 * time.Millisecond})), c.Name)
		}
	}
}

// What may have happened is no refusal, be it one server or the majority that
// does not answer.
func TestUnknownOutcomes(t *testing.T) {
	for _, n := range []int{1, 3} {
		servers := start(t, n)
		l := redsync.New(clients(t, servers), redsync.Config{})
		h, err := l.Acquire(t.Context(), "orders", lock.Options{Lease: time.Minute})
		require.NoError(t, err)
		for _, s := range servers[:n/2+1] {
			s.Kill()
		}
		for what, err := range map[string]error{
			"extend": h.Extend(t.Context(), time.Minute), "release": h.Release(t.Context()),
		} {
			require.Error(t, err, what)
			require.NotErrorIs(t, err, lock.ErrNotHeld, what)
		}
		_, err = l.Acquire(t.Context(), "other", lock.Options{Lease: time.Minute, Wait: 100 * time.Millisecond})
		require.Error(t, err)
		require.NotErrorIs(t, err, lock.ErrNotAcquired)
	}
}

// A minority that doesn't answer leaves a definite refusal definite.
func TestMajorityRefuses(t *testing.T) {
	servers := start(t, 3)
	all := clients(t, servers)
	a, b := redsync.New(all, redsync.Config{}), redsync.New(all, redsync.Config{})
	h, err := a.Acquire(t.Context(), "orders", lock.Options{Lease: time.Minute})
	require.NoError(t, err)
	servers[0].Kill()
	_, err = b.Acquire(t.Context(), "orders", lock.Options{Lease: time.Minute})
	require.ErrorIs(t, err, lock.ErrNotAcquired)
	require.NoError(t, h.Release(t.Context()))
	require.ErrorIs(t, h.Release(t.Context()), lock.ErrNotHeld)
}

// A release that one server carried out ended that vote, and with it perhaps the
// hold, whatever the others say: one may have answered when the lease was over. An
// extension ends nothing, so that the majority's refusal is definite.
func TestAReleaseIsRefusedOnlyIfNoServerCarriedItOut(t *testing.T) {
	t.Parallel()
	servers := start(t, 3)
	all := clients(t, servers)
	for name, c := range map[string]redsync.Config{"waits for all": {}, "goes on with a majority": {FailFast: true}} {
		for _, tt := range []struct {
			name     string
			lost     int  // the votes that are gone
			foreign  bool // and another's are there
			definite bool
		}{
			{"one server has it", 2, false, false},
			{"one server has it, others another's", 2, true, false},
			{"no server has it", 3, false, true},
		} {
			t.Run(name+", "+tt.name, func(t *testing.T) {
				l := redsync.New(all, c)
				h := everywhere(t, l, all)
				for _, rdb := range all[:tt.lost] {
					require.NoError(t, rdb.Del(t.Context(), "redsync:orders").Err())
					if tt.foreign {
						require.NoError(t, rdb.Set(t.Context(), "redsync:orders", "another's", time.Minute).Err())
					}
				}
				err := h.Release(t.Context())
				require.Error(t, err)
				require.Equal(t, tt.definite, errors.Is(err, lock.ErrNotHeld), "%v", err)
				for _, rdb := range all {
					require.NoError(t, rdb.FlushAll(t.Context()).Err())
				}

				h = everywhere(t, l, all)
				for _, rdb := range all[:2] {
					require.NoError(t, rdb.Set(t.Context(), "redsync:orders", "another's", time.Minute).Err())
				}
				require.ErrorIs(t, h.Extend(t.Context(), time.Minute), lock.ErrNotHeld)
				for _, rdb := range all {
					require.NoError(t, rdb.FlushAll(t.Context()).Err())
				}
			})
		}
	}
}

// everywhere returns a hold that has the votes of all servers. A client that goes on
// with a majority may get to the others late, or leave them out.
func everywhere(t *testing.T, l *redsync.Locker, all []redis.UniversalClient) *lock.Hold {
	t.Helper()
	for {
		h, err := l.Acquire(t.Context(), "orders", lock.Options{Lease: time.Minute})
		require.NoError(t, err)
		votes := func() (n int64) {
			for _, rdb := range all {
				n += rdb.Exists(t.Context(), redsync.Key("orders")).Val()
			}
			return n
		}
		for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if votes() == int64(len(all)) {
				return h
			}
		}
		for _, rdb := range all {
			require.NoError(t, rdb.FlushAll(t.Context()).Err())
		}
	}
}

// A vote that outlasts the lease makes no hold.
func TestAReleaseAfterTheLeaseIsRefused(t *testing.T) {
	all := clients(t, start(t, 3))
	var h *lock.Hold
	redistest.Await(t, "a grant by servers that answer within a twentieth of the lease", func() (granted bool) {
		var err error
		h, err = redsync.New(all, redsync.Config{}).Acquire(t.Context(), "orders", lock.Options{Lease: time.Second})
		return err == nil
	})
	require.NoError(t, all[0].Persist(t.Context(), redsync.Key("orders")).Err())
	redistest.Await(t, "the other votes to end", func() bool {
		return all[1].Exists(t.Context(), redsync.Key("orders")).Val()+all[2].Exists(t.Context(), redsync.Key("orders")).Val() == 0
	})
	require.ErrorIs(t, h.Release(t.Context()), lock.ErrNotHeld)
}
