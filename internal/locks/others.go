package locks

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
	client "github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockchaos/lockchaos/adapters/etcd"
	"github.com/lockchaos/lockchaos/adapters/redislock"
	"github.com/lockchaos/lockchaos/adapters/redsync"
	"github.com/lockchaos/lockchaos/adapters/rueidis"
	"github.com/lockchaos/lockchaos/adapters/zookeeper"
	"github.com/lockchaos/lockchaos/driver"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/promises"
	"github.com/lockchaos/lockchaos/topologies"
)

// foreign is a lock of another project that is tested by what it says of itself. It has what those of its library have.
func foreign(of harness.LockSpec, name, about string, open harness.Opener) harness.LockSpec {
	of.Name, of.About, of.Open, of.Foreign = name, about, open, true
	return of
}

// others are the locks of other projects, on Redis.
func others() harness.Locks {
	ofRedislock := harness.LockSpec{Promises: promises.Full(promises.Promises{}), Key: redislock.Key, Lease: redislock.DefaultLease}
	ofRedsync := harness.LockSpec{Promises: promises.Full(promises.Promises{Quorum: true}), Key: redsync.Key, Lease: redsync.DefaultLease, Commands: keyAndScript()}
	ofRueidis := harness.LockSpec{Promises: promises.Promises{Extend: true, Lost: true, Wait: true}, Single: true, Caches: true}
	backoff := func() bsm.RetryStrategy { return bsm.ExponentialBackoff(16*time.Millisecond, 512*time.Millisecond) }
	return harness.Locks{
		foreign(ofRedislock, "redislock", "github.com/bsm/redislock: one key, with waiters that poll every 100ms", openRedislock(nil)),
		foreign(ofRedislock, "redislock-backoff", "as redislock, with waiters whose pauses double from 16ms to 512ms (its ExponentialBackoff)", openRedislock(backoff)),
		foreign(ofRedsync, "redsync", "github.com/go-redsync/redsync: one key on each server, with waiters that poll every 50 to 250ms", openRedsync(redsync.Config{})),
		foreign(ofRedsync, "redsync-failfast", "as redsync, but it continues as soon as a majority has answered", openRedsync(redsync.Config{FailFast: true})),
		foreign(ofRueidis, "rueidislock", "github.com/redis/rueidis/rueidislock: one key, with waiters that are notified by client-side caching", openRueidislock(false)),
		foreign(ofRueidis, "rueidislock-noloop", "as rueidislock, without notifications of its own changes", openRueidislock(true)),
	}
}

// keyAndScript are the commands of a lock that sets a key and runs scripts.
func keyAndScript() []string { return []string{"SET", "EVALSHA"} }

// openRedislock waits by retry, which makes a strategy for each wait; nil: the pauses of
// 100ms in the library's own example.
func openRedislock(retry func() bsm.RetryStrategy) harness.Opener {
	return func(servers []redis.UniversalClient, _ harness.LockOptions) (lock.Locker, func(), error) {
		return redislock.New(servers[0], retry), func() {}, nil
	}
}

// openRedsync is for one server and for several.
func openRedsync(c redsync.Config) harness.Opener {
	return func(servers []redis.UniversalClient, _ harness.LockOptions) (lock.Locker, func(), error) {
		return redsync.New(servers, c), func() {}, nil
	}
}

// rueidisPatience is how long a request of rueidislock may take. Its own 20ms
// are too short for a machine that is busy.
const rueidisPatience = time.Second

// openRueidislock gives it a connection of its own, by the way that ours takes. It
// has one key: on one server, a majority of several would be no safer.
func openRueidislock(noLoop bool) harness.Opener {
	return func(servers []redis.UniversalClient, o harness.LockOptions) (lock.Locker, func(), error) {
		one, _ := servers[0].(*redis.Client) // it is on a single server only
		ours := one.Options()
		l, err := rueidis.New(rueidislock.LockerOption{
			ClientOption: client.ClientOption{
				InitAddress: []string{ours.Addr}, Username: ours.Username, Password: ours.Password, DisableRetry: true,
				DialCtxFn: func(ctx context.Context, _ string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
					return ours.Dialer(ctx, "tcp", ours.Addr)
				},
			},
			KeyMajority: 1, KeyValidity: o.Watchdog, TryNextAfter: rueidisPatience, NoLoopTracking: noLoop,
		})
		if err != nil {
			return nil, nil, err
		}
		return l, l.Close, nil
	}
}

