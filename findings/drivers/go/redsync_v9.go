//go:build ignore

// redsync with go-redis v9. The argument: setnx, on one server with WithSetNXOnExtend; or quorum, on several servers that know
// nothing of each other.
package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/go-redsync/redsync/v4"
	lib "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

func main() {
	setnx := os.Args[1] == "setnx"
	serve("github.com/go-redsync/redsync/v4", fields{"extend": true, "release_tells": setnx, "quorum": !setnx}, func(servers []string, timeout time.Duration) asker {
		var pools []lib.Pool
		for _, s := range servers {
			pools = append(pools, goredis.NewPool(redis.NewClient(&redis.Options{
				Addr: s, MaxRetries: -1, DialTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout,
			})))
		}
		rs := redsync.New(pools...)
		return func(ctx context.Context, _, name string, lease time.Duration) (grant, error) {
			options := []redsync.Option{redsync.WithExpiry(lease), redsync.WithTries(1)}
			if setnx {
				options = append(options, redsync.WithSetNXOnExtend())
			}
			m := rs.NewMutex(name, options...)
			if err := m.LockContext(ctx); err != nil {
				return grant{}, outcome(setnx, false, err)
			}
			return grant{
				until:   m.Until,
				release: func(ctx context.Context) error { ok, err := m.UnlockContext(ctx); return outcome(setnx, ok, err) },
				extend: func(ctx context.Context, _ time.Duration) error {
					ok, err := m.ExtendContext(ctx)
					return outcome(setnx, ok, err)
				},
			}, nil
		}
	})
}

// outcome is errNo where the one server said that the lock is another's, or gone. On several, false without an error is no majority.
func outcome(one, ok bool, err error) error {
	var taken *redsync.ErrTaken
	var node *redsync.ErrNodeTaken
	switch {
	case one && (errors.As(err, &taken) || errors.As(err, &node) || errors.Is(err, redsync.ErrLockAlreadyExpired)):
		return errNo
	case err == nil && !ok && !one:
		return errors.New("no majority")
	default:
		return err
	}
}
