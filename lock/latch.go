package lock

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/lockchaos/lockchaos/lock/internal/transport"
)

// latchLife is how long a latch that has reached 0 is remembered.
const latchLife = 24 * time.Hour

// A CountDownLatch lets those who wait go on once it was counted down to 0. It
// is used once: it stays at 0, so that who comes late goes on at once.
//
// Where it begins has to be said first, with TrySetCount. Until then everything
// else returns [ErrNotSet]: a latch that was not set yet, that was deleted, or
// that the server lost, is not taken for one that was counted down. A latch stays
// on the server until a day after it reached 0, or until Delete.
type CountDownLatch struct{ object }

// CountDownLatch returns the latch of that name, without asking the server. It
// has nothing to do with a [Mutex] of that name.
func (c *Client) CountDownLatch(name string) *CountDownLatch {
	return &CountDownLatch{c.objectIn("latch", name, &kind{})}
}

// TrySetCount says where the latch begins, 1 or more, unless that was said
// already: then it changes nothing and returns false, also if the latch is at 0
// by now. So each user of the latch may call it first.
func (l *CountDownLatch) TrySetCount(ctx context.Context, n int) (bool, error) {
	set, err := int64(0), atLeastOne(n, "counts")
	if err == nil {
		set, err = l.change(ctx, "latch_set", l.keys.side(rand.Text()), n, rand.Text(), countedMarkLife.Milliseconds())
	}
	return set == 1, wrap(err, "set latch %q to %d", l.name, n)
}

// CountDown counts down by one, and returns what is left. At 0 it changes
// nothing. A lost reply doesn't make it count twice; after an error other than
// [ErrNotSet] it may have counted.
func (l *CountDownLatch) CountDown(ctx context.Context) (int, error) {
	left, err := l.change(ctx, "latch_down", l.keys.side(rand.Text()), countedMarkLife.Milliseconds(), latchLife.Milliseconds(), l.keys.channel)
	return int(left), wrap(err, "count down latch %q", l.name)
}

// Count returns what is left to count down.
func (l *CountDownLatch) Count(ctx context.Context) (int, error) {
	n, _, err := l.look(ctx, nil)
	return n, wrap(err, "count of latch %q", l.name)
}

// Await waits until the latch is at 0, for at most that long: 0 looks once, and
// see [Forever]. It returns true if it is, and false when the wait is over. A
// latch that is deleted during the wait ends the wait with [ErrNotSet], even if it was
// set again. A server that fails is asked again, and awaited at the end, as [Options.Wait] says.
func (l *CountDownLatch) Await(ctx context.Context, wait time.Duration) (zero bool, err error) {
	defer func() { err = wrap(err, "await latch %q", l.name) }()
	if err := l.check(Options{Wait: wait}); err != nil {
		return false, err
	}
	begin, round := time.Now(), ""
	ctx, cancel := bounded(ctx, begin, wait)
	defer cancel()
	look := func(ctx context.Context, _ string) (bool, time.Duration, error) {
		left, now, err := l.look(ctx, l.client.closing)
		if wait > 0 && transport.IsPassing(err) {
			return false, 0, again{err}
		}
		if round = cmp.Or(round, now); err == nil && now != round {
			err = fmt.Errorf("%w: deleted, and set again", ErrNotSet)
		}
		return err == nil && left == 0, 0, err
	}
	zero, err = l.client.wait(ctx, &pending{poll: maxPoll, begin: begin, limit: wait, channel: l.keys.channel}, look)
	if err == nil && !zero && wait > 0 { // the message may have been lost
		zero, _, err = look(ctx, "")
	}
	return zero, unanswered(ctx, err)
}

// Delete removes the latch, and reports whether there was one.
func (l *CountDownLatch) Delete(ctx context.Context) (bool, error) {
	deleted, err := l.change(ctx, "latch_delete", l.keys.side(rand.Text()), countedMarkLife.Milliseconds(), l.keys.channel)
	return deleted == 1, wrap(err, "delete latch %q", l.name)
}

// look returns what is left, and in which round.
func (l *CountDownLatch) look(ctx context.Context, abort <-chan struct{}) (left int, round string, err error) {
	s := on("latch_count", []string{l.keys.lock})
	s.Abort = abort
	v, err := l.run(ctx, s, 2)
	round, _ = v[1].(string)
	return int(number(v[0])), round, err
}
