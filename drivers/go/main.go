// Command go is a driver for locks in Go: copy it, and open your own lock.
//
//	go build -o driver ./drivers/go
//	lockchaos run --lock 'exec:./driver' --topology sentinel
//
// A lock in Go that lockchaos can import needs no driver: see [lock.Locker].
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/driver"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/promises"
)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func serve() error {
	return driver.Serve(context.Background(), driver.Hello{
		Name: "lockchaos/lock", Version: "1", Language: "go", Parallel: 64,
		Promises: promises.Promises{Extend: true, Lost: true, Wait: true, Watchdog: true, ReleaseTells: true},
		Keys:     []string{"{{name}}"},
	}, open)
}

// open connects as the service does, and makes its lock.
func open(_ context.Context, s driver.Session) (lock.Locker, func(), error) {
	o := &redis.UniversalOptions{
		MasterName: s.Master, IsClusterMode: s.Topology == "cluster",
		DialTimeout: s.Timeout, ReadTimeout: s.Timeout, WriteTimeout: s.Timeout,
		MaxRetries: -1, ContextTimeoutEnabled: true,
		Password: os.Getenv("LOCKCHAOS_REDIS_PASSWORD"),
	}
	for _, server := range s.Servers {
		o.Addrs = append(o.Addrs, server.Addr)
	}
	rdb := redis.NewUniversalClient(o)
	// Of a watchdog whose lease is half a minute, a run of 20 s sees no renewal.
	client, err := lock.New(rdb, lock.Config{Watchdog: 3 * time.Second})
	if err != nil {
		return nil, nil, err
	}
	mutex := lock.LockerFunc(func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
		return client.Mutex(name).Acquire(ctx, o)
	})
	return mutex, func() { //nolint:contextcheck // an end bounds itself
		client.Close()
		_ = rdb.Close()
	}, nil
}
