package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/lock/internal/probe"
)

// A Keeper is what a lock implementation supplies behind a [Hold]. Its methods
// are never called at the same time for one lease.
type Keeper interface {
	// Extend makes the grant end d from now, and returns the last instant at
	// which the holder may believe in it, reckoned as [Lease.Expires].
	// [ErrNotHeld] is a definite refusal. With any other error, expires is the
	// end that the grant may have now, or zero for d from the call.
	Extend(ctx context.Context, l Lease, d time.Duration) (expires time.Time, err error)
	// Release ends the grant and no other. [ErrNotHeld] is a definite refusal.
	// It may be called again after any other error.
	Release(ctx context.Context, l Lease) error
}

// A Hold is the handle on a grant. Its owner holds the lock until it is
// released or lost; see [Hold.Lost]. It is safe for concurrent use.
type Hold struct {
	keeper Keeper
	client *Client // of a lock of this package, which has one: it is told, and its end awaits what runs in the background
	// Of a hold that stands for others: when the first of them ends. They watch
	// the clock. Optional.
	ends func() time.Time
	turn turn // of a caller or a watchdog that talks to the service about this grant
	lost chan struct{}

	mu       sync.Mutex
	lease    Lease
	timer    *time.Timer // of its end, and of its next renewal
	watch    *watch      // nil: no watchdog keeps it
	isLost   bool
	ending   bool  // a release was asked for
	over     error // once the service said that the grant is over: what a release returns from then on
	untold   bool  // it said so to a release in the background, and the owner wasn't told yet
	contexts map[context.Context]context.CancelCauseFunc
}

// NewHold returns the handle on a grant that k keeps.
func NewHold(l Lease, k Keeper) *Hold {
	h := newHold(l, k)
	h.start()
	return h
}

func newHold(l Lease, k Keeper) *Hold {
	return &Hold{keeper: k, lease: l, turn: make(turn, 1), lost: make(chan struct{})}
}

var _ = probe.SetReplace(func(ctx context.Context, hold any, wrap func(keeper any, over error) any) {
	h, ok := hold.(*Hold)
	if !ok || h.turn.take(ctx) != nil {
		return
	}
	defer h.turn.give()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.client == nil && h.ends == nil { // else it is one of this package's locks
		h.keeper, _ = wrap(h.keeper, h.over).(Keeper)
	}
})

// start begins to watch the clock.
func (h *Hold) start() {
	if h.client != nil {
		h.client.held.Store(h, nil)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.arm()
}

// Lease returns the grant, with the newest end that was confirmed.
func (h *Hold) Lease() Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.lease
	if h.ends != nil {
		l.Expires = h.ends()
	}
	return l
}

// Lost is closed once the holder may no longer believe that it holds: the lease
// ended on the local monotonic clock, the service said that the lock is not
// held, or a release failed. A release that succeeds doesn't close it.
func (h *Hold) Lost() <-chan struct{} { return h.lost }

// parentOf is the key under which a context of a hold has the one it was made of.
type parentOf struct{ hold *Hold }

// Context returns a copy of ctx for the work under the lock. It is cancelled when the
// hold is lost, with [ErrLost] as its [context.Cause], and as soon as [Hold.Release] is
// called, so that no work goes on without the lock. Release itself may be given such a
// context. The caller must call the CancelFunc.
func (h *Hold) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	work, cancel := context.WithCancelCause(context.WithValue(ctx, parentOf{h}, ctx))
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.isLost:
		cancel(ErrLost)
	case h.ending:
		cancel(nil)
	case h.contexts == nil:
		h.contexts = map[context.Context]context.CancelCauseFunc{work: cancel}
	default:
		h.contexts[work] = cancel
	}
	return work, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.contexts, work)
		cancel(nil)
	}
}

// endContexts ends the contexts of the work under the lock.
func (h *Hold) endContexts(cause error) {
	for _, cancel := range h.contexts {
		cancel(cause)
	}
	clear(h.contexts)
}

// isOver reports whether the hold is lost, or a release was asked for.
func (h *Hold) isOver() bool { return h.isLost || h.ending }

// Extend makes the lease end d from now, at least a millisecond; where a
// watchdog keeps the hold it never ends sooner than before. On the server the
// end never becomes sooner: a shorter lease is the holder's own resolve. After [ErrNotHeld]
// the hold is lost. After any other error the extension may have taken effect:
// the hold then ends, for the holder, at whichever of the two ends is sooner.
func (h *Hold) Extend(ctx context.Context, d time.Duration) (err error) {
	defer func() { err = wrap(err, "extend lock %q", h.lease.Name) }()
	if d < time.Millisecond {
		return fmt.Errorf("lease of %v: give at least 1ms", d)
	}
	if err := h.turn.take(ctx); err != nil {
		return err
	}
	defer h.turn.give()
	h.mu.Lock()
	l, over := h.lease, h.isOver()
	h.mu.Unlock()
	if over {
		return ErrNotHeld
	}
	sent := time.Now()
	err = h.moveEnd(ctx, l, d)
	if h.client != nil {
		h.client.tell(ctx, Extended, l, time.Since(sent), err)
	}
	if h.watch != nil { // it is renewed soon, because its end may have moved
		h.renewAt(time.Now().Add(min(h.watch.lease/3, time.Until(h.Lease().Expires)/2)))
	}
	return err
}

