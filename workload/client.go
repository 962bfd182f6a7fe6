package workload

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/workload/history"
)

// Processes hands out the numbers of logical processes. Its zero value begins
// at 0; it is safe for concurrent use.
type Processes struct{ next atomic.Int64 }

// New returns a number that was never handed out before.
func (p *Processes) New() int { return int(p.next.Add(1) - 1) }

// A Client does one operation at a time on a lock and its resource, and
// records each: the invocation before its request is sent, the outcome after
// its reply was read. After an unknown outcome it goes on as a new process.
//
// Every attempt to acquire claims an owner of its own, "<name>#<attempt>", so
// that a late release of one attempt can't be taken for that of another.
type Client struct {
	Name      string
	Locker    lock.Locker
	Recorder  *history.Recorder
	Processes *Processes
	// Careless clients use the resource also after they had to stop believing
	// that they hold.
	Careless bool
	// NodeName is how the history calls the server at an address; nil: by the
	// address.
	NodeName func(address string) string

	process  int
	started  bool
	attempts int
	hold     *lock.Hold
	asked    history.Event // what all events of the latest attempt share
	base     history.Event // and those of the current hold
	toldLost bool
	read     int64
}

// Holding reports whether the client was granted a lock and has not released
// it. It may have lost it.
func (c *Client) Holding() bool { return c.hold != nil }

// Lost is closed when the client may no longer believe that it holds; nil
// without a hold.
func (c *Client) Lost() <-chan struct{} {
	if c.hold == nil {
		return nil
	}
	return c.hold.Lost()
}

func (c *Client) event(base history.Event, op history.Op, t history.Type) history.Event {
	if !c.started {
		c.process, c.started = c.Processes.New(), true
	}
	base.Process, base.Op, base.Type = c.process, op, t
	return base
}

// done records how an operation ended.
func (c *Client) done(e history.Event, err error, refusals ...error) history.Event {
	e.Type = Outcome(err, refusals...)
	if err != nil {
		e.Error = err.Error()
	}
	e = c.Recorder.Record(e)
	if e.Type == history.Info {
		c.process = c.Processes.New()
	}
	return e
}

// Outcome is the type of event that an error stands for: only a definite
// refusal is a fail, and every other error is unknown.
func Outcome(err error, refusals ...error) history.Type {
	if err == nil {
		return history.OK
	}
	for _, refusal := range refusals {
		if errors.Is(err, refusal) {
			return history.Fail
		}
	}
	return history.Info
}

// Acquire asks once for a lock, and waits for it for so long. It returns the
// outcome. A client that is granted one forgets the hold that it had.
func (c *Client) Acquire(ctx context.Context, name string, lease, wait time.Duration) history.Type {
	c.attempts++
	owner := fmt.Sprintf("%s#%d", c.Name, c.attempts)
	c.asked = history.Event{Lock: name, Owner: owner}
	e := c.event(c.asked, history.Acquire, history.Invoke)
	e.Lease = lease
	c.Recorder.Record(e)
	hold, err := c.Locker.Acquire(ctx, name, lock.Options{Owner: owner, Lease: lease, Wait: wait})
	if err != nil {
		return c.done(e, err, lock.ErrNotAcquired, lock.ErrNotReplicated).Type
	}
	c.hold, c.toldLost = hold, false
	l := hold.Lease()
	e.Token, e.Holds, e.Node = l.Token, l.Holds, l.Node
	if c.NodeName != nil && l.Node != "" {
		e.Node = c.NodeName(l.Node)
	}
	e.Expires = Expiry(c.Recorder, l)
	c.base = c.asked
	c.base.Token = l.Token
	return c.done(e, nil).Type
}

// Expiry is the end of a lease on the history's time axis; 0 for none.
func Expiry(r *history.Recorder, l lock.Lease) time.Duration {
	if l.Expires.IsZero() {
		return 0
	}
	return max(r.Offset(l.Expires), 1)
}

// slack is how much of its lease a careful client leaves unused, at most a
// tenth of it: nothing else covers a pause between its last look at the clock
// and what it does then.
const slack = 10 * time.Millisecond

// late reports whether it is too late to use the resource under this hold, at
// an instant of the history.
func (c *Client) late(at time.Duration) bool {
	if c.Careless || c.hold == nil {
		return false
	}
	l := c.hold.Lease()
	expires := Expiry(c.Recorder, l)
	return expires > 0 && at > expires-min(slack, l.Length/10)
}

// errLate is what a careful client says to itself.
var errLate = errors.New("abandoned: the lease is over")

// Read begins an access to the resource: it reads the value. A careful client
// whose lease is over does not, and the access is recorded as failed.
func (c *Client) Read(ctx context.Context, name string, r Resource) error {
	e := c.event(c.base, history.Access, history.Invoke)
	e.Resource = name
	e.Time = c.Recorder.Record(e).Time
	if c.late(e.Time) {
		c.done(e, errLate, errLate)
		return fmt.Errorf("read %s: %w", name, errLate)
	}
	value, err := r.Read(ctx)
	if err != nil {
		c.done(e, err, ErrRefused)
		return fmt.Errorf("read %s: %w", name, err)
	}
	c.read = value
	return nil
}

// ErrRefused is what a resource answers to a stale token.
var ErrRefused = errors.New("stale token refused")

// Write ends the access that the last Read began: it writes the value that was
// read plus one. A careful client whose lease is over writes nothing.
func (c *Client) Write(ctx context.Context, name string, r Resource) {
	if c.late(c.Recorder.Offset(time.Now())) {
		c.Abandon(name)
		return
	}
	e := c.event(c.base, history.Access, history.OK)
	e.Resource = name
	e.Value = fmt.Sprintf("%d>%d", c.read, c.read+1)
	c.done(e, r.Write(ctx, c.read+1, c.base.Token), ErrRefused)
}

// Abandon ends the access that the last Read began without writing anything.
func (c *Client) Abandon(name string) {
	e := c.event(c.base, history.Access, history.Fail)
	e.Resource, e.Error = name, errLate.Error()
	c.Recorder.Record(e)
}

// Owner is the identity that the latest attempt to acquire claimed.
func (c *Client) Owner() string { return c.asked.Owner }

// Lock is the name of the lock that the latest attempt asked for.
func (c *Client) Lock() string { return c.asked.Lock }

// NoticeLost records, once a hold, that the client was told that it lost it.
func (c *Client) NoticeLost() {
	if c.hold == nil || c.toldLost {
		return
	}
	c.toldLost = true
	c.Recorder.Record(c.event(c.base, history.Lost, history.OK))
}

// Release gives the lock back and returns the outcome. A refusal means that
// the hold had ended before.
func (c *Client) Release(ctx context.Context) history.Type {
	e := c.event(c.base, history.Release, history.Invoke)
	c.Recorder.Record(e)
	err := c.hold.Release(ctx)
	c.hold = nil
	return c.done(e, err, lock.ErrNotHeld).Type
}
