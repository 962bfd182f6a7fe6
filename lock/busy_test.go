package lock_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/internal/redistest"
)

// A server that can't do anything at the moment ends no wait, and no release.
func TestBusyServerIsAwaited(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	busy := func(replicas string) {
		t.Helper()
		require.NoError(t, rdb.ConfigSet(t.Context(), "min-replicas-to-write", replicas).Err())
	}
	refused := func(do func()) { // returns once the server has refused what do began
		t.Helper()
		before := rdb.Info(t.Context(), "errorstats").Val()
		do()
		redistest.Await(t, "a refusal", func() bool { return rdb.Info(t.Context(), "errorstats").Val() != before })
	}
	c := newClient(t, s.Client(t, func(o *redis.Options) { o.MaxRetries = -1 }), lock.Config{})
	warm := acquire(t, c, "a", long)
	require.NoError(t, warm.Release(t.Context()))
	busy("1")
	_, err := c.Acquire(t.Context(), "orders", lock.Options{Lease: long})
	require.ErrorContains(t, err, "NOREPLICAS", "without a wait")
	_, err = c.Acquire(t.Context(), "orders", lock.Options{Lease: long, Wait: 50 * time.Millisecond})
	require.ErrorContains(t, err, "NOREPLICAS", "the wait is over")
	var holds <-chan *lock.Hold
	refused(func() { holds = granting(t.Context(), t, c, lock.Options{Lease: long, Wait: lock.Forever}) })
	busy("0")
	h := <-holds
	require.NotNil(t, h)
	busy("1")
	released := make(chan error, 1)
	refused(func() { go func() { released <- h.Release(t.Context()) }() })
	busy("0")
	require.NoError(t, <-released)
	require.Empty(t, keysLeft(t, rdb))
}
