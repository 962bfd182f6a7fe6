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