// onEtcd are the locks on etcd; that which is deaf has a planted bug.
func onEtcd() harness.Locks {
	of := harness.LockSpec{Promises: promises.Full(promises.Promises{Store: topologies.StoreEtcd, Token: true})}
	return harness.Locks{
		foreign(of, "etcd-mutex", "the mutex of go.etcd.io/etcd/client/v3/concurrency: held until its session says that it is lost; --watchdog is the session's TTL", openEtcd(etcd.New, false)),
		foreign(of, "etcd-mutex-leased", "as etcd-mutex, but a holder stops by its own clock, a TTL after it sent the renewal that was acknowledged last", openEtcd(etcd.NewLeased, true)),
		foreign(of, "broken-etcd-deaf", "planted bug: as etcd-mutex, but a holder does not heed that its session has ended", openEtcd(etcd.NewDeaf, false)),
	}
}

func openEtcd(open func(*clientv3.Client, time.Duration) *etcd.Locker, leased bool) harness.Opener {
	return onMembers(leased, func(members []string, o harness.LockOptions) (lock.Locker, func(), error) {
		c, err := etcd.DialWith(o.At.Dial, members...)
		if err != nil {
			return nil, nil, err
		}
		l := open(c, o.Watchdog)
		return l, func() {
			l.Close()
			if err := c.Close(); err != nil && o.Unclosed != nil {
				o.Unclosed(err)
			}
		}, nil
	})
}

// onMembers opens a lock on the members of its store that the clients of a zone know. Unless it is leased, it is asked for no
// leases, of which it knows none but its session's.
func onMembers(leased bool, open func(members []string, o harness.LockOptions) (lock.Locker, func(), error)) harness.Opener {
	return func(_ []redis.UniversalClient, o harness.LockOptions) (lock.Locker, func(), error) {
		if o.At == nil || o.At.Dial == nil {
			return nil, nil, errors.New("a lock on another store is opened in a run, which says where the members are")
		}
		l, end, err := open(names.Of(o.At.Servers, func(s driver.Server) string { return s.Addr }), o)
		if err != nil || leased {
			return l, end, err
		}
		return lock.LockerFunc(func(ctx context.Context, name string, asked lock.Options) (*lock.Hold, error) {
			asked.Lease = 0
			return l.Acquire(ctx, name, asked)
		}), end, nil
	}
}

// onZooKeeper are the locks on ZooKeeper; that which is hasty has a planted bug.
func onZooKeeper() harness.Locks {
	of := harness.LockSpec{Promises: promises.Full(promises.Promises{Store: topologies.StoreZooKeeper, Token: true})}
	return harness.Locks{
		foreign(of, "zookeeper-lock", "the lock recipe of ZooKeeper with github.com/go-zookeeper/zk: held until the client is disconnected; --watchdog is the session's timeout", openZooKeeper(zookeeper.Disconnected, zookeeper.Open)),
		foreign(of, "zookeeper-lock-expired", "as zookeeper-lock, but a holder that is disconnected goes on until it is told that its session has expired", openZooKeeper(zookeeper.Expired, zookeeper.Open)),
		foreign(of, "zookeeper-lock-leased", "as zookeeper-lock, but a holder stops also by its own clock, a timeout after it sent the renewal that was acknowledged last", openZooKeeper(zookeeper.Leased, zookeeper.Open)),
		foreign(of, "broken-zookeeper-hasty", "planted bug: as zookeeper-lock, but a waiter takes the lock when the node before its own is gone, though it may not be the lowest", openZooKeeper(zookeeper.Disconnected, zookeeper.OpenHasty)),
	}
}

func openZooKeeper(heed zookeeper.Heed, open func(zookeeper.Config) (*zookeeper.Locker, error)) harness.Opener {
	return onMembers(heed == zookeeper.Leased, func(members []string, o harness.LockOptions) (lock.Locker, func(), error) {
		l, err := open(zookeeper.Config{TTL: o.Watchdog, Heed: heed, Dial: o.At.Dial, Servers: members})
		if err != nil {
			return nil, nil, err
		}
		return l, l.Close, nil
	})
}
