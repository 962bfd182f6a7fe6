package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockchaos/lockchaos/conformance"
	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/locktest"
	"github.com/lockchaos/lockchaos/topologies/process"
)

// smokeLength is how long the clients of each run of Smoke work.
const smokeLength = 3 * time.Second

// Smoke tests what every lock must do, on one server, in about ten seconds: the
// contract of package locktest, and what a lock must do where its requests are slow or
// their replies are lost, a subtest for each sentence; clients that release twice; clients
// that release after their lease has ended; and the faults that a correct lock survives. It
// fails like [Run].
func Smoke(t *testing.T, l Lock) {
	t.Helper()
	begin(t)
	parts := []struct {
		name  string
		plan  Plan
		came  played
		unfit error
	}{
		{name: "release-twice", plan: Plan{Workload: "release-twice", Faults: faults.MixNone, Length: smokeLength}},
		{name: "late-release", plan: Plan{Workload: "late-release", Faults: faults.MixNone, Length: smokeLength}},
		{name: "safe-faults", plan: Plan{Length: smokeLength}},
	}
	if err := l.Validate(); err != nil {
		t.Fatalf("chaos.Smoke: %v", err)
	}
	if l.Kind != history.KindSemaphore {
		if err := unmapped(t.Context(), l); err != nil {
			t.Fatalf("chaos.Smoke: %v", err)
		}
	}
	var verdicts []verdict
	var all sync.WaitGroup
	begun, took := time.Now(), time.Duration(0)
	all.Go(func() { verdicts = contract(t.Context(), l); took = time.Since(begun) })
	for i := range parts {
		g, part := &guard{}, &parts[i]
		runs, err := part.plan.runs(g.of(l))
		if part.unfit = err; err != nil {
			continue
		}
		all.Go(func() { part.came = playTwice(t, part.name, g, random(runs[0]), longer(runs[0]), 1) })
	}
	all.Wait()
	t.Run("contract", func(t *testing.T) {
		for _, v := range verdicts {
			t.Run(strings.ReplaceAll(v.name, " ", "-"), func(t *testing.T) {
				hint := ""
				if errors.Is(v.err, locktest.ErrNotFree) || errors.Is(v.err, conformance.ErrNotFree) {
					hint = "If a watchdog of the lock extends each grant until its release, set Endless.\n"
				}
				switch {
				case v.skipped != "":
					t.Skip(v.skipped)
				case v.err != nil:
					t.Errorf("%s: %v\n%sagain: go test -run '%s' (the whole contract is checked, in %.1f s)", v.name, v.err, hint, pattern(t.Name()), took.Seconds())
				}
			})
		}
	})
	for _, part := range parts {
		t.Run(part.name, func(t *testing.T) {
			if part.unfit != nil {
				t.Skip(part.unfit)
			}
			report(t, part.came)
		})
	}
}

// unmapped has a lock refuse a client what another client holds, on servers without faults, and says what is wrong where
// the answer is an error of its own, or a grant that can't be released. Whatever else is wrong is for the contract.
func unmapped(ctx context.Context, l Lock) (wrong error) {
	g := &guard{}
	refuses := conformance.InGo("a held lock is refused", func(ctx context.Context, locker lock.Locker) error {
		held, err := locker.Acquire(ctx, "orders", lock.Options{Owner: "a", Lease: time.Minute})
		if err != nil {
			return nil //nolint:nilerr // it is for the contract
		}
		for range 3 { // a busy machine may answer too late once
			h, err := locker.Acquire(ctx, "orders", lock.Options{Owner: "b", Lease: time.Minute})
			granted := err == nil
			if granted {
				err = h.Release(ctx)
			}
			switch {
			case err == nil, errors.Is(err, lock.ErrNotAcquired):
				wrong = nil
				return held.Release(ctx)
			case granted:
				wrong = fmt.Errorf("lock %s returned no error to a client that asked for a lock which another client held, and no grant that can be released (%w): "+
					"where it says by nil or false that it is taken, return lock.ErrNotAcquired", l.Name, err)
			case len(g.noted()) == 0:
				wrong = fmt.Errorf("lock %s returned %q (%T) to a client that asked for a lock which another client held. That is none of the errors of package lock, "+
					"so that it may have been granted: say what it means where the lock is opened, chaos.Means(err, THE ERROR, lock.ErrNotAcquired)", l.Name, err, err)
			}
		}
		return nil
	})
	_ = conformance.Lock(ctx, process.Backend{}, g.of(l), []conformance.Check{refuses}, func(conformance.Outcome) {}) // what else it tells is for the contract
	return wrong
}

// A verdict is what came of one sentence of the contract.
type verdict struct {
	name    string
	err     error
	skipped string // why it was not checked
}

// contractLimit is how long all checks of a contract may take.
const contractLimit = 2 * time.Minute

// contract checks the contract of a lock, and what it must do where its links break or are slow.
func contract(ctx context.Context, l Lock) (verdicts []verdict) {
	if l.Endless || l.Kind == history.KindSemaphore {
		return []verdict{{name: "a lock with leases and one holder", skipped: "the contract is that of a lock with leases and one holder"}}
	}
	var checks []conformance.Check
	for _, c := range locktest.Checks(locktest.Features{Reentrant: l.Reentrant, Fenced: l.Token, SplitVotes: l.Quorum, Callers: 100}) {
		checks = append(checks, conformance.InGo(c.Name, func(ctx context.Context, l lock.Locker) error { return c.Run(ctx, cancelled{l}) }))
	}
	checks = append(checks, conformance.LockChecks()...)
	g := &guard{}
	ctx, cancel := context.WithTimeout(ctx, contractLimit)
	defer cancel()
	told := make(chan verdict, len(checks)+1) // so that a call that returns too late waits for no reader
	go func() {
		defer close(told)
		err := conformance.Lock(ctx, process.Backend{}, g.of(l), checks, func(o conformance.Outcome) {
			switch {
			case o.Skipped:
				told <- verdict{name: o.Name, skipped: "not promised"}
			case errors.Is(o.Wrong, errors.ErrUnsupported):
				told <- verdict{name: o.Name, skipped: o.Wrong.Error()}
			default:
				told <- verdict{name: o.Name, err: o.Wrong}
			}
		})
		if err != nil && !errors.Is(err, conformance.ErrHopeless) { // that one shows the others to be useless is told by itself
			told <- verdict{name: "the servers", err: err}
		}
	}()
	for limit, more := time.After(contractLimit+2*grace), true; more; {
		var v verdict
		select {
		case v, more = <-told:
		case <-limit:
			v, more = verdict{name: "calls return", err: errors.New("a call of the lock does not return, and ignores its context")}, false
		}
		if v.name != "" {
			verdicts = append(verdicts, v)
		}
	}
	for _, problem := range g.noted() {
		verdicts = append(verdicts, verdict{name: "the calls of the lock", err: errors.New(problem)})
	}
	return verdicts
}

// A cancelled locker says that a request failed because its context ended, however
// the lock says that.
type cancelled struct{ lock.Locker }

// Acquire asks the lock.
func (c cancelled) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	h, err := c.Locker.Acquire(ctx, name, o)
	if err != nil && await.Over(ctx) {
		err = errors.Join(err, cmp.Or(ctx.Err(), context.DeadlineExceeded))
	}
	return h, err
}
