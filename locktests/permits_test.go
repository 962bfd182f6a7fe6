package locktests

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/locktest"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// single is a semaphore of one permit as a lock.
func single(c *lock.Client) lock.Locker {
	return lock.LockerFunc(func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
		s := c.PermitSemaphore(name)
		if name != "" {
			if _, err := s.TrySetPermits(context.WithoutCancel(ctx), 1); err != nil {
				return nil, err
			}
		}
		return s.Acquire(ctx, 1, o)
	})
}

func TestPermitSemaphoreKeepsTheContract(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	locktest.Run(t, func(t *testing.T) lock.Locker {
		t.Helper()
		return single(open(t, s, lock.Config{Prefix: apart(), Watchdog: watchful}))
	}, locktest.Features{Lease: leisurely, Apart: true, Watchdog: watchful, Callers: 100})
}

// permits returns both views on a semaphore with that many permits.
func permits(t *testing.T, c *lock.Client, n int) (*lock.PermitSemaphore, *lock.Semaphore) {
	t.Helper()
	return c.PermitSemaphore("orders"), semaphore(t, c, n)
}

// passed lets the leases of all grants end on the server.
func passed(t *testing.T, rdb *redis.Client) {
	t.Helper()
	for _, grant := range rdb.ZRange(t.Context(), semaphoreKey+":grants", 0, -1).Val() {
		require.NoError(t, rdb.ZAddXX(t.Context(), semaphoreKey+":grants", redis.Z{Score: 1, Member: grant}).Err())
	}
}

func TestPermitsAreGrantedTogether(t *testing.T) {
	server := redistest.Start(t)
	ctx := t.Context()
	s, all := permits(t, open(t, server, lock.Config{}), 5)
	three, err := s.Acquire(ctx, 3, lock.Options{Owner: "a", Lease: long})
	require.NoError(t, err)
	l := three.Lease()
	require.Equal(t, []any{"orders", "a", 3, long}, []any{l.Name, l.Owner, l.Holds, l.Length})
	_, err = s.Acquire(ctx, 3, lock.Options{Owner: "a", Lease: long})
	require.ErrorIs(t, err, lock.ErrNotAcquired, "not the two that are there")
	available(t, all, 2)
	two, err := s.Acquire(ctx, 2, lock.Options{Owner: "a", Lease: long})
	require.NoError(t, err, "an owner may hold several grants")
	require.NoError(t, three.Extend(ctx, 2*long))
	require.ErrorIs(t, all.Release(ctx, 1), lock.ErrNotHeld, "what is held for a time is given back by its hold alone")
	require.NoError(t, three.Release(ctx))
	require.ErrorIs(t, three.Release(ctx), lock.ErrNotHeld)
	available(t, all, 3)
	require.NoError(t, two.Release(ctx))
	available(t, all, 5)
	require.Equal(t, []string{semaphoreKey}, keysLeft(t, server.Client(t, nil)))
}

// Redisson gives a permit back whose lease has ended when it is released, and
// says that it wasn't held; a list of permits was released in part (redisson
// #6343).
func TestPermitIsGivenBackOnce(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t, nil)
	ctx := t.Context()
	s, all := permits(t, open(t, server, lock.Config{}), 3)
	ended, err := s.Acquire(ctx, 2, lock.Options{Lease: long})
	require.NoError(t, err)
	passed(t, rdb)
	available(t, all, 3)
	other, err := s.Acquire(ctx, 3, lock.Options{Lease: long})
	require.NoError(t, err)
	require.ErrorIs(t, ended.Extend(ctx, long), lock.ErrNotHeld)
	<-ended.Lost()
	require.ErrorIs(t, ended.Release(ctx), lock.ErrNotHeld)
	available(t, all, 0)
	require.NoError(t, other.Release(ctx))
	available(t, all, 3)

	// No client reclaimed it before its release.
	ended, err = s.Acquire(ctx, 2, lock.Options{Lease: long})
	require.NoError(t, err)
	passed(t, rdb)
	require.ErrorIs(t, ended.Release(ctx), lock.ErrNotHeld)
	available(t, all, 3)
	require.Equal(t, []string{semaphoreKey}, keysLeft(t, rdb))
}

func TestLostReplyToTheReleaseOfAPermit(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c, link := overLink(t, server, lock.Config{})
	ctx := t.Context()
	s, all := permits(t, c, 3)
	for _, lose := range []bool{false, true} { // at first so that the digest is known
		h, err := s.Acquire(ctx, 2, lock.Options{Lease: long})
		require.NoError(t, err)
		var dropped <-chan struct{}
		if lose {
			dropped = link.DropReply(semaphoreScript(t, "release").Hash())
		}
		require.NoError(t, h.Release(ctx))
		if lose {
			happened(t, dropped)
		}
		available(t, all, 3)
	}
}

// Who waits learns when the next grant ends: the lease is much shorter than the
// poll, and no message comes.
func TestWaiterIsServedWhenAPermitEnds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, _ := permits(t, open(t, server, lock.Config{}), 1)
	first, err := s.Acquire(t.Context(), 1, lock.Options{Lease: soonOver})
	require.NoError(t, err)
	second, err := s.Acquire(t.Context(), 1, lock.Options{Lease: long, Wait: lock.Forever})
	require.NoError(t, err)
	require.False(t, time.Now().Before(first.Lease().Expires))
	require.NoError(t, second.Release(t.Context()))
}

