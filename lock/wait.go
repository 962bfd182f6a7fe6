package lock

import (
	"context"
	"errors"
	"time"

	"github.com/lockchaos/lockchaos/lock/internal/transport"
	"github.com/lockchaos/lockchaos/lock/internal/wakeup"
)

const (
	// minPoll keeps a waiter from asking in a hot loop when a lock is about to
	// run out; maxPoll bounds the damage of a message that never arrives.
	minPoll = 5 * time.Millisecond
	maxPoll = 3 * time.Second
	// deniedPoll is how often a client asks whose user may not publish, so that its own releases wake no waiter.
	deniedPoll = 100 * time.Millisecond
)

// pending is a call that waits for something to change on the server.
type pending struct {
	poll   time.Duration                 // between two requests at most
	spin   func(tries int) time.Duration // the pauses, if there are no messages
	begin  time.Time
	limit  time.Duration
	waited bool // what it waits for was not there at once

	channel, request string         // of the messages that it listens to, once it has to wait; not where it spins
	waiter           *wakeup.Waiter // that messages reach; nil while none do
}

// again is an error that may pass: a call that may wait asks again.
type again struct{ error }

func (e again) Unwrap() error { return e.error }

// wait calls ask at once, and then whenever what is waited for may have come: when a message says
// so, and at the latest when it is due by itself, for an end by expiry sends no
// message. after is when that is, as ask returns it: 0 if it isn't known. The
// result is false if the limit was reached, with the error of the last request if that was an [again].
func (c *Client) wait(
	ctx context.Context, p *pending, ask func(ctx context.Context, message string) (done bool, after time.Duration, err error),
) (came bool, err error) {
	message, failures := "", 0
	defer func() {
		if p.waiter != nil {
			c.wakeups.Leave(p.waiter, err != nil)
		}
	}()
	for tries := 0; ; tries++ {
		done, after, err := ask(ctx, message)
		switch {
		case done:
			return true, nil
		case err == nil:
			failures = 0
		case !errors.As(err, &again{}):
			return false, err
		default:
			after = pauseAfter(failures)
			failures++
		}
		p.waited = true
		left := remaining(p.begin, p.limit)
		if left == 0 {
			return false, err
		}
		if p.waiter == nil && p.spin == nil {
			p.waiter = c.wakeups.Join(p.channel, p.request)
		}
		var wake chan string
		if p.waiter != nil {
			wake = p.waiter.Wake
		}
		poll := p.poll
		if after > 0 {
			poll = min(max(after+time.Millisecond, minPoll), poll)
		}
		if c.denied.Load() {
			poll = min(poll, deniedPoll)
		}
		if p.spin != nil {
			poll = p.spin(tries)
		}
		said, woken, gone := transport.Await(ctx, wake, min(poll, left), c.closing)
		message = said // "" if none came
		switch {
		case gone != nil:
			return false, gone
		case !woken && left <= poll:
			return false, err
		}
	}
}
