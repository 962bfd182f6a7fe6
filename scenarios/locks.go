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
	// reentrant is what the lock promises in the history.
	reentrant bool
	// replicaAcks says that it takes [LockOptions.ReplicaAcks].
	replicaAcks bool
	open        func(rdb redis.UniversalClient, o LockOptions) (lock.Locker, func(), error)
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
func (o LockOptions) validate(l Lock, topology string) error {
	var errs []error
	replicas := 0
	if t, err := topologies.ByName(topology); err == nil {
		replicas = len(t.Of(topologies.Redis)) - 1
	}
	switch {
	case o.ReplicaAcks > 0 && l.Name != "" && !l.replicaAcks:
		errs = append(errs, fmt.Errorf("lock %s asks no replicas for an acknowledgement", l.Name))
	case o.ReplicaAcks > replicas:
		errs = append(errs, fmt.Errorf("%d replica acks can't come: topology %s has %d replicas", o.ReplicaAcks, topology, replicas))
	}
	return errors.Join(append(errs, o.config().Validate())...)
}

// config is what the options mean to our own lock.
func (o LockOptions) config() lock.Config {
	return lock.Config{Watchdog: o.Watchdog, ReplicaAcks: o.ReplicaAcks, AckTimeout: ackTimeout, Observer: o.observer}
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
			open: func(redis.UniversalClient, LockOptions) (lock.Locker, func(), error) {
				return shared, func() {}, nil
			},
		},
		{
			Name: "mutex", reentrant: true, replicaAcks: true,
			About: "lockchaos' own: re-entrant, kept alive by a watchdog, woken by pub/sub",
			open: func(rdb redis.UniversalClient, o LockOptions) (lock.Locker, func(), error) {
				c, err := lock.New(rdb, o.config())
				if err != nil {
					return nil, nil, err
				}
				return c, func() { c.Close() }, nil
			},
		},
	}
}

// ackTimeout is how long a grant waits for its replicas; less than the clients
// wait for a reply.
const ackTimeout = 500 * time.Millisecond

// withoutOptions is for locks that have none.
func withoutOptions(open func(redis.UniversalClient) lock.Locker) func(redis.UniversalClient, LockOptions) (lock.Locker, func(), error) {
	return func(rdb redis.UniversalClient, _ LockOptions) (lock.Locker, func(), error) {
		return open(rdb), func() {}, nil
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

// LockByName returns the lock with that name.
func LockByName(name string) (Lock, error) {
	for _, l := range Locks() {
		if l.Name == name {
			return l, nil
		}
	}
	return Lock{}, names.Unknown("lock", name, LockNames())
}

// heldOn reports whether a server says that the owner holds the mutex.
func heldOn(ctx context.Context, server redis.UniversalClient, name, owner string) (bool, error) {
	c, err := lock.New(server, lock.Config{})
	if err != nil {
		return false, err
	}
	defer c.Close()
	return c.Mutex(name).IsHeldBy(ctx, owner)
}
