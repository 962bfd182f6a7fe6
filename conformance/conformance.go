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
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockchaos/lockchaos/driver"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/promises"
	"github.com/lockchaos/lockchaos/topologies"
)

const (
	// driverLease is a lease that is let run out. A driver that cuts it to whole seconds frees the lock 0.9 s early,
	// which is seen on a busy machine, too. A lock in Go, which starts no program for a request, has a shorter one.
	driverLease, lockLease = 2900 * time.Millisecond, time.Second
	// driverLanes is how many checks are made at a time, each on servers of its own: most of them wait for a lease. A lock
	// in Go starts no programs, so that there is room for more.
	driverLanes, lockLanes = 3, 6
	// checkLimit bounds all tries of one check.
	checkLimit = 50 * time.Second
	// limit bounds every wait for something that must happen: a client that sends a request ten times gives up before.
	limit = 30 * time.Second
	// serverTimeout is for how long a driver should wait for a server.
	serverTimeout = 2 * time.Second
	// mostLogged is how much is kept of the end of the logs of a check, in bytes.
	mostLogged = 16 << 10
	// tries is how often at the most a check is made that comes to nothing, each time with twice the time for leases and
	// servers: a driver may start a program for each request, on a machine that has others to do.
	tries = 3
)

// A Check is one sentence about what a lock must do.
type Check struct {
	// Name is the sentence.
	Name string
	// needs says whether it is promised; nil: every lock must.
	needs func(promises.Promises) bool
	looks looks
	// change is what a user has to change where the check fails; empty where what went wrong says so itself.
	change string
	play   func(*play)
}

// A check looks at what only some subjects have.
type looks int

const (
	// onRedis: at the keys and the commands of Redis servers. It can't be made on another store.
	onRedis looks = 1 << iota
	// overLinks: at what passes the links, which most such checks break, or else at what no test of a lock in Go looks at by
	// itself. See [LockChecks].
	overLinks
)

// Checks lists the checks of a driver, in order.
func Checks() []Check {
	return slices.Concat(grants(), kinds(), leases(), holds(), replies())
}

// Suits reports whether the check can be made on the servers of a topology.
func (c Check) Suits(topology string) bool {
	return c.looks&onRedis == 0 || topologies.StoreOf(topology) == topologies.StoreRedis
}

// An Outcome is what came of a check.
type Outcome struct {
	Check
	// Skipped says that the lock does not promise this.
	Skipped bool
	// Wrong is what was wrong; nil: nothing.
	Wrong error
	// Log is the end of what the driver logged.
	Log string
}

// ErrHopeless is of a driver of which a check failed without which no other says anything: it does not grant a free lock,
// and take it back, where nothing is in the way; it leaves a request without an answer, or answers late; the end of a
// lease does not free the lock; or it does not exit.
var ErrHopeless = errors.New("without the one that failed they show nothing")

// A finding is what was wrong that is not so for certain, since a slow lock explains it as well ([driver.ErrUnknown]), or
// without which no other check shows anything ([ErrHopeless]).
type finding struct {
	error

	also error
}

// Unwrap returns what was wrong, and how much that says.
func (f finding) Unwrap() []error { return []error{f.error, f.also} }

// open reports whether what went wrong tells nothing but that the lock, or the machine, was slow: an outcome that is not
// known, or a server that did not answer in time.
func open(wrong error) bool {
	return errors.Is(wrong, driver.ErrUnknown) || errors.Is(wrong, os.ErrDeadlineExceeded)
}

// Topology is the one on which a lock is checked unless another is asked for: one server,
// several independent ones for a lock that is on a majority, or the first of another store.
func Topology(l harness.LockSpec) string {
	store := cmp.Or(l.Store, topologies.StoreRedis)
	if l.Quorum && store == topologies.StoreRedis {
		return topologies.Independent
	}
	return topologies.NamesOf(store)[0]
}

// Driver makes checks, of [Checks], of the driver with that command on a topology that backend starts, and tells
// what came of each, in order. The error is of what kept it from checking.
func Driver(ctx context.Context, backend topologies.Backend, command, topology string, checks []Check, tell func(Outcome)) error {
	return runner{backend, topology, program(command), driverLease, driverLanes}.run(ctx, checks, tell) //nolint:contextcheck // the driver outlives the start
}

// LockChecks are those of [Checks] that no test of a lock in Go makes by itself, most of which break links.
func LockChecks() []Check {
	return slices.DeleteFunc(Checks(), func(c Check) bool { return c.looks&overLinks == 0 })
}

// Lock makes checks of a lock in Go, those of [LockChecks] or of [InGo], and tells what came of each as [Driver] does.
func Lock(ctx context.Context, backend topologies.Backend, l harness.LockSpec, checks []Check, tell func(Outcome)) error {
	return runner{backend, Topology(l), inGo(l), lockLease, lockLanes}.run(ctx, checks, tell)
}

