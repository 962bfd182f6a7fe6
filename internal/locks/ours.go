package locks

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/lock"
	inmemory "github.com/lockchaos/lockchaos/lock/memory"
	"github.com/lockchaos/lockchaos/promises"
)

// ours is a lock that a client of package lock makes. Its waiters are told of a release.
func ours(name, about string, p promises.Promises, open harness.Opener) harness.LockSpec {
	return harness.LockSpec{Name: name, About: about, Promises: promises.Full(p), Subscribes: true, Open: open}
}

// own are the locks of package lock and its reference in memory.
func own() harness.Locks {
	again := promises.Promises{Reentrant: true, ReplicaAcks: true}
	asked := func(l harness.LockSpec) harness.LockSpec { l.HolderOn = holderOn; return l }
	sets := func(l harness.LockSpec) harness.LockSpec { l.Commands = keyAndScript(); return l }
	polls := func(l harness.LockSpec) harness.LockSpec { l.Subscribes = false; return l }
	memory := polls(ours("memory", "a correct lock in the memory of the harness, which no fault reaches: no checker may reject it", promises.Promises{Reentrant: true, Token: true}, nil))
	memory.InProcess = func() lock.Locker { return inmemory.New() }
	several := sets(ours("multilock", "lockchaos' own: several mutexes as one lock, all of them or none", again,
		locker(func(c *lock.Client, _ harness.LockOptions) lock.Locker { return severalOf(c) })))
	several.Together = true
	redlock := polls(asked(ours("redlock", "lockchaos' own on independent servers: held by the client that has the votes of a majority", promises.Promises{Reentrant: true, Quorum: true}, openRedlock)))
	redlock.Independent = true
	endless := ours("semaphore", "lockchaos' own semaphore, whose permits are held until they are released", promises.Promises{Kind: history.KindSemaphore, Several: true, ReplicaAcks: true},
		locker(func(c *lock.Client, o harness.LockOptions) lock.Locker { return permitted(newSemaphores(c, o).plain) }))
	endless.Endless = true
	return harness.Locks{
		memory, several, redlock, endless,
		asked(sets(ours("mutex", "lockchaos' own: re-entrant, renewed by a watchdog, with waiters that are notified by pub/sub", again,
			locker(func(c *lock.Client, _ harness.LockOptions) lock.Locker { return c })))),
		ours("mutex-fair", "lockchaos' own, served in the order of arrival", promises.Promises{Reentrant: true, ReplicaAcks: true, Fair: true, Place: true},
			locker(func(c *lock.Client, _ harness.LockOptions) lock.Locker { return c.Fair() })),
		asked(ours("mutex-fenced", "lockchaos' own, with fencing tokens: --fencing makes the resource refuse stale tokens", promises.Promises{Reentrant: true, ReplicaAcks: true, Token: true},
			locker(func(c *lock.Client, _ harness.LockOptions) lock.Locker { return c.Fenced() }))),
		polls(asked(sets(ours("mutex-spin", "lockchaos' own, whose waiters poll and do not subscribe", again,
			locker(func(c *lock.Client, _ harness.LockOptions) lock.Locker { return c.Spin(lock.Backoff{}) }))))),
		sets(ours("mutex-unnamed", "as mutex, with clients that name no owner: clients of one process hand it over in memory", promises.Promises{ReplicaAcks: true, HandsOver: true}, openUnnamed)),
		ours("rwmutex", "lockchaos' own read-write lock: many readers, or one writer", promises.Promises{Kind: history.KindRW, Reentrant: true, Downgrades: true, ReplicaAcks: true},
			locker(func(c *lock.Client, _ harness.LockOptions) lock.Locker {
				return readWrite(c.Readers(lock.RWOptions{}), c.Writers(lock.RWOptions{}))
			})),
		ours("rwmutex-write", "lockchaos' own: the write side of a read-write lock", again,
			locker(func(c *lock.Client, _ harness.LockOptions) lock.Locker { return c.Writers(lock.RWOptions{}) })),
		ours("semaphore-permit", "lockchaos' own semaphore, whose permits return when their lease ends", promises.Promises{Kind: history.KindSemaphore, Several: true, ReplicaAcks: true},
			locker(func(c *lock.Client, o harness.LockOptions) lock.Locker { return permitted(newSemaphores(c, o).leased) })),
	}
}

