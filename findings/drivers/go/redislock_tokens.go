//go:build ignore

// redislock with go-redis v9, on one server. The token of each client is its own name, as that of a job or a host may be.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

func main() {
	serve("github.com/bsm/redislock", fields{"extend": true, "release_tells": true}, func(servers []string, timeout time.Duration) asker {
		locks := redislock.New(redis.NewClient(&redis.Options{
			Addr: servers[0], MaxRetries: -1, DialTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout,
		}))
		return func(ctx context.Context, client, name string, lease time.Duration) (grant, error) {
			l, err := locks.Obtain(ctx, name, lease, &redislock.Options{Token: client})
			if err != nil {
				return grant{}, outcome(err)
			}
			return grant{
				release: func(ctx context.Context) error { return outcome(l.Release(ctx)) },
				extend:  func(ctx context.Context, d time.Duration) error { return outcome(l.Refresh(ctx, d, nil)) },
			}, nil
		}
	})
}

// outcome is errNo where the server said that the lock is another's, or gone.
func outcome(err error) error {
	if errors.Is(err, redislock.ErrNotObtained) || errors.Is(err, redislock.ErrLockNotHeld) {
		return errNo
	}
	return err
}
