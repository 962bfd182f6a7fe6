package lock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockchaos/lockchaos/lock/internal/transport"
)

// exchange sends a call for a caller, and returns the reply. The caller sends it by itself, where the answer is likely to
// come soon, and waits so long for it: see [transport.Transport.Direct]. Otherwise, and where no answer came, a goroutine
// sends it, repeats it as the options of the Redis client say, and is left soon after the context ends or the call is
// aborted; late, if there is one, then gets what it came to, unless nothing was sent. A caller that gives one is a task.
//
// gaveUp says that the caller left: the reply has nothing but the reason, and whether the call may have been sent.
func (c *Client) exchange(
	ctx context.Context, s transport.Call, timeout time.Duration, late func(transport.Reply),
) (r transport.Reply, gaveUp bool) {
	if err := ctx.Err(); err != nil {
		return transport.Reply{Err: err}, true
	}
	first, tried := c.direct(ctx, s, timeout)
	if tried && (first.Err == nil || c.transport.Final(first.Err)) {
		return first, false
	}
	if tried && !transport.IsTimeout(first.Err) { // else it was given too little time to count
		s.Tried++
	}
	var sent atomic.Bool
	sent.Store(first.Sent)
	r, err := await(ctx, c, s.Abort, func() transport.Reply {
		r := c.transport.Run(ctx, s, &sent)
		r.Copies, r.Sent = r.Copies || first.Copies, r.Sent || first.Sent
		return r
	}, late)
	if err != nil {
		if first.Sent && late != nil {
			c.tasks.Go(func() { late(first) })
		}
		return transport.Reply{Err: err, Sent: sent.Load()}, true
	}
	// A Redis client that looks at the context's deadline may give up an instant before the context does.
	deadline, limited := ctx.Deadline()
	if limited && !time.Now().Before(deadline) && transport.IsTimeout(r.Err) && !errors.Is(r.Err, context.DeadlineExceeded) {
		r.Err = fmt.Errorf("%w: %w", context.DeadlineExceeded, r.Err)
	}
	return r, false
}

// direct sends a call by the goroutine of its caller, if the answer is likely to come soon.
func (c *Client) direct(ctx context.Context, s transport.Call, timeout time.Duration) (r transport.Reply, sent bool) {
	if ctx.Err() != nil || s.Acked && c.config.ReplicaAcks > 0 || !c.enter() {
		return transport.Reply{}, false
	}
	defer c.tasks.Done()
	return c.transport.Direct(ctx, s, timeout)
}

// await runs f, which sends requests, and returns what it returns; or the context's error soon after that
// ends, or [ErrClosed] soon after abort is closed: go-redis itself lets go of a request only
// at its own timeouts. So f has a goroutine of its own, unless the context can't end. Close awaits it.
// late, if there is one, gets what f returns after the caller left.
func await[T any](ctx context.Context, c *Client, abort <-chan struct{}, f func() T, late func(T)) (v T, err error) {
	if err := ctx.Err(); err != nil {
		return v, err
	}
	if ctx.Done() == nil && c.enter() { // Close waits for it in any case
		defer c.tasks.Done()
		return f(), nil
	}
	answer, left := make(chan T), make(chan struct{})
	run := func() {
		v := f()
		select {
		case answer <- v:
		case <-left:
			if late != nil {
				late(v)
			}
		}
	}
	if !c.spawn(run) {
		if abort != nil {
			return v, ErrClosed
		}
		go run() // what may still be done after Close
	}
	select {
	case v = <-answer:
		return v, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-abort:
		err = ErrClosed
	}
	close(left)
	return v, err
}
