package scenarios

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

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/adapters/redislock"
	"github.com/lockchaos/lockchaos/lock/adapters/redsync"
	"github.com/lockchaos/lockchaos/lock/adapters/rueidis"
	"github.com/lockchaos/lockchaos/topologies"
)

// Open makes the lock for one client, on connections as [topologies.Clients]
// makes them. The function that it returns closes the lock, and not the
// connections.
func (l Lock) Open(servers []redis.UniversalClient, o LockOptions) (lock.Locker, func(), error) {
	return l.open(servers, o)
}

// openRedislock is for the waits of the library's own example.
func openRedislock(servers []redis.UniversalClient, _ LockOptions) (lock.Locker, func(), error) {
	return redislock.New(servers[0], func() bsm.RetryStrategy { return bsm.LinearBackoff(100 * time.Millisecond) }), func() {}, nil
}

// openRedsync is for one server and for several.
func openRedsync(c redsync.Config) func([]redis.UniversalClient, LockOptions) (lock.Locker, func(), error) {
	return func(servers []redis.UniversalClient, _ LockOptions) (lock.Locker, func(), error) {
		return redsync.New(servers, c), func() {}, nil
	}
}

// rueidisPatience is how long a request of rueidislock may take. Its own 20ms
// are too short for a machine that is busy.
const rueidisPatience = time.Second

// openRueidislock gives it a connection of its own, by the way that ours takes. It
// has one key: on one server, a majority of several would be no safer.
func openRueidislock(noLoop bool) func([]redis.UniversalClient, LockOptions) (lock.Locker, func(), error) {
	return func(servers []redis.UniversalClient, o LockOptions) (lock.Locker, func(), error) {
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

// Exclusive says that one owner at a time holds the lock, in whatever way it is
// asked for.
func (l Lock) Exclusive() bool { return l.kind == "" }

// On says why the lock can't live on a topology of the default size; nil if it can.
func (l Lock) On(topology string) error {
	return LockOptions{}.validate(l, topology, topologies.Options{})
}
