package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/driver"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/topologies"
)

// lockLease is a lease that is let run out in a check of a lock in Go, which starts no
// program for a request.
const lockLease = time.Second

// CheckLock makes those checks of a driver that no test of a lock in Go makes by itself, most of
// which break links, of a lock in Go, and tells what came of each as [CheckDriver] does.
func CheckLock(ctx context.Context, backend topologies.Backend, l LockSpec, tell func(c DriverCheck, skipped bool, wrong error)) error {
	t, err := topologies.New(CheckTopology(l), topologies.Options{})
	if err != nil {
		return err
	}
	var checks []DriverCheck
	for _, c := range DriverChecks() {
		if c.links {
			checks = append(checks, c)
		}
	}
	open := l.Begin()
	start := func(d topologies.Deployment, zone string, timeout time.Duration, _ io.Writer) (checkedLock, func(), error) {
		return openForCheck(l, open, d, zone, timeout)
	}
	var told order
	return Each(ctx, backend, t, lockLanes, len(checks), func(d topologies.Deployment, i int) {
		skipped, wrong := repeatDriverCheck(ctx, d, start, checks[i], lockLease, fmt.Sprintf("check-%d", i+1), io.Discard)
		told.at(i, func() { tell(checks[i], skipped, wrong) })
	})
}

// An UnmappedError is an error of a lock to a client that asked for what another client held, on servers without
// faults, which is not [lock.ErrNotAcquired]: it leaves open whether the lock was granted.
type UnmappedError struct {
	Lock string
	Err  error
}

func (e *UnmappedError) Error() string {
	return fmt.Sprintf("lock %s returned %q (%T) to a client that asked for a lock which another client held. That is none of the errors of package lock, so that it may have been granted", e.Lock, e.Err, e.Err)
}

// Unwrap returns the error of the lock.
func (e *UnmappedError) Unwrap() error { return e.Err }

// CheckRefusal has a lock refuse a client what another client holds, on servers without faults, and returns an
// [UnmappedError] where the answer is an error of its own. Whatever else is wrong is for other checks.
func CheckRefusal(ctx context.Context, backend topologies.Backend, l LockSpec) error {
	t, err := topologies.New(CheckTopology(l), topologies.Options{})
	if err != nil {
		return err
	}
	open := l.Begin()
	failed := Each(ctx, backend, t, 1, 1, func(d topologies.Deployment, _ int) {
		ctx, cancel := context.WithTimeout(ctx, checkLimit)
		defer cancel()
		var of [2]checkedLock
		for i, zone := range d.Topology().Of(topologies.Zone)[:2] {
			one, end, failed := openForCheck(l, open, d, zone, checkTimeout)
			if failed != nil {
				return
			}
			defer end()
			of[i] = one
		}
		h, failed := ask(ctx, of[0], "refusal", "zone-a.1", checkLong)
		if failed != nil {
			return
		}
		for range checkTries { // a busy machine may answer too late once
			_, answer := of[1].(inGo).Locker.Acquire(ctx, "refusal", lock.Options{Owner: owner("zone-b.1"), Lease: checkLong}) //nolint:forcetypeassert // see openForCheck
			if err = nil; answer != nil && !errors.Is(answer, lock.ErrNotAcquired) && ctx.Err() == nil {
				err = &UnmappedError{l.Name, answer}
			}
			if err == nil {
				break
			}
		}
		_ = h.Release(ctx)
	})
	return errors.Join(err, failed)
}

// openForCheck opens a lock for the clients of a zone.
func openForCheck(l LockSpec, open Opener, d topologies.Deployment, zone string, timeout time.Duration) (checkedLock, func(), error) {
	at, options := PlaceIn(d, zone), d.ClientOptions(zone)
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout = timeout, timeout, timeout
	servers := topologies.Clients(options)
	closeAll := func() {
		for _, rdb := range servers {
			_ = rdb.Close()
		}
	}
	locker, closeLock, err := open(servers, LockOptions{At: &at})
	if err != nil {
		closeAll()
		return nil, nil, fmt.Errorf("open lock %s: %w", l.Name, err)
	}
	return inGo{locker, l}, func() {
		if closeLock != nil {
			closeLock()
		}
		closeAll()
	}, nil
}

// A lock inGo is one that is checked as a driver is.
type inGo struct {
	lock.Locker

	spec LockSpec
}

// Acquire asks the lock. An error that is no refusal leaves the outcome open, as the info
// of a driver does.
func (l inGo) Acquire(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
	h, err := l.Locker.Acquire(ctx, name, o)
	switch {
	case err == nil && h == nil:
		return nil, errors.New("the lock under test returned neither a hold nor an error")
	case err != nil && !errors.Is(err, lock.ErrNotAcquired):
		return nil, fmt.Errorf("%w (%w)", err, errOpen)
	}
	return h, err
}

// errOpen says that an outcome is not known.
var errOpen = errors.New("it may have been granted")

// ReleaseAgain releases a hold, whatever became of it.
func (l inGo) ReleaseAgain(ctx context.Context, h *lock.Hold) error { return h.Release(ctx) }

// Hello says what the lock promises, in the words of the protocol.
func (l inGo) Hello() driver.Hello {
	return driver.Hello{Name: l.spec.Name, Parallel: checkClients, Promises: driver.Promises{
		Extend: !l.spec.NoExtend, Lost: !l.spec.NoNotice, Token: l.spec.Tokens, Reentrant: l.spec.Reentrant, Fair: l.spec.Fair, Wait: true,
		Watchdog: l.spec.Watchdog, HandsOver: l.spec.GrantsLocally, Quorum: l.spec.UsesIndependent(), ReleaseTells: !l.spec.SilentRelease,
	}}
}

// Err is nil: there is no protocol.
func (inGo) Err() error { return nil }

// How many checks are made at a time, each on servers of its own. Most of them wait for a
// lease. A driver may start programs for each request: a check that it is too slow for is made
// again, with longer leases.
const driverLanes, lockLanes = 2, 3

// Each starts a topology some times, and does something n times, as often at a time as there are
// deployments. One after the other is given each number from 0.
func Each(ctx context.Context, backend topologies.Backend, t topologies.Topology, deployments, n int, do func(d topologies.Deployment, i int)) error {
	next := make(chan int, n)
	for i := range n {
		next <- i
	}
	close(next)
	errs := make([]error, deployments)
	var all sync.WaitGroup
	for lane := range errs {
		all.Go(func() {
			d, err := backend.Start(ctx, t)
			if err != nil {
				errs[lane] = err
				return
			}
			for i := range next {
				if ctx.Err() != nil {
					break
				}
				do(d, i)
			}
			errs[lane] = d.Close()
		})
	}
	all.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

// An order has things done in the order of their numbers, from 0, whenever each is ready.
type order struct {
	mu    sync.Mutex
	next  int
	ready map[int]func()
}

func (o *order) at(i int, do func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ready == nil {
		o.ready = map[int]func(){}
	}
	for o.ready[i] = do; o.ready[o.next] != nil; o.next++ {
		o.ready[o.next]()
	}
}
