package locktests

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// The two ways to treat writers that wait.
var (
	plainRW       = lock.RWOptions{}
	preferWriters = lock.RWOptions{PreferWriters: true}
)

// keptOut requires that a client is in the way.
func keptOut(t *testing.T, side *lock.RWSide, owner string) {
	t.Helper()
	_, err := side.Acquire(t.Context(), lock.Options{Owner: owner, Lease: long})
	require.ErrorIs(t, err, lock.ErrNotAcquired)
	require.NotErrorIs(t, err, lock.ErrUpgrade)
}

// letIn requires that no client is in the way.
func letIn(t *testing.T, side *lock.RWSide, owner string) *lock.Hold {
	t.Helper()
	h, err := side.Acquire(t.Context(), lock.Options{Owner: owner, Lease: long})
	require.NoError(t, err)
	return h
}

// promptly requires that waiters were woken by messages, in most of some rounds:
// one that isn't asks again after three seconds.
func promptly(t *testing.T, rounds int, round func()) {
	t.Helper()
	begin := time.Now()
	for range rounds {
		round()
	}
	require.Less(t, time.Since(begin), time.Duration(rounds)*3*time.Second/2, "wake-ups were lost, and polls found the lock free")
}

// A reader that asks to write is told so at once, alone or not. In Redisson it
// waits for itself (redisson #4796).
func TestUpgradeIsRefusedAtOnce(t *testing.T) {
	s := redistest.Start(t)
	m := open(t, s, lock.Config{}).RWMutex("orders", preferWriters)
	mine := letIn(t, m.Read(), "a")
	for range 2 {
		for _, wait := range []time.Duration{0, lock.Forever} {
			_, err := m.Write().Acquire(t.Context(), lock.Options{Owner: "a", Lease: long, Wait: wait})
			require.ErrorIs(t, err, lock.ErrUpgrade)
			require.ErrorIs(t, err, lock.ErrNotAcquired)
		}
		letIn(t, m.Read(), "b") // which no writer keeps out; the second time there are others
	}
	require.NoError(t, mine.Release(t.Context()), "the read side is still held")
}

// The lock becomes free after a request was refused, and before the caller hears
// of it (redisson #4744).
func TestReleaseBetweenARefusalAndTheWait(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind, s *redistest.Server) {
		t.Helper()
		holder := open(t, s, lock.Config{})
		c, link := overLink(t, s, lock.Config{})
		k.know(t, c)
		promptly(t, 2, func() {
			h := k.blocked(t, holder)
			held, deliver := link.HoldReplies(k.script(t, "acquire"))
			waiter := waiting(t.Context(), t, k.of(c), lock.Options{Lease: long, Wait: lock.Forever})
			happened(t, held)
			require.NoError(t, h.Release(t.Context()))
			deliver()
			require.NoError(t, <-waiter)
		})
	})
}

// The release of one side ends the renewal of that hold alone: in Redisson that
// of a read ends the renewal of the write, and that of a write once ended that
// of the read (redisson #4217).
func TestWatchdogKeepsTheOtherSide(t *testing.T) {
	t.Parallel()
	c := open(t, redistest.Start(t), lock.Config{Watchdog: shortWatchdog})
	kept := map[*lock.RWMutex]*lock.Hold{}
	for _, name := range []string{"read", "written"} {
		m := c.RWMutex(name, plainRW)
		w, err := m.Write().Acquire(t.Context(), lock.Options{Owner: "a"})
		require.NoError(t, err)
		r, err := m.Read().Acquire(t.Context(), lock.Options{Owner: "a"})
		require.NoError(t, err)
		if name == "read" {
			r, w = w, r
		}
		require.NoError(t, r.Release(t.Context()))
		kept[m] = w
	}
	end := time.Now().Add(shortWatchdog) // of all their first leases
	redistest.Await(t, "the other sides to outlive their leases", func() bool { return time.Now().After(end) })
	for m, h := range kept {
		keptOut(t, m.Write(), "b")
		require.True(t, h.Lease().Expires.After(end))
		require.NoError(t, h.Release(t.Context()))
	}
}

