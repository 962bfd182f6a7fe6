package lock

import (
	"context"
	"errors"
	"fmt"
)

// Do runs f under a lock: it acquires the lock of that name as the options say, calls f,
// and releases the lock, also if ctx has ended by then or f panics.
//
// The context of f is that of [Hold.Context]: f returns soon after it ends. Do returns the
// error of Acquire, and then f was not called, or what f returned, joined with [ErrLost]
// if the lock was lost while the function ran, and with the error of the release.
func Do(ctx context.Context, l Locker, name string, o Options, f func(ctx context.Context) error) (err error) {
	h, err := l.Acquire(ctx, name, o)
	if err != nil {
		return err //nolint:wrapcheck // it names the lock
	}
	work, cancel := h.Context(ctx)
	defer func() {
		lost := errors.Is(context.Cause(work), ErrLost)
		cancel()
		back, stop := context.WithTimeout(context.WithoutCancel(ctx), withdrawLimit)
		defer stop()
		released := h.Release(back)
		if lost {
			released = fmt.Errorf("work under lock %q: %w", name, ErrLost)
		}
		if released != nil {
			err = errors.Join(err, released)
		}
	}()
	return f(work)
}
