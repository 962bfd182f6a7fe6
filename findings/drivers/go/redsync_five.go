//go:build ignore

// redsync with go-redis v9, on several servers that know nothing of each other.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	lib "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

func main() {
	serve("redsync", fields{"extend": true, "quorum": true}, func(servers []string, timeout time.Duration) func(context.Context, string, time.Duration) (grant, error) {
		var pools []lib.Pool
		for _, s := range servers {
			pools = append(pools, goredis.NewPool(redis.NewClient(&redis.Options{
				Addr: s, MaxRetries: -1, DialTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout,
			})))
		}
		rs := redsync.New(pools...)
		return func(ctx context.Context, name string, lease time.Duration) (grant, error) {
			m := rs.NewMutex(name, redsync.WithExpiry(lease), redsync.WithTries(1))
			if err := m.LockContext(ctx); err != nil {
				return grant{}, err
			}
			return grant{
				release: func(ctx context.Context) error { return outcome(m.UnlockContext(ctx)) },
				extend:  func(ctx context.Context, _ time.Duration) error { return outcome(m.ExtendContext(ctx)) },
			}, nil
		}
	})
}

// outcome: false without an error is no majority.
func outcome(ok bool, err error) error {
	if !ok && err == nil {
		return errors.New("no majority")
	}
	return err
}
