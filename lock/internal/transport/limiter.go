package transport

import (
	"context"
	"sync"
	"time"
)

// A limiter bounds one request at a time, as [context.WithTimeout] does, but with one timer for all: a context for each
// request takes 3 % of the cycle of row uncontended-1 of docs/benchmarks.md.
type limiter struct {
	mu      sync.Mutex
	current *limited // the request that is under way
	timer   *time.Timer
}

// limited is the context of one request. It ends at that time, unless the request did before, and not with its parent.
type limited struct {
	context.Context //nolint:containedctx // it is one

	at   time.Time
	done chan struct{}
}

// begin is the context of a request that ends at that time at the latest.
func (l *limiter) begin(ctx context.Context, at time.Time) *limited {
	if sooner, ok := ctx.Deadline(); ok && sooner.Before(at) {
		at = sooner
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = &limited{Context: ctx, at: at, done: make(chan struct{})}
	if left := time.Until(at); l.timer == nil {
		l.timer = time.AfterFunc(left, l.tick)
	} else {
		l.timer.Reset(left)
	}
	return l.current
}

// tick ends a request whose time is over.
func (l *limiter) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.current; c != nil && !time.Now().Before(c.at) {
		l.current = nil
		close(c.done)
	}
}

// end forgets the request, which has ended.
func (l *limiter) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = nil
}

// Deadline is when the request ends at the latest.
func (c *limited) Deadline() (time.Time, bool) { return c.at, true }

// Done is closed once the time is over.
func (c *limited) Done() <-chan struct{} { return c.done }

// Err says whether it is.
func (c *limited) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
