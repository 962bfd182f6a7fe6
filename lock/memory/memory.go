// Package memory is a correct lock within one process: the reference that the
// locks over a network are compared with.
package memory

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/lock"
)

// A Locker keeps locks in memory. It is re-entrant by owner, grants first come
// first served, and numbers its grants with fencing tokens; re-entry keeps the
// token. Leases run on the monotonic clock without a margin, and a grant without
// a lease lasts until it is released. Make one with [New].
type Locker struct {
	mu    sync.Mutex
	token int64 // the last one; one sequence for all locks
	locks map[string]*state
}

var _ lock.Locker = (*Locker)(nil)

// state is a lock with a holder or a waiter.
type state struct {
	owner  string
	token  int64
	grants map[string]time.Time // by request: the end, zero for none
	queue  []*waiter
	timer  *time.Timer // for the end of the last grant, while an owner waits
}

type waiter struct {
	owner, request string
	length         time.Duration
	granted        chan lock.Lease // holds one
}

// New returns a Locker that holds nothing.
func New() *Locker { return &Locker{locks: map[string]*state{}} }

// Acquire waits in line for the lock. Its errors are [lock.ErrNotAcquired],
// those of the context, after which nothing is held either, and those that say
// what is wrong with the options.
func (l *Locker) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	lease, err := l.acquire(ctx, name, o)
	if err != nil {
		return nil, fmt.Errorf("acquire lock %q: %w", name, err)
	}
	return lock.NewHold(lease, l), nil
}

func (l *Locker) acquire(ctx context.Context, name string, o lock.Options) (lock.Lease, error) {
	errs := []error{o.Validate(), ctx.Err()}
	if name == "" {
		errs = append(errs, errors.New("empty name: give the lock a name"))
	}
	if err := errors.Join(errs...); err != nil {
		return lock.Lease{}, err
	}
	w := &waiter{owner: cmp.Or(o.Owner, rand.Text()), request: rand.Text(), length: o.Lease, granted: make(chan lock.Lease, 1)}
	l.mu.Lock()
	s := l.locks[name]
	if s == nil {
		s = &state{grants: map[string]time.Time{}}
		l.locks[name] = s
	}
	s.queue = append(s.queue, w)
	l.advance(name, s)
	l.mu.Unlock()
	if o.Wait == 0 {
		return l.giveUp(name, s, w, lock.ErrNotAcquired)
	}
	timer := time.NewTimer(o.Wait)
	defer timer.Stop()
	select {
	case lease := <-w.granted:
		return lease, nil
	case <-timer.C:
		return l.giveUp(name, s, w, lock.ErrNotAcquired)
	case <-ctx.Done():
		return l.giveUp(name, s, w, ctx.Err())
	}
}

// giveUp leaves the queue with that error, unless the grant came first.
func (l *Locker) giveUp(name string, s *state, w *waiter, err error) (lock.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case lease := <-w.granted:
		return lease, nil
	default:
	}
	s.queue = slices.DeleteFunc(s.queue, func(other *waiter) bool { return other == w })
	l.advance(name, s)
	return lock.Lease{}, err
}

// advance ends the grants that ran out, and makes those that are possible.
func (l *Locker) advance(name string, s *state) {
	now := time.Now()
	for request, end := range s.grants {
		if !end.IsZero() && !now.Before(end) {
			delete(s.grants, request)
		}
	}
	s.queue = slices.DeleteFunc(s.queue, func(w *waiter) bool {
		if len(s.grants) > 0 && w.owner != s.owner {
			return false
		}
		l.grant(name, s, w, now)
		return true
	})
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	if len(s.grants) == 0 && len(s.queue) == 0 {
		delete(l.locks, name)
		return
	}
	if end := s.end(); len(s.queue) > 0 && !end.IsZero() {
		s.timer = time.AfterFunc(end.Sub(now), func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.locks[name] == s {
				l.advance(name, s)
			}
		})
	}
}

func (l *Locker) grant(name string, s *state, w *waiter, now time.Time) {
	if len(s.grants) == 0 {
		l.token++
		s.owner, s.token = w.owner, l.token
	}
	var end time.Time
	if w.length > 0 {
		end = now.Add(w.length)
	}
	s.grants[w.request] = end
	w.granted <- lock.Lease{
		Name: name, Owner: w.owner, Request: w.request, Token: s.token,
		Holds: len(s.grants), Length: w.length, Expires: end, Node: "memory",
	}
}

// end is when the last grant runs out; zero if one doesn't.
func (s *state) end() time.Time {
	var last time.Time
	for _, end := range s.grants {
		if end.IsZero() {
			return end
		}
		if end.After(last) {
			last = end
		}
	}
	return last
}

// Extend implements [lock.Keeper]. A grant without an end keeps none.
func (l *Locker) Extend(ctx context.Context, lease lock.Lease, d time.Duration) (time.Time, error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s, end, err := l.find(lease)
	if err != nil || end.IsZero() {
		return time.Time{}, err
	}
	end = time.Now().Add(d)
	s.grants[lease.Request] = end
	l.advance(lease.Name, s)
	return end, nil
}

// Release implements [lock.Keeper].
func (l *Locker) Release(ctx context.Context, lease lock.Lease) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s, _, err := l.find(lease)
	if err != nil {
		return err
	}
	delete(s.grants, lease.Request)
	l.advance(lease.Name, s)
	return nil
}

// find returns the lock and the end of a grant that is still held.
func (l *Locker) find(lease lock.Lease) (*state, time.Time, error) {
	s := l.locks[lease.Name]
	if s == nil {
		return nil, time.Time{}, lock.ErrNotHeld
	}
	l.advance(lease.Name, s)
	end, ok := s.grants[lease.Request]
	if !ok {
		return nil, time.Time{}, lock.ErrNotHeld
	}
	return s, end, nil
}
