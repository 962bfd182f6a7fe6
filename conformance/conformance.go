// Package conformance checks that a driver, or a lock in Go, does what it promises, on healthy
// servers whose links it breaks.
//
// A [Check] is one sentence about what a lock must do. [Driver] makes the checks of a driver,
// and [Lock] those of a lock in Go.
package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockchaos/lockchaos/driver"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/promises"
	"github.com/lockchaos/lockchaos/topologies"
)

const (
	// driverLease is a lease that is let run out. A driver that cuts it to whole seconds frees the lock 0.9 s early,
	// which is seen on a busy machine, too. A lock in Go, which starts no program for a request, has a shorter one.
	driverLease, lockLease = 2900 * time.Millisecond, time.Second
	// lanes is how many checks are made at a time, each on servers of its own: most of them wait for a lease.
	lanes = 3
	// checkLimit bounds all tries of one check.
	checkLimit = 50 * time.Second
	// limit bounds every wait for something that must happen: a client that sends a request ten times gives up before.
	limit = 30 * time.Second
	// serverTimeout is for how long a driver should wait for a server.
	serverTimeout = 2 * time.Second
	// tries is how often at the most a check is made that comes to nothing, each time with twice the time for leases and
	// servers: a driver may start a program for each request, on a machine that has others to do.
	tries = 3
)

// A Check is one sentence about what a lock must do.
type Check struct {
	// Name is the sentence.
	Name string
	// Needs says whether it is promised; nil: every lock must.
	Needs func(promises.Promises) bool
	// change is what a user has to change where the check fails; empty where what went wrong says so itself.
	change string
	play   func(*play)
	// redis says that it looks at the keys and the commands of Redis servers, and can't be made on another store.
	redis bool
	// links says that no test of a lock in Go looks at this by itself; most such checks break
	// links, or look at what passes them. See [Lock].
	links bool
}

// Suits reports whether the check can be made on the servers of a topology.
func (c Check) Suits(topology string) bool {
	return !c.redis || topologies.StoreOf(topology) == topologies.StoreRedis
}

// An Outcome is what came of a check.
type Outcome struct {
	Check
	// Skipped says that the lock does not promise this.
	Skipped bool
	// Wrong is what was wrong; nil: nothing.
	Wrong error
	// Log is the end of what the driver logged, and what the check noted.
	Log string
}

// ErrHopeless is of a driver of which a check failed without which no other says anything: it does not grant a free lock,
// and take it back, where nothing is in the way; it leaves a request without an answer, or answers late; the end of a
// lease does not free the lock; or it does not exit.
var ErrHopeless = errors.New("without the one that failed they show nothing")

// A hopelessError is what was wrong where the rest shows nothing.
type hopelessError struct{ error }

// Unwrap returns what was wrong.
func (e hopelessError) Unwrap() error { return e.error }

// Topology is the one on which a lock is checked unless another is asked for: one server,
// several independent ones for a lock that is on a majority, or the first of another store.
func Topology(l harness.LockSpec) string {
	switch {
	case cmp.Or(l.Store, topologies.StoreRedis) != topologies.StoreRedis:
		return topologies.NamesOf(l.Store)[0]
	case l.Quorum:
		return topologies.Independent
	default:
		return topologies.Single
	}
}

// Driver makes checks, of [Checks], of the driver with that command on a topology that backend starts, and tells
// what came of each, in order. The error is of what kept it from checking, such as a driver that does not start.
func Driver(ctx context.Context, backend topologies.Backend, command, topology string, checks []Check, tell func(Outcome)) error {
	if _, err := harness.Program(command, nil); err != nil { //nolint:contextcheck // it bounds itself
		return err
	}
	r := runner{backend, topology, program(command), driverLease} //nolint:contextcheck // the driver outlives the start
	return r.run(ctx, checks, tell)
}

// Lock makes those checks of a lock in Go that no test of it makes by itself, most of which break
// links, and tells what came of each as [Driver] does. It is no error that one makes the others show nothing.
func Lock(ctx context.Context, backend topologies.Backend, l harness.LockSpec, tell func(Outcome)) error {
	var checks []Check
	for _, c := range Checks() {
		if c.links {
			checks = append(checks, c)
		}
	}
	r := runner{backend, Topology(l), inGo(l), lockLease}
	if err := r.run(ctx, checks, tell); !errors.Is(err, ErrHopeless) {
		return err
	}
	return nil
}

