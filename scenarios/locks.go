package scenarios

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/adapters/redislock"
	"github.com/lockchaos/lockchaos/lock/adapters/redsync"
	"github.com/lockchaos/lockchaos/lock/broken"
	"github.com/lockchaos/lockchaos/lock/memory"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload/history"
)

// A Lock is a kind of lock that can be put under test.
type Lock struct {
	Name  string
	About string
	// kind, reentrant and fair are what the lock promises in the history; an
	// empty kind is a mutex.
	kind      string
	capacity  int // of a semaphore
	reentrant bool
	fair      bool
	// endless says that grants have no end of their own, and tokens that they
	// have fencing tokens.
	endless bool
	tokens  bool
	// together says that it grants several locks in one request.
	together bool
	// replicaAcks says that it takes [LockOptions.ReplicaAcks].
	replicaAcks bool
	// independent says that it lives on several servers that know nothing of
	// each other.
	independent bool
	// everywhere says that on several such servers it uses each of them. A lock that
	// is neither would be on one of them, and the others would show nothing.
	everywhere bool
	// single says that it knows one server only, with nobody to follow.
	single bool
	// visible says that the servers can be asked who holds it: see [heldOn].
	visible bool
	// inside says that it is in the harness's memory, which no other process has.
	inside bool
	// passes says that those who wait for it in one process pass it on in memory,
	// as long as each has it for a moment.
	passes bool
	// subscribes says that those who wait are told of a release by a message of
	// the server.
	subscribes bool
	// sends names the commands that it sends again and again, with "|" between
	// them; empty: EVALSHA.
	sends string
	// key is where a lock of that name is. All keys of a lock share a slot of a
	// cluster; nil: that of the name itself, which is their hash tag.
	key func(name string) string
	// open makes the lock for clients of one zone. There is one connection to a
	// deployment with a master or slots to follow, and one for each of several
	// independent servers.
	open func(servers []redis.UniversalClient, o LockOptions) (lock.Locker, func(), error)
}

// What locks send that do not send only scripts by their hashes.
const (
	sendsInFull       = "EVAL"
	sendsKeyAndScript = "SET|EVALSHA"
)

