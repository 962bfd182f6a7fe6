package transport

import (
	"context"
	"sync"
	"time"
)

// A limiter bounds one request at a time. It does what [context.WithTimeout] does, with one timer for all requests, which
// runs out once in a while instead of being set and stopped for each: two timers a cycle take 3 % of it in row
// uncontended-1 of docs/benchmarks.md.
type limiter struct {
	mu      sync.Mutex
	current *limited  // the request that is under way
	due     time.Time // when the timer runs out; zero: it isn't set
	timer   *time.Timer
}

// limited is the context of one request: that of its caller, which ends at that time and with the request, and not
// when the caller's ends.
type limited struct {
	context.Context //nolint:containedctx // it is one

	at   time.Time
	done chan struct{}
	err  error // once it is done
}

// begin is the context of a request that ends at that time at the latest.
func (l *limiter) begin(ctx context.Context, at time.Time) *limited {
	if sooner, ok := ctx.Deadline(); ok && sooner.Before(at) {
		at = sooner
	}
	c := &limited{Context: ctx, at: at, done: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = c
	l.set()
	return c
}

// set has the timer run out when the current request ends, or before.
func (l *limiter) set() {
	if !l.due.IsZero() && !l.current.at.Before(l.due) {
		return
	}
	l.due = l.current.at
	if left := time.Until(l.due); l.timer == nil {
		l.timer = time.AfterFunc(left, l.tick)
	} else {
		l.timer.Reset(left)
	}
}

// tick ends a request whose time is over.
func (l *limiter) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = time.Time{}
	switch c := l.current; {
	case c == nil:
	case time.Now().Before(c.at):
		l.set()
	default:
		l.finish(c, context.DeadlineExceeded)
	}
}

// end ends a request that is answered.
func (l *limiter) end(c *limited) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == c {
		l.finish(c, context.Canceled)
	}
}

func (l *limiter) finish(c *limited, err error) {
	l.current, c.err = nil, err
	close(c.done)
}

// Deadline is when the request ends at the latest.
func (c *limited) Deadline() (time.Time, bool) { return c.at, true }

// Done is closed once the request has ended, or its time is over.
func (c *limited) Done() <-chan struct{} { return c.done }

// Err says why it is done, if it is.
func (c *limited) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}