// moveEnd asks for the lease l to end d from now. It is the caller's turn.
func (h *Hold) moveEnd(ctx context.Context, l Lease, d time.Duration) error {
	sent := time.Now()
	expires, err := h.keeper.Extend(ctx, l, d)
	switch {
	case err == nil:
		return h.move(func(now *Lease) { now.Expires, now.Length = expires, l.Length })
	case !errors.Is(err, ErrNotHeld): // it may end then already
		if expires.IsZero() {
			expires = sent.Add(d)
		}
		_ = h.move(func(now *Lease) {
			if now.Expires.IsZero() || expires.Before(now.Expires) {
				now.Expires = expires
			}
		})
	case h.ends == nil:
		h.end(ErrNotHeld)
	default: // of several holds, others are there to be released
		h.end(nil)
	}
	return err
}

// Release gives the lock back. It ends the contexts of [Hold.Context], the watchdog and
// the clock first, so whatever it returns, the grant lasts no longer than its lease.
// [ErrNotHeld]: the hold had ended before; [ErrReleased]: it was already released. After any other
// error the lock may still be held, and Release may be called again.
//
// If ctx ends before the server has answered, Release returns the context's error, and
// a lock of this package is released in the background, for 5s at most. So a lock isn't
// left behind by a caller that is being cancelled. [Client.Close] awaits that.
func (h *Hold) Release(ctx context.Context) error {
	if parent, ok := ctx.Value(parentOf{h}).(context.Context); ok {
		deadline, limited := ctx.Deadline()
		if ctx = parent; limited { //nolint:contextcheck // ctx was made of it
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, deadline)
			defer cancel()
		}
	}
	h.mu.Lock()
	h.ending = true
	h.stop()
	h.endContexts(nil)
	h.mu.Unlock()
	err := h.release(ctx, false)
	if err == nil {
		return nil
	}
	h.end(nil)
	if !errors.Is(err, ErrNotHeld) && ctx.Err() != nil && h.client != nil {
		h.client.background(func() {
			_ = h.client.retryForAWhile(ctx, func(ctx context.Context) error { return h.release(ctx, true) })
		})
	}
	return fmt.Errorf("release lock %q: %w", h.lease.Name, err)
}

// release asks the service to end the grant, unless that is over already.
// later says that it runs in the background: the next call of its owner is told of a success.
func (h *Hold) release(ctx context.Context, later bool) error {
	if err := h.turn.take(ctx); err != nil {
		return err
	}
	defer h.turn.give()
	h.mu.Lock()
	l, over, untold := h.lease, h.over, h.untold
	h.untold = untold && later
	h.mu.Unlock()
	switch {
	case untold:
		return nil
	case over != nil:
		return over
	}
	err := h.keeper.Release(ctx, l)
	if err == nil || errors.Is(err, ErrNotHeld) { // in one step, and before the next caller's turn
		h.mu.Lock()
		defer h.mu.Unlock()
		h.untold = later && err == nil
		switch {
		case err != nil:
			h.over = ErrNotHeld
		case h.over == nil:
			h.over = ErrReleased
		}
	}
	return err
}

// arm sets the timer to the next renewal or to the end of the lease, whichever comes first.
func (h *Hold) arm() {
	if h.isOver() || h.ends != nil || h.lease.Expires.IsZero() {
		return
	}
	at := h.lease.Expires
	if h.watch != nil && !h.watch.next.IsZero() && h.watch.next.Before(at) {
		at = h.watch.next
	}
	if h.timer == nil {
		h.timer = time.AfterFunc(time.Until(at), h.tick)
		return
	}
	h.timer.Reset(time.Until(at))
}

// stop ends the clock.
func (h *Hold) stop() {
	if h.timer != nil {
		h.timer.Stop()
	}
	if h.client != nil {
		h.client.held.Delete(h)
	}
}

// tick is what the timer does: it loses a hold that is over, and renews one that is due.
func (h *Hold) tick() {
	h.expire()
	h.mu.Lock()
	due := h.watch != nil && !h.watch.next.IsZero() && !time.Now().Before(h.watch.next) && !h.isOver()
	if due {
		h.watch.next = time.Time{}
	}
	h.arm()
	h.mu.Unlock()
	if due {
		h.renew()
	}
}

// expire loses the hold at its end, unless that was moved in the meantime or
// the hold is being released.
func (h *Hold) expire() {
	h.mu.Lock()
	over := !h.ending && h.ends == nil && !h.lease.Expires.IsZero() && !time.Now().Before(h.lease.Expires)
	h.mu.Unlock()
	if over {
		h.end(nil)
	}
}

// errTooLate says that an extension was confirmed after the lease had ended.
var errTooLate = fmt.Errorf("the answer came too late: %w", ErrLost)

// move changes the lease, unless the hold is lost by now, perhaps before the timer says so.
func (h *Hold) move(change func(l *Lease)) error {
	h.expire()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isLost {
		return errTooLate
	}
	change(&h.lease)
	h.arm()
	return nil
}

// end loses the hold, unless it was released; over is why, if the service said so.
func (h *Hold) end(over error) {
	h.mu.Lock()
	h.over = cmp.Or(h.over, over)
	if h.isLost || errors.Is(h.over, ErrReleased) {
		h.mu.Unlock()
		return
	}
	h.isLost = true
	h.stop()
	h.endContexts(ErrLost)
	close(h.lost)
	l := h.lease
	h.mu.Unlock()
	if k, ok := h.keeper.(interface{ onLost(l Lease) }); ok {
		k.onLost(l)
	}
}