// LockOptions configure a lock under test. Zero fields mean the lock's own
// defaults.
type LockOptions struct {
	// ReplicaAcks is how many replicas must acknowledge a grant.
	ReplicaAcks int
	// Watchdog is the lease that a lock's watchdog keeps alive.
	Watchdog time.Duration
	observer lock.Observer
	permits  int // of a semaphore
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
	if topology == topologies.Independent && l.Name != "" && !l.independent && !l.everywhere && !l.inside {
		errs = append(errs, fmt.Errorf("lock %s would be on one of the servers of topology %s, which know nothing of each other: use topology %s, or lock redlock or redsync",
			l.Name, topologies.Independent, topologies.Single))
	}
	if l.single && topology != topologies.Single {
		errs = append(errs, fmt.Errorf("lock %s is put under test on one server only: use topology %s", l.Name, topologies.Single))
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
	all := append(plantedLocks(), []Lock{
		{
			Name: "broken-first-member", together: true, subscribes: true,
			About: "planted bug: of several locks that are asked for together, only the first is acquired",
			open:  serves(func(c *lock.Client, _ LockOptions) service { return together(broken.FirstMember(c)) }),
		},
		{
			Name: "broken-one-more-permit", kind: history.KindSemaphore, subscribes: true,
			About: "planted bug: a semaphore that hands out one permit more than it has",
			open: serves(func(c *lock.Client, o LockOptions) service {
				return permitted(broken.OneMorePermit(c, o.capacity()))
			}),
		},
		{
			Name: "broken-queue-jumping", fair: true,
			About: "planted bug: callers are numbered as they arrive, and served as they happen to ask",
			open: func(servers []redis.UniversalClient, o LockOptions) (lock.Locker, func(), error) {
				c, err := lock.New(servers[0], o.config())
				if err != nil {
					return nil, nil, err
				}
				return broken.QueueJumping(servers[0], c), c.Close, nil
			},
		},
		{
			Name: "broken-uncounted-reentry", reentrant: true, subscribes: true,
			About: "planted bug: the first release of a re-entrant lock ends all grants of its owner",
			open: func(servers []redis.UniversalClient, o LockOptions) (lock.Locker, func(), error) {
				c, err := lock.New(servers[0], o.config())
				if err != nil {
					return nil, nil, err
				}
				return broken.UncountedReentry(c), c.Close, nil
			},
		},
		{
			Name: "broken-unseen-readers", kind: history.KindRW, reentrant: true, subscribes: true,
			About: "planted bug: a writer comes in while others read",
			open: serves(func(c *lock.Client, _ LockOptions) service {
				return readWrite(broken.UnseenReaders(c))
			}),
		},
		{
			Name: "correct-hand-over", sends: sendsInFull, subscribes: true,
			About: "the correct twin of broken-granted-by-message: a release hands the lock to a waiter that is subscribed on the granting server",
			open:  planted(broken.CorrectHandOver),
		},
		{
			Name: "correct-queue", sends: sendsInFull,
			About: "the correct twin of broken-stale-waiter and broken-abandoned-wait: callers line up, each with a lease from then on",
			open:  planted(broken.CorrectQueue),
		},
		{
			Name: "memory", reentrant: true, tokens: true, inside: true,
			About: "a correct lock in the harness's own memory, past every fault: what no checker may reject",
			open: func([]redis.UniversalClient, LockOptions) (lock.Locker, func(), error) {
				return shared, func() {}, nil
			},
		},
		{
			Name: "mutex", reentrant: true, replicaAcks: true, visible: true, subscribes: true,
			About: "lockchaos' own: re-entrant, kept alive by a watchdog, woken by pub/sub",
			open:  ours(func(c *lock.Client) lock.LockerFunc { return c.Acquire }),
		},
		{
			Name: "mutex-fair", reentrant: true, replicaAcks: true, fair: true, subscribes: true,
			About: "lockchaos' own, served in the order of arrival",
			open: ours(func(c *lock.Client) lock.LockerFunc {
				return func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
					return c.FairMutex(name).Acquire(ctx, o)
				}
			}),
		},
		{
			Name: "mutex-fenced", reentrant: true, replicaAcks: true, tokens: true, visible: true, subscribes: true,
			About: "lockchaos' own, with fencing tokens: give --fencing for a resource that refuses stale ones",
			open: ours(func(c *lock.Client) lock.LockerFunc {
				return func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
					return c.FencedMutex(name).Acquire(ctx, o)
				}
			}),
		},
		{
			Name: "multilock", reentrant: true, replicaAcks: true, together: true, subscribes: true,
			About: "lockchaos' own: several mutexes as one lock, all of them or none",
			open:  serves(func(c *lock.Client, _ LockOptions) service { return together(severalOf(c)) }),
		},
		{
			Name: "mutex-spin", reentrant: true, replicaAcks: true, visible: true,
			About: "lockchaos' own, whose waiters ask again and again and subscribe to nothing",
			open: ours(func(c *lock.Client) lock.LockerFunc {
				return func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
					return c.SpinMutex(name, lock.Backoff{}).Acquire(ctx, o)
				}
			}),
		},
		{
			Name: "mutex-unnamed", replicaAcks: true, passes: true, subscribes: true,
			About: "the same as mutex, whose callers name no owner: those of one process pass it on in memory",
			open: func(servers []redis.UniversalClient, o LockOptions) (lock.Locker, func(), error) {
				callers := newUnnamed(o.observer)
				o.observer = callers
				c, err := lock.New(servers[0], o.config())
				if err != nil {
					return nil, nil, err
				}
				return callers.of(c), c.Close, nil
			},
		},
		{
			Name: "redislock", key: redislock.Key,
			About: "github.com/bsm/redislock: one key, whose waiters ask every 100ms",
			open:  openRedislock,
		},
		{
			Name: "redlock", reentrant: true, independent: true, visible: true,
			About: "lockchaos' own on independent servers: held by whoever has the majority of them",
			open: func(servers []redis.UniversalClient, o LockOptions) (lock.Locker, func(), error) {
				r, err := lock.NewRedlock(servers, lock.RedlockConfig{Prefix: lockPrefix, Watchdog: o.Watchdog, NodeTimeout: nodeTimeout, Observer: o.observer})
				if err != nil {
					return nil, nil, err
				}
				return r, r.Close, nil
			},
		},
		{
			Name: "redsync", everywhere: true, key: redsync.Key, sends: sendsKeyAndScript,
			About: "github.com/go-redsync/redsync: one key on each server, whose waiters ask every 50 to 250ms",
			open:  openRedsync(redsync.Config{}),
		},
		{
			Name: "redsync-failfast", everywhere: true, key: redsync.Key, sends: sendsKeyAndScript,
			About: "the same, which goes on with the answers of a majority",
			open:  openRedsync(redsync.Config{FailFast: true}),
		},
		{
			Name: "rueidislock", single: true,
			About: "github.com/redis/rueidis/rueidislock: one key, whose waiters are told by client-side caching",
			open:  openRueidislock(false),
		},
		{
			Name: "rueidislock-noloop", single: true,
			About: "the same, without messages of its own changes",
			open:  openRueidislock(true),
		},
		{
			Name: "rwmutex", kind: history.KindRW, reentrant: true, replicaAcks: true, subscribes: true,
			About: "lockchaos' own read-write lock: many readers, or one writer",
			open: serves(func(c *lock.Client, _ LockOptions) service {
				return readWrite(
					lock.LockerFunc(func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
						return c.RWMutex(name, lock.RWOptions{}).Read().Acquire(ctx, o)
					}),
					lock.LockerFunc(func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
						return c.RWMutex(name, lock.RWOptions{}).Write().Acquire(ctx, o)
					}),
				)
			}),
		},
		{
			Name: "rwmutex-write", reentrant: true, replicaAcks: true, subscribes: true,
			About: "lockchaos' own: the write side of a read-write lock",
			open: ours(func(c *lock.Client) lock.LockerFunc {
				return func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
					return c.RWMutex(name, lock.RWOptions{}).Write().Acquire(ctx, o)
				}
			}),
		},
		{
			Name: "semaphore", kind: history.KindSemaphore, endless: true, replicaAcks: true, subscribes: true,
			About: "lockchaos' own semaphore, whose permits stay out until they are given back",
			open:  serves(func(c *lock.Client, o LockOptions) service { return permitted(newSemaphores(c, o).plain) }),
		},
		{
			Name: "semaphore-permit", kind: history.KindSemaphore, replicaAcks: true, subscribes: true,
			About: "lockchaos' own semaphore, whose permits come back when their lease is over",
			open:  serves(func(c *lock.Client, o LockOptions) service { return permitted(newSemaphores(c, o).leased) }),
		},
	}...)
	slices.SortFunc(all, func(a, b Lock) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// keyOf is a key in the slot of a lock.
func (l Lock) keyOf(name string) string {
	if l.key == nil {
		return name
	}
	return l.key(name)
}

// commands are those that the lock sends again and again, with "|" between them.
func (l Lock) commands() string { return cmp.Or(l.sends, "EVALSHA") }

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

// nodeTimeout is how long one of several independent servers may take to answer:
// more than Redlock's own 50 ms, so that one on a busy machine is not taken for one
// that is gone.
const nodeTimeout = 200 * time.Millisecond

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
