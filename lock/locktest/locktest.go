// Package locktest is the contract of [lock.Locker] as a test suite, in the
// manner of testing/fstest: a package that implements a Locker runs [Run] in a test.
package locktest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockchaos/lockchaos/lock"
)

// Features say what a lock promises beyond the plain contract, and how coarse
// its times are.
type Features struct {
	// Reentrant: an owner that holds the lock is granted it again.
	Reentrant bool
	// SplitVotes: callers that ask at the same time may all be refused.
	SplitVotes bool
	// Fenced: every grant has a token, greater than that of the grant before.
	Fenced bool
	// Watchdog is the lease that is kept alive for a hold that asked for none;
	// the check waits for twice as long. Zero: there is none, or it is
	// too long to wait for.
	Watchdog time.Duration
	// Lease is the lease that is let run out. A grant has to arrive within it.
	// Default: 1s.
	Lease time.Duration
	// Patience is how long a check waits for what must not happen: that another owner
	// is let in beside the holder. A lock that excludes no owner is found out if it
	// grants within it. Default: 20ms.
	Patience time.Duration
	// Apart: no locker sees the locks of another, be it because each has a service
	// or a prefix of its own. So the checks run at the same time, since they wait
	// for leases, mostly; those with many callers run after the others.
	Apart bool
	// Callers is how many ask at once in the check that just one gets it, and a
	// tenth of it is how many then take turns, each for as long as Patience.
	// Default: 1000.
	Callers int
}

// A Check is one sentence of the contract.
type Check struct {
	Name string
	// Run returns what is wrong, or nil. The locker holds nothing yet.
	Run func(ctx context.Context, l lock.Locker) error
	// crowd: it has many callers, who would keep the other checks from renewing in time.
	crowd bool
}

// limit bounds every wait for something that must happen.
const limit = time.Minute

// long is a lease that doesn't end during a check.
const long = 2 * limit

// Run checks that the locks that newLocker makes keep the contract. Each check
// has a locker of its own; two of them may share a service.
func Run(t *testing.T, newLocker func(t *testing.T) lock.Locker, f Features) {
	t.Helper()
	run := func(ctx context.Context, c Check, l lock.Locker) error {
		ctx, cancel := context.WithTimeout(ctx, 2*limit)
		defer cancel()
		return c.Run(ctx, l)
	}
	checks := Checks(f)
	errs := make([]error, len(checks))
	if f.Apart {
		for _, crowd := range []bool{false, true} {
			var all sync.WaitGroup
			for i, c := range checks {
				if c.crowd == crowd {
					l := newLocker(t)
					all.Go(func() { errs[i] = run(t.Context(), c, l) })
				}
			}
			all.Wait()
		}
	}
	for i, c := range checks {
		t.Run(strings.ReplaceAll(c.Name, " ", "_"), func(t *testing.T) {
			if !f.Apart {
				errs[i] = run(t.Context(), c, newLocker(t))
			}
			if errs[i] != nil {
				t.Errorf("%s: %v", c.Name, errs[i])
			}
		})
	}
}

// Checks lists the checks for a lock with those features.
func Checks(f Features) []Check {
	f.Lease = cmp.Or(f.Lease, time.Second)
	f.Patience = cmp.Or(f.Patience, 20*time.Millisecond)
	f.Callers = cmp.Or(f.Callers, 1000)
	checks := []Check{
		{Name: "a held lock is refused", Run: refused},
		{Name: "a grant says what it is", Run: described},
		{Name: "locks of different names are independent", Run: independent},
		{Name: "a released lock is free", Run: freed},
		{Name: "a waiter is handed the lock", Run: f.handedOver},
		{Name: "a wait ends with a refusal", Run: waitEnds},
		{Name: "a cancelled wait leaves nothing behind", Run: f.cancelled},
		{Name: "a lease that ends lets the next one in", Run: f.expires},
		{Name: "a release after the lease is refused", Run: f.outlived(lateRelease)},
		{Name: "a late release leaves the next holder alone", Run: f.outlived(lateReleaseOfAnother)},
		{Name: "a second release is refused", Run: releasedTwice},
		{Name: "an extended lease lasts longer", Run: f.extended},
		{Name: "an extension after the lease is refused", Run: f.outlived(lateExtend)},
		{Name: "a lease that ends closes Lost and cancels the context", Run: f.lost},
		{Name: "a release does not close Lost", Run: releasedIsNotLost},
		{Name: "one of many callers gets the lock", Run: f.oneOfMany, crowd: true},
		{Name: "many waiters take turns", Run: f.turns, crowd: true},
		{Name: "bad options are refused", Run: badOptions},
	}
	if f.Reentrant {
		checks = append(checks, Check{Name: "a re-entrant lock counts its holds", Run: reentered})
	} else {
		checks = append(checks, Check{Name: "an owner is refused its own lock", Run: func(ctx context.Context, l lock.Locker) error {
			return under(ctx, l, try("a", long), func(*lock.Hold) error { return refuse(ctx, l, "a") })
		}})
	}
	if f.Fenced {
		checks = append(checks, Check{Name: "tokens grow", Run: f.tokensGrow})
	}
	if f.Watchdog > 0 {
		checks = append(checks, Check{Name: "a watchdog keeps a hold", Run: f.watched})
	}
	for i, c := range checks {
		checks[i].Run = func(ctx context.Context, l lock.Locker) error { return c.Run(ctx, answering{l}) }
	}
	return checks
}

