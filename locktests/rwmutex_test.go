package locktests

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// readSide and writeSide are the sides of the read-write locks of a client.
func readSide(c *lock.Client) lock.Locker {
	return lock.LockerFunc(func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
		return c.RWMutex(name, lock.RWOptions{}).Read().Acquire(ctx, o)
	})
}

func writeSide(c *lock.Client, rw lock.RWOptions) lock.Locker {
	return lock.LockerFunc(func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
		return c.RWMutex(name, rw).Write().Acquire(ctx, o)
	})
}

// The two ways to treat writers that wait.
var (
	plainRW       = lock.RWOptions{}
	preferWriters = lock.RWOptions{PreferWriters: true}
)

// rwSource is a script of read-write locks as it is sent.
func rwSource(t *testing.T, name string) *redis.Script {
	t.Helper()
	var source strings.Builder
	for _, part := range []string{"rw_state", name} {
		text, err := os.ReadFile("../lock/scripts/" + part + ".lua")
		require.NoError(t, err)
		source.Write(text)
	}
	return redis.NewScript(source.String())
}

// loadRW lets the server know the scripts by their digests.
func loadRW(t *testing.T, c *lock.Client) {
	t.Helper()
	h, err := readSide(c).Acquire(t.Context(), "warm", lock.Options{Lease: long})
	require.NoError(t, err)
	require.NoError(t, h.Release(t.Context()))
}

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

// waitingWriters lists those that wait and keep new readers out.
func waitingWriters(t *testing.T, rdb *redis.Client) []string {
	t.Helper()
	members, err := rdb.ZRange(t.Context(), "lock:{orders}", 0, -1).Result()
	require.NoError(t, err)
	return slices.DeleteFunc(members, func(m string) bool { return !strings.HasPrefix(m, "wait:") })
}

// A reader that asks to write is told so at once, alone or not. In Redisson it
// waits for itself (redisson #4796).
func TestUpgradeIsRefusedAtOnce(t *testing.T) {
	s := redistest.Start(t)
	ctx := t.Context()
	rdb := s.Client(t, nil)
	m := open(t, s, lock.Config{}).RWMutex("orders", preferWriters)
	mine := letIn(t, m.Read(), "a")
	for range 2 {
		for _, wait := range []time.Duration{0, lock.Forever} {
			_, err := m.Write().Acquire(ctx, lock.Options{Owner: "a", Lease: long, Wait: wait})
			require.ErrorIs(t, err, lock.ErrUpgrade)
			require.ErrorIs(t, err, lock.ErrNotAcquired)
			require.Empty(t, waitingWriters(t, rdb))
		}
		letIn(t, m.Read(), "b") // the second time there are others
	}
	held, err := m.Read().IsHeldBy(ctx, "a")
	require.NoError(t, err)
	require.True(t, held, "the read side is still held")
	require.NoError(t, mine.Release(ctx))
}

// A writer that goes on as a reader lets the others in at once. In Redisson they
// sleep until the lock runs out, because nothing is published.
func TestDowngradeWakesReaders(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	m, c := open(t, s, lock.Config{}).RWMutex("orders", plainRW), open(t, s, lock.Config{})
	promptly(t, 4, func() {
		w := letIn(t, m.Write(), "a")
		r := letIn(t, m.Read(), "a")
		var waiters []<-chan error
		for range 5 {
			waiters = append(waiters, waiting(t.Context(), t, readSide(c), lock.Options{Lease: long, Wait: lock.Forever}))
		}
		parked(t, rdb, 1)
		require.NoError(t, w.Release(t.Context()))
		for _, waiter := range waiters {
			require.NoError(t, <-waiter)
		}
		keptOut(t, m.Write(), "b")
		require.NoError(t, r.Release(t.Context()))
		parked(t, rdb, 0)
	})
}

// The lock becomes free after a request was refused, and before the caller hears
// of it (redisson #4744).
func TestReleaseBetweenARefusalAndTheWait(t *testing.T) {
	s := redistest.Start(t)
	holder := open(t, s, lock.Config{}).RWMutex("orders", plainRW)
	c, link := overLink(t, s, lock.Config{})
	loadRW(t, c)
	for _, side := range []lock.Locker{readSide(c), writeSide(c, plainRW), writeSide(c, preferWriters)} {
		promptly(t, 2, func() {
			w := letIn(t, holder.Write(), "w")
			held, deliver := link.HoldReplies(rwSource(t, "rw_acquire").Hash())
			waiter := waiting(t.Context(), t, side, lock.Options{Lease: long, Wait: lock.Forever})
			happened(t, held)
			require.NoError(t, w.Release(t.Context()))
			deliver()
			require.NoError(t, <-waiter)
		})
	}
}

