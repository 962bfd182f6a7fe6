package scenarios

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/broken"
	"github.com/lockchaos/lockchaos/lock/memory"
	"github.com/lockchaos/lockchaos/topologies"
)

// A Lock is a kind of lock that can be put under test.
type Lock struct {
	Name  string
	About string
	// reentrant and fair are what the lock promises in the history.
	reentrant bool
	fair      bool
	// replicaAcks says that it takes [LockOptions.ReplicaAcks].
	replicaAcks bool
	// independent says that it lives on several servers that know nothing of
	// each other.
	independent bool
	// open makes the lock for clients of one zone. There is one connection to a
	// deployment with a master or slots to follow, and one for each of several
	// independent servers.
	open func(servers []redis.UniversalClient, o LockOptions) (lock.Locker, func(), error)
}

// LockOptions configure a lock under test. Zero fields mean the lock's own
// defaults.
type LockOptions struct {
	// ReplicaAcks is how many replicas must acknowledge a grant.
	ReplicaAcks int
	// Watchdog is the lease that a lock's watchdog keeps alive.
	Watchdog time.Duration
	observer lock.Observer
}

// validate joins what is wrong with the options for a lock on a topology.
func (o LockOptions) validate(l Lock, topology string, servers topologies.Options) error {
	var errs []error
	replicas := 0
	if t, err := topologies.New(topology, servers); err == nil {
		replicas = len(t.Members(t.Of(topologies.Redis)[0])) - 1
	}
	if l.independent && topology != topologies.Independent {
		errs = append(errs, fmt.Errorf("lock %s needs servers that know nothing of each other: use topology %s", l.Name, topologies.Independent))
	}
	switch {
	case o.ReplicaAcks > 0 && l.Name != "" && !l.replicaAcks:
		errs = append(errs, fmt.Errorf("lock %s asks no replicas for an acknowledgement", l.Name))
	case o.ReplicaAcks > replicas:
		errs = append(errs, fmt.Errorf("%d replica acks can't come: topology %s has %d replicas", o.ReplicaAcks, topology, replicas))
	}
	return errors.Join(append(errs, o.config().Validate())...)
}

// lockPrefix begins the names of all keys of our own locks under test, so that
// they are nobody else's.
const lockPrefix = "lockchaos"

// config is what the options mean to our own lock.
func (o LockOptions) config() lock.Config {
	return lock.Config{Prefix: lockPrefix, Watchdog: o.Watchdog, ReplicaAcks: o.ReplicaAcks, AckTimeout: ackTimeout, Observer: o.observer}
}

// Locks lists what can be put under test, in order of name.
func Locks() []Lock {
	shared := memory.New() // one for all clients, whatever their zone
	return []Lock{
		{
			Name:  "broken-constant-token",
			About: "planted bug: all clients write the same token, so that each takes another's lock for its own",
			open:  withoutOptions(func(rdb redis.UniversalClient) lock.Locker { return broken.ConstantToken(rdb) }),
		},
		{
			Name:  "broken-plain-delete",
			About: "planted bug: a release deletes the key without looking whose it is",
			open:  withoutOptions(func(rdb redis.UniversalClient) lock.Locker { return broken.PlainDelete(rdb) }),
		},
		{
			Name: "memory", reentrant: true,
			About: "a correct lock in the harness's own memory, past every fault: what no checker may reject",
			open: func([]redis.UniversalClient, LockOptions) (lock.Locker, func(), error) {
				return shared, func() {}, nil
			},
		},
		{
			Name: "mutex", reentrant: true, replicaAcks: true,
			About: "lockchaos' own: re-entrant, kept alive by a watchdog, woken by pub/sub",
			open:  ours(func(c *lock.Client) lock.LockerFunc { return c.Acquire }),
		},
		{
			Name: "mutex-fair", reentrant: true, replicaAcks: true, fair: true,
			About: "lockchaos' own, served in the order of arrival",
			open: ours(func(c *lock.Client) lock.LockerFunc {
				return func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
					return c.FairMutex(name).Acquire(ctx, o)
				}
			}),
		},
		{
			Name: "mutex-fenced", reentrant: true, replicaAcks: true,
			About: "lockchaos' own, with fencing tokens; the resource records them, and does not refuse stale ones yet",
			open: ours(func(c *lock.Client) lock.LockerFunc {
				return func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
					return c.FencedMutex(name).Acquire(ctx, o)
				}
			}),
		},
		{
			Name: "mutex-spin", reentrant: true, replicaAcks: true,
			About: "lockchaos' own, whose waiters ask again and again and subscribe to nothing",
			open: ours(func(c *lock.Client) lock.LockerFunc {
				return func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
					return c.SpinMutex(name, lock.Backoff{}).Acquire(ctx, o)
				}
			}),
		},
		{
			Name: "redlock", reentrant: true, independent: true,
			About: "lockchaos' own on independent servers: held by whoever has the majority of them",
			open: func(servers []redis.UniversalClient, o LockOptions) (lock.Locker, func(), error) {
				r, err := lock.NewRedlock(servers, lock.RedlockConfig{Prefix: lockPrefix, Watchdog: o.Watchdog, Observer: o.observer})
				if err != nil {
					return nil, nil, err
				}
				return r, r.Close, nil
			},
		},
		{
			Name: "rwmutex-write", reentrant: true, replicaAcks: true,
			About: "lockchaos' own: the write side of a read-write lock",
			open: ours(func(c *lock.Client) lock.LockerFunc {
				return func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
					return c.RWMutex(name, lock.RWOptions{}).Write().Acquire(ctx, o)
				}
			}),
		},
	}
}

// ours opens a lock that a client of package lock makes.
func ours(locker func(*lock.Client) lock.LockerFunc) func([]redis.UniversalClient, LockOptions) (lock.Locker, func(), error) {
	return func(servers []redis.UniversalClient, o LockOptions) (lock.Locker, func(), error) {
		c, err := lock.New(servers[0], o.config())
		if err != nil {
			return nil, nil, err
		}
		return locker(c), c.Close, nil
	}
}

// ackTimeout is how long a grant waits for its replicas; less than the clients
// wait for a reply.
const ackTimeout = 500 * time.Millisecond

// withoutOptions is for locks that have none.
func withoutOptions(open func(redis.UniversalClient) lock.Locker) func([]redis.UniversalClient, LockOptions) (lock.Locker, func(), error) {
	return func(servers []redis.UniversalClient, _ LockOptions) (lock.Locker, func(), error) {
		return open(servers[0]), func() {}, nil
	}
}

// LockNames lists the names of [Locks].
func LockNames() []string {
	var names []string
	for _, l := range Locks() {
		names = append(names, l.Name)
	}
	return names
}

// DefaultLock is the lock that is put under test on a topology when none is
// named.
func DefaultLock(topology string) string {
	if topology == topologies.Independent {
		return "redlock"
	}
	return "mutex"
}

// LockByName returns the lock with that name.
func LockByName(name string) (Lock, error) {
	for _, l := range Locks() {
		if l.Name == name {
			return l, nil
		}
	}
	return Lock{}, names.Unknown("lock", name, LockNames())
}
