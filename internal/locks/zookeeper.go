package locks

import (
	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/adapters/zookeeper"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/promises"
	"github.com/lockchaos/lockchaos/topologies"
)

// onZooKeeper are the locks on ZooKeeper.
func onZooKeeper() harness.Locks {
	return harness.Locks{
		{
			Name: "zookeeper-lock", Promises: promises.Full(promises.Promises{Store: topologies.StoreZooKeeper, Token: true}),
			Foreign: true,
			About:   "the lock recipe of ZooKeeper with github.com/go-zookeeper/zk: held until the client is disconnected; --watchdog is the session's timeout",
			Open:    openZooKeeper(zookeeper.Disconnected, zookeeper.Open),
		},
		{
			Name: "zookeeper-lock-expired", Promises: promises.Full(promises.Promises{Store: topologies.StoreZooKeeper, Token: true}),
			Foreign: true,
			About:   "as zookeeper-lock, but a holder that is disconnected goes on until it is told that its session has expired",
			Open:    openZooKeeper(zookeeper.Expired, zookeeper.Open),
		},
		{
			Name: "zookeeper-lock-leased", Promises: promises.Full(promises.Promises{Store: topologies.StoreZooKeeper, Token: true}),
			Foreign: true,
			About:   "as zookeeper-lock, but a holder stops also by its own clock, a timeout after it sent the renewal that was acknowledged last",
			Open:    openZooKeeper(zookeeper.Leased, zookeeper.Open),
		},
	}
}

// openZooKeeper opens a lock on the members that the clients of a zone know.
func openZooKeeper(heed zookeeper.Heed, open func(zookeeper.Config) (*zookeeper.Locker, error)) harness.Opener {
	return func(_ []redis.UniversalClient, o harness.LockOptions) (lock.Locker, func(), error) {
		servers, err := members(o)
		if err != nil {
			return nil, nil, err
		}
		l, err := open(zookeeper.Config{TTL: o.Watchdog, Heed: heed, Dial: o.At.Dial, Servers: servers})
		if err != nil {
			return nil, nil, err
		}
		return sessionLock(l, heed == zookeeper.Leased), l.Close, nil
	}
}
