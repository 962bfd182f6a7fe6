package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/workload"
)

// grace is how long a call of a lock may go on after the end of its context, and
// how long it may take to close a lock.
const grace = 5 * time.Second

// usualLease is that of a request that leaves it to a lock without a watchdog.
const usualLease = 2 * time.Second

// A guard keeps a run going where a lock does not do what a [lock.Locker] must, and
// remembers it.
type guard struct {
	mu       sync.Mutex
	problems []string
}

func (g *guard) note(problem string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Contains(g.problems, problem) {
		g.problems = append(g.problems, problem)
	}
}

// noted are the problems so far.
func (g *guard) noted() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.problems
}

// guardOf is the key under which a context has the guard of the lock that is called with it.
type guardOf struct{}

// with is the context of calls of the lock, whose panics the guard is told of.
func (g *guard) with(ctx context.Context) context.Context {
	return context.WithValue(ctx, guardOf{}, g)
}

// noting is deferred around calls of the lock. A panic becomes an error, after which
// nothing is known of the outcome, and a problem with its stack.
func (g *guard) noting(err *error) {
	value := recover()
	if value == nil {
		return
	}
	*err = fmt.Errorf("panic of the lock under test: %v", value)
	g.mu.Lock()
	defer g.mu.Unlock()
	if first := (*err).Error() + "\n"; !slices.ContainsFunc(g.problems, func(p string) bool { return strings.HasPrefix(p, first) }) {
		g.problems = append(g.problems, first+string(debug.Stack()))
	}
}

// of is the lock with its calls guarded.
func (g *guard) of(l Lock) Lock {
	l = withLease(l)
	open := l.Open
	if open == nil {
		return l
	}
	l.Open = func(servers []redis.UniversalClient, o harness.LockOptions) (_ lock.Locker, _ func(), err error) {
		defer g.noting(&err)
		o.Unclosed = func(err error) { g.note(fmt.Sprintf("closing the lock failed: %v", err)) }
		locker, closeLock, err := open(servers, o)
		switch {
		case err != nil:
			return nil, nil, err
		case locker == nil:
			return nil, nil, errors.New("Open returned neither a lock nor an error")
		}
		return guarded{locker, g}, func() {
			if closeLock == nil {
				return
			}
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				defer g.noting(new(error))
				closeLock()
			}()
			select {
			case <-closed:
			case <-time.After(grace):
				g.note(fmt.Sprintf("closing the lock takes longer than %v", grace))
			}
		}, nil
	}
	return l
}

// A guarded locker returns from each request soon after the end of its context.
type guarded struct {
	lock.Locker

	guard *guard
}

// Acquire asks for one lock.
func (l guarded) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	return l.ask(ctx, func() (*lock.Hold, error) { return l.Locker.Acquire(ctx, name, o) })
}

// Ask asks for what the request says.
func (l guarded) Ask(ctx context.Context, r workload.Request, o lock.Options) (*lock.Hold, error) {
	return l.ask(ctx, func() (*lock.Hold, error) { return workload.Ask(ctx, l.Locker, r, o) })
}

// withLease is the lock with a lease in each request, unless it can do without.
func withLease(l Lock) Lock {
	open := l.Open
	if open == nil || l.Watchdog || l.Endless {
		return l
	}
	l.Open = func(servers []redis.UniversalClient, o harness.LockOptions) (lock.Locker, func(), error) {
		locker, closeLock, err := open(servers, o)
		if locker != nil {
			locker = leasing{locker}
		}
		return locker, closeLock, err
	}
	return l
}

// A leasing locker asks for a lease where a request leaves it to the lock.
type leasing struct{ lock.Locker }

// Acquire asks for one lock.
func (l leasing) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	o.Lease = cmp.Or(o.Lease, usualLease)
	return l.Locker.Acquire(ctx, name, o)
}

// Ask asks for what the request says.
func (l leasing) Ask(ctx context.Context, r workload.Request, o lock.Options) (*lock.Hold, error) {
	r.Lease, o.Lease = cmp.Or(r.Lease, usualLease), cmp.Or(o.Lease, usualLease)
	return workload.Ask(ctx, l.Locker, r, o)
}

func (l guarded) ask(ctx context.Context, request func() (*lock.Hold, error)) (*lock.Hold, error) {
	type answer struct {
		hold *lock.Hold
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		a := answer{}
		defer func() { answered <- a }()
		defer l.guard.noting(&a.err)
		a.hold, a.err = request()
		if a.hold == nil && a.err == nil {
			a.err = errors.New("Acquire returned neither a hold nor an error")
		}
	}()
	select {
	case a := <-answered:
		return a.hold, a.err
	case <-ctx.Done():
	}
	select {
	case a := <-answered:
		return a.hold, a.err
	case <-time.After(grace):
		l.guard.note(fmt.Sprintf("Acquire ignores its context: it had not returned %v after the end of that", grace))
		return nil, ctx.Err() // it may be granted yet
	}
}
