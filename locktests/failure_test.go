package locktests

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// overLink returns a client, with go-redis' default retries, on a link that can
// be disturbed.
func overLink(t *testing.T, s *redistest.Server, c lock.Config) (*lock.Client, *redistest.Link) {
	t.Helper()
	link := &redistest.Link{}
	return newClient(t, s.Client(t, link.Use), c), link
}

// attentive is how long an attentive replica needs at most, also on a busy machine.
const attentive = 1500 * time.Millisecond

// happened requires that something came, which is a fault by default: a test proves
// nothing where that took no effect.
func happened(t *testing.T, it <-chan struct{}, what ...string) {
	t.Helper()
	select {
	case <-it:
	case <-time.After(time.Minute):
		t.Fatal("it never came:", append(what, "the fault")[0])
	}
}

// A release leaves a mark where a copy of the request may be on its way, which is
// refused so; and nothing where there can't be one.
func TestLateCopyOfAcquireAfterTheRelease(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	c, link := overLink(t, s, lock.Config{})
	warm := acquire(t, c, "warm", long)
	require.NoError(t, warm.Release(t.Context()))
	require.Empty(t, rdb.Keys(t.Context(), "*").Val())

	dropped := link.DropReply(acquireText(t))
	h := acquire(t, c, "a", long)
	happened(t, dropped)
	require.NoError(t, h.Release(t.Context()))
	l := h.Lease()
	copied := rdb.Eval(t.Context(), lock.Scripts()["acquire"], plainKeys("lock:{orders}", l.Request), held(l.Request, l.Owner), 1000, "", 0)
	require.Equal(t, int64(0), copied.Val().([]any)[0])
	left := rdb.Keys(t.Context(), "*").Val()
	require.Equal(t, []string{"lock:{orders}:released:" + l.Request}, left)
	require.Positive(t, rdb.PTTL(t.Context(), left[0]).Val(), "what is left goes by itself")
}

// A server without memory releases, and keeps the holds that are renewed.
func TestServerWithoutMemoryLetsGoAndKeeps(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	c := open(t, s, lock.Config{})
	onePermit(t, s)
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			h := acquire(t, k.of(c), "", long)
			require.NoError(t, h.Extend(t.Context(), long))
			require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
			extended, released := h.Extend(t.Context(), 2*long), h.Release(t.Context())
			require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
			require.NoError(t, extended)
			require.NoError(t, released)
			require.NoError(t, acquire(t, k.of(c), "", long).Release(t.Context()), "it is free")
		})
	}
}

// Between a release whose reply is lost and its repetition another client gets the lock, which it keeps. Where
// the lease was over, the repetition is no success.
func TestRepeatedReleaseLeavesTheNextHolderAlone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		known  bool // the script of the release: else the server hasn't carried it out
		lease  time.Duration
		repeat error
	}{
		{"carried out", true, long, nil},
		{"not carried out", false, long, nil},
		{"too late", true, soonOver, lock.ErrNotHeld},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, link := redistest.Start(t), &redistest.Link{}
			c := newClient(t, s.Client(t, func(o *redis.Options) { o.MaxRetries = -1; link.Use(o) }), lock.Config{})
			other := open(t, s, lock.Config{})
			if tt.known {
				require.NoError(t, acquire(t, other, "warm", long).Release(t.Context()))
			}
			h := acquire(t, c, "a", tt.lease)
			if tt.lease == soonOver {
				<-h.Lost()
			}
			dropped := link.DropReply("evalsha")
			err := h.Release(t.Context())
			happened(t, dropped)
			require.Error(t, err)
			require.NotErrorIs(t, err, lock.ErrNotHeld)
			if !tt.known {
				_, err := other.Acquire(t.Context(), "orders", lock.Options{Owner: "b", Lease: long})
				require.ErrorIs(t, err, lock.ErrNotAcquired)
				require.NoError(t, h.Release(t.Context()))
			}
			next, err := other.Acquire(t.Context(), "orders", lock.Options{Owner: "b", Lease: long, Wait: long})
			require.NoError(t, err)
			if err := h.Release(t.Context()); tt.known { // the first one may have been what released it
				require.ErrorIs(t, err, tt.repeat)
			} else {
				require.ErrorIs(t, err, lock.ErrNotHeld)
			}
			state, err := other.Mutex("orders").State(t.Context())
			require.NoError(t, err)
			require.Equal(t, "b", state.Owner)
			require.NoError(t, next.Release(t.Context()))
		})
	}
}

func TestWatchdogSurvivesAScriptFlush(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	e := &events{}
	c := open(t, s, lock.Config{Watchdog: shortWatchdog, Observer: e})
	h := acquire(t, c, "a", 0)
	again := acquire(t, c, "a", 0) // two of them, for a pipeline
	e.await(t, lock.Renewed, 2)
	require.NoError(t, s.Client(t, nil).ScriptFlush(t.Context()).Err())
	e.await(t, lock.Renewed, e.count(lock.Renewed)+4)
	for _, ev := range e.list() {
		require.NoError(t, ev.Err)
	}
	require.NoError(t, h.Release(t.Context()))
	require.NoError(t, again.Release(t.Context()))
}

func TestServerRestartsDuringAHold(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := open(t, s, lock.Config{Watchdog: shortWatchdog})
	watched := acquire(t, c, "a", 0)
	leased := acquire(t, c, "a", long)
	s.Kill()
	s.Start(t)
	happened(t, watched.Lost(), "a loss that the watchdog notices")
	require.ErrorIs(t, watched.Release(t.Context()), lock.ErrNotHeld)
	require.ErrorIs(t, leased.Release(t.Context()), lock.ErrNotHeld)
	select {
	case <-leased.Lost():
	default:
		t.Fatal("a refused release loses the hold")
	}
}

func TestWatchdogNeedsTheAcksToo(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	_, detach := s.Replica(t)
	e := &events{}
	c := open(t, s, lock.Config{ReplicaAcks: 1, AckTimeout: attentive, Watchdog: 2 * shortWatchdog, Observer: e})
	h := acquire(t, c, "a", 0)
	first := h.Lease().Expires
	redistest.Await(t, "a renewal", func() bool { return h.Lease().Expires.After(first) })
	detach()
	happened(t, h.Lost(), "the loss of a hold whose renewals no replica has")
}

// A server that stands still while it extends a lease, until that is over, leaves no key
// without an end.
func TestSlowExtensionLeavesAnEnd(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	ctx := t.Context()
	const key = "lock:{orders}"
	// So many grants that are over take the script longer than the lease lasts.
	const many = `for i = 1, 100000 do redis.call('HSET', KEYS[1], 'over' .. i, 1) end`
	extend := lock.Scripts()["extend"]
	require.NoError(t, rdb.ScriptLoad(ctx, extend).Err())
	redistest.Await(t, "an extension while the lease runs", func() bool {
		require.ErrorIs(t, rdb.Eval(ctx, many, []string{key}).Err(), redis.Nil)
		p := rdb.TxPipeline()
		p.HSet(ctx, key, "owner", "a", "r", time.Now().Add(10*time.Millisecond).UnixMilli())
		extended := p.EvalSha(ctx, digest(t, "extend"), []string{key}, "r", 1)
		_, err := p.Exec(ctx)
		require.NoError(t, err)
		if extended.Val() != int64(1) {
			return false // the lease was over before
		}
		require.NotEqual(t, time.Duration(-1), rdb.PTTL(ctx, key).Val())
		return true
	})
}