// With ever new readers, a preferred writer still gets in, as no writer in
// Redisson is sure to (redisson #5379).
func TestReadersDoNotStarveAPreferredWriter(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var stop atomic.Bool
	var work sync.WaitGroup
	errs := make([]error, 4)
	stream := open(t, s, lock.Config{})
	for i := range errs {
		work.Go(func() {
			for !stop.Load() && errs[i] == nil {
				h, err := stream.Readers(plainRW).Acquire(t.Context(), "orders", lock.Options{Lease: long, Wait: lock.Forever})
				if err == nil {
					time.Sleep(5 * time.Millisecond) // longer than what is between two of them, so that they overlap
					err = h.Release(t.Context())
				}
				errs[i] = err
			}
		})
	}
	c := open(t, s, lock.Config{})
	for range 10 {
		h, err := c.Writers(preferWriters).Acquire(t.Context(), "orders", lock.Options{Lease: long, Wait: 20 * time.Second})
		require.NoError(t, err)
		require.NoError(t, h.Release(t.Context()))
	}
	stop.Store(true)
	work.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
}

func TestReadWriteLockTellsWhoHoldsIt(t *testing.T) {
	ctx := t.Context()
	m := open(t, redistest.Start(t), lock.Config{}).RWMutex("orders", plainRW)
	require.Equal(t, []string{"orders", "orders"}, []string{m.Name(), m.Read().Name()})
	state := func(want ...any) { // readers, read, written, read by a, written by b
		t.Helper()
		a, err := m.State(ctx, "a")
		require.NoError(t, err)
		b, err := m.State(ctx, "b")
		require.NoError(t, err)
		require.Equal(t, want, []any{a.Readers, a.Readers > 0, a.Writes > 0, a.OwnReads > 0, b.OwnWrites > 0})
	}
	state(0, false, false, false, false)
	for _, owner := range []string{"a", "a", "b"} {
		defer func(h *lock.Hold) { require.ErrorIs(t, h.Release(ctx), lock.ErrNotHeld) }(letIn(t, m.Read(), owner))
	}
	state(2, true, false, true, false)
	_, err := m.ForceUnlock(ctx)
	require.NoError(t, err)
	w, r := letIn(t, m.Write(), "b"), letIn(t, m.Read(), "b")
	state(1, true, true, false, true)
	require.NoError(t, r.Release(ctx))
	state(0, false, true, false, true)
	require.NoError(t, w.Release(ctx))
	state(0, false, false, false, false)
}

// A lock that an operator frees is free for all who wait, and lost for its holders.
func TestForceUnlock(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind, s *redistest.Server) {
		t.Helper()
		rdb, c, holder := s.Client(t, nil), open(t, s, lock.Config{}), open(t, s, lock.Config{})
		force := map[string]func() (bool, error){
			"":      func() (bool, error) { return c.Mutex("orders").ForceUnlock(t.Context()) },
			"fair_": func() (bool, error) { return c.FairMutex("orders").ForceUnlock(t.Context()) },
			"rw_":   func() (bool, error) { return c.RWMutex("orders", plainRW).ForceUnlock(t.Context()) },
		}[k.family]
		if force == nil {
			return // permits are not forced
		}
		was, err := force()
		require.NoError(t, err)
		require.False(t, was)
		promptly(t, 2, func() {
			holds := []*lock.Hold{k.blocked(t, holder)}
			if k.family == "rw_" {
				holds = append(holds, acquire(t, holder.Readers(plainRW), "blocker", long))
			}
			var waiters []<-chan error
			for range 2 {
				waiters = append(waiters, waiting(t.Context(), t, k.of(c), lock.Options{Lease: long, Wait: lock.Forever}))
			}
			k.awaitWaiter(t, rdb)
			was, err := force()
			require.NoError(t, err)
			require.True(t, was)
			for _, w := range waiters {
				require.NoError(t, <-w)
			}
			for _, h := range holds {
				require.ErrorIs(t, h.Extend(t.Context(), long), lock.ErrNotHeld)
				<-h.Lost()
			}
			require.Empty(t, left(t, rdb))
		})
	})
}
