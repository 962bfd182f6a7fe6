// Command go is a driver for locks in Go: copy it, and open your own lock.
//
//	go build -o driver ./drivers/go
//	lockchaos run --lock 'exec:./driver' --topology sentinel
//	lockchaos run --lock 'exec:./driver rw'
//	lockchaos run --lock 'exec:./driver semaphore'
//
// A lock in Go that lockchaos can import needs no driver: see [lock.Locker].
package main

import (
	"cmp"
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
	kind := "mutex"
	if len(os.Args) > 1 {
		kind = os.Args[1]
	}
	if err := serve(kind); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func serve(kind string) error {
	return driver.Serve(context.Background(), driver.Hello{
		Name: "lockchaos/lock", Version: "1", Language: "go", Parallel: 64,
		Promises: promises.Promises{
			Kind: kind, Extend: true, Lost: true, Wait: true, Cancel: true, Watchdog: true, ReleaseTells: true,
			Reentrant: kind == "rw", Downgrades: kind == "rw", Several: kind == "semaphore",
		},
		Keys: []string{"{{name}}"}, WatchdogMS: watchdog.Milliseconds(),
	}, open)
}

// watchdog is the lease of a watchdog where --watchdog does not say another: of one of half a minute, a run of 20 s sees no renewal.
const watchdog = 3 * time.Second

// A service is the locks of a client, by what they are asked for.
type service struct{ *lock.Client }

// Acquire asks for a mutex.
func (s service) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	return s.Mutex(name).Acquire(ctx, o)
}

// Ask asks for a lock that is no mutex.
func (s service) Ask(ctx context.Context, name string, w driver.Way, o lock.Options) (*lock.Hold, error) {
	switch {
	case w.Permits > 0:
		permits := s.PermitSemaphore(name)
		if _, err := permits.TrySetPermits(ctx, w.Capacity); err != nil { // it has been made already, but for the first time
			return nil, err
		}
		return permits.Acquire(ctx, w.Permits, o)
	case w.Mode == "read":
		return s.RWMutex(name, lock.RWOptions{}).Read().Acquire(ctx, o)
	case w.Mode == "write":
		return s.RWMutex(name, lock.RWOptions{}).Write().Acquire(ctx, o)
	default:
		return s.Acquire(ctx, name, o)
	}
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
	client, err := lock.New(rdb, lock.Config{Watchdog: cmp.Or(s.Watchdog, watchdog)})
	if err != nil {
		return nil, nil, err
	}
	return service{client}, func() { //nolint:contextcheck // an end bounds itself
		client.Close()
		_ = rdb.Close()
	}, nil
}
