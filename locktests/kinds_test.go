package locktests

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// A kind of lock on one server. What is promised of all of them is tested with each.
type kind struct {
	name string
	key  string // that it is kept in, by the name "orders"
	// family is how the names of its scripts begin.
	family    string
	isString  bool // held once and asked for by no other client, its key is a string
	reentrant bool
	shared    bool // by owners; a writer keeps it from being granted
	of        func(c *lock.Client) lock.Locker
}

// excluding are the locks that exclude those of the kind: of the same kind, or writers.
func (k kind) excluding(c *lock.Client) lock.Locker {
	if k.shared {
		return c.Writers(plainRW)
	}
	return k.of(c)
}

// blocked has another owner hold the lock.
func (k kind) blocked(t *testing.T, c *lock.Client) *lock.Hold {
	t.Helper()
	return acquire(t, k.excluding(c), "blocker", long)
}

// script is what requests for one of its steps have in them, acquire, extend or release: the digest of a script, or
// the command by which a lock is asked for first.
func (k kind) script(t *testing.T, step string) string {
	t.Helper()
	if step == "extend" && k.family == "fair_" {
		return digest(t, step)
	}
	if step == "acquire" && k.family == "" {
		return acquireText(t)
	}
	return digest(t, k.family+step)
}

// kinds are all of them. The semaphore has one permit, which is set.
func kinds() []kind {
	const plain = "lock:{orders}"
	mutex := func(c *lock.Client) lock.Locker { return c }
	spin := func(c *lock.Client) lock.Locker { return c.Spin(lock.Backoff{}) }
	read := func(c *lock.Client) lock.Locker { return c.Readers(plainRW) }
	write := func(c *lock.Client) lock.Locker { return c.Writers(plainRW) }
	preferred := func(c *lock.Client) lock.Locker { return c.Writers(preferWriters) }
	permit := func(c *lock.Client) lock.Locker { return c.Permits(1) }
	return []kind{
		{name: "Mutex", key: plain, isString: true, reentrant: true, of: mutex},
		{name: "FencedMutex", key: plain, isString: true, reentrant: true, of: (*lock.Client).Fenced},
		{name: "SpinMutex", key: plain, isString: true, reentrant: true, of: spin},
		{name: "FairMutex", key: plain, family: "fair_", reentrant: true, of: (*lock.Client).Fair},
		{name: "RWMutex reading", key: plain, family: "rw_", reentrant: true, shared: true, of: read},
		{name: "RWMutex writing", key: plain, family: "rw_", reentrant: true, of: write},
		{name: "RWMutex preferring writers", key: plain, family: "rw_", reentrant: true, of: preferred},
		{name: "Semaphore", key: semaphoreKey, family: "semaphore_", of: permit},
	}
}

// eachKind runs a test with each kind of lock, on a server of its own.
func eachKind(t *testing.T, test func(t *testing.T, k kind, s *redistest.Server)) {
	t.Helper()
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			onePermit(t, s)
			test(t, k, s)
		})
	}
}

func onePermit(t *testing.T, s *redistest.Server) {
	t.Helper()
	_, err := open(t, s, lock.Config{}).Semaphore("orders").TrySetPermits(t.Context(), 1)
	require.NoError(t, err)
}

// left are the keys that a lock has, but for the size of the semaphore.
func left(t *testing.T, rdb *redis.Client) []string {
	t.Helper()
	return slices.DeleteFunc(keysLeft(t, rdb), func(key string) bool { return key == semaphoreKey })
}

// know lets the server know the scripts of a kind, so that they are sent by digest.
func (k kind) know(t *testing.T, c *lock.Client) {
	t.Helper()
	h, err := k.of(c).Acquire(t.Context(), "orders", lock.Options{Lease: long})
	require.NoError(t, err)
	require.NoError(t, h.Extend(t.Context(), long))
	require.NoError(t, h.Release(t.Context()))
}

