package transport

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock/internal/require"
)

type idleHook struct{}

func (idleHook) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (idleHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (idleHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return next(ctx, cmds) }
}

// A clone with a short timeout is used only for a Redis client that has no hooks, which this version of go-redis
// keeps where hooksOf looks for them.
func TestHooksAreSeen(t *testing.T) {
	t.Parallel()
	for name, rdb := range map[string]*redis.Client{
		"one server": redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}),
		"Sentinel":   redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}}),
	} {
		before := hooksOf(rdb)
		require.True(t, before.none(), name)
		rdb.AddHook(idleHook{})
		require.False(t, before.none(), name)
		require.False(t, hooksOf(rdb).none(), name)
		require.NoError(t, rdb.Close())
	}
	require.False(t, hooks{}.none())
}
