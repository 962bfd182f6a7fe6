package locktests

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// everyLock are locks of each kind, on servers of their own, and who looks whether one
// of them is held.
func everyLock(t *testing.T) (all map[string]lock.Locker, held func() bool) {
	t.Helper()
	var servers []redis.UniversalClient
	for range 3 {
		servers = append(servers, redistest.Start(t).Client(t, nil))
	}
	c := newClient(t, servers[0], lock.Config{})
	redlock, err := lock.NewRedlock(servers, lock.RedlockConfig{NodeTimeout: time.Minute})
	require.NoError(t, err)
	t.Cleanup(redlock.Close)
	require.NoError(t, c.Semaphore("orders").SetPermits(t.Context(), 1))
	all = map[string]lock.Locker{
		"multi":   asOne(t, named(c, "orders", "stock")...),
		"redlock": redlock,
		"client":  c,
	}
	for _, k := range kinds() {
		all[k.name] = k.of(c)
	}
	return all, func() bool {
		for _, s := range servers {
			for _, key := range []string{"lock:{orders}", "lock:{stock}", "lock:{orders}:semaphore:grants"} {
				if s.Exists(t.Context(), key).Val() > 0 {
					return true
				}
			}
		}
		return false
	}
}

// A release whose caller is being cancelled is carried out all the same, and its
// repetition says so.
func TestReleaseWithACancelledContext(t *testing.T) {
	t.Parallel()
	kinds, held := everyLock(t)
	for name, l := range kinds {
		t.Run(name, func(t *testing.T) {
			h := acquire(t, l, "", long)
			require.True(t, held())
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			require.ErrorIs(t, h.Release(ctx), context.Canceled)
			redistest.Await(t, "the release", func() bool { return !held() })
			require.NoError(t, h.Release(t.Context()), "it was released")
			require.ErrorIs(t, h.Release(t.Context()), lock.ErrNotHeld)
		})
	}
}

// Close awaits the releases whose callers had no time.
func TestCloseAwaitsReleases(t *testing.T) {
	s := redistest.Start(t)
	c := open(t, s, lock.Config{})
	h := acquire(t, c, "", long)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, h.Release(ctx), context.Canceled)
	c.Close()
	require.Empty(t, keysLeft(t, s.Client(t, nil)))
}