// Grants and those who wait for them go by themselves, and the size stays
// (redisson #4100: the set of permits had no end).
func TestPermitsGoByThemselves(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t, nil)
	s, all := permits(t, open(t, server, lock.Config{}), 2)
	_, err := s.Acquire(t.Context(), 1, lock.Options{Lease: 2 * soonOver})
	require.NoError(t, err)
	_, err = s.Acquire(t.Context(), 1, lock.Options{Lease: soonOver})
	require.NoError(t, err)
	redistest.Await(t, "the grants to end", func() bool { return len(keysLeft(t, rdb)) == 1 })
	available(t, all, 2)
	_, err = s.Acquire(t.Context(), 2, lock.Options{Lease: long})
	require.NoError(t, err)
}

// Redisson has no watchdog for permits.
func TestWatchdogKeepsPermits(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	e := &events{}
	c := open(t, server, lock.Config{Watchdog: shortWatchdog, Observer: e})
	s, all := permits(t, c, 2)
	h, err := s.Acquire(t.Context(), 2, lock.Options{})
	require.NoError(t, err)
	require.ErrorIs(t, all.Acquire(t.Context(), 1, 3*shortWatchdog/2), lock.ErrNotAcquired)
	e.await(t, lock.Renewed, 1)
	select {
	case <-h.Lost():
		t.Fatal("a hold that is kept alive was lost")
	default:
	}
	require.NoError(t, h.Release(t.Context()))
	available(t, all, 2)
}

// Permits that are taken stay so when there are fewer than that.
func TestFewerPermitsThanAreHeld(t *testing.T) {
	server := redistest.Start(t)
	ctx := t.Context()
	s, all := permits(t, open(t, server, lock.Config{}), 3)
	a, err := s.Acquire(ctx, 2, lock.Options{Lease: long})
	require.NoError(t, err)
	b, err := s.Acquire(ctx, 1, lock.Options{Lease: long})
	require.NoError(t, err)
	require.NoError(t, s.SetPermits(ctx, 1))
	available(t, all, -2)
	require.NoError(t, a.Extend(ctx, long))
	require.NoError(t, a.Release(ctx))
	available(t, all, 0)
	_, err = s.Acquire(ctx, 1, lock.Options{Lease: long})
	require.ErrorIs(t, err, lock.ErrNotAcquired)
	require.NoError(t, b.Release(ctx))
	available(t, all, 1)
	_, err = s.Delete(ctx)
	require.NoError(t, err)
	require.NoError(t, s.SetPermits(ctx, 1))
	c, err := s.Acquire(ctx, 1, lock.Options{Lease: long})
	require.NoError(t, err)
	_, err = s.Delete(ctx)
	require.NoError(t, err)
	require.NoError(t, s.SetPermits(ctx, 1))
	d, err := s.Acquire(ctx, 1, lock.Options{Lease: long})
	require.NoError(t, err)
	require.ErrorIs(t, c.Release(ctx), lock.ErrNotHeld, "it ended with the semaphore")
	available(t, all, 0)
	require.NoError(t, d.Release(ctx))
}

// A key that is lost alone, by an operator or an eviction, doesn't let too many
// in, nor leave permits behind.
func TestPermitsWhenAKeyIsLost(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t, nil)
	ctx := t.Context()
	s, all := permits(t, open(t, server, lock.Config{}), 3)
	h, err := s.Acquire(ctx, 2, lock.Options{Lease: long})
	require.NoError(t, err)
	require.NoError(t, rdb.Del(ctx, semaphoreKey).Err())
	_, err = s.Acquire(ctx, 1, lock.Options{Lease: long, Wait: lock.Forever})
	require.ErrorIs(t, err, lock.ErrNotSet)
	require.NoError(t, s.SetPermits(ctx, 3))
	available(t, all, 1)
	require.NoError(t, h.Release(ctx), "it is counted")
	available(t, all, 3)

	h, err = s.Acquire(ctx, 2, lock.Options{Lease: long})
	require.NoError(t, err)
	require.NoError(t, rdb.Del(ctx, semaphoreKey+":grants").Err())
	available(t, all, 3)
	require.ErrorIs(t, h.Release(ctx), lock.ErrNotHeld)
	available(t, all, 3)
}

func TestPermitsNeedTheAcksToo(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	_, detach := server.Replica(t)
	c := open(t, server, lock.Config{ReplicaAcks: 1, AckTimeout: attentive})
	s, all := permits(t, c, 2)
	h, err := s.Acquire(t.Context(), 1, lock.Options{Lease: long})
	require.NoError(t, err)
	require.NoError(t, h.Release(t.Context()))
	detach()
	_, err = s.Acquire(t.Context(), 1, lock.Options{Lease: long})
	require.ErrorIs(t, err, lock.ErrNotReplicated)
	require.ErrorIs(t, all.Acquire(t.Context(), 1, 0), lock.ErrNotReplicated)
	available(t, all, 2)
	require.ErrorContains(t, all.AddPermits(t.Context(), 1), "0 of 1 replicas", "what can't be undone is told")
}
