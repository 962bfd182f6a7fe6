package lock

import (
	"context"
	"time"
)

// A watch is how a watchdog keeps a hold alive that has no lease of its own: it renews it every third of the
// watchdog's lease. A renewal that fails is repeated, with growing pauses, until the hold is lost. It is given up half a
// period after it was sent, so there is time for a second one before the end.
//
// Each hold has one timer, which is set to its next renewal, or to its end where that comes first or while a renewal is
// under way. Renewals of holds that are due within a sixteenth of a period of each other are due together, so that
// they share pipelines: BenchmarkWatchdog takes twice the processor time without that.
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

// renew renews the hold, which is due.
func (h *Hold) renew() {
	c, w := h.client, h.watch
	if !c.enter() { // the client is closed
		return
	}
	defer c.tasks.Done()
	background := context.Background()
	_ = h.turn.take(background)
	defer h.turn.give()
	h.mu.Lock()
	l, over := h.lease, h.isOver() || !w.next.IsZero() // or an extension before has set that
	h.mu.Unlock()
	if over {
		return
	}
	l.Length = w.lease // a shorter one was handed over
	c.tell(background, Renewing, l, 0, nil)
	sent := time.Now()
	ctx, cancel := context.WithTimeout(background, max(w.period/2, 5*time.Millisecond))
	defer cancel()
	err := h.moveEnd(ctx, l, w.lease)
	answered := time.Now()
	w.pause = min(max(2*w.pause, w.period/20), w.period/2)
	next := answered.Add(w.pause)
	if err == nil {
		w.pause, w.period = 0, w.lease/3
		next = together(sent.Add(w.period), w.period)
	}
	c.tell(background, Renewed, h.Lease(), answered.Sub(sent), err)
	h.renewAt(next)
}

// renewAt sets when the next renewal is due.
func (h *Hold) renewAt(at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watch.next = at
	h.arm()
}
