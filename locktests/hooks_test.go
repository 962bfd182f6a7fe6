package locktests

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// send sends commands of a Redis client.
type send func(ctx context.Context, cmds []redis.Cmder) error

// hook is a [redis.Hook] for all that is sent, with or without a pipeline.
type hook func(ctx context.Context, cmds []redis.Cmder, next send) error

func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h(ctx, []redis.Cmder{cmd}, func(ctx context.Context, cmds []redis.Cmder) error {
			for _, cmd := range cmds {
				if err := next(ctx, cmd); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return h(ctx, cmds, send(next)) }
}
