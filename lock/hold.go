package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
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

// A LateKeeper is a [Keeper] of a lock under test. A [Hold] that is over refuses an
// extension or a release by itself, and so hides what the service would do. Of a
// LateKeeper, Hold.Extend and Hold.Release ask the service all the same, and the hold
// stays over whatever it answers.
type LateKeeper interface {
	Keeper
	// ExtendLate is as Extend, of a grant that was lost or released.
	ExtendLate(ctx context.Context, l Lease, d time.Duration) error
	// ReleaseLate is as Release, of a grant that was lost or released. A service may
	// confirm a release again: after one that was answered, a confirmation says nothing,
	// and Hold.Release returns [ErrNotHeld].
	ReleaseLate(ctx context.Context, l Lease) error
}

// A Hold is the handle on a grant. Its owner holds the lock until it is
// released or lost; see [Hold.Lost]. It is safe for concurrent use.
type Hold struct {
	keeper Keeper
	hooks  holdHooks // optional
	// Of a hold that stands for others: when the first of them ends. They watch
	// the clock. Optional.
	ends func() time.Time

	mu       sync.Mutex
	lease    Lease
	busy     bool          // a caller or a watchdog talks to the service about this grant
	free     chan struct{} // closed when it has done so; nil while no other caller waits for that
	timer    *time.Timer   // of its end, and of its next renewal
	watch    *watch        // nil: no watchdog keeps it
	lost     chan struct{} // nil until a caller asks for it
	isLost   bool
	ending   bool // a release was asked for
	gone     bool // the service said that the grant is over,
	answered bool // in answer to a release,
	over     bool // which ended it
	watchers map[*byte]watcher
	later    bool // it is being released in the background,
	freed    bool // or was, which its owner wasn't told yet
}

// A watcher is told of the end of a hold, once.
type watcher struct {
	lost     func()
	released func() // when a release begins; optional
}

// Its holdHooks are the grant of a lock of this package.
type holdHooks interface {
	renewable
	// taskGroup is that of the client, in which the hold may be released in the background.
	taskGroup() *taskGroup
	// onLost is called once, after lost was closed.
	onLost(h *Hold, l Lease)
}

// NewHold returns the handle on a grant that k keeps.
func NewHold(l Lease, k Keeper) *Hold {
	h := newHold(l, k)
	h.start()
	return h
}

func newHold(l Lease, k Keeper) *Hold {
	return &Hold{keeper: k, lease: l}
}

// Guard has the keeper that wrap returns take the place of the hold's own: a test of a lock
// recovers its panics so. It changes nothing of a hold of this package's locks.
func (h *Hold) Guard(wrap func(Keeper) Keeper) {
	if err := h.take(context.Background()); err != nil {
		return
	}
	defer h.give()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch h.keeper.(type) {
	case *grant, *bundle, *quorumRequest:
	default:
		h.keeper = wrap(h.keeper)
	}
}

// start begins to watch the clock.
func (h *Hold) start() {
	if h.hooks != nil {
		h.hooks.taskGroup().keep(h)
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
func (h *Hold) Lost() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost == nil {
		h.lost = make(chan struct{})
		if h.isLost {
			close(h.lost)
		}
	}
	return h.lost
}

// parentOf is the key under which a context of a hold has the one it was made of.
type parentOf struct{ hold *Hold }

// Context returns a copy of ctx for the work under the lock. It is cancelled when the
// hold is lost, with [ErrLost] as its [context.Cause], and as soon as [Hold.Release] is
// called, so that no work goes on without the lock. Release itself may be given such a
// context. The caller must call the CancelFunc.
func (h *Hold) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, parentOf{h}, ctx))
	stop := h.notify(watcher{lost: func() { cancel(ErrLost) }, released: func() { cancel(nil) }})
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// whenLost calls f once the hold is lost, unless stop is called before.
func (h *Hold) whenLost(f func()) (stop func()) { return h.notify(watcher{lost: f}) }

// notify has a watcher told, unless stop is called before.
func (h *Hold) notify(w watcher) (stop func()) {
	h.mu.Lock()
	switch {
	case h.isLost:
		h.mu.Unlock()
		w.lost()
		return func() {}
	case h.ending && w.released != nil:
		h.mu.Unlock()
		w.released()
		return func() {}
	}
	defer h.mu.Unlock()
	if h.watchers == nil {
		h.watchers = map[*byte]watcher{}
	}
	id := new(byte)
	h.watchers[id] = w
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watchers, id)
	}
}

