package locks

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/memory"
	"github.com/lockchaos/lockchaos/promises"
)

// own are the locks of package lock and its reference in memory.
func own() harness.Locks {
	return harness.Locks{
		{
			Name: "memory", Promises: promises.Full(promises.Promises{Reentrant: true, Token: true}),
			About:     "a correct lock in the memory of the harness, which no fault reaches: no checker may reject it",
			InProcess: func() lock.Locker { return memory.New() },
		},
		{
			Name: "mutex", Promises: promises.Full(promises.Promises{Reentrant: true, ReplicaAcks: true}),
			HeldOn: heldOn, Subscribes: true, Commands: keyAndScript(),
			About: "lockchaos' own: re-entrant, renewed by a watchdog, with waiters that are notified by pub/sub",
			Open:  ours(func(c *lock.Client) lock.Locker { return c }),
		},
		{
			Name: "mutex-fair", Promises: promises.Full(promises.Promises{Reentrant: true, ReplicaAcks: true, Fair: true, Place: true}),
			Subscribes: true,
			About:      "lockchaos' own, served in the order of arrival",
			Open:       ours(func(c *lock.Client) lock.Locker { return c.Fair() }),
		},
		{
			Name: "mutex-fenced", Promises: promises.Full(promises.Promises{Reentrant: true, ReplicaAcks: true, Token: true}),
			HeldOn: heldOn, Subscribes: true,
			About: "lockchaos' own, with fencing tokens: --fencing makes the resource refuse stale tokens",
			Open:  ours(func(c *lock.Client) lock.Locker { return c.Fenced() }),
		},
		{
			Name: "multilock", Promises: promises.Full(promises.Promises{Reentrant: true, ReplicaAcks: true}),
			Together: true, Subscribes: true, Commands: keyAndScript(),
			About: "lockchaos' own: several mutexes as one lock, all of them or none",
			Open:  serves(func(c *lock.Client, _ harness.LockOptions) service { return together(severalOf(c)) }),
		},
		{
			Name: "mutex-spin", Promises: promises.Full(promises.Promises{Reentrant: true, ReplicaAcks: true}),
			HeldOn: heldOn, Commands: keyAndScript(),
			About: "lockchaos' own, whose waiters poll and do not subscribe",
			Open:  ours(func(c *lock.Client) lock.Locker { return c.Spin(lock.Backoff{}) }),
		},
		{
			Name: "mutex-unnamed", Promises: promises.Full(promises.Promises{ReplicaAcks: true, HandsOver: true}),
			Subscribes: true, Commands: keyAndScript(),
			About: "as mutex, with clients that name no owner: clients of one process hand it over in memory",
			Open: func(servers []redis.UniversalClient, o harness.LockOptions) (lock.Locker, func(), error) {
				callers := newUnnamed(o.Observer)
				o.Observer = callers
				c, err := lock.New(servers[0], config(o))
				if err != nil {
					return nil, nil, err
				}
				return callers.of(c), c.Close, nil
			},
		},
		{
			Name: "redlock", Promises: promises.Full(promises.Promises{Reentrant: true, Quorum: true}),
			Independent: true, HeldOn: heldOn,
			About: "lockchaos' own on independent servers: held by the client that has the votes of a majority",
			Open: func(servers []redis.UniversalClient, o harness.LockOptions) (lock.Locker, func(), error) {
				r, err := lock.NewRedlock(servers, lock.RedlockConfig{Prefix: prefix, Watchdog: o.Watchdog, NodeTimeout: nodeTimeout, Observer: o.Observer})
				if err != nil {
					return nil, nil, err
				}
				return r, r.Close, nil
			},
		},
		{
			Name: "rwmutex", Promises: promises.Full(promises.Promises{Kind: history.KindRW, Reentrant: true, Downgrades: true, ReplicaAcks: true}),
			Subscribes: true,
			About:      "lockchaos' own read-write lock: many readers, or one writer",
			Open: serves(func(c *lock.Client, _ harness.LockOptions) service {
				return readWrite(c.Readers(lock.RWOptions{}), c.Writers(lock.RWOptions{}))
			}),
		},
		{
			Name: "rwmutex-write", Promises: promises.Full(promises.Promises{Reentrant: true, ReplicaAcks: true}),
			Subscribes: true,
			About:      "lockchaos' own: the write side of a read-write lock",
			Open:       ours(func(c *lock.Client) lock.Locker { return c.Writers(lock.RWOptions{}) }),
		},
		{
			Name: "semaphore", Promises: promises.Full(promises.Promises{Kind: history.KindSemaphore, Several: true, ReplicaAcks: true}),
			Endless: true, Subscribes: true,
			About: "lockchaos' own semaphore, whose permits are held until they are released",
			Open:  serves(func(c *lock.Client, o harness.LockOptions) service { return permitted(newSemaphores(c, o).plain) }),
		},
		{
			Name: "semaphore-permit", Promises: promises.Full(promises.Promises{Kind: history.KindSemaphore, Several: true, ReplicaAcks: true}),
			Subscribes: true,
			About:      "lockchaos' own semaphore, whose permits return when their lease ends",
			Open:       serves(func(c *lock.Client, o harness.LockOptions) service { return permitted(newSemaphores(c, o).leased) }),
		},
	}
}

// ackTimeout is how long a grant waits for its replicas; less than the clients
// wait for a reply.
const ackTimeout = 500 * time.Millisecond

// nodeTimeout is how long one of several independent servers may take to answer:
// more than Redlock's own 50 ms, so that a server on a busy machine does not count
// as one that is gone.
const nodeTimeout = 200 * time.Millisecond

// prefix begins the names of all keys of our own locks under test, which keeps them
// apart from the keys of others.
const prefix = "lockchaos"

// config is what the options mean to our own lock.
func config(o harness.LockOptions) lock.Config {
	return lock.Config{Prefix: prefix, Watchdog: o.Watchdog, ReplicaAcks: o.ReplicaAcks, AckTimeout: ackTimeout, Observer: o.Observer}
}

// ours opens a lock that a client of package lock makes.
func ours(locker func(*lock.Client) lock.Locker) harness.Opener {
	return with(func(c *lock.Client, _ redis.UniversalClient, _ harness.LockOptions) lock.Locker { return locker(c) })
}

// serves opens a service that a client of package lock makes.
func serves(serve func(*lock.Client, harness.LockOptions) service) harness.Opener {
	return with(func(c *lock.Client, _ redis.UniversalClient, o harness.LockOptions) lock.Locker { return serve(c, o) })
}

// with opens a lock that is made of a client of package lock and of its server.
func with(open func(*lock.Client, redis.UniversalClient, harness.LockOptions) lock.Locker) harness.Opener {
	return func(servers []redis.UniversalClient, o harness.LockOptions) (lock.Locker, func(), error) {
		c, err := lock.New(servers[0], config(o))
		if err != nil {
			return nil, nil, err
		}
		return open(c, servers[0], o), c.Close, nil
	}
}
