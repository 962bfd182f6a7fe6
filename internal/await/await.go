// Package await waits for conditions.
package await

import (
	"context"
	"errors"
	"time"
)

// pause is how long to wait before a condition is looked at again that was awaited for
// so long: a fiftieth of that, from 2 to 20 ms. A look costs requests and connections,
// which on a busy machine take the processor from the servers that are awaited.
func pause(waited time.Duration) time.Duration {
	return min(max(2*time.Millisecond, waited/50), 20*time.Millisecond)
}

// Until calls ready until it is nil or the context ends; then it returns the
// context's cause, and what ready said last before that.
func Until(ctx context.Context, ready func() error) error {
	begin := time.Now()
	next := time.NewTimer(0)
	defer next.Stop()
	<-next.C
	var last error
	for {
		err := ready()
		if err == nil {
			return nil
		}
		if last == nil || !Over(ctx) {
			last = err
		}
		next.Reset(pause(time.Since(begin)))
		select {
		case <-next.C:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), last)
		}
	}
}

// Over tells whether a context has ended. A connection that shares its deadline
// may time out a moment before the context says so.
func Over(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// Unless is a context that ends as well, with that cause, once gone is closed.
// The caller calls cancel, which frees what it takes.
func Unless(ctx context.Context, gone <-chan struct{}, cause error) (limited context.Context, cancel context.CancelFunc) {
	limited, end := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-gone:
			end(cause)
		case <-limited.Done():
		}
	}()
	return limited, func() { end(nil) }
}