// An answering locker returns a hold or an error, whatever the one in it does.
type answering struct{ lock.Locker }

// Acquire returns an error where the locker returns nothing.
func (a answering) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	h, err := a.Locker.Acquire(ctx, name, o)
	if h == nil && err == nil {
		err = errors.New("Acquire returned neither a hold nor an error")
	}
	return h, err
}

const name = "locktest"

func try(owner string, lease time.Duration) lock.Options {
	return lock.Options{Owner: owner, Lease: lease}
}

func await(owner string) lock.Options {
	return lock.Options{Owner: owner, Lease: long, Wait: limit}
}

// want says what is wrong unless err is the wanted one.
func want(err, wanted error, what string) error {
	if !errors.Is(err, wanted) {
		name := map[error]string{lock.ErrNotHeld: "lock.ErrNotHeld: ", lock.ErrNotAcquired: "lock.ErrNotAcquired: "}[wanted]
		return fmt.Errorf("%s returned %q; want %s%q", what, text(err), name, text(wanted))
	}
	return nil
}

// text is an error in words: it is quoted, not wrapped, because the caller must
// not take it for one of the check's own.
func text(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}

// under acquires the lock, calls f, and releases it.
func under(ctx context.Context, l lock.Locker, o lock.Options, f func(h *lock.Hold) error) error {
	h, err := l.Acquire(ctx, name, o)
	if err != nil {
		return fmt.Errorf("acquire by %q: %w", o.Owner, err)
	}
	if err := f(h); err != nil {
		return err
	}
	return h.Release(ctx)
}

// free checks that an owner gets the lock, and gives it back.
func free(ctx context.Context, l lock.Locker, o lock.Options) error {
	return under(ctx, l, o, func(*lock.Hold) error { return nil })
}

// refuse checks that another owner doesn't get the lock.
func refuse(ctx context.Context, l lock.Locker, owner string) error {
	h, err := l.Acquire(ctx, name, try(owner, long))
	if err == nil {
		return errors.Join(fmt.Errorf("%s was granted a lock that is held", owner), h.Release(ctx))
	}
	return want(err, lock.ErrNotAcquired, "Acquire of a held lock")
}

func refused(ctx context.Context, l lock.Locker) error {
	return under(ctx, l, try("a", long), func(*lock.Hold) error {
		return errors.Join(refuse(ctx, l, "b"), refuse(ctx, l, ""))
	})
}

func described(ctx context.Context, l lock.Locker) error {
	before := time.Now()
	return under(ctx, l, try("a", long), func(h *lock.Hold) error {
		after, got := time.Now(), h.Lease()
		if got.Name != name || got.Owner != "a" || got.Request == "" || got.Holds != 1 || got.Length != long {
			return fmt.Errorf("the lease is %+v", got)
		}
		if got.Expires.Before(before.Add(long/2)) || got.Expires.After(after.Add(long)) {
			return fmt.Errorf("a lease of %v ends %v after it was asked for", long, got.Expires.Sub(before))
		}
		return nil
	})
}

func independent(ctx context.Context, l lock.Locker) error {
	return under(ctx, l, try("a", long), func(*lock.Hold) error {
		other, err := l.Acquire(ctx, name+"/other", try("b", long))
		if err == nil {
			err = other.Release(ctx)
		}
		return errors.Join(err, refuse(ctx, l, "b"))
	})
}

func freed(ctx context.Context, l lock.Locker) error {
	for _, owner := range []string{"a", "b", "a"} {
		if err := free(ctx, l, try(owner, long)); err != nil {
			return err
		}
	}
	return nil
}

