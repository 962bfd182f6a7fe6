package lock

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// minPoll keeps a waiter from asking in a hot loop when a lock is about to
	// run out; maxPoll bounds the damage of a message that never arrives.
	minPoll = 5 * time.Millisecond
	maxPoll = 3 * time.Second
	// subscribeLimit bounds one request to subscribe.
	subscribeLimit = 5 * time.Second
)

// wait asks again until the lock is granted or the wait is over. a is the
// refusal of the first try.
func (g *grant) wait(ctx context.Context, a answer, begin time.Time, limit time.Duration) (answer, error) {
	p := g.pending(begin, limit)
	if g.handsOver() && g.waiter == nil {
		g.waiter = g.client.wakeups.join(p)
	}
	p.waiter = g.waiter
	ask := func(ctx context.Context) (granted bool, after time.Duration, err error) {
		if p.waiter != nil {
			message := g.client.wakeups.take(p.waiter)
			if h, ok := g.handed(message); ok {
				a = h
				return true, 0, nil
			}
		}
		a, err = g.try(ctx)
		return a.granted, a.ttl, err
	}
	granted, err := g.client.wait(ctx, p, a.ttl, ask)
	switch {
	case granted:
		return a, nil
	case err == nil && a.failed != nil:
		g.client.background(func() { _ = g.withdraw(ctx) })
		return answer{}, a.failed
	case a.failed == nil && !g.queued() && !g.copied:
		return answer{}, err
	case err == nil:
		return g.undo(ctx, false, ErrNotAcquired, errors.New("the wait is over"))
	case ctx.Err() != nil || errors.Is(err, ErrClosed) || errors.Is(err, ErrNotAcquired):
		return g.undo(ctx, false, err, err)
	default: // of a request, which is being undone already
		return answer{}, err
	}
}

// pending is how the request waits.
func (g *grant) pending(begin time.Time, limit time.Duration) pending {
	p := pending{
		channel: g.keys.channel, request: g.request, broad: g.kind.broad,
		poll: g.kind.poll, spin: g.kind.spin, begin: begin, limit: limit,
	}
	if g.handsOver() {
		p.channel, p.broad = g.client.inbox, true
	}
	return p
}

// pending is a call that waits for something to change on the server.
type pending struct {
	channel string
	request string        // messages may be for it alone
	broad   bool          // a lost message may have been for any waiter
	poll    time.Duration // between two requests at most; 0: maxPoll
	spin    *Backoff      // the pauses, if there are no messages
	begin   time.Time
	limit   time.Duration
	waiter  *waiter // if it has joined already
}

// wait calls ask whenever what is waited for may have come: when a message says
// so, and at the latest when it is due by itself, for an end by expiry sends no
// message. after is when that is, as ask returns it: 0 if it isn't known. The
// result is false if the limit was reached.
func (c *Client) wait(
	ctx context.Context, p pending, after time.Duration,
	ask func(context.Context) (done bool, after time.Duration, err error),
) (bool, error) {
	var w *waiter
	var wake chan struct{}
	unused := false // a wake-up that we took and that came to nothing
	if p.spin == nil {
		if w = p.waiter; w == nil {
			w = c.wakeups.join(p)
		}
		wake = w.wake
		defer func() { c.wakeups.leave(w, unused) }()
	}
	for tries := 0; ; tries++ {
		left := p.limit
		if p.limit != Forever {
			if left -= time.Since(p.begin); left <= 0 {
				return false, nil
			}
		}
		poll := p.pause(tries, after)
		timer := time.NewTimer(min(poll, left))
		select {
		case <-wake:
			unused = true
		case <-timer.C:
			if left <= poll {
				return false, nil
			}
		case <-ctx.Done():
			timer.Stop()
			return false, ctx.Err()
		case <-c.closing:
			timer.Stop()
			return false, ErrClosed
		}
		timer.Stop()
		done, next, err := ask(ctx)
		if err != nil {
			return false, err
		}
		if unused, after = false, next; done {
			return true, nil
		}
	}
}

// pause is how long to wait before the next request, if no message comes.
func (p pending) pause(tries int, after time.Duration) time.Duration {
	if p.spin != nil {
		return p.spin.pause(tries)
	}
	longest := maxPoll
	if p.poll > 0 {
		longest = p.poll
	}
	if after > 0 {
		return min(max(after+time.Millisecond, minPoll), longest)
	}
	return longest
}

// wakeups wakes the waiters of a client: one subscription to each lock that is
// waited for, on one connection, which go-redis opens again when it breaks.
//
// A message says whom it wakes: see [wakeups.receive]. A subscription that is
// confirmed, for the first time or again, wakes waiters too, because what was
// published before is lost.
type wakeups struct {
	client *Client
	dirty  chan struct{} // something is to be subscribed or unsubscribed

	mu      sync.Mutex
	running bool
	topics  map[string]*topic
}

// topic is a channel that is, was or will be subscribed to.
type topic struct {
	waiters   []*waiter // in the order of arrival
	asked     bool      // the server was asked to subscribe
	confirmed bool
}

// waiter is one call that waits.
type waiter struct {
	channel, request string
	broad            bool
	wake             chan struct{} // holds one wake-up
	message          string        // what it was woken with
}

func newWakeups(c *Client) *wakeups {
	return &wakeups{client: c, dirty: make(chan struct{}, 1), topics: map[string]*topic{}}
}

