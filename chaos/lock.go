package chaos

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/promises"
)

// A Lock is a lock under test: [New] makes one of a function that opens it.
type Lock = harness.LockSpec

// Servers are what a lock under test connects to.
type Servers struct {
	// Redis is a client of the servers, which follows the master or the slots; of
	// several independent servers, a client of the first. It is closed after the lock.
	Redis redis.UniversalClient
	// Each has a client for each of several independent servers; on other
	// topologies it has Redis alone.
	Each []redis.UniversalClient
}

// An Open makes a lock for the clients of one zone, as one process of a service
// would. The function that it returns closes the lock; nil if there is nothing to
// close. An error of it fails the test.
type Open func(s Servers) (l lock.Locker, closeLock func() error, err error)

// New describes a lock under test that promises a mutex with a lease and nothing
// else. What it promises beyond that, set in the fields of the spec: it is judged
// by what it promises.
func New(name string, open Open) Lock {
	l := Lock{
		Name: name, About: "a lock under test", Foreign: true, Promises: promises.Full(promises.Promises{}),
		Commands: harness.OwnCommands(),
	}
	if open == nil {
		return l
	}
	l.Open = func(servers []redis.UniversalClient, o harness.LockOptions) (lock.Locker, func(), error) {
		opened, closeLock, err := open(Servers{Redis: servers[0], Each: servers})
		if err != nil {
			return nil, nil, err
		}
		return opened, func() {
			if closeLock == nil {
				return
			}
			if err := closeLock(); err != nil && o.Unclosed != nil {
				o.Unclosed(err)
			}
		}, nil
	}
	return l
}

// A Try asks a lock once and does not wait: it returns a grant, or
// [lock.ErrNotAcquired] if another client holds the lock: a nil handle or false is to
// become that. After any other error the lock may have been granted. The lease is 0 only of a lock that is Endless or promises
// a Watchdog: then the grant lasts until its release.
type Try func(ctx context.Context, name string, lease time.Duration) (Grant, error)

// A Grant is what a [Try] was granted.
type Grant struct {
	// Release gives the lock back. It returns [lock.ErrNotHeld] if the lock was not
	// held any more. Required.
	Release func(ctx context.Context) error
	// Extend makes the lease end that long from now, and not after another time. It returns [lock.ErrNotHeld] if
	// the lock was not held any more. Nil: the lock can't be extended.
	Extend func(ctx context.Context, lease time.Duration) error
	// Token is the fencing token; 0 for none.
	Token int64
	// Expires is when the holder must stop to believe that it holds the lock. Zero:
	// when the lease has passed since the request; without a lease, never.
	Expires time.Time
}

// tryAgain is how long a client waits before it asks again.
const tryAgain = 10 * time.Millisecond

// Tries makes a [lock.Locker] of a lock that is asked once at a time. Clients that
// wait ask again every 10ms.
func Tries(try Try) lock.Locker {
	return lock.LockerFunc(func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
		if err := o.Validate(); err != nil {
			return nil, err
		}
		if name == "" {
			return nil, errors.New("a lock needs a name")
		}
		l := lock.Lease{
			Name: name, Owner: cmp.Or(o.Owner, rand.Text()), Request: rand.Text(), Holds: 1,
			Length: o.Lease,
		}
		for began := time.Now(); ; {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			asked := time.Now()
			g, err := try(ctx, name, l.Length)
			switch {
			case err == nil && g.Release == nil:
				return nil, fmt.Errorf("lock %q was granted without a way to release it: set Grant.Release", name)
			case err == nil:
				l.Token, l.Expires = g.Token, g.Expires
				if l.Expires.IsZero() && l.Length > 0 {
					l.Expires = asked.Add(l.Length)
				}
				return lock.NewHold(l, keeper{g}), nil
			case !errors.Is(err, lock.ErrNotAcquired), time.Since(began) >= o.Wait:
				return nil, err
			}
			select {
			case <-time.After(min(tryAgain, max(o.Wait-time.Since(began), 0))):
			case <-ctx.Done():
			}
		}
	})
}

// Means says in the words of package lock what an error of another lock means: it is
// ours, with the text of err, if err is theirs, and else err itself.
//
//	chaos.Means(err, redislock.ErrNotObtained, lock.ErrNotAcquired)
func Means(err, theirs, ours error) error {
	if err == nil || !errors.Is(err, theirs) {
		return err
	}
	return fmt.Errorf("%w: %w", ours, err)
}

// A keeper keeps a grant.
type keeper struct{ Grant }

// Extend fails with [errors.ErrUnsupported] where the lock can't be extended.
func (k keeper) Extend(ctx context.Context, _ lock.Lease, d time.Duration) (time.Time, error) {
	if k.Grant.Extend == nil {
		return time.Time{}, fmt.Errorf("extend: %w", errors.ErrUnsupported)
	}
	asked := time.Now()
	return asked.Add(d), k.Grant.Extend(ctx, d)
}

// ExtendLate asks the lock to extend what the holder knows to be over, which it must refuse.
func (k keeper) ExtendLate(ctx context.Context, _ lock.Lease, d time.Duration) error {
	if k.Grant.Extend == nil {
		return lock.ErrNotHeld
	}
	return k.Grant.Extend(ctx, d)
}

// ReleaseLate asks the lock to release what the holder knows to be over, which must end no
// other grant.
func (k keeper) ReleaseLate(ctx context.Context, l lock.Lease) error { return k.Release(ctx, l) }

// Release gives the lock back.
func (k keeper) Release(ctx context.Context, _ lock.Lease) error {
	return k.Grant.Release(ctx)
}
