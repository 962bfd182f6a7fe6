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

// noticing is a hook that says when something is about to be sent.
type noticing struct{ sent chan struct{} }

func (n *noticing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (n *noticing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		n.sent <- struct{}{}
		return next(ctx, cmd)
	}
}

func (n *noticing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		n.sent <- struct{}{}
		return next(ctx, cmds)
	}
}

// Close has a bound of its own, whatever requests a silent server has not answered.
func TestCloseIsBounded(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t, nil)
	hook := &noticing{sent: make(chan struct{}, 100)}
	c := newClient(t, rdb, lock.Config{})
	h := acquire(t, c, "a", long)
	rdb.AddHook(hook)
	resume := s.Pause(t)
	released := make(chan error, 1)
	go func() { released <- h.Release(context.Background()) }() // a context that can't end
	<-hook.sent
	closing := time.Now()
	c.Close()
	require.Less(t, time.Since(closing), 20*time.Second, "the timeouts of go-redis, with all repetitions, take 35s")
	resume()
	require.NoError(t, <-released, "it goes on")
}