// Extend makes the lease end d from now, at least a millisecond; where a
// watchdog keeps the hold it never ends sooner than before. On the server the
// end never becomes sooner: a shorter lease is the holder's own resolve. After [ErrNotHeld]
// the hold is lost. After any other error the extension may have taken effect:
// the hold then ends, for the holder, at whichever of the two ends is sooner.
func (h *Hold) Extend(ctx context.Context, d time.Duration) error {
	if d < time.Millisecond {
		return fmt.Errorf("extend lock %q by %v: give at least 1ms", h.lease.Name, d)
	}
	if err := h.take(ctx); err != nil {
		return fmt.Errorf("extend lock %q: %w", h.lease.Name, err)
	}
	defer h.give()
	h.mu.Lock()
	l, over := h.lease, h.isLost || h.ending || h.gone
	h.mu.Unlock()
	if over {
		err := ErrNotHeld
		if k, ok := h.keeper.(LateKeeper); ok {
			err = k.ExtendLate(ctx, l, d)
		}
		if err != nil {
			return fmt.Errorf("extend lock %q: %w", l.Name, err)
		}
		return nil
	}
	sent := time.Now()
	expires, err := h.keeper.Extend(ctx, l, d)
	switch {
	case errors.Is(err, ErrNotHeld):
		h.end(h.ends == nil) // of several holds, others are there to be released
	case err != nil:
		if expires.IsZero() {
			expires = sent.Add(d)
		}
		h.shorten(expires)
	case !h.prolong(expires, 0):
		err = errTooLate
	}
	h.renewSoon()
	if err != nil {
		return fmt.Errorf("extend lock %q: %w", l.Name, err)
	}
	return nil
}

// Release gives the lock back. It ends the contexts of [Hold.Context], the watchdog and
// the clock first, so whatever it returns, the grant lasts no longer than its lease.
// [ErrNotHeld]: the hold had ended before; [ErrReleased]: it was already released. After any other
// error the lock may still be held, and Release may be called again.
//
// If ctx ends before the server has answered, Release returns the context's error, and
// a lock of this package is released in the background, for 5s at most. So a lock isn't
// left behind by a caller that is being cancelled. [Client.Close] awaits that.
func (h *Hold) Release(ctx context.Context) error { //nolint:contextcheck // what goes on in the background outlives this call
	h.mu.Lock()
	if parent, ok := ctx.Value(parentOf{h}).(context.Context); ok {
		deadline, limited := ctx.Deadline()
		if ctx = parent; limited {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, deadline)
			defer cancel()
		}
	}
	l, gone, freed := h.lease, h.gone, h.freed
	h.ending, h.freed, h.watch = true, false, nil
	h.stop()
	told := h.released()
	h.mu.Unlock()
	for _, f := range told {
		f()
	}
	if freed {
		return nil
	}
	if gone {
		if err := h.releaseOver(ctx, l); err != nil {
			return fmt.Errorf("release lock %q: %w", l.Name, err)
		}
		return nil
	}
	err := h.release(ctx, false)
	if err == nil {
		return nil
	}
	if !errors.Is(err, errOverBefore) {
		h.end(errors.Is(err, ErrNotHeld))
	}
	if ctx.Err() != nil && h.hooks != nil {
		h.releaseLater(ctx)
	}
	return fmt.Errorf("release lock %q: %w", l.Name, err)
}

// ErrConfirmedAgain is what a second release returns of a lock under test whose service confirmed
// it as it had confirmed the first, see [LateKeeper]. It is an [ErrNotHeld].
var ErrConfirmedAgain = fmt.Errorf("%w: it was released before, although the service confirmed this release as well", ErrNotHeld)

// releaseOver is the release of a hold that is over: the service is asked where it is under test.
func (h *Hold) releaseOver(ctx context.Context, l Lease) error {
	h.mu.Lock()
	k, ok := h.keeper.(LateKeeper)
	over := h.over
	h.mu.Unlock()
	switch {
	case !ok && over:
		return ErrReleased
	case !ok:
		return ErrNotHeld
	}
	if err := h.take(ctx); err != nil {
		return err
	}
	defer h.give()
	err := k.ReleaseLate(ctx, l)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil && h.answered {
		return ErrConfirmedAgain
	}
	h.answered = h.answered || err == nil || errors.Is(err, ErrNotHeld)
	return err
}

// released takes out the watchers that are told of a release.
func (h *Hold) released() (told []func()) {
	for id, w := range h.watchers {
		if w.released != nil {
			told = append(told, w.released)
			delete(h.watchers, id)
		}
	}
	return told
}

// errOverBefore says that a grant was over when its release had its turn.
var errOverBefore = fmt.Errorf("%w any more", ErrNotHeld)