func (f Features) handedOver(ctx context.Context, l lock.Locker) error {
	var next *lock.Hold
	var refused error
	var granted, released time.Time
	answered := make(chan struct{})
	err := under(ctx, l, try("a", long), func(*lock.Hold) error {
		go func() {
			defer close(answered)
			next, refused = l.Acquire(ctx, name, await("b"))
			granted = time.Now()
		}()
		select {
		case <-answered:
			return fmt.Errorf("the waiter returned while the lock was held, with %q", text(refused))
		case <-time.After(f.Patience): // so that it may be parked
			released = time.Now()
			return nil
		}
	})
	if err != nil {
		return err
	}
	<-answered
	switch {
	case refused != nil:
		return refused
	case granted.Before(released):
		return errors.New("the waiter was granted the lock before it was released")
	}
	return next.Release(ctx)
}

func waitEnds(ctx context.Context, l lock.Locker) error {
	return under(ctx, l, try("a", long), func(*lock.Hold) error {
		for wait := 30 * time.Millisecond; ; wait *= 2 {
			begin := time.Now()
			_, err := l.Acquire(ctx, name, lock.Options{Owner: "b", Lease: long, Wait: wait})
			if errors.Is(err, context.DeadlineExceeded) && wait < 2*time.Second {
				continue // a server that takes longer than the wait to answer leaves the outcome open
			}
			if err := want(err, lock.ErrNotAcquired, "a wait that ended"); err != nil {
				return err
			}
			if took := time.Since(begin); took < wait {
				return fmt.Errorf("a wait of %v ended after %v", wait, took)
			}
			return nil
		}
	})
}

func (f Features) cancelled(ctx context.Context, l lock.Locker) error {
	err := under(ctx, l, try("a", long), func(*lock.Hold) error {
		c, cancel := context.WithTimeout(ctx, f.Patience)
		defer cancel()
		_, err := l.Acquire(c, name, await("b"))
		if err := want(err, context.DeadlineExceeded, "a cancelled wait"); err != nil {
			return err
		}
		<-c.Done() // a caller may be told of the deadline an instant before
		if _, err = l.Acquire(c, name+"/other", try("b", long)); err == nil {
			return errors.New("a lock was granted after the context had ended")
		}
		// The request that was under way may still be granted, if it comes after the release. The
		// next one of its owner is answered when it was: while the lock is held.
		other, err := l.Acquire(ctx, name+"/other", await("b"))
		if err != nil {
			return fmt.Errorf("the next request of the owner: %w", err)
		}
		return other.Release(ctx)
	})
	if err != nil {
		return err
	}
	return free(ctx, l, await("d"))
}

func (f Features) expires(ctx context.Context, l lock.Locker) error {
	a, err := l.Acquire(ctx, name, try("a", f.Lease*3/2)) // of 1.5s, a lock may make 1s
	if err != nil {
		return err
	}
	b, err := l.Acquire(ctx, name, await("b"))
	if err != nil {
		return notOver(a, err)
	}
	if until := time.Until(a.Lease().Expires); until > 0 {
		return fmt.Errorf("the next one was let in %v before the lease ended", until)
	}
	return b.Release(ctx)
}

// ErrNotFree is of a lock that another owner was not granted after the end of a lease.
var ErrNotFree = errors.New("the lock is not free after the end of the lease")

func notOver(h *lock.Hold, err error) error {
	return fmt.Errorf("%w of %v: another owner was not granted it for %v: %w",
		ErrNotFree, h.Lease().Length, time.Since(h.Lease().Expires).Round(time.Millisecond), err)
}

// outlived calls late with a hold whose lease has ended, on the service too: another
// owner was granted the lock, which it then releases.
func (f Features) outlived(late func(ctx context.Context, l lock.Locker, old *lock.Hold) error) func(context.Context, lock.Locker) error {
	return func(ctx context.Context, l lock.Locker) error {
		old, err := l.Acquire(ctx, name, try("a", f.Lease))
		if err != nil {
			return err
		}
		next, err := l.Acquire(ctx, name, await("b"))
		if err != nil {
			return notOver(old, err)
		}
		if err := late(ctx, l, old); err != nil {
			return err
		}
		return next.Release(ctx)
	}
}

func lateRelease(ctx context.Context, _ lock.Locker, old *lock.Hold) error {
	return want(old.Release(ctx), lock.ErrNotHeld, "Release"+tooLate(old))
}

