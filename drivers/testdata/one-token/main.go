// Command one-token is a driver with a planted bug: all clients of its process share one
// token, so that each of them releases what another one holds.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/chaos"
	"github.com/lockchaos/lockchaos/driver"
	"github.com/lockchaos/lockchaos/lock"
)

func main() {
	err := driver.Serve(context.Background(), driver.Hello{
		Name: "one-token", Version: "1", Language: "go", Parallel: 64,
		Promises: driver.Promises{Lost: true, ReleaseTells: true}, Keys: []string{"{name}"},
	}, open)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

const releaseLua = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`

func open(_ context.Context, s driver.Session) (lock.Locker, func(), error) {
	rdb := redis.NewClient(&redis.Options{
		Addr: s.Servers[0].Addr, MaxRetries: -1, ContextTimeoutEnabled: true,
		DialTimeout: s.Timeout, ReadTimeout: s.Timeout, WriteTimeout: s.Timeout,
	})
	token := rand.Text()
	release := func(ctx context.Context, name string) error {
		n, err := rdb.Eval(ctx, releaseLua, []string{name}, token).Int()
		if err == nil && n == 0 {
			return lock.ErrNotHeld
		}
		return err
	}
	mutex := chaos.Tries(func(ctx context.Context, name string, lease time.Duration) (chaos.Grant, error) {
		ok, err := rdb.SetNX(ctx, name, token, lease).Result()
		if err == nil && !ok {
			err = lock.ErrNotAcquired
		}
		return chaos.Grant{Release: func(ctx context.Context) error { return release(ctx, name) }}, err
	})
	return mutex, func() { _ = rdb.Close() }, nil
}
