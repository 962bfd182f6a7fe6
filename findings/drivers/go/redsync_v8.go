//go:build ignore

// redsync v4.0 with go-redis v8, on one server.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-redis/redis/v8"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v8"
)

func main() {
	serve("github.com/go-redsync/redsync/v4", fields{"extend": true, "release_tells": true}, func(servers []string, timeout time.Duration) asker {
		rs := redsync.New(goredis.NewPool(redis.NewClient(&redis.Options{
			Addr: servers[0], MaxRetries: -1, DialTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout,
		})))
		return func(ctx context.Context, _, name string, lease time.Duration) (grant, error) {
			m := rs.NewMutex(name, redsync.WithExpiry(lease), redsync.WithTries(1))
			if err := m.LockContext(ctx); errors.Is(err, redsync.ErrFailed) {
				return grant{}, errNo
			} else if err != nil {
				return grant{}, err
			}
			return grant{
				release: func(ctx context.Context) error { return outcome(m.UnlockContext(ctx)) },
				extend:  func(ctx context.Context, _ time.Duration) error { return outcome(m.ExtendContext(ctx)) },
			}, nil
		}
	})
}

// outcome: on one server, false without an error is a refusal.
func outcome(ok bool, err error) error {
	if !ok && err == nil {
		return errNo
	}
	return err
}