// tooLate says how late a call of a hold is that another owner was granted the lock after.
func tooLate(old *lock.Hold) string {
	return fmt.Sprintf(" %v after the end of a lease of %v, while another owner holds the lock,",
		time.Since(old.Lease().Expires).Round(time.Millisecond), old.Lease().Length)
}

func lateReleaseOfAnother(ctx context.Context, l lock.Locker, old *lock.Hold) error {
	_ = old.Release(ctx) // whatever it says
	return refuse(ctx, l, "c")
}

func lateExtend(ctx context.Context, l lock.Locker, old *lock.Hold) error {
	if err := want(old.Extend(ctx, long), lock.ErrNotHeld, "Extend"+tooLate(old)); err != nil {
		return err
	}
	return refuse(ctx, l, "c")
}

func releasedTwice(ctx context.Context, l lock.Locker) error {
	var a *lock.Hold
	err := under(ctx, l, try("a", long), func(h *lock.Hold) error {
		a = h
		return nil
	})
	if err != nil {
		return err
	}
	if err := want(a.Release(ctx), lock.ErrNotHeld, "a second Release of the same grant"); err != nil {
		return err
	}
	return under(ctx, l, try("b", long), func(*lock.Hold) error {
		if err := want(a.Release(ctx), lock.ErrNotHeld, "a third Release, while another owner holds the lock,"); err != nil {
			return err
		}
		return refuse(ctx, l, "c")
	})
}

func (f Features) extended(ctx context.Context, l lock.Locker) error {
	return under(ctx, l, try("a", 2*f.Lease), func(a *lock.Hold) error { // two requests have to be answered within it
		first, asked := a.Lease().Expires, time.Now()
		if err := a.Extend(ctx, long); err != nil {
			return err
		}
		if moved := a.Lease().Expires.Sub(first); moved < long/2 {
			return fmt.Errorf("an extension to %v moved the end by %v", long, moved)
		}
		wait := max(time.Until(first), 0) + f.Lease/2
		_, err := l.Acquire(ctx, name, lock.Options{Owner: "b", Lease: long, Wait: wait})
		if err == nil {
			return fmt.Errorf("a lease of %v was extended to %v, and the lock granted to another owner %v after that: does Extend use the lease that it is given?",
				2*f.Lease, long, time.Since(asked).Round(time.Millisecond))
		}
		return want(err, lock.ErrNotAcquired, "Acquire of an extended lock")
	})
}

func (f Features) lost(ctx context.Context, l lock.Locker) error {
	a, err := l.Acquire(ctx, name, try("a", f.Lease))
	if err != nil {
		return err
	}
	end := a.Lease().Expires
	c, cancel := a.Context(ctx)
	defer cancel()
	for what, over := range map[string]<-chan struct{}{"Lost": a.Lost(), "the context": c.Done()} {
		select {
		case <-over:
		case <-time.After(limit):
			return fmt.Errorf("the lease ended and %s was not closed", what)
		}
	}
	if until := time.Until(end); until > 0 {
		return fmt.Errorf("the hold was lost %v before the lease ended", until)
	}
	return want(context.Cause(c), lock.ErrLost, "context.Cause")
}

func releasedIsNotLost(ctx context.Context, l lock.Locker) error {
	a, err := l.Acquire(ctx, name, try("a", long))
	if err != nil {
		return err
	}
	c, cancel := a.Context(ctx)
	defer cancel()
	if err := a.Release(ctx); err != nil {
		return err
	}
	if c.Err() == nil || errors.Is(context.Cause(c), lock.ErrLost) {
		return fmt.Errorf("a release left the context of the hold with cause %q: it must be cancelled, and not as lost", fmt.Sprint(context.Cause(c)))
	}
	select {
	case <-a.Lost():
		return errors.New("a release closed Lost")
	default:
		return nil
	}
}

func (f Features) oneOfMany(ctx context.Context, l lock.Locker) error {
	errs := make([]error, f.Callers)
	holds := make([]*lock.Hold, f.Callers)
	start := make(chan struct{})
	var callers sync.WaitGroup
	for i := range f.Callers {
		callers.Go(func() {
			<-start
			holds[i], errs[i] = l.Acquire(ctx, name, try("", long))
		})
	}
	close(start)
	callers.Wait()
	granted := 0
	for i, err := range errs {
		if err == nil {
			granted++
			errs[i] = holds[i].Release(ctx)
		} else if errors.Is(err, lock.ErrNotAcquired) {
			errs[i] = nil
		}
	}
	if granted > 1 || granted == 0 && !f.SplitVotes {
		return fmt.Errorf("%d of %d callers were granted the lock", granted, f.Callers)
	}
	return errors.Join(errs...)
}

