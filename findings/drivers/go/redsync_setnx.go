//go:build ignore

// redsync with go-redis v9 and WithSetNXOnExtend, on one server.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

func main() {
	serve("redsync", fields{"extend": true, "release_tells": true}, func(servers []string, timeout time.Duration) func(context.Context, string, time.Duration) (grant, error) {
		rs := redsync.New(goredis.NewPool(redis.NewClient(&redis.Options{
			Addr: servers[0], MaxRetries: -1, DialTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout,
		})))
		return func(ctx context.Context, name string, lease time.Duration) (grant, error) {
			m := rs.NewMutex(name, redsync.WithExpiry(lease), redsync.WithTries(1), redsync.WithSetNXOnExtend())
			if err := m.LockContext(ctx); err != nil {
				return grant{}, outcome(err)
			}
			return grant{
				release: func(ctx context.Context) error { _, err := m.UnlockContext(ctx); return outcome(err) },
				extend:  func(ctx context.Context, _ time.Duration) error { _, err := m.ExtendContext(ctx); return outcome(err) },
			}, nil
		}
	})
}

// outcome is errNo where the server said that the lock is another's, or gone.
func outcome(err error) error {
	var taken *redsync.ErrTaken
	var node *redsync.ErrNodeTaken
	if errors.As(err, &taken) || errors.As(err, &node) || errors.Is(err, redsync.ErrLockAlreadyExpired) {
		return errNo
	}
	return err
}
