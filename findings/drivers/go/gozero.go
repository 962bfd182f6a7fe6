//go:build ignore

// RedisLock of go-zero, on one server. An extension is another Acquire, as its maintainers say. It counts in whole seconds.
package main

import (
	"context"
	"time"

	"github.com/zeromicro/go-zero/core/logx"
	"github.com/zeromicro/go-zero/core/stores/redis"
)

func main() {
	logx.Disable()
	serve("github.com/zeromicro/go-zero", fields{"extend": true, "release_tells": true}, func(servers []string, _ time.Duration) asker {
		store, err := redis.NewRedis(redis.RedisConf{Host: servers[0], Type: redis.NodeType, NonBlock: true})
		if err != nil {
			panic(err)
		}
		return func(ctx context.Context, _, name string, lease time.Duration) (grant, error) {
			l := redis.NewRedisLock(store, name)
			acquire := func(ctx context.Context, lease time.Duration) error {
				l.SetExpire(int(lease / time.Second))
				return outcome(l.AcquireCtx(ctx))
			}
			if err := acquire(ctx, lease); err != nil {
				return grant{}, err
			}
			return grant{
				release: func(ctx context.Context) error { return outcome(l.ReleaseCtx(ctx)) },
				extend:  acquire,
			}, nil
		}
	})
}

func outcome(ok bool, err error) error {
	if err == nil && !ok {
		return errNo
	}
	return err
}