// turns has each holder stay until another is inside, or its time is up. So who
// is let in beside it meets it, however late it comes in.
func (f Features) turns(ctx context.Context, l lock.Locker) error {
	n := max(f.Callers/10, 2)
	errs := make([]error, n)
	var inside atomic.Int64
	met := make(chan struct{})
	meet := sync.OnceFunc(func() { close(met) })
	var callers sync.WaitGroup
	for i := range n {
		callers.Go(func() {
			h, err := l.Acquire(ctx, name, await(""))
			if err != nil {
				errs[i] = err
				return
			}
			if inside.Add(1) > 1 {
				meet()
			}
			select {
			case <-met:
			case <-time.After(f.Patience):
			}
			inside.Add(-1)
			errs[i] = h.Release(ctx)
		})
	}
	callers.Wait()
	select {
	case <-met:
		errs = append(errs, errors.New("two were inside at the same time"))
	default:
	}
	return errors.Join(errs...)
}

func badOptions(ctx context.Context, l lock.Locker) error {
	tests := []struct {
		what, name string
		o          lock.Options
	}{
		{"an empty name", "", lock.Options{Lease: long}},
		{"a negative lease", name, lock.Options{Lease: -time.Second}},
		{"a lease below a millisecond", name, lock.Options{Lease: time.Microsecond}},
		{"a negative wait", name, lock.Options{Lease: long, Wait: -time.Second}},
	}
	var errs []error
	for _, tt := range tests {
		_, err := l.Acquire(ctx, tt.name, tt.o)
		if err == nil || errors.Is(err, lock.ErrNotAcquired) {
			errs = append(errs, fmt.Errorf("%s: Acquire returned %q", tt.what, text(err)))
		}
	}
	return errors.Join(errs...)
}

func reentered(ctx context.Context, l lock.Locker) error {
	var holds []*lock.Hold
	for i := 1; i <= 3; i++ {
		h, err := l.Acquire(ctx, name, try("a", long))
		if err != nil {
			return fmt.Errorf("acquire for the %d. time: %w", i, err)
		}
		if got := h.Lease().Holds; got != i {
			return fmt.Errorf("the %d. grant counts %d holds", i, got)
		}
		holds = append(holds, h)
	}
	for _, h := range holds { // oldest first: each ends its own grant
		if err := refuse(ctx, l, "b"); err != nil {
			return err
		}
		if err := h.Release(ctx); err != nil {
			return err
		}
	}
	return free(ctx, l, try("b", long))
}

func (f Features) tokensGrow(ctx context.Context, l lock.Locker) error {
	var last int64
	next := func(o lock.Options) (*lock.Hold, error) {
		h, err := l.Acquire(ctx, name, o)
		if err != nil {
			return nil, err
		}
		if got := h.Lease().Token; got <= last {
			return nil, fmt.Errorf("a token of %d follows %d", got, last)
		}
		last = h.Lease().Token
		return h, nil
	}
	for range 3 {
		h, err := next(try("a", long))
		if err != nil {
			return err
		}
		if f.Reentrant {
			again, err := l.Acquire(ctx, name, try("a", long))
			if err != nil {
				return err
			}
			if got := again.Lease().Token; got != last {
				return fmt.Errorf("a re-entry changed the token from %d to %d", last, got)
			}
			if err := again.Release(ctx); err != nil {
				return err
			}
		}
		if err := h.Release(ctx); err != nil {
			return err
		}
	}
	if _, err := next(try("a", f.Lease)); err != nil {
		return err
	}
	h, err := next(await("b")) // after a lease that ended
	if err != nil {
		return err
	}
	return h.Release(ctx)
}

func (f Features) watched(ctx context.Context, l lock.Locker) error {
	err := under(ctx, l, try("a", 0), func(a *lock.Hold) error {
		_, err := l.Acquire(ctx, name, lock.Options{Owner: "b", Lease: long, Wait: 2 * f.Watchdog})
		if err := want(err, lock.ErrNotAcquired, "Acquire of a lock that is kept alive"); err != nil {
			return err
		}
		select {
		case <-a.Lost():
			return errors.New("a hold that is kept alive was lost")
		default:
			return nil
		}
	})
	if err != nil {
		return err
	}
	return free(ctx, l, try("b", long))
}
