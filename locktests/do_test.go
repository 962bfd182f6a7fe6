package locktests

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

func TestDo(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	c := open(t, s, lock.Config{})
	errWork := errors.New("work")
	locked := func() bool { return rdb.Exists(t.Context(), "lock:{orders}").Val() == 1 }
	do := func(ctx context.Context, f func(context.Context) error) error {
		return lock.Do(ctx, c, "orders", lock.Options{Lease: long}, f)
	}
	require.NoError(t, do(t.Context(), func(ctx context.Context) error {
		require.True(t, locked())
		require.ErrorIs(t, do(ctx, nil), lock.ErrNotAcquired)
		return nil
	}))
	require.False(t, locked())
	require.ErrorIs(t, do(t.Context(), func(context.Context) error { return errWork }), errWork)
	require.Panics(t, func() { _ = do(t.Context(), func(context.Context) error { panic("work") }) })
	require.False(t, locked(), "released after a panic")
	ctx, cancel := context.WithCancel(t.Context())
	require.ErrorIs(t, do(ctx, func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}), context.Canceled)
	require.False(t, locked(), "released after a cancel")
	err := lock.Do(t.Context(), c, "orders", lock.Options{Lease: soonOver}, func(ctx context.Context) error {
		<-ctx.Done()
		return errWork
	})
	require.ErrorIs(t, err, errWork)
	require.ErrorIs(t, err, lock.ErrLost)
}

// Shutdown releases what is held, and ends waits.
func TestShutdownReleasesWhatIsHeld(t *testing.T) {
	t.Parallel()
	kinds, held := everyLock(t)
	for _, name := range []string{"client", "redlock"} {
		l, ok := kinds[name].(interface {
			lock.Locker
			Shutdown(ctx context.Context) error
		})
		require.True(t, ok)
		acquire(t, l, "", long)
		acquire(t, lock.LockerFunc(func(ctx context.Context, _ string, o lock.Options) (*lock.Hold, error) {
			return l.Acquire(ctx, "stock", o)
		}), "", 0)
		waits := waiting(t.Context(), t, l, lock.Options{Wait: lock.Forever})
		require.True(t, held())
		require.NoError(t, l.Shutdown(t.Context()))
		require.ErrorIs(t, <-waits, lock.ErrClosed)
		require.False(t, held())
	}
}

// What may not be in a prefix would make a lock share a key with a lock of another prefix.
func TestPrefixesThatShareNoKeys(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"a:", "a::b", "a:token", "a:tickets", "a:semaphore", "a:latch", "a:election:b", "a:b:released:c"} {
		require.Error(t, lock.Config{Prefix: bad}.Validate(), bad)
	}
	for _, good := range []string{"a:b", "token", "semaphore:a", "a:tokens"} {
		require.NoError(t, lock.Config{Prefix: good}.Validate(), good)
	}
}

func TestOwnerOfALock(t *testing.T) {
	c := open(t, redistest.Start(t), lock.Config{})
	m := c.Mutex("orders")
	owner, err := m.Owner(t.Context())
	require.NoError(t, err)
	require.Empty(t, owner)
	acquire(t, c, "node 7", long)
	owner, err = m.Owner(t.Context())
	require.NoError(t, err)
	require.Equal(t, "node 7", owner)
}
