package lock

import (
	"context"
	"errors"
	"fmt"
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
// at its own timeouts. So the task has a goroutine of its own, unless the context can't end. Close awaits the task.
//
// gaveUp says that the task still belongs to its goroutine.
func (c *Client) carryOut(ctx context.Context, abort <-chan struct{}, t task) (gaveUp bool, err error) {
	if err := ctx.Err(); err != nil {
		return true, err
	}
	if ctx.Done() == nil && c.enter() { // Close waits for it in any case
		defer c.tasks.Done()
		err := t.send(ctx)
		if err != nil {
			c.background(func() { t.late(ctx, err) })
		}
		return false, err
	}
	var decided atomic.Bool // by the first of the two: that the caller has the outcome, or that the task has it
	answer := make(chan error, 1)
	run := func() {
		err := t.send(ctx)
		received := decided.CompareAndSwap(false, true)
		if received {
			answer <- err
		}
		if err != nil || !received {
			t.late(ctx, err)
		}
	}
	if !c.spawn(run) {
		if abort != nil {
			return true, ErrClosed
		}
		go run() // what may still be done after Close
	}
	select {
	case err = <-answer:
		return false, overdue(ctx, err)
	case <-ctx.Done():
		err = ctx.Err()
	case <-abort:
		err = ErrClosed
	}
	if decided.CompareAndSwap(false, true) {
		return true, err
	}
	return false, overdue(ctx, <-answer)
}

// direct sends a call by the goroutine of its caller, if the answer is likely to come soon: see [transport.Transport.Direct].
func (c *Client) direct(ctx context.Context, s transport.Call, patience time.Duration) (r transport.Reply, sent bool) {
	if ctx.Err() != nil || s.Acked && c.config.ReplicaAcks > 0 || !c.enter() {
		return transport.Reply{}, false
	}
	defer c.tasks.Done()
	return c.transport.Direct(ctx, s, patience)
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
