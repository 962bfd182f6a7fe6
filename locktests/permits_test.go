package locktests

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

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