func openRedlock(servers []redis.UniversalClient, o harness.LockOptions) (lock.Locker, func(), error) {
	r, err := lock.NewRedlock(servers, lock.RedlockConfig{Prefix: prefix, Watchdog: o.Watchdog, NodeTimeout: nodeTimeout, Observer: o.Observer})
	if err != nil {
		return nil, nil, err
	}
	return r, r.Close, nil
}

func openUnnamed(servers []redis.UniversalClient, o harness.LockOptions) (lock.Locker, func(), error) {
	callers := &unnamed{observer: o.Observer}
	o.Observer = callers
	return locker(func(c *lock.Client, _ harness.LockOptions) lock.Locker { return callers.of(c) })(servers, o)
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

// locker opens a lock that a client of package lock makes.
func locker(of func(*lock.Client, harness.LockOptions) lock.Locker) harness.Opener {
	return func(servers []redis.UniversalClient, o harness.LockOptions) (lock.Locker, func(), error) {
		c, err := lock.New(servers[0], lock.Config{Prefix: prefix, Watchdog: o.Watchdog, ReplicaAcks: o.ReplicaAcks, AckTimeout: ackTimeout, Observer: o.Observer})
		if err != nil {
			return nil, nil, err
		}
		return of(c, o), c.Close, nil
	}
}

// holderOn is the owner that holds the mutex, as a server says: its key is a string for one grant, or a hash (free.lua
// and hash.lua of package lock).
func holderOn(ctx context.Context, server *redis.Client, name string) (string, error) {
	conn := server.Conn()
	defer conn.Close()
	_ = conn.ReadOnly(ctx).Err() // only a cluster's nodes know it: a replica then says what it knows, and names no master
	key := prefix + ":{" + name + "}"
	kind, err := conn.Type(ctx, key).Result()
	var of string
	if kind == "hash" {
		of, err = conn.HGet(ctx, key, "owner").Result()
	} else if err == nil {
		of, err = conn.Get(ctx, key).Result()
		of = of[strings.LastIndexByte(of, ' ')+1:]
	}
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return of, err
}

// unnamed are the callers of a lock who name no owner to it. The history has the
// owners that they claim, and renewals are told under those.
type unnamed struct {
	observer lock.Observer // nil: none
	claims   sync.Map      // what its caller claims, by the owner in a lease, of all that were ever granted
}

// claimLimit is how long the owner of a renewal is awaited. The call that was
// granted the lock returns at once, unless the lock is broken.
const claimLimit = 5 * time.Second

// of asks l for locks without an owner.
func (u *unnamed) of(l lock.Locker) lock.LockerFunc {
	return func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
		owner := o.Owner
		o.Owner = ""
		h, err := l.Acquire(ctx, name, o)
		if err == nil {
			u.claims.Store(h.Lease().Owner, cmp.Or(owner, h.Lease().Owner))
		}
		return h, err
	}
}

// Observe tells of renewals under the owner that was claimed. A renewal may come before the
// call that was granted the lock has returned, which is awaited.
func (u *unnamed) Observe(e lock.Event) {
	if u.observer == nil || e.Kind != lock.Renewing && e.Kind != lock.Renewed {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), claimLimit)
	defer cancel()
	_ = await.Until(ctx, func() error {
		claimed, ok := u.claims.Load(e.Lease.Owner)
		if !ok {
			return errors.New("the call that was granted the lock has not returned")
		}
		e.Lease.Owner, _ = claimed.(string)
		return nil
	})
	u.observer.Observe(e)
}
