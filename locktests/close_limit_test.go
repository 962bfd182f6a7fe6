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

// Close has a bound of its own, whatever requests a silent server has not answered.
func TestCloseIsBounded(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	sent := make(chan struct{}, 100)
	c := newClient(t, rdb, lock.Config{})
	h := acquire(t, c, "a", long)
	rdb.AddHook(hook(func(ctx context.Context, cmds []redis.Cmder, next send) error {
		sent <- struct{}{}
		return next(ctx, cmds)
	}))
	resume := s.Pause(t)
	released := make(chan error, 1)
	go func() { released <- h.Release(context.Background()) }() // a context that can't end
	<-sent
	closing := time.Now()
	c.Close()
	require.Less(t, time.Since(closing), 20*time.Second, "the timeouts of go-redis, with all repetitions, take 35s")
	resume()
	require.NoError(t, <-released, "it goes on")
}
