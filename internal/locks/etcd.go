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
			Open:    openEtcd(asBelieved),
		},
		{
			Name: "etcd-mutex-leased", Promises: promises.Full(promises.Promises{Store: topologies.StoreEtcd, Token: true}),
			Foreign: true,
			About:   "as etcd-mutex, but a holder stops by its own clock, a TTL after it sent the renewal that was acknowledged last",
			Open:    openEtcd(leased),
		},
	}
}

// A heeding is what a holder on etcd takes for the loss of its lock.
type heeding int

const (
	asBelieved heeding = iota // what the library's session says
	leased                    // that, and its own clock
	nothing                   // a planted bug
)

// openEtcd opens a lock on the members that the clients of a zone know.
func openEtcd(heeds heeding) harness.Opener {
	return func(_ []redis.UniversalClient, o harness.LockOptions) (lock.Locker, func(), error) {
		if o.At == nil || o.At.Dial == nil {
			return nil, nil, errors.New("a lock on etcd is opened in a run, which says where the members are")
		}
		var endpoints []string
		for _, server := range o.At.Servers {
			endpoints = append(endpoints, server.Addr)
		}
		c, err := etcd.DialWith(o.At.Dial, endpoints...)
		if err != nil {
			return nil, nil, err
		}
		open := etcd.New
		switch heeds {
		case leased:
			open = etcd.NewLeased
		case nothing:
			open = etcd.NewDeaf
		case asBelieved:
		}
		l := open(c, o.Watchdog)
		end := func() {
			l.Close()
			if err := c.Close(); err != nil && o.Unclosed != nil {
				o.Unclosed(err)
			}
		}
		if heeds == leased {
			return l, end, nil
		}
		return lock.LockerFunc(func(ctx context.Context, name string, asked lock.Options) (*lock.Hold, error) {
			asked.Lease = 0 // the library knows of none but its session's
			return l.Acquire(ctx, name, asked)
		}), end, nil
	}
}
