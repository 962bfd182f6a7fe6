package lock

import (
	"context"
	"slices"
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

// wait asks again whenever the lock may have become free: when a message says
// so, and at the latest when the lock runs out, for an end by expiry sends no
// message. a is the refusal of the first try.
func (g *grant) wait(ctx context.Context, a answer, begin time.Time, limit time.Duration) (answer, error) {
	c := g.client
	w := c.wakeups.join(g.keys.channel)
	unused := false // a wake-up that we took and that came to nothing
	defer func() { c.wakeups.leave(w, unused) }()
	for {
		left := limit
		if limit != Forever {
			if left -= time.Since(begin); left <= 0 {
				return answer{}, nil
			}
		}
		poll := maxPoll
		if a.ttl > 0 {
			poll = min(max(a.ttl+time.Millisecond, minPoll), maxPoll)
		}
		timer := time.NewTimer(min(poll, left))
		select {
		case <-w.wake:
			unused = true
		case <-timer.C:
			if left <= poll {
				return answer{}, nil
			}
		case <-ctx.Done():
			timer.Stop()
			return answer{}, ctx.Err()
		case <-c.closing:
			timer.Stop()
			return answer{}, ErrClosed
		}
		timer.Stop()
		var err error
		if a, err = g.try(ctx); err != nil || a.granted {
			return a, err
		}
		unused = false
	}
}

// wakeups wakes the waiters of a client: one subscription to each lock that is
// waited for, on one connection, which go-redis opens again when it breaks.
//
// A message wakes one waiter. A subscription that is confirmed, for the first
// time or again, wakes one too, because what was published before is lost.
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
	channel string
	wake    chan struct{} // holds one wake-up
}

func newWakeups(c *Client) *wakeups {
	return &wakeups{client: c, dirty: make(chan struct{}, 1), topics: map[string]*topic{}}
}

// join adds a waiter. If the channel is subscribed to already, it is woken at
// once, because it may have missed a message.
func (u *wakeups) join(channel string) *waiter {
	w := &waiter{channel: channel, wake: make(chan struct{}, 1)}
	u.mu.Lock()
	defer u.mu.Unlock()
	t := u.topics[channel]
	if t == nil {
		t = &topic{}
		u.topics[channel] = t
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
	if unused {
		t.wakeOne()
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

// wakeOne wakes the first waiter that isn't woken already.
func (t *topic) wakeOne() {
	for _, w := range t.waiters {
		select {
		case w.wake <- struct{}{}:
			return
		default:
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

func (u *wakeups) receive(message any) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch m := message.(type) {
	case *redis.Message:
		if t := u.topics[m.Channel]; t != nil {
			t.wakeOne()
		}
	case *redis.Subscription:
		if t := u.topics[m.Channel]; t != nil && m.Kind == "subscribe" {
			t.confirmed = t.asked
			t.wakeOne()
		}
	}
}

// reconcile subscribes to the channels that somebody waits for, and
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
		case len(t.waiters) == 0:
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