// A runner makes checks.
type runner struct {
	backend  topologies.Backend
	topology string
	open     opener
	lease    time.Duration
}

// run makes checks side by side, but the first of all alone, and makes no more once one shows that the others show nothing.
func (r runner) run(whole context.Context, checks []Check, tell func(Outcome)) error {
	t, err := topologies.New(r.topology, topologies.Options{})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(whole)
	defer stop()
	var mu sync.Mutex
	came, told := make([]*Outcome, len(checks)), 0
	first := 0 // of those that are made side by side
	check := func(d topologies.Deployment, i int) {
		o := repeat(ctx, d, r.open, checks[i], r.lease, fmt.Sprintf("check-%d", i+1))
		mu.Lock()
		defer mu.Unlock()
		if o.Wrong != nil && ctx.Err() != nil { // it was cut short
			return
		}
		for came[i] = &o; told < len(came) && came[told] != nil; told++ { // in order
			tell(*came[told])
		}
		if _, hopeless := errors.AsType[hopelessError](o.Wrong); hopeless || o.Wrong != nil && i < first {
			stop()
		}
	}
	if len(checks) > 1 && checks[0].Name == Checks()[0].Name {
		first = 1
		err = Each(ctx, r.backend, t, 1, 1, check)
	}
	if ctx.Err() == nil && err == nil {
		err = Each(ctx, r.backend, t, lanes, len(checks)-first, func(d topologies.Deployment, i int) { check(d, first+i) })
	}
	if ctx.Err() == nil || whole.Err() != nil || len(checks) == 1 {
		return err
	}
	left := len(checks) - told
	for _, o := range came[told:] { // behind one that was not made
		if o != nil {
			left--
			tell(*o)
		}
	}
	return fmt.Errorf("the other %d checks were not made: %w", left, ErrHopeless)
}