// A reply that is lost makes go-redis ask twice. Nothing is counted twice for it, and one
// release frees the lock.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind, s *redistest.Server) {
		t.Helper()
		c, link := overLink(t, s, lock.Config{})
		k.know(t, c)
		lose := func(step string) (struck func()) {
			dropped := link.DropReply(k.script(t, step))
			return func() { happened(t, dropped) }
		}
		struck := lose("acquire")
		h := acquire(t, k.of(c), "a", long)
		struck()
		require.Equal(t, 1, h.Lease().Holds, "not counted twice")
		if token := h.Lease().Token; token != 0 {
			last, err := s.Client(t, nil).Get(t.Context(), tokenKey).Int64()
			require.NoError(t, err)
			require.Equal(t, last, token, "no second one was given")
		}
		struck = lose("extend")
		require.NoError(t, h.Extend(t.Context(), 2*long))
		struck()
		require.Greater(t, time.Until(h.Lease().Expires), long)
		struck = lose("release")
		require.NoError(t, h.Release(t.Context()))
		struck()
		require.Empty(t, left(t, s.Client(t, nil)), "one release frees it")
		require.ErrorIs(t, h.Release(t.Context()), lock.ErrNotHeld)
	})
}

// A call that ends before it is granted leaves nothing behind: with its request under way,
// or while it waits; by its context, with its client, or when its wait is over.
func TestCallsThatEndLeaveNothing(t *testing.T) {
	t.Parallel()
	ends := map[string]struct {
		do   func(cancel func(), c *lock.Client)
		wait time.Duration
		err  error
	}{
		"cancelled": {func(cancel func(), _ *lock.Client) { cancel() }, lock.Forever, context.Canceled},
		"closed":    {func(_ func(), c *lock.Client) { go c.Close() }, lock.Forever, lock.ErrClosed},
		"over":      {func(func(), *lock.Client) {}, 100 * time.Millisecond, lock.ErrNotAcquired},
	}
	eachKind(t, func(t *testing.T, k kind, s *redistest.Server) {
		t.Helper()
		rdb, holder := s.Client(t, nil), open(t, s, lock.Config{})
		for name, end := range ends {
			e := &events{}
			c, link := overLink(t, s, lock.Config{Observer: e})
			k.know(t, c)
			if name != "over" {
				ctx, cancel := context.WithCancel(t.Context())
				held, deliver := link.HoldReplies(k.script(t, "acquire"))
				done := waiting(ctx, t, k.of(c), lock.Options{Lease: long})
				happened(t, held)
				// On a busy machine the first answer may be no grant: it has no 25 ms, or finds a late copy of the request before.
				redistest.Await(t, "the server has granted it", func() bool { return len(left(t, rdb)) > 0 })
				end.do(cancel, c)
				require.ErrorIs(t, <-done, end.err, "without waiting for the reply")
				deliver()
				c.Close()
				cancel()
				require.Empty(t, left(t, rdb), "Close waits until the grant is taken back")
				require.Equal(t, 1, e.count(lock.Acquired))
				c = open(t, s, lock.Config{})
			}
			blocker := k.blocked(t, holder)
			before := left(t, rdb)
			ctx, cancel := context.WithCancel(t.Context())
			done := waiting(ctx, t, k.of(c), lock.Options{Lease: long, Wait: end.wait})
			second := waiting(ctx, t, k.of(c), lock.Options{Lease: long, Wait: end.wait}) // in line behind it
			if name != "over" {
				k.awaitWaiter(t, rdb)
			}
			end.do(cancel, c)
			require.ErrorIs(t, <-done, end.err)
			require.ErrorIs(t, <-second, end.err)
			cancel()
			if name == "closed" {
				_, err := k.of(c).Acquire(t.Context(), "orders", lock.Options{})
				require.ErrorIs(t, err, lock.ErrClosed)
			}
			c.Close()
			require.ElementsMatch(t, before, left(t, rdb))
			parked(t, rdb, 0)
			require.NoError(t, blocker.Release(t.Context()))
			require.Empty(t, left(t, rdb))
		}
	})
}

// awaitWaiter waits until a call waits for the lock, which a SpinMutex does without a trace.
func (k kind) awaitWaiter(t *testing.T, rdb *redis.Client) {
	t.Helper()
	if k.name != "SpinMutex" {
		parked(t, rdb, 1)
	}
}

// The message that a lock is free is lost with the connection of a waiter. It asks when the
// connection is back, or at its next poll.
func TestWaitersOutliveABrokenSubscription(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind, s *redistest.Server) {
		t.Helper()
		rdb := s.Client(t, nil)
		c, holder := open(t, s, lock.Config{}), open(t, s, lock.Config{})
		blocker := k.blocked(t, holder)
		var waiters []<-chan error
		for range 3 {
			waiters = append(waiters, waiting(t.Context(), t, k.of(c), lock.Options{Lease: long, Wait: lock.Forever}))
		}
		k.awaitWaiter(t, rdb)
		require.NoError(t, rdb.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
		require.NoError(t, blocker.Release(t.Context()))
		for _, w := range waiters {
			require.NoError(t, <-w)
		}
		require.Empty(t, left(t, rdb))
	})
}

