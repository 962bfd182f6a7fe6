// Package await waits for conditions.
package await

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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
	var last error
	for {
		err := ready()
		if err == nil {
			return nil
		}
		if last == nil || !Over(ctx) {
			last = err
		}
		select {
		case <-time.After(pause(time.Since(begin))):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), last)
		}
	}
}

// While does something again until it succeeds, or fails for a reason that does not pass, which it returns; else it ends as
// [Until] does.
func While(ctx context.Context, passes func(error) bool, do func() error) error {
	var last error
	ended := Until(ctx, func() error {
		if last = do(); last != nil && (passes(last) || Over(ctx)) {
			return last
		}
		return nil
	})
	return cmp.Or(ended, last)
}

// Pause lets time pass, or returns the cause of the context, if that ends before.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// Behind does something side by side with the caller until that is stopped, which ends its context and waits for it. The
// end of ctx does not stop it.
func Behind(ctx context.Context, do func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	all.Go(func() { do(ctx) })
	return func() {
		cancel()
		all.Wait()
	}
}

// Over tells whether a context has ended. A connection that shares its deadline
// may time out a moment before the context says so.
func Over(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// throughTimeout is how long, at least, what has begun may take.
const throughTimeout = 10 * time.Second

// Through is the context for what must be seen through once it has begun, even if
// it is called off: half of it would be left behind, or come later. It fails if ctx
// has ended already. It ends at the deadline of ctx, but not before ten seconds have
// passed, and without a deadline after these.
func Through(ctx context.Context) (through context.Context, cancel context.CancelFunc, err error) {
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	begun := time.Now()
	end := begun.Add(throughTimeout)
	if deadline, ok := ctx.Deadline(); ok && deadline.After(end) {
		end = deadline
	}
	through, cancel = context.WithDeadlineCause(context.WithoutCancel(ctx), end,
		fmt.Errorf("not done after %v", end.Sub(begun).Round(time.Millisecond)))
	return through, cancel, nil
}

// frozenLimit is how long a pause of a container is repeated.
const frozenLimit = 10 * time.Second

// Frozen pauses a container, and repeats that while the runtime answers that it is unable to
// freeze it: runc gives up after some tries to stop all processes at once, which fails now
// and then on a busy machine. Any other answer is final.
func Frozen(ctx context.Context, pause func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, frozenLimit)
	defer cancel()
	busy := func(err error) bool { return strings.Contains(err.Error(), "unable to freeze") }
	return While(limited, busy, func() error { return pause(ctx) })
}
