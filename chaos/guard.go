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
	"github.com/lockchaos/lockchaos/lock/undertest"
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
	return slices.Clone(g.problems)
}

// panicked begins what is said of a panic of the lock.
const panicked = "panic of the lock under test: "

// noting is deferred around a call of the lock. A panic becomes an error, after which
// nothing is known of the outcome, and a problem with its stack.
func (g *guard) noting(call string, err *error) {
	value := recover()
	if value == nil {
		return
	}
	*err = fmt.Errorf(panicked+"%v (in %s)", value, call)
	g.mu.Lock()
	defer g.mu.Unlock()
	if first := (*err).Error() + "\n"; !slices.ContainsFunc(g.problems, func(p string) bool { return strings.HasPrefix(p, first) }) {
		g.problems = append(g.problems, first+string(debug.Stack()))
	}
}

// keeps is a keeper whose panics the guard notes.
func (g *guard) keeps(k lock.Keeper) lock.Keeper {
	if late, ok := k.(undertest.LateKeeper); ok {
		return guardedLate{guardedKeeper{k, g}, late}
	}
	return guardedKeeper{k, g}
}

// A guardedKeeper keeps a grant of the lock under test.
type guardedKeeper struct {
	lock.Keeper

	guard *guard
}

// Extend asks the lock.
func (k guardedKeeper) Extend(ctx context.Context, l lock.Lease, d time.Duration) (_ time.Time, err error) {
	defer k.guard.noting(callOf("Extend", l), &err)
	return k.Keeper.Extend(ctx, l, d)
}

// Release asks the lock.
func (k guardedKeeper) Release(ctx context.Context, l lock.Lease) (err error) {
	defer k.guard.noting(callOf("Release", l), &err)
	return k.Keeper.Release(ctx, l)
}

// A guardedLate keeper asks the lock also when the grant is over.
type guardedLate struct {
	guardedKeeper

	late undertest.LateKeeper
}

// ExtendLate asks the lock.
func (k guardedLate) ExtendLate(ctx context.Context, l lock.Lease, d time.Duration) (err error) {
	defer k.guard.noting(callOf("Extend", l), &err)
	return k.late.ExtendLate(ctx, l, d)
}

// ReleaseLate asks the lock.
func (k guardedLate) ReleaseLate(ctx context.Context, l lock.Lease) (err error) {
	defer k.guard.noting(callOf("Release", l), &err)
	return k.late.ReleaseLate(ctx, l)
}

func callOf(method string, l lock.Lease) string { return fmt.Sprintf("%s of %q", method, l.Name) }

// of is the lock with its calls guarded.
func (g *guard) of(l Lock) Lock {
	l = withLease(l)
	open := l.Open
	if open == nil {
		return l
	}
	l.Open = func(servers []redis.UniversalClient, o harness.LockOptions) (_ lock.Locker, _ func(), err error) {
		defer g.noting("Open of "+l.Name, &err)
		o.Unclosed = func(err error) { g.note(fmt.Sprintf("closing the lock failed: %v", err)) }
		locker, closeLock, err := open(servers, o)
		switch {
		case err != nil:
			return nil, nil, err
		case locker == nil:
			return nil, nil, errors.New("Open returned neither a lock nor an error")
		}
		return workload.ServiceFunc(func(ctx context.Context, r workload.Request, o lock.Options) (*lock.Hold, error) {
				return g.ask(ctx, locker, r, o)
			}), func() {
				if closeLock == nil {
					return
				}
				closed := make(chan struct{})
				go func() {
					defer close(closed)
					defer g.noting("the close of "+l.Name, new(error))
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

// withLease is the lock with a lease in each request, unless it can do without.
func withLease(l Lock) Lock {
	open := l.Open
	if open == nil || l.Watchdog || l.Endless {
		return l
	}
	l.Open = func(servers []redis.UniversalClient, o harness.LockOptions) (lock.Locker, func(), error) {
		locker, closeLock, err := open(servers, o)
		if locker == nil {
			return nil, closeLock, err
		}
		return workload.ServiceFunc(func(ctx context.Context, r workload.Request, o lock.Options) (*lock.Hold, error) {
			r.Lease, o.Lease = cmp.Or(r.Lease, usualLease), cmp.Or(o.Lease, usualLease)
			return workload.Ask(ctx, locker, r, o)
		}), closeLock, err
	}
	return l
}

// ask asks a lock, and returns soon after the end of its context.
func (g *guard) ask(ctx context.Context, l lock.Locker, r workload.Request, o lock.Options) (*lock.Hold, error) {
	type answer struct {
		hold *lock.Hold
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		a := answer{}
		defer func() { answered <- a }()
		defer g.noting(fmt.Sprintf("Acquire of %q", strings.Join(r.Locks, ", ")), &a.err)
		if a.hold, a.err = workload.Ask(ctx, l, r, o); a.hold != nil {
			undertest.Guard(a.hold, g.keeps) //nolint:contextcheck // also once the context has ended; it sends nothing
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
		g.note(fmt.Sprintf("Acquire ignores its context: it had not returned %v after the end of that", grace))
		return nil, ctx.Err() // it may be granted yet
	}
}
