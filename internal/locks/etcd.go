package locks

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/adapters/etcd"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/promises"
	"github.com/lockchaos/lockchaos/topologies"
)

// onEtcd are the locks on etcd.
func onEtcd() harness.Locks {
	return harness.Locks{
		{
			Name: "etcd-mutex", Promises: promises.Full(promises.Promises{Store: topologies.StoreEtcd, Token: true}),
			Foreign: true,
			About:   "the mutex of go.etcd.io/etcd/client/v3/concurrency: held until its session says that it is lost; --watchdog is the session's TTL",
			Open:    openEtcd(false, false),
		},
		{
			Name: "etcd-mutex-leased", Promises: promises.Full(promises.Promises{Store: topologies.StoreEtcd, Token: true}),
			Foreign: true,
			About:   "as etcd-mutex, but a holder stops by its own clock, a TTL after it sent the renewal that was acknowledged last",
			Open:    openEtcd(true, false),
		},
	}
}

// openEtcd opens a lock on the members that the clients of a zone know. A lock that is leased knows of leases, and not
// of its session's alone; one that is deaf has a planted bug.
func openEtcd(leased, deaf bool) harness.Opener {
	open := etcd.New
	if leased {
		open = etcd.NewLeased
	} else if deaf {
		open = etcd.NewDeaf
	}
	return func(_ []redis.UniversalClient, o harness.LockOptions) (lock.Locker, func(), error) {
		endpoints, err := members(o)
		if err != nil {
			return nil, nil, err
		}
		c, err := etcd.DialWith(o.At.Dial, endpoints...)
		if err != nil {
			return nil, nil, err
		}
		l := open(c, o.Watchdog)
		return sessionLock(l, leased), func() {
			l.Close()
			if err := c.Close(); err != nil && o.Unclosed != nil {
				o.Unclosed(err)
			}
		}, nil
	}
}

// members are the addresses of a store's members, as the clients of a zone know them.
func members(o harness.LockOptions) ([]string, error) {
	if o.At == nil || o.At.Dial == nil {
		return nil, errors.New("a lock on another store is opened in a run, which says where the members are")
	}
	var all []string
	for _, server := range o.At.Servers {
		all = append(all, server.Addr)
	}
	return all, nil
}

// sessionLock asks for no leases, of which a lock knows none but its session's, unless it is leased.
func sessionLock(l lock.Locker, leased bool) lock.Locker {
	if leased {
		return l
	}
	return lock.LockerFunc(func(ctx context.Context, name string, asked lock.Options) (*lock.Hold, error) {
		asked.Lease = 0
		return l.Acquire(ctx, name, asked)
	})
}