// release asks the service to end the grant. The error is [ErrNotHeld] if that is over.
// later says that it runs in the background: the next call of its owner is told of a success.
func (h *Hold) release(ctx context.Context, later bool) error {
	if err := h.take(ctx); err != nil {
		return err
	}
	defer h.give()
	h.mu.Lock()
	l, gone, freed := h.lease, h.gone, h.freed
	h.freed = false
	h.mu.Unlock()
	switch {
	case freed:
		return nil
	case gone:
		return errOverBefore
	}
	err := h.keeper.Release(ctx, l)
	if err == nil || errors.Is(err, ErrNotHeld) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.gone, h.answered, h.freed, h.over = true, true, later && err == nil, err == nil // in one step, and before the next caller's turn
	}
	return err
}

// releaseLater releases the hold in the background, since its owner has no time.
func (h *Hold) releaseLater(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone || h.later {
		return
	}
	h.later = true
	life := h.hooks.taskGroup()
	run := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawLimit)
		defer cancel()
		_ = life.retryUntilAnswered(ctx, func() error { return h.release(ctx, true) })
		h.mu.Lock()
		defer h.mu.Unlock()
		h.later = false
	}
	life.background(run)
}

// take waits for the right to talk to the service about this grant.
func (h *Hold) take(ctx context.Context) error {
	for {
		free := h.tryTake()
		if free == nil {
			return nil
		}
		select {
		case <-free:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tryTake takes that right, or returns a channel that is closed when it may be had.
func (h *Hold) tryTake() (free <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.busy {
		h.busy = true
		return nil
	}
	if h.free == nil {
		h.free = make(chan struct{})
	}
	return h.free
}

// give gives that right back.
func (h *Hold) give() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy = false
	if h.free != nil {
		close(h.free)
		h.free = nil
	}
}

// arm sets the timer to the next renewal or to the end of the lease, whichever comes first.
func (h *Hold) arm() {
	if h.isLost || h.ending || h.ends != nil || h.lease.Expires.IsZero() {
		h.stop()
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
	if h.hooks != nil {
		h.hooks.taskGroup().forget(h)
	}
}

// tick is what the timer does: it loses a hold that is over, and renews one that is due.
func (h *Hold) tick() {
	if h.expire() {
		return
	}
	h.mu.Lock()
	due := h.watch != nil && !h.watch.next.IsZero() && !time.Now().Before(h.watch.next) && !h.isLost && !h.ending
	if due {
		h.watch.next = time.Time{}
	}
	h.arm()
	h.mu.Unlock()
	if due {
		h.renew()
	}
}

// renewSoon makes a watched hold due soon, because its end may have moved.
func (h *Hold) renewSoon() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watch != nil && !h.isLost && !h.ending {
		h.watch.next = time.Now().Add(min(h.watch.lease/3, time.Until(h.lease.Expires)/2))
		h.arm()
	}
}

// expire loses the hold at its end, unless that was moved in the meantime or
// the hold is being released, and reports whether it is lost.
func (h *Hold) expire() bool {
	h.mu.Lock()
	over := !h.ending && h.ends == nil && !h.lease.Expires.IsZero() && !time.Now().Before(h.lease.Expires)
	h.mu.Unlock()
	if over {
		h.end(false)
	}
	return over
}

// errTooLate says that an extension was confirmed after the lease had ended.
var errTooLate = fmt.Errorf("the answer came too late: %w", ErrLost)

// prolong notes a confirmed end: that of a lease of the watchdog, which ends no sooner than the
// one before, or one that the owner chose, if lease is 0. It reports whether the holder may
// believe in it; if not, the hold is lost.
func (h *Hold) prolong(expires time.Time, lease time.Duration) bool {
	h.expire() // perhaps before the timer does
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isLost {
		return false
	}
	if lease > 0 {
		h.lease.Length = lease
	}
	if lease == 0 || expires.After(h.lease.Expires) {
		h.lease.Expires = expires
	}
	h.arm()
	return true
}

// shorten notes that the lease may end at t already.
func (h *Hold) shorten(t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lease.Expires.IsZero() || t.Before(h.lease.Expires) {
		h.lease.Expires = t
		h.arm()
	}
}

// end loses the hold; gone says that the service confirmed it.
func (h *Hold) end(gone bool) {
	h.mu.Lock()
	h.gone = h.gone || gone
	if h.isLost {
		h.mu.Unlock()
		return
	}
	h.isLost, h.watch = true, nil
	h.stop()
	l, watchers := h.lease, h.watchers
	h.watchers = nil
	if h.lost != nil {
		close(h.lost)
	}
	h.mu.Unlock()
	for _, w := range watchers {
		w.lost()
	}
	if h.hooks != nil {
		h.hooks.onLost(h, l)
	}
}
