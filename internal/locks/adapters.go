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

	"github.com/lockchaos/lockchaos/adapters/redislock"
	"github.com/lockchaos/lockchaos/adapters/redsync"
	"github.com/lockchaos/lockchaos/adapters/rueidis"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/promises"
)

// others are the locks of other projects.
func others() harness.Locks {
	return harness.Locks{
		{
			Name: "redislock", Promises: promises.Full(promises.Promises{}),
			Key: redislock.Key, Foreign: true, Lease: redislock.DefaultLease,
			About: "github.com/bsm/redislock: one key, with waiters that poll every 100ms",
			Open:  openRedislock(nil),
		},
		{
			Name: "redislock-backoff", Promises: promises.Full(promises.Promises{}),
			Key: redislock.Key, Foreign: true, Lease: redislock.DefaultLease,
			About: "as redislock, with waiters whose pauses double from 16ms to 512ms (its ExponentialBackoff)",
			Open:  openRedislock(func() bsm.RetryStrategy { return bsm.ExponentialBackoff(16*time.Millisecond, 512*time.Millisecond) }),
		},
		{
			Name: "redsync", Promises: promises.Full(promises.Promises{Quorum: true}),
			Key: redsync.Key, Foreign: true, Lease: redsync.DefaultLease, Commands: keyAndScript(),
			About: "github.com/go-redsync/redsync: one key on each server, with waiters that poll every 50 to 250ms",
			Open:  openRedsync(redsync.Config{}),
		},
		{
			Name: "redsync-failfast", Promises: promises.Full(promises.Promises{Quorum: true}),
			Key: redsync.Key, Foreign: true, Lease: redsync.DefaultLease, Commands: keyAndScript(),
			About: "as redsync, but it continues as soon as a majority has answered",
			Open:  openRedsync(redsync.Config{FailFast: true}),
		},
		{
			Name: "rueidislock", Promises: promises.Promises{Extend: true, Lost: true, Wait: true},
			Single: true, Foreign: true, Caches: true,
			About: "github.com/redis/rueidis/rueidislock: one key, with waiters that are notified by client-side caching",
			Open:  openRueidislock(false),
		},
		{
			Name: "rueidislock-noloop", Promises: promises.Promises{Extend: true, Lost: true, Wait: true},
			Single: true, Foreign: true, Caches: true,
			About: "as rueidislock, without notifications of its own changes",
			Open:  openRueidislock(true),
		},
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
		one, ok := servers[0].(*redis.Client)
		if !ok {
			return nil, nil, errors.New("rueidislock is put under test on a single server only")
		}
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
