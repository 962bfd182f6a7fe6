package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/lockchaos/lockchaos/driver"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

// A subject is what is checked: a driver, or a lock in Go.
type subject interface {
	// Ask asks for a lock; one that is no mutex in a way.
	Ask(ctx context.Context, name string, w driver.Way, o lock.Options) (*lock.Hold, error)
	Hello() driver.Hello
	// Err says how the protocol was broken.
	Err() error
}

// An opener starts what is checked for the clients of a zone.
type opener func(d topologies.Deployment, zone string, timeout time.Duration, log io.Writer) (s subject, end func(), err error)

// program opens a driver.
func program(command string) opener {
	return func(d topologies.Deployment, zone string, timeout time.Duration, log io.Writer) (subject, func(), error) {
		at := harness.PlaceIn(d, zone)
		at.Timeout = timeout
		one, end, err := at.Start(command, 0, log)
		if err != nil {
			return nil, nil, err
		}
		return one, func() {
			_ = one.Close() // it is killed if it does not end
			end()
		}, nil
	}
}

// inGo opens a lock in Go.
func inGo(l harness.LockSpec) opener {
	open := l.Begin()
	return func(d topologies.Deployment, zone string, timeout time.Duration, _ io.Writer) (subject, func(), error) {
		at, options := harness.PlaceIn(d, zone), d.ClientOptions(zone)
		options.DialTimeout, options.ReadTimeout, options.WriteTimeout = timeout, timeout, timeout
		locker, end, err := l.Connect(open, options, harness.LockOptions{At: &at, Permits: permitsThere})
		return lockInGo{locker, l}, end, err
	}
}

// A lockInGo is one that is checked as a driver is.
type lockInGo struct {
	lock.Locker

	spec harness.LockSpec
}

// Ask asks the lock, which is a [workload.Service]. An error that is no refusal leaves the outcome open, as the info of a
// driver does.
func (l lockInGo) Ask(ctx context.Context, name string, w driver.Way, o lock.Options) (*lock.Hold, error) {
	h, err := workload.Ask(ctx, l.Locker, harness.RequestIn(name, w), o)
	if err != nil && !errors.Is(err, lock.ErrNotAcquired) {
		return nil, finding{fmt.Errorf("%w (it may have been granted)", err), driver.ErrUnknown}
	}
	return h, err
}

// Hello says what the lock promises, in the words of the protocol.
func (l lockInGo) Hello() driver.Hello {
	return driver.Hello{Parallel: manyClients, Promises: l.spec.Promises, Commands: l.spec.Sends, WatchdogMS: l.spec.Lease.Milliseconds()}
}

// Err is nil: there is no protocol.
func (lockInGo) Err() error { return nil }