// A key that holds something else, of the user or of a lock of another kind, is reported and
// left as it is.
func TestForeignKeys(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind, s *redistest.Server) {
		t.Helper()
		rdb, c := s.Client(t, nil), open(t, s, lock.Config{})
		unchanged := func(key string, do func() []error) {
			t.Helper()
			before := rdb.Dump(t.Context(), key).Val()
			for _, err := range do() {
				require.ErrorContains(t, err, "use another name", key)
				require.NotErrorIs(t, err, lock.ErrNotAcquired)
				require.NotErrorIs(t, err, lock.ErrNotHeld)
			}
			require.Equal(t, before, rdb.Dump(t.Context(), key).Val())
		}
		asked := func() (errs []error) {
			for _, wait := range []time.Duration{0, lock.Forever} {
				_, err := k.of(c).Acquire(t.Context(), "orders", lock.Options{Owner: "b", Lease: long, Wait: wait})
				errs = append(errs, err)
			}
			switch k.family {
			case "rw_":
				_, err := c.RWMutex("orders", plainRW).State(t.Context(), "a")
				errs = append(errs, err)
			case "":
				_, err := c.Mutex("orders").ForceUnlock(t.Context())
				errs = append(errs, err)
			}
			return errs
		}
		keys := []string{k.key}
		if k.family == "fair_" {
			keys = append(keys, fairPlaces, fairDeadlines)
		}
		for _, key := range keys {
			for _, text := range []string{"my data", "", "held", "held by"} {
				require.NoError(t, rdb.FlushAll(t.Context()).Err())
				onePermit(t, s)
				h := acquire(t, k.of(c), "a", long)
				require.NoError(t, rdb.Set(t.Context(), key, text, 0).Err())
				unchanged(key, func() []error { return append(asked(), h.Release(t.Context())) })
			}
		}
		if k.family == "fair_" {
			_, err := c.FairMutex("orders").Waiters(t.Context())
			require.ErrorContains(t, err, "use another name")
		}
		require.NoError(t, rdb.FlushAll(t.Context()).Err())
		onePermit(t, s)
		for _, other := range kinds() {
			if other.key != k.key || (other.family == "rw_") == (k.family == "rw_") {
				continue // they don't meet, or exclude each other
			}
			h := acquire(t, other.of(c), "a", long)
			unchanged(k.key, asked)
			require.NoError(t, h.Release(t.Context()))
		}
		_, err := k.of(c).Acquire(t.Context(), "", lock.Options{})
		require.ErrorContains(t, err, "give the lock a name")
		for _, o := range []lock.Options{{Lease: -1}, {Lease: time.Microsecond}, {Wait: -1}} {
			_, err := k.of(c).Acquire(t.Context(), "orders", o)
			require.Error(t, err)
			require.NotErrorIs(t, err, lock.ErrNotAcquired)
		}
	})
}

// A grant that no replica has is not believed, and undone.
func TestGrantsNeedTheAcks(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	_, detach := s.Replica(t)
	onePermit(t, s)
	rdb, c := s.Client(t, nil), open(t, s, lock.Config{ReplicaAcks: 1, AckTimeout: attentive})
	for _, k := range kinds() {
		require.NoError(t, acquire(t, k.of(c), "a", long).Release(t.Context()), k.name)
	}
	held := acquire(t, c, "a", long)
	end := held.Lease().Expires
	detach()
	err := held.Extend(t.Context(), 3*long)
	require.ErrorContains(t, err, "0 of 1 replicas")
	require.NotErrorIs(t, err, lock.ErrNotHeld)
	require.Equal(t, end, held.Lease().Expires, "what the replica doesn't have is not believed")
	require.NoError(t, held.Release(t.Context()))
	hasty := open(t, s, lock.Config{ReplicaAcks: 1, AckTimeout: 50 * time.Millisecond})
	for _, k := range kinds() {
		_, err := k.of(hasty).Acquire(t.Context(), "orders", lock.Options{Lease: long})
		require.ErrorIs(t, err, lock.ErrNotReplicated, k.name)
		require.NotErrorIs(t, err, lock.ErrNotAcquired)
		redistest.Await(t, "the grant to be undone", func() bool { return len(left(t, rdb)) == 0 })
	}
	p := hasty.Semaphore("orders")
	require.ErrorContains(t, p.AddPermits(t.Context(), 1), "0 of 1 replicas", "what can't be undone is told")
}
