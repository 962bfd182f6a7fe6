package broken

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/lock"
)

// The locks below are those of package lock, each with one bug of a kind that
// only locks with readers, permits, re-entry, several members or a queue can
// have. The locks that they are made of are their correct twins.

// OneMorePermit returns how to ask for n permits of a semaphore that has so many,
// and hands out one more.
//
// It is the off-by-one of semaphores that count the holders and then compare
// with "<=", or that count before they remove those whose lease is over.
func OneMorePermit(c *lock.Client, permits int) func(ctx context.Context, name string, n int, o lock.Options) (*lock.Hold, error) {
	return func(ctx context.Context, name string, n int, o lock.Options) (*lock.Hold, error) {
		s := c.Semaphore(name)
		if _, err := s.TrySetPermits(ctx, permits+1); err != nil {
			return nil, err
		}
		return s.Lease(ctx, n, o)
	}
}

// UnseenReaders returns the two sides of a read-write lock whose writers look for
// other writers only: they are granted the lock beside readers, and readers
// are granted it beside a writer.
//
// It is the bug of read-write locks that keep the writer and the readers under
// two keys, and look at one of them.
func UnseenReaders(c *lock.Client) (read, write lock.Locker) {
	read = lock.LockerFunc(func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
		return c.RWMutex(name+":readers", lock.RWOptions{}).Read().Acquire(ctx, o)
	})
	write = lock.LockerFunc(func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
		return c.RWMutex(name, lock.RWOptions{}).Write().Acquire(ctx, o)
	})
	return read, write
}

// FirstMember returns how to ask for several locks together, of which only the
// first is acquired.
//
// It is the bug of callers who protect what several locks are for with one of
// them, because "all of us take that one first".
func FirstMember(l lock.Locker) func(ctx context.Context, names []string, o lock.Options) (*lock.Hold, error) {
	return func(ctx context.Context, names []string, o lock.Options) (*lock.Hold, error) {
		return l.Acquire(ctx, names[0], o)
	}
}

// longLease is that of a hold which asked for none.
const longLease = 30 * time.Second

// UncountedReentry returns a mutex that grants its owner the lock again, and
// forgets how often: the first release ends all of its grants. It asks for a
// lease; without one it is 30 seconds.
//
// It is the bug of re-entrant locks that remember the owner without a count.
func UncountedReentry(c *lock.Client) lock.Locker {
	return &uncounted{c: c, holds: map[[2]string]*lock.Hold{}}
}

type uncounted struct {
	c     *lock.Client
	mu    sync.Mutex
	holds map[[2]string]*lock.Hold // by name and owner
}

// Acquire asks for the mutex, unless the owner holds it.
func (u *uncounted) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	if o.Lease == 0 {
		o.Lease = longLease
	}
	key := [2]string{name, o.Owner}
	u.mu.Lock()
	h := u.holds[key]
	u.mu.Unlock()
	if h == nil {
		var err error
		if h, err = u.c.Acquire(ctx, name, o); err != nil {
			return nil, err
		}
		u.mu.Lock()
		u.holds[key] = h
		u.mu.Unlock()
	}
	return lock.NewHold(h.Lease(), u), nil
}

// Extend implements [lock.Keeper].
func (u *uncounted) Extend(context.Context, lock.Lease, time.Duration) (time.Time, error) {
	return time.Time{}, errors.New("this lock extends nothing")
}

// Release implements [lock.Keeper]. A second one finds nothing to do, and says that it
// was done.
func (u *uncounted) Release(ctx context.Context, l lock.Lease) error {
	key := [2]string{l.Name, l.Owner}
	u.mu.Lock()
	h := u.holds[key]
	delete(u.holds, key)
	u.mu.Unlock()
	if h == nil {
		return nil
	}
	return h.Release(ctx)
}

// QueueJumping returns a mutex that numbers its callers in the order of their
// arrival, and then grants the lock to the first request when it is free. It
// asks for a lease; without one it is 30 seconds.
//
// It is the bug of locks that call themselves fair and poll.
func QueueJumping(rdb redis.UniversalClient, c *lock.Client) lock.Locker {
	return lock.LockerFunc(func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
		if o.Lease == 0 {
			o.Lease = longLease
		}
		place, err := rdb.Incr(ctx, "broken:queue:{"+name+"}").Result()
		if err != nil {
			return nil, fmt.Errorf("acquire lock %q: take a place: %w", name, err)
		}
		h, err := c.SpinMutex(name, lock.Backoff{}).Acquire(ctx, o)
		if err != nil {
			return nil, err
		}
		l := h.Lease()
		l.Queued = place
		return lock.NewHold(l, keep{h}), nil
	})
}

// keep hands on what is asked of a hold.
type keep struct{ *lock.Hold }

// Extend implements [lock.Keeper].
func (k keep) Extend(ctx context.Context, _ lock.Lease, d time.Duration) (time.Time, error) {
	err := k.Hold.Extend(ctx, d)
	return k.Lease().Expires, err
}

// Release implements [lock.Keeper].
func (k keep) Release(ctx context.Context, _ lock.Lease) error { return k.Hold.Release(ctx) }
