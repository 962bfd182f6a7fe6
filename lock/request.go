package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockchaos/lockchaos/lock/internal/transport"
)

// A task sends requests for a caller.
type task interface {
	// send sends them, and keeps what they come to for the caller.
	send(ctx context.Context) error
	// late deals with an error of send, and with an outcome for which the caller no longer
	// waits.
	late(ctx context.Context, err error)
}

// carryOut has a task sent, and returns its error; or the context's error soon after that
// ends, or [ErrClosed] soon after abort is closed: go-redis itself lets go of a request only
// at its own timeouts. So the task has a goroutine of its own, which costs a caller that is alone
// half of its rate on loopback, unless the context can't end. Close awaits the task.
//
// gaveUp says that the task still belongs to its goroutine. The caller may use it otherwise.
func (c *Client) carryOut(ctx context.Context, abort <-chan struct{}, t task) (gaveUp bool, err error) {
	if err := ctx.Err(); err != nil {
		return true, err
	}
	if ctx.Done() == nil && c.enter() { // Close waits for it in any case
		defer c.tasks.Done()
		err := t.send(ctx)
		if err != nil {
			c.tasks.Go(func() { t.late(ctx, err) })
		}
		return false, err
	}
	r, _ := c.inFlights.Get().(*inFlight)
	if r == nil {
		r = &inFlight{answer: make(chan error, 1)}
		r.start = r.run
	}
	r.ctx, r.task, r.tasks = ctx, t, &c.tasks
	r.state.Store(underWay)
	if c.enter() {
		c.start(r.start)
	} else if abort != nil {
		return true, ErrClosed
	} else { // what may still be done after Close
		r.tasks = nil
		go r.start()
	}
	select {
	case err = <-r.answer:
	case <-ctx.Done():
		gaveUp, err = r.giveUp(ctx.Err())
	case <-abort:
		gaveUp, err = r.giveUp(ErrClosed)
	}
	if !gaveUp { // else the goroutine keeps it
		r.ctx, r.task, r.tasks = nil, nil, nil
		c.inFlights.Put(r)
		err = overdue(ctx, err)
	}
	return gaveUp, err
}

// inFlight is a task with a goroutine of its own, and a caller that waits for it.
type inFlight struct {
	ctx    context.Context //nolint:containedctx // it is that of the task
	task   task
	tasks  *sync.WaitGroup // that it is one of; nil after Close
	state  atomic.Int32
	answer chan error // holds one
	start  func()     // r.run, made once
}

// The states of a task that is in flight. The caller and the goroutine each leave the first
// one in one step, so either the caller gets the outcome or the task does.
const (
	underWay = iota
	answered
	givenUp
)

// run is the goroutine. After it has handed the answer out, r is the caller's.
func (r *inFlight) run() {
	ctx, t := r.ctx, r.task
	if r.tasks != nil {
		defer r.tasks.Done()
	}
	err := t.send(ctx)
	received := r.state.CompareAndSwap(underWay, answered)
	if received {
		r.answer <- err
	}
	if err != nil || !received {
		t.late(ctx, err)
	}
}

// giveUp is for a caller that no longer waits. It returns the outcome if there is one.
func (r *inFlight) giveUp(reason error) (gaveUp bool, err error) {
	if r.state.CompareAndSwap(underWay, givenUp) {
		return true, reason
	}
	return false, <-r.answer
}

// await carries out f, which sends requests, and returns what it returns, or an error if the
// caller is to wait no longer: see carryOut.
func await[T any](ctx context.Context, c *Client, abort <-chan struct{}, f func(context.Context) (T, error)) (T, error) {
	t := &function[T]{f: f}
	gaveUp, err := c.carryOut(ctx, abort, t)
	if gaveUp {
		var none T
		return none, err
	}
	return t.value, err
}

// function is a task that needs nothing to be done about an outcome which comes late.
type function[T any] struct {
	f     func(context.Context) (T, error)
	value T
}

func (t *function[T]) send(ctx context.Context) (err error) {
	t.value, err = t.f(ctx)
	return err
}

func (t *function[T]) late(context.Context, error) {}

// overdue adds the context's error to that of a request which had no more time:
// a Redis client that looks at the context's deadline may give up an instant
// before the context does.
func overdue(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	deadline, ok := ctx.Deadline()
	if !ok || time.Now().Before(deadline) || !transport.IsTimeout(err) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
}

// run sends one call, wherever its keys live.
func (c *Client) run(ctx context.Context, s transport.Call) (any, error) {
	r := c.transport.Run(ctx, s, nil)
	return r.Value, r.Err
}
