// Command go is a driver for locks in Go: copy it, and open your own lock.
//
//	go build -o driver ./drivers/go
//	lockchaos run --lock 'exec:./driver' --topology sentinel
//	lockchaos run --lock 'exec:./driver rw'         # or semaphore
//	lockchaos run --lock 'exec:./driver zookeeper'  # or etcd
//
// A lock in Go that lockchaos can import needs no driver: see [lock.Locker].
package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/adapters/etcd"
	"github.com/lockchaos/lockchaos/adapters/zookeeper"
	"github.com/lockchaos/lockchaos/driver"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/promises"
)

// watchdog is the lease of a watchdog, and the time to live of a session, where --watchdog does not say another: of one of half
// a minute, a run of 20 s sees no renewal.
const watchdog = 3 * time.Second

func main() {
	hello := driver.Hello{
		Name: "lockchaos/lock", Version: "1", Language: "go", Parallel: 64, WatchdogMS: watchdog.Milliseconds(),
		Promises: promises.Full(promises.Promises{Cancel: true, Watchdog: true}),
	}
	p, open := &hello.Promises, onRedis
	kind := append(os.Args, "mutex")[1]
	switch kind {
	case driver.KindEtcd, driver.KindZooKeeper:
		hello.Name, p.Store, p.Extend, p.Token = kind+" in Go", kind, false, true
		open = map[string]func(context.Context, driver.Session) (lock.Locker, func(), error){driver.KindEtcd: onEtcd, driver.KindZooKeeper: onZooKeeper}[kind]
	default:
		hello.Keys, p.Kind, p.Reentrant, p.Downgrades, p.Several = []string{"{{name}}"}, kind, kind == "rw", kind == "rw", kind == "semaphore"
	}
	if err := driver.Serve(context.Background(), hello, open); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

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
		permits := s.Semaphore(name)
		if _, err := permits.TrySetPermits(ctx, w.Capacity); err != nil { // it has been made already, but for the first time
			return nil, err
		}
		return permits.Lease(ctx, w.Permits, o)
	case w.Mode == "read":
		return s.RWMutex(name, lock.RWOptions{}).Read().Acquire(ctx, o)
	case w.Mode == "write":
		return s.RWMutex(name, lock.RWOptions{}).Write().Acquire(ctx, o)
	default:
		return s.Acquire(ctx, name, o)
	}
}

func addresses(s driver.Session) (all []string) {
	for _, server := range s.Servers {
		all = append(all, server.Addr)
	}
	return all
}

// onRedis connects as the service does, and makes its lock.
func onRedis(_ context.Context, s driver.Session) (lock.Locker, func(), error) {
	rdb := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: addresses(s), MasterName: s.Master, IsClusterMode: s.Topology == "cluster",
		DialTimeout: s.Timeout, ReadTimeout: s.Timeout, WriteTimeout: s.Timeout,
		MaxRetries: -1, ContextTimeoutEnabled: true,
		Password: os.Getenv("LOCKCHAOS_REDIS_PASSWORD"),
	})
	client, err := lock.New(rdb, lock.Config{Watchdog: cmp.Or(s.Watchdog, watchdog)})
	if err != nil {
		return nil, nil, err
	}
	return service{client}, func() { //nolint:contextcheck // an end bounds itself
		client.Close()
		_ = rdb.Close()
	}, nil
}

func onEtcd(_ context.Context, s driver.Session) (lock.Locker, func(), error) {
	c, err := etcd.DialWith((&net.Dialer{Timeout: s.Timeout}).DialContext, addresses(s)...) // else the library dials again after up to two minutes
	if err != nil {
		return nil, nil, err
	}
	l := etcd.New(c, cmp.Or(s.Watchdog, watchdog))
	return bounded(l, s.Timeout), func() {
		l.Close()
		_ = c.Close()
	}, nil
}

func onZooKeeper(_ context.Context, s driver.Session) (lock.Locker, func(), error) {
	l, err := zookeeper.Open(zookeeper.Config{Servers: addresses(s), TTL: cmp.Or(s.Watchdog, watchdog), Heed: zookeeper.Disconnected})
	if err != nil {
		return nil, nil, err
	}
	return bounded(l, s.Timeout), l.Close, nil
}

// bounded gives up a request that no server answers in time: both libraries would wait.
func bounded(l lock.Locker, timeout time.Duration) lock.Locker {
	return lock.LockerFunc(func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout+o.Wait)
		defer cancel()
		return l.Acquire(ctx, name, o)
	})
}
