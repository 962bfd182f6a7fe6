package locks

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock"
)

// heldOn reports whether a server says that the owner holds the mutex. A
// cluster's replica says what it knows, instead of naming its master.
func heldOn(ctx context.Context, server *redis.Client, name, owner string) (bool, error) {
	o := *server.Options()
	o.OnConnect = func(ctx context.Context, c *redis.Conn) error {
		_ = c.ReadOnly(ctx).Err() // only a cluster's nodes know it
		return nil
	}
	rdb := redis.NewClient(&o)
	defer rdb.Close()
	rdb.AddHook(readOnly{})
	c, err := lock.New(rdb, lock.Config{Prefix: prefix})
	if err != nil {
		return false, err
	}
	defer c.Close() //nolint:contextcheck // it bounds itself
	return c.Mutex(name).IsHeldBy(ctx, owner)
}

// readOnly says of every script that it writes nothing: else a cluster's replica
// names its master instead of running it.
type readOnly struct{}

// DialHook changes nothing.
func (readOnly) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook makes EVAL and EVALSHA their read-only forms.
func (readOnly) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		makeReadOnly(cmd)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook does so for all commands of a pipeline.
func (readOnly) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			makeReadOnly(cmd)
		}
		return next(ctx, cmds)
	}
}

func makeReadOnly(cmd redis.Cmder) {
	if name := cmd.Name(); name == "eval" || name == "evalsha" {
		cmd.Args()[0] = name + "_ro"
	}
}
