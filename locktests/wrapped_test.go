package locktests

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// A Redis client that is wrapped keeps locks as a plain one does: nothing stays behind, and a lock is handed over
// by the release.
func TestWrappedRedisClients(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(*redis.Client) redis.UniversalClient{
		"embedded":  func(c *redis.Client) redis.UniversalClient { return struct{ *redis.Client }{c} },
		"interface": func(c *redis.Client) redis.UniversalClient { return struct{ redis.UniversalClient }{c} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			rdb := s.Client(t, nil)
			holder, waiter := newClient(t, wrap(s.Client(t, nil)), lock.Config{}), newClient(t, wrap(s.Client(t, nil)), lock.Config{})
			for _, l := range []lock.Locker{holder, holder.Fenced(), holder.Spin(lock.Backoff{})} {
				require.NoError(t, acquire(t, l, "a", long).Release(t.Context()))
			}
			require.NoError(t, rdb.Del(t.Context(), tokenKey).Err())
			require.Empty(t, rdb.Keys(t.Context(), "*").Val(), "no mark is needed")
			for range 3 { // after the first time the waiter is subscribed
				h := acquire(t, holder, "a", long)
				holds := granting(t.Context(), t, waiter, lock.Options{Owner: "b", Wait: lock.Forever})
				queued(t, rdb, 1)
				var next *lock.Hold
				soonerThan(t, rdb, beforePoll, "it was not handed over", func() {
					require.NoError(t, h.Release(t.Context()))
					next = <-holds
					require.NotNil(t, next)
				})
				require.NoError(t, next.Release(t.Context()))
			}
			require.Empty(t, keysLeft(t, rdb))
		})
	}
}
