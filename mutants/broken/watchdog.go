package broken

import (
	"context"
	"errors"
	"time"

	"github.com/lockchaos/lockchaos/lock"
)

// keepAlive renews a hold, every third of its lease, until it is released or
// lost.
func (l *Lock) keepAlive(ctx context.Context, h *lock.Hold, released <-chan struct{}) {
	lease := h.Lease()
	for {
		select {
		case <-time.After(lease.Length / 3):
		case <-released:
			return
		case <-h.Lost():
			return
		case <-ctx.Done():
			return
		}
		_ = h.Extend(observed(ctx), lease.Length) // what it says, the hold knows
	}
}

// outlive renews a hold until the server says that it is over, whatever its
// holder does.
func (l *Lock) outlive(ctx context.Context, h *lock.Hold, _ <-chan struct{}) {
	lease := h.Lease()
	for {
		select {
		case <-time.After(lease.Length / 3):
		case <-ctx.Done():
			return
		}
		err := h.Extend(observed(ctx), lease.Length)
		if errors.Is(err, lock.ErrNotHeld) { // as it says of a hold that was given back
			_, err = l.Extend(observed(ctx), lease, lease.Length)
		}
		if errors.Is(err, lock.ErrNotHeld) {
			return
		}
	}
}

// renewal is the key of a context in which an extension is the watchdog's.
type renewal struct{}

func observed(ctx context.Context) context.Context { return context.WithValue(ctx, renewal{}, true) }

// observe tells of a renewal by the watchdog.
func (l *Lock) observe(ctx context.Context, kind lock.EventKind, lease lock.Lease, err error) {
	if l.Observer != nil && ctx.Value(renewal{}) != nil {
		l.Observer.Observe(lock.Event{Kind: kind, Lease: lease, At: time.Now(), Err: err})
	}
}
