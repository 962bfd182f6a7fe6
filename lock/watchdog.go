package lock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A watch is how a watchdog keeps a hold alive that has no lease of its own: it renews it every third of the
// watchdog's lease. A renewal that fails is repeated, with growing pauses, until the hold is lost. It is given up half a
// period after it was sent, so there is time for a second one before the end.
//
// Each hold has one timer, which is set to its next renewal, or to its end where that comes first or while a renewal is
// under way. Renewals of holds that are due within a sixteenth of a period of each other are due together, so that
// they share pipelines.
type watch struct {
	lease  time.Duration // that a renewal asks for
	period time.Duration // until the next renewal
	next   time.Time     // when that is due; zero while one is under way
	pause  time.Duration // before the next repetition of a failed renewal
}

// newWatch is that of a hold whose first renewal is due after first, and has as much time for its repetitions as a
// lease with that period has.
func newWatch(lease, period, first time.Duration) *watch {
	return &watch{lease: lease, period: period, next: together(time.Now().Add(first), first)}
}

// together is when renewals are due that are to be sent together, at that time or up to a sixteenth of a period sooner.
func together(at time.Time, period time.Duration) time.Time {
	return at.Add(-time.Duration(at.UnixNano()) % max(period/16, 1))
}

// renewable is what a watchdog needs of a grant.
type renewable interface {
	// renew asks for that lease from now on.
	renew(ctx context.Context, lease time.Duration) error
	// expires is the end of a lease that was asked for then.
	expires(sent time.Time, lease time.Duration) time.Time
	observe(kind EventKind, l Lease, took time.Duration, err error)
}

// renew renews the hold, which is due.
func (h *Hold) renew() {
	life := h.hooks.taskGroup()
	if !life.enter() { // the client is closed
		h.unwatch()
		return
	}
	defer life.tasks.Done()
	l, w, busy, over := h.renewal()
	switch {
	case over:
		return
	case busy:
		h.renewAt(time.Now().Add(w.period / 10))
		return
	}
	defer h.give()
	l.Length = w.lease // a shorter one was handed over
	h.hooks.observe(Renewing, l, 0, nil)
	sent := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), max(w.period/2, 5*time.Millisecond))
	defer cancel()
	err := h.hooks.renew(ctx, w.lease)
	if err != nil && ctx.Err() != nil && !errors.Is(err, ErrNotHeld) {
		err = fmt.Errorf("no answer in time: %w", err)
	}
	answered := time.Now()
	next := answered
	switch {
	case err == nil:
		w.pause, w.period = 0, w.lease/3
		next = together(sent.Add(w.period), w.period)
		if !h.prolong(h.hooks.expires(sent, w.lease), w.lease) {
			err = errTooLate
		}
	case errors.Is(err, ErrNotHeld):
		h.end(true)
	default:
		w.pause = min(max(2*w.pause, w.period/20), w.period/2)
		next = answered.Add(w.pause)
	}
	h.hooks.observe(Renewed, h.Lease(), answered.Sub(sent), err)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watch != nil {
		h.watch.pause, h.watch.period = w.pause, w.period
		h.watch.next = next
		h.arm()
	}
}

// renewal takes the right to talk to the service, for a renewal. It doesn't wait: busy says to come again, over that there is nothing left
// to renew.
func (h *Hold) renewal() (l Lease, w watch, busy, over bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	busy, over = h.busy, h.isLost || h.ending || h.gone || h.watch == nil
	h.busy = h.busy || !over
	if !over {
		w = *h.watch
	}
	return h.lease, w, busy, over
}

// renewAt sets when the next renewal is due.
func (h *Hold) renewAt(t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watch != nil {
		h.watch.next = t
		h.arm()
	}
}

// unwatch ends the watch. A renewal under way is awaited by who takes the right to talk to the service.
func (h *Hold) unwatch() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watch = nil
	h.arm()
}