// Each starts a topology some times, and does something n times, as often at a time as there are
// deployments. One after the other is given each number from 0.
func Each(ctx context.Context, backend topologies.Backend, t topologies.Topology, deployments, n int, do func(d topologies.Deployment, i int)) error {
	var begun atomic.Int64
	var lanes errgroup.Group
	for range deployments {
		lanes.Go(func() error {
			d, err := backend.Start(ctx, t)
			if err != nil {
				return err
			}
			for i := int(begun.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(begun.Add(1)) - 1 {
				do(d, i)
			}
			return d.Close()
		})
	}
	return errors.Join(lanes.Wait(), ctx.Err())
}

// errSlow says that a lease was over before the answer came.
var errSlow = errors.New("the answer was too slow for the lease")

// An unsureError is an observation that a slow lock explains as well as a wrong one.
type unsureError struct{ error }

// open reports whether what went wrong tells nothing but that the lock, or the machine, was slow: an outcome that
// the lock does not know, an answer behind the end of its lease, or a server that did not answer in time.
func open(wrong error) bool {
	_, unsure := errors.AsType[unsureError](wrong)
	_, unmapped := errors.AsType[openError](wrong)
	return unsure || unmapped || errors.Is(wrong, driver.ErrUnknown) || errors.Is(wrong, errSlow) || errors.Is(wrong, os.ErrDeadlineExceeded)
}

// repeat makes a check until it comes to something. What is wrong for certain is told at once.
func repeat(ctx context.Context, d topologies.Deployment, start opener, c Check, lease time.Duration, name string) Outcome {
	limited, cancel := context.WithTimeoutCause(ctx, checkLimit, fmt.Errorf("the check took longer than %v: see that each request is answered, also while a server can't be reached (in a driver, hello has for how long to wait, in timeout_ms)", checkLimit))
	defer cancel()
	var log tail
	begin := time.Now()
	for try := 1; ; try++ {
		tried := time.Now()
		longer, patience := lease<<(try-1), serverTimeout<<(try-1)
		skipped, wrong := once(limited, d, start, c, longer, patience, fmt.Sprintf("%s.%d", name, try), &log)
		again := try < tries && time.Since(begin)+2*time.Since(tried) < checkLimit // the next one takes twice as long
		_, hopeless := errors.AsType[hopelessError](wrong)
		switch {
		case wrong == nil || ctx.Err() != nil:
		case limited.Err() != nil:
			wrong = fmt.Errorf("%w: %w", context.Cause(limited), wrong)
		case open(wrong) && again:
			continue
		case open(wrong) && try > 1:
			wrong = fmt.Errorf("in each of %d tries, the last with a lease of %v and servers awaited for %v: %w", try, longer, patience, wrong)
		case open(wrong), hopeless, c.change == "", errors.Is(wrong, driver.ErrBroken):
		default:
			wrong = fmt.Errorf("%w\nto change: %s", wrong, c.change)
		}
		return Outcome{Check: c, Skipped: skipped, Wrong: wrong, Log: log.text()}
	}
}

// once makes a check once, with that lease and wait for servers.
func once(ctx context.Context, d topologies.Deployment, start opener, c Check, lease, timeout time.Duration, name string, log io.Writer) (skipped bool, wrong error) {
	p := &play{ctx: ctx, d: d, name: name, lease: lease, timeout: timeout, log: log}
	zones := d.Topology().Of(topologies.Zone)
	for i, at := range []*subject{&p.a, &p.b} {
		one, end, err := start(d, zones[i%len(zones)], timeout, log)
		if err != nil {
			return false, err
		}
		defer end()
		*at = one
	}
	if c.Needs != nil && !c.Needs(p.a.Hello().Promises) {
		return true, nil
	}
	return false, cmp.Or(p.made(c.play), errors.Join(p.a.Err(), p.b.Err()))
}

// An UnmappedError is an error of a lock to a client that asked for what another client held, on servers without
// faults, which is not [lock.ErrNotAcquired]: it leaves open whether the lock was granted. Or the lock returned
// no error and granted nothing: Err is that of the release.
type UnmappedError struct {
	Lock    string
	Err     error
	Granted bool
}

func (e *UnmappedError) Error() string {
	if e.Granted {
		return fmt.Sprintf("lock %s returned no error to a client that asked for a lock which another client held, and no grant that can be released (%v): "+
			"where it says by nil or false that it is taken, return lock.ErrNotAcquired", e.Lock, e.Err)
	}
	return fmt.Sprintf("lock %s returned %q (%T) to a client that asked for a lock which another client held. That is none of the errors of package lock, "+
		"so that it may have been granted: say what it means where the lock is opened, chaos.Means(err, THE ERROR, lock.ErrNotAcquired)", e.Lock, e.Err, e.Err)
}

// Refusal has a lock refuse a client what another client holds, on servers without faults, and returns an
// [UnmappedError] where the answer is an error of its own. Whatever else is wrong is for other checks.
func Refusal(ctx context.Context, backend topologies.Backend, l harness.LockSpec) error {
	var unmapped error
	refusal := func(p *play) {
		h := p.grant("a.1", p.name, long) //nolint:contextcheck // the play has one
		for range tries {                 // a busy machine may answer too late once
			got, err := p.ask(ctx, "b.1", p.name, long)
			granted := err == nil
			if granted {
				err = got.Release(ctx)
			}
			own, is := errors.AsType[openError](err)
			if unmapped = nil; ctx.Err() != nil || err == nil || !granted && !is {
				break
			}
			unmapped = &UnmappedError{l.Name, cmp.Or(own.error, err), granted}
		}
		p.release(h)
	}
	t, err := topologies.New(Topology(l), topologies.Options{})
	if err != nil {
		return err
	}
	failed := Each(ctx, backend, t, 1, 1, func(d topologies.Deployment, _ int) {
		_, _ = once(ctx, d, inGo(l), Check{play: refusal}, lockLease, serverTimeout, "refusal", io.Discard)
	})
	return errors.Join(unmapped, failed)
}

// A tail keeps the end of a log.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

// mostKept is how much a tail keeps, in bytes.
const mostKept = 16 << 10

// Write adds to the log.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b...)
	t.kept = t.kept[max(0, len(t.kept)-mostKept):]
	return len(b), nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}