// join adds a waiter. If the channel is subscribed to already, it is woken at
// once, because it may have missed a message.
func (u *wakeups) join(p pending) *waiter {
	w := newWaiter(p)
	u.mu.Lock()
	defer u.mu.Unlock()
	t := u.topics[p.channel]
	if t == nil {
		t = &topic{}
		u.topics[p.channel] = t
	}
	t.waiters = append(t.waiters, w)
	if t.confirmed {
		w.wake <- struct{}{}
	}
	if !t.asked {
		u.mark()
	}
	if !u.running {
		u.running = u.client.spawn(u.run)
	}
	return w
}

func newWaiter(p pending) *waiter {
	return &waiter{channel: p.channel, request: p.request, broad: p.broad, wake: make(chan struct{}, 1)}
}

// attend adds a waiter that hasn't asked yet, and so has missed nothing. It
// returns nil if the channel isn't subscribed to.
func (u *wakeups) attend(p pending) *waiter {
	u.mu.Lock()
	defer u.mu.Unlock()
	t := u.topics[p.channel]
	if t == nil || !t.confirmed {
		return nil
	}
	w := newWaiter(p)
	t.waiters = append(t.waiters, w)
	return w
}

// listens reports whether a channel is subscribed to, as far as is known.
func (u *wakeups) listens(channel string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	t := u.topics[channel]
	return t != nil && t.confirmed
}

// take returns what a waiter was woken with.
func (u *wakeups) take(w *waiter) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	m := w.message
	w.message = ""
	return m
}

// leave removes a waiter, and passes a wake-up on that it didn't use.
func (u *wakeups) leave(w *waiter, unused bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	t := u.topics[w.channel]
	t.waiters = slices.DeleteFunc(t.waiters, func(other *waiter) bool { return other == w })
	select {
	case <-w.wake:
		unused = true
	default:
	}
	if unused && w.channel != u.client.inbox { // what is in the inbox is for one alone
		t.wakeFirst(1)
	}
	if len(t.waiters) == 0 {
		u.mark()
	}
}

// mark tells run that topics changed.
func (u *wakeups) mark() {
	select {
	case u.dirty <- struct{}{}:
	default:
	}
}

// wakeFirst wakes the first n waiters that aren't woken already.
func (t *topic) wakeFirst(n int) {
	for _, w := range t.waiters {
		if n <= 0 {
			return
		}
		select {
		case w.wake <- struct{}{}:
			n--
		default:
		}
	}
}

// wakeIf wakes the waiters for which that is true.
func (t *topic) wakeIf(match func(*waiter) bool) {
	for _, w := range t.waiters {
		if match(w) {
			select {
			case w.wake <- struct{}{}:
			default:
			}
		}
	}
}

// run keeps the subscriptions until the client is closed.
func (u *wakeups) run() {
	ctx := context.Background()
	pubsub := u.client.rdb.Subscribe(ctx)
	messages := pubsub.ChannelWithSubscriptions()
	defer func() {
		_ = pubsub.Close()
		for range messages { // until go-redis has stopped reading
		}
	}()
	for {
		select {
		case m, ok := <-messages:
			if !ok {
				return
			}
			u.receive(m)
		case <-u.dirty:
			u.reconcile(ctx, pubsub)
		case <-u.client.closing:
			return
		}
	}
}

// receive wakes those for whom a message is: "3" is for the first three waiters,
// "all" for every one, and "=X" for the one whose request is X; what follows that
// after a space is kept for it.
func (u *wakeups) receive(message any) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch m := message.(type) {
	case *redis.Message:
		t := u.topics[m.Channel]
		if t == nil {
			return
		}
		if request, one := strings.CutPrefix(m.Payload, "="); one {
			request, rest, _ := strings.Cut(request, " ")
			t.wakeIf(func(w *waiter) bool {
				if w.request == request {
					w.message = rest
				}
				return w.request == request
			})
		} else if n, err := strconv.Atoi(m.Payload); err == nil {
			t.wakeFirst(n)
		} else {
			t.wakeIf(func(*waiter) bool { return true })
		}
	case *redis.Subscription:
		if t := u.topics[m.Channel]; t != nil && m.Kind == "subscribe" {
			t.confirmed = t.asked
			t.wakeFirst(1)
			t.wakeIf(func(w *waiter) bool { return w.broad })
		}
	}
}

// reconcile subscribes to the channels with waiters, and
// unsubscribes from the others. An error is for go-redis to mend: it subscribes
// anew on its next connection, and until then the waiters poll.
func (u *wakeups) reconcile(ctx context.Context, pubsub *redis.PubSub) {
	var wanted, unwanted []string
	u.mu.Lock()
	for channel, t := range u.topics {
		switch {
		case len(t.waiters) > 0 && !t.asked:
			t.asked = true
			wanted = append(wanted, channel)
		case len(t.waiters) == 0 && channel != u.client.inbox:
			if t.asked {
				unwanted = append(unwanted, channel)
			}
			delete(u.topics, channel)
		}
	}
	u.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, subscribeLimit)
	defer cancel()
	if len(unwanted) > 0 {
		_ = pubsub.Unsubscribe(ctx, unwanted...)
	}
	if len(wanted) > 0 {
		_ = pubsub.Subscribe(ctx, wanted...)
	}
}