// InGo is a check that asks a lock in Go by itself, on servers without keys.
func InGo(name string, ask func(context.Context, lock.Locker) error) Check {
	return Check{Name: name, play: func(p *play) {
		for _, server := range p.d.Topology().Of(topologies.Redis) { // a check that is made again has left some
			p.must(p.d.Server(server).Observer().FlushAll(p.ctx).Err())
		}
		p.must(ask(p.ctx, p.a.lock))
	}}
}

// A runner makes checks.
type runner struct {
	backend  topologies.Backend
	topology string
	open     opener
	lease    time.Duration
	lanes    int
}

// run makes checks side by side, but the first of all alone, and makes no more once one shows that the others show nothing.
func (r runner) run(whole context.Context, checks []Check, tell func(Outcome)) error {
	t, err := topologies.New(r.topology, topologies.Options{})
	if err != nil {
		return err
	}
	backend, end := harness.Pool(r.backend)
	var mu sync.Mutex // one check after the other ends
	came, told := make([]*Outcome, len(checks)), 0
	alone := len(checks) > 1 && checks[0].Name == Checks()[0].Name
	one := func(ctx context.Context, i int) error {
		if ctx.Err() != nil {
			return nil
		}
		d, err := backend.Start(ctx, t)
		if err != nil {
			return err
		}
		o := r.repeat(ctx, d, checks[i], fmt.Sprintf("check-%d", i+1))
		if err := d.Close(); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if o.Wrong != nil && ctx.Err() != nil { // it was cut short
			return nil
		}
		for came[i] = &o; told < len(came) && came[told] != nil; told++ {
			tell(*came[told])
		}
		if errors.Is(o.Wrong, ErrHopeless) || o.Wrong != nil && i == 0 && alone {
			return ErrHopeless
		}
		return nil
	}
	lanes, ctx := errgroup.WithContext(whole)
	lanes.SetLimit(r.lanes)
	from := 0
	if alone {
		from, err = 1, one(whole, 0)
	}
	for i := from; i < len(checks) && err == nil; i++ {
		lanes.Go(func() error { return one(ctx, i) })
	}
	err = cmp.Or(err, lanes.Wait(), end())
	left := 0
	for _, o := range came[told:] {
		if o == nil {
			left++
		} else {
			tell(*o)
		}
	}
	if errors.Is(err, ErrHopeless) && whole.Err() == nil {
		return fmt.Errorf("the other %d checks were not made: %w", left, err)
	}
	return cmp.Or(whole.Err(), err)
}

// repeat makes a check until it comes to something. What is wrong for certain is told at once.
func (r runner) repeat(ctx context.Context, d topologies.Deployment, c Check, name string) Outcome {
	limited, cancel := context.WithTimeoutCause(ctx, checkLimit, fmt.Errorf("the check took longer than %v: see that each request is answered, also while a server can't be reached (in a driver, hello has for how long to wait, in timeout_ms)", checkLimit))
	defer cancel()
	o := Outcome{Check: c}
	begin := time.Now()
	for try := 1; ; try++ {
		tried := time.Now()
		p := &play{ctx: limited, d: d, name: fmt.Sprintf("%s.%d", name, try), lease: r.lease << (try - 1), timeout: serverTimeout << (try - 1)}
		o.Skipped, o.Wrong = p.once(r.open, c)
		o.Log += p.logs[0].String() + p.logs[1].String()
		inTime := time.Since(begin)+2*time.Since(tried) < checkLimit // the next one takes twice as long
		if open(o.Wrong) && try < tries && inTime && limited.Err() == nil {
			continue
		}
		switch {
		case o.Wrong == nil || ctx.Err() != nil:
		case limited.Err() != nil:
			o.Wrong = fmt.Errorf("%w: %w", context.Cause(limited), o.Wrong)
		case open(o.Wrong) && try > 1:
			o.Wrong = fmt.Errorf("in each of %d tries, the last with a lease of %v and servers awaited for %v: %w", try, p.lease, p.timeout, o.Wrong)
		case open(o.Wrong), errors.Is(o.Wrong, ErrHopeless), c.change == "", errors.Is(o.Wrong, driver.ErrBroken):
		default:
			o.Wrong = fmt.Errorf("%w\nto change: %s", o.Wrong, c.change)
		}
		o.Log = o.Log[max(0, len(o.Log)-mostLogged):]
		return o
	}
}

// once opens what is checked in both zones, and makes a check once.
func (p *play) once(start opener, c Check) (skipped bool, wrong error) {
	zones := p.d.Topology().Of(topologies.Zone)
	for i, at := range []*subject{&p.a, &p.b} {
		one, end, err := start(p.d, zones[i%len(zones)], p.timeout, &p.logs[i])
		if err != nil {
			return false, err
		}
		defer end()
		*at = one
	}
	if c.needs != nil && !c.needs(p.promises()) {
		return true, nil
	}
	wrong = p.made(c.play)
	if p.a.driver != nil {
		wrong = cmp.Or(wrong, errors.Join(p.a.driver.Err(), p.b.driver.Err()))
	}
	return false, wrong
}
