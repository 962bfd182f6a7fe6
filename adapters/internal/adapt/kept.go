package adapt

import (
	"context"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/lock"
)

// endLimit bounds the giving up of a lock whose lease has ended.
const endLimit = 10 * time.Second

// kept is a lock that a library keeps alive until it is told to give it up. The
// lease is kept here: the lock is given up when it ends.
type kept struct {
	giveUp  func(context.Context) error
	renew   func(ctx context.Context, d time.Duration) (end time.Time, err error) // nil: not asked
	unwatch func() bool

	mu    sync.Mutex
	over  bool
	timer *time.Timer // for the lease's end; nil without one
}

// Kept returns the hold on a lock that a library keeps alive by itself. alive
// ends when the library says that the lock is lost; the hold is lost then.
// giveUp gives the lock up, and may be called again after an error. A lease with
// an end is given up when that comes. An extension asks renew, which has the library's own lease
// begin again and says until when the holder may believe in it; nil: it moves the end of the lease alone.
func Kept(l lock.Lease, alive context.Context, giveUp func(context.Context) error, //nolint:revive // the context is no limit of this call
	renew func(ctx context.Context, d time.Duration) (end time.Time, err error),
) *lock.Hold {
	k := &kept{giveUp: giveUp, renew: renew}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.arm(l.Expires)
	h := lock.NewHold(l, k)
	k.unwatch = context.AfterFunc(alive, func() { //nolint:contextcheck // it has ended
		k.mu.Lock()
		k.stop()
		k.mu.Unlock()
		// A refused extension is how a hold learns that it is lost.
		_ = h.Extend(context.Background(), time.Millisecond)
	})
	return h
}

func (k *kept) arm(end time.Time) {
	if !end.IsZero() {
		k.timer = time.AfterFunc(time.Until(end), k.expire)
	}
}

// stop ends the lease; it reports whether that was so before.
func (k *kept) stop() (before bool) {
	before = k.over
	k.over = true
	if k.timer != nil {
		k.timer.Stop()
	}
	return before
}

func (k *kept) expire() {
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	defer cancel()
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.stop() {
		k.unwatch()
		_ = k.giveUp(ctx) // else it ends when the library's own lease does
	}
}

// Extend implements [lock.Keeper].
func (k *kept) Extend(ctx context.Context, _ lock.Lease, d time.Duration) (time.Time, error) {
	end := Expires(time.Now(), d)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		return time.Time{}, lock.ErrNotHeld
	}
	if k.renew != nil {
		var err error
		if end, err = k.renew(ctx, d); err != nil {
			return time.Time{}, err
		}
	}
	if k.timer == nil {
		return time.Time{}, nil // it has no end
	}
	if !k.timer.Stop() { // the lease has ended, and is about to be given up
		return time.Time{}, lock.ErrNotHeld
	}
	k.arm(end)
	return end, nil
}

// Release implements [lock.Keeper].
func (k *kept) Release(ctx context.Context, _ lock.Lease) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		return lock.ErrNotHeld
	}
	k.unwatch()
	if err := k.giveUp(ctx); err != nil {
		return err
	}
	k.stop()
	return nil
}
