package locks

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/workload"
)

// readWrite serves both sides of a read-write lock. Who asks for neither writes.
func readWrite(read, write lock.Locker) workload.ServiceFunc {
	return func(ctx context.Context, r workload.Request, o lock.Options) (*lock.Hold, error) {
		if r.Mode == history.Read {
			return read.Acquire(ctx, r.Locks[0], o)
		}
		return write.Acquire(ctx, r.Locks[0], o)
	}
}

// together serves several locks as one.
func together(ask func(ctx context.Context, names []string, o lock.Options) (*lock.Hold, error)) workload.ServiceFunc {
	return func(ctx context.Context, r workload.Request, o lock.Options) (*lock.Hold, error) {
		return ask(ctx, r.Locks, o)
	}
}

// severalOf asks for several locks of a locker as a [lock.MultiLock].
func severalOf(l lock.Locker) workload.ServiceFunc {
	return together(func(ctx context.Context, names []string, o lock.Options) (*lock.Hold, error) {
		var members []lock.Member
		for _, name := range names {
			members = append(members, lock.Member{Locker: l, Name: name})
		}
		m, err := lock.NewMultiLock(members...)
		if err != nil {
			return nil, err
		}
		return m.Acquire(ctx, o)
	})
}

// permitted serves permits.
func permitted(ask func(ctx context.Context, name string, n int, o lock.Options) (*lock.Hold, error)) workload.ServiceFunc {
	return func(ctx context.Context, r workload.Request, o lock.Options) (*lock.Hold, error) {
		return ask(ctx, r.Locks[0], max(r.Permits, 1), o)
	}
}

// capacity is how many permits a semaphore under test has.
func capacity(o harness.LockOptions) int {
	return cmp.Or(o.Permits, workload.Config{}.WithDefaults().Permits)
}

// semaphores are those of one client. How many permits each has is said once,
// before its first use: what the servers forget later stays forgotten.
type semaphores struct {
	client  *lock.Client
	permits int
	set     sync.Map // the names of those whose permits are set
}

func newSemaphores(c *lock.Client, o harness.LockOptions) *semaphores {
	return &semaphores{client: c, permits: capacity(o)}
}

func (s *semaphores) prepare(ctx context.Context, name string) error {
	if _, set := s.set.Load(name); set {
		return nil
	}
	_, err := s.client.Semaphore(name).TrySetPermits(ctx, s.permits)
	if err == nil {
		s.set.Store(name, true)
	}
	return err
}

func (s *semaphores) leased(ctx context.Context, name string, n int, o lock.Options) (*lock.Hold, error) {
	if err := s.prepare(ctx, name); err != nil {
		return nil, err
	}
	return s.client.Semaphore(name).Lease(ctx, n, o)
}

// plain takes permits that have no owner: the hold is the harness's own.
func (s *semaphores) plain(ctx context.Context, name string, n int, o lock.Options) (*lock.Hold, error) {
	if err := s.prepare(ctx, name); err != nil {
		return nil, err
	}
	p := s.client.Semaphore(name)
	if err := p.Acquire(ctx, n, o.Wait); err != nil {
		return nil, err
	}
	return lock.NewHold(lock.Lease{Name: name, Owner: o.Owner, Request: rand.Text(), Holds: n}, taken{p, n}), nil
}

// taken are permits of a plain semaphore.
type taken struct {
	from *lock.Semaphore
	n    int
}

// Extend implements [lock.Keeper]. There is no end to be moved.
func (taken) Extend(context.Context, lock.Lease, time.Duration) (time.Time, error) {
	return time.Time{}, errors.New("permits of a plain semaphore have no end")
}

// Release implements [lock.Keeper].
func (t taken) Release(ctx context.Context, _ lock.Lease) error { return t.from.Release(ctx, t.n) }