func TestReaderThatDiedIsInNobodysWayAfterItsLease(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	ctx := t.Context()
	m := open(t, s, lock.Config{Watchdog: shortWatchdog}).RWMutex("orders", plainRW)
	dead, err := m.Read().Acquire(ctx, lock.Options{Owner: "dead", Lease: soonOver})
	require.NoError(t, err)
	// The other reader lives on, is renewed and extended. None of that prolongs
	// the dead one's (redisson #7098, #1458), nor does its lease count for them.
	watched, err := m.Read().Acquire(ctx, lock.Options{Owner: "b"})
	require.NoError(t, err)
	extended := letIn(t, m.Read(), "b")
	require.NoError(t, extended.Extend(ctx, 2*long))
	redistest.Await(t, "the lease of the dead reader to end", func() bool {
		n, err := m.Readers(ctx)
		return err == nil && n == 1
	})
	require.False(t, time.Now().Before(dead.Lease().Expires))
	require.ErrorIs(t, dead.Release(ctx), lock.ErrNotHeld)
	require.NoError(t, watched.Release(ctx))
	keptOut(t, m.Write(), "w")
	require.NoError(t, extended.Release(ctx))
	require.NoError(t, letIn(t, m.Write(), "w").Release(ctx))

	// A writer waits for no longer than the lease, though no client tells it.
	dead, err = m.Read().Acquire(ctx, lock.Options{Lease: soonOver})
	require.NoError(t, err)
	w, err := m.Write().Acquire(ctx, within(lock.Forever, lock.Options{Lease: long}))
	require.NoError(t, err)
	require.False(t, time.Now().Before(dead.Lease().Expires))
	require.NoError(t, w.Release(ctx))
}

// The release of one side ends the renewal of that hold alone: in Redisson that
// of a read ends the renewal of the write, and that of a write once ended that
// of the read (redisson #4217).
func TestWatchdogKeepsTheOtherSide(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	ctx := t.Context()
	const watchdog = shortWatchdog
	m := open(t, s, lock.Config{Watchdog: watchdog}).RWMutex("orders", plainRW)
	for _, first := range []string{"read", "write"} {
		kept, err := m.Write().Acquire(ctx, lock.Options{Owner: "a"})
		require.NoError(t, err)
		released, err := m.Read().Acquire(ctx, lock.Options{Owner: "a"})
		require.NoError(t, err)
		if first == "write" {
			kept, released = released, kept
		}
		end := kept.Lease().Expires
		require.NoError(t, released.Release(ctx))
		redistest.Await(t, "the other side to outlive its lease", func() bool { return time.Now().After(end.Add(watchdog / 10)) })
		keptOut(t, m.Write(), "b")
		require.True(t, kept.Lease().Expires.After(end))
		require.NoError(t, kept.Release(ctx))
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
				h, err := readSide(stream).Acquire(t.Context(), "orders", lock.Options{Lease: long, Wait: lock.Forever})
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
		h, err := writeSide(c, preferWriters).Acquire(t.Context(), "orders", lock.Options{Lease: long, Wait: 20 * time.Second})
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
	s := redistest.Start(t)
	ctx := t.Context()
	m := open(t, s, lock.Config{}).RWMutex("orders", plainRW)
	require.Equal(t, "orders", m.Name())
	require.Equal(t, "orders", m.Read().Name())
	state := func(readers int, reading, writing, a, b bool) {
		t.Helper()
		n, err := m.Readers(ctx)
		require.NoError(t, err)
		r, err := m.IsReadLocked(ctx)
		require.NoError(t, err)
		w, err := m.IsWriteLocked(ctx)
		require.NoError(t, err)
		reads, err := m.Read().IsHeldBy(ctx, "a")
		require.NoError(t, err)
		writes, err := m.Write().IsHeldBy(ctx, "b")
		require.NoError(t, err)
		require.Equal(t, []any{readers, reading, writing, a, b}, []any{n, r, w, reads, writes})
	}
	state(0, false, false, false, false)
	r1, r2, r3 := letIn(t, m.Read(), "a"), letIn(t, m.Read(), "a"), letIn(t, m.Read(), "b")
	state(2, true, false, true, false)
	require.NoError(t, r1.Release(ctx))
	require.ErrorIs(t, r1.Release(ctx), lock.ErrReleased)
	state(2, true, false, true, false)
	require.NoError(t, r2.Release(ctx))
	require.NoError(t, r3.Release(ctx))
	w := letIn(t, m.Write(), "b")
	state(0, false, true, false, true)
	r := letIn(t, m.Read(), "b")
	state(1, true, true, false, true)
	require.NoError(t, w.Release(ctx))
	require.NoError(t, r.Release(ctx))
	state(0, false, false, false, false)
}

func TestForceUnlockOfBothSides(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	c := open(t, s, lock.Config{})
	m := c.RWMutex("orders", plainRW)
	was, err := m.ForceUnlock(t.Context())
	require.NoError(t, err)
	require.False(t, was)
	promptly(t, 2, func() {
		holds := []*lock.Hold{letIn(t, m.Write(), "a"), letIn(t, m.Read(), "a")}
		var waiters []<-chan error
		for _, side := range []lock.Locker{readSide(c), readSide(c), writeSide(c, plainRW)} {
			waiters = append(waiters, waiting(t.Context(), t, side, lock.Options{Lease: long, Wait: lock.Forever}))
		}
		parked(t, rdb, 2)
		was, err = m.ForceUnlock(t.Context())
		require.NoError(t, err)
		require.True(t, was)
		for _, w := range waiters {
			require.NoError(t, <-w)
		}
		for _, h := range holds {
			require.ErrorIs(t, h.Extend(t.Context(), long), lock.ErrNotHeld)
			<-h.Lost()
		}
		require.Empty(t, keysLeft(t, rdb))
		parked(t, rdb, 0)
	})
}
