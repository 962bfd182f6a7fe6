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
type subject struct {
	driver *driver.Driver // nil: it is a lock in Go
	lock   lock.Locker
	hello  driver.Hello
}

// ask asks for a lock; one that is no mutex in a way. An error of a lock in Go that is no refusal leaves the outcome open, as the
// info of a driver does.
func (s subject) ask(ctx context.Context, name string, w driver.Way, o lock.Options) (*lock.Hold, error) {
	if s.driver != nil {
		return s.driver.Ask(ctx, name, w, o)
	}
	h, err := workload.Ask(ctx, s.lock, harness.RequestIn(name, w), o)
	if err != nil && !errors.Is(err, lock.ErrNotAcquired) {
		return nil, finding{fmt.Errorf("%w (it may have been granted)", err), driver.ErrUnknown}
	}
	return h, err
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
			return subject{}, nil, err
		}
		return subject{one, one, one.Hello()}, func() {
			_ = one.Close() // it is killed if it does not end
			end()
		}, nil
	}
}

// inGo opens a lock in Go, which says what it promises in the words of the protocol.
func inGo(l harness.LockSpec) opener {
	open := l.Begin()
	hello := driver.Hello{Parallel: manyClients, Promises: l.Promises, Commands: l.Sends, WatchdogMS: l.Lease.Milliseconds()}
	return func(d topologies.Deployment, zone string, timeout time.Duration, _ io.Writer) (subject, func(), error) {
		at, options := harness.PlaceIn(d, zone), d.ClientOptions(zone)
		options.DialTimeout, options.ReadTimeout, options.WriteTimeout = timeout, timeout, timeout
		locker, end, err := l.Connect(open, options, harness.LockOptions{At: &at, Permits: permitsThere})
		return subject{nil, locker, hello}, end, err
	}
}
