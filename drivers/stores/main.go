// Command stores is a driver for locks on etcd and on ZooKeeper: copy it, and open your own lock.
//
//	go build -o driver ./drivers/stores
//	lockchaos driver check -- ./driver etcd
//	lockchaos run --lock 'exec:./driver zookeeper' --topology zookeeper
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/lockchaos/lockchaos/adapters/etcd"
	"github.com/lockchaos/lockchaos/adapters/zookeeper"
	"github.com/lockchaos/lockchaos/driver"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/promises"
)

// sessionTTL is that of a session where --watchdog does not say another.
const sessionTTL = 5 * time.Second

func main() {
	if err := serve(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func serve(args []string) error {
	open := map[string]func(driver.Session, []string) (lock.Locker, func(), error){
		driver.KindEtcd: onEtcd, driver.KindZooKeeper: onZooKeeper,
	}
	if len(args) != 1 || open[args[0]] == nil {
		return errors.New("name the store: etcd or zookeeper")
	}
	return driver.Serve(context.Background(), driver.Hello{
		Name: args[0] + " in Go", Version: "1", Language: "go", Parallel: 64,
		Promises: promises.Promises{Store: args[0], Lost: true, Token: true, Wait: true, Cancel: true, Watchdog: true, ReleaseTells: true},
		WatchdogMS: sessionTTL.Milliseconds(),
	}, func(_ context.Context, s driver.Session) (lock.Locker, func(), error) {
		var members []string
		for _, server := range s.Servers {
			members = append(members, server.Addr)
		}
		return open[args[0]](s, members)
	})
}

func onEtcd(s driver.Session, members []string) (lock.Locker, func(), error) {
	c, err := etcd.DialWith((&net.Dialer{Timeout: s.Timeout}).DialContext, members...) // else the library dials again after up to two minutes
	if err != nil {
		return nil, nil, err
	}
	l := etcd.New(c, cmp.Or(s.Watchdog, sessionTTL))
	return bounded(l, s.Timeout), func() {
		l.Close()
		_ = c.Close()
	}, nil
}

func onZooKeeper(s driver.Session, members []string) (lock.Locker, func(), error) {
	l, err := zookeeper.Open(zookeeper.Config{Servers: members, TTL: cmp.Or(s.Watchdog, sessionTTL), Heed: zookeeper.Disconnected})
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
