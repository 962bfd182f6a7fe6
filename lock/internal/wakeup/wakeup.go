// Package wakeup tells calls that wait for a lock when to ask again, by messages of a server.
package wakeup

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// subscribeLimit bounds one request to subscribe.
const subscribeLimit = 5 * time.Second

// Wakeups wakes the waiters of a client: one subscription to each lock that is
// waited for, on one connection, which go-redis opens again when it breaks.
//
// A message says whom it wakes: see [Wakeups.receive]. A subscription that is
// confirmed, for the first time or again, wakes all waiters, because what was
// published before is lost.
type Wakeups struct {
	rdb     redis.UniversalClient
	inbox   string          // the channel that stays subscribed to, whose messages are for one waiter each
	spawn   func(func())    // runs a goroutine of the client
	closing <-chan struct{} // closed at its end
	dirty   chan struct{}   // something is to be subscribed or unsubscribed
	start   sync.Once

	mu     sync.Mutex
	topics map[string]*topic
}

// topic is a channel that is, was or will be subscribed to.
type topic struct {
	waiters   []*Waiter // in the order of arrival
	asked     bool      // the server was asked to subscribe
	confirmed bool
}

// A Waiter is one call that waits for messages on a channel: for those to its request, and those to any.
type Waiter struct {
	Wake             chan string // holds one wake-up, with what the message says to this waiter alone
	channel, request string
}

// New returns the wake-ups of a client until closing is closed. inbox is a channel that stays subscribed to, whose
// messages are for one waiter each; spawn runs a goroutine.
func New(rdb redis.UniversalClient, inbox string, spawn func(func()), closing <-chan struct{}) *Wakeups {
	return &Wakeups{rdb: rdb, inbox: inbox, spawn: spawn, closing: closing, dirty: make(chan struct{}, 1), topics: map[string]*topic{}}
}

// Join adds a waiter. If the channel is subscribed to already, it is woken at
// once, because it may have missed a message.
func (u *Wakeups) Join(channel, request string) *Waiter {
	u.mu.Lock()
	defer u.mu.Unlock()
	t := u.topics[channel]
	if t == nil {
		t = &topic{}
		u.topics[channel] = t
	}
	w := &Waiter{channel: channel, request: request, Wake: make(chan string, 1)}
	t.waiters = append(t.waiters, w)
	if t.confirmed {
		w.wake("")
	}
	if !t.asked {
		u.mark()
	}
	u.start.Do(func() { u.spawn(u.run) })
	return w
}

// Listens reports whether a channel is subscribed to, as far as is known.
func (u *Wakeups) Listens(channel string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	t := u.topics[channel]
	return t != nil && t.confirmed
}

// Leave removes a waiter. A wake-up that it didn't take is passed on, and one that it may have taken in vain.
func (u *Wakeups) Leave(w *Waiter, vain bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	t := u.topics[w.channel]
	t.waiters = slices.DeleteFunc(t.waiters, func(other *Waiter) bool { return other == w })
	if w.channel == u.inbox { // it stays subscribed to, and what is in it is for one alone
		return
	}
	if vain || len(w.Wake) > 0 {
		t.wake(1)
	}
	if len(t.waiters) == 0 {
		u.mark()
	}
}

// mark tells run that topics changed.
func (u *Wakeups) mark() {
	select {
	case u.dirty <- struct{}{}:
	default:
	}
}

// wake wakes a waiter, and reports whether it was not woken already. What is for it alone takes the place of
// a wake-up that says less. The mutex is held, so no other message comes in between.
func (w *Waiter) wake(message string) (slept bool) {
	slept = len(w.Wake) == 0
	if message != "" {
		select {
		case <-w.Wake:
		default:
		}
	}
	select {
	case w.Wake <- message:
	default:
	}
	return slept
}

// wake wakes the first n waiters that aren't woken already.
func (t *topic) wake(n int) {
	for _, w := range t.waiters {
		if n > 0 && w.wake("") {
			n--
		}
	}
}

// run keeps the subscriptions until the client is closed.
func (u *Wakeups) run() {
	ctx := context.Background()
	pubsub := u.rdb.Subscribe(ctx)
	messages := pubsub.ChannelWithSubscriptions()
	defer func() {
		_ = pubsub.Close()
		for range messages { // until go-redis has stopped reading
		}
	}()
	for {
		select {
		case m, ok := <-messages:
			if !ok { // the Redis client was closed
				return
			}
			u.receive(m)
		case <-u.dirty:
			u.reconcile(ctx, pubsub)
		case <-u.closing:
			return
		}
	}
}

// receive wakes those for whom a message is: "1" is for the first waiter,
// "all" for every one, and "=X" for the one whose request is X, which gets what follows that
// after a space.
func (u *Wakeups) receive(message any) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch m := message.(type) {
	case *redis.Message:
		t, ok := u.topics[m.Channel]
		to, one := strings.CutPrefix(m.Payload, "=")
		switch {
		case !ok:
		case one:
			request, rest, _ := strings.Cut(to, " ")
			for _, w := range t.waiters {
				if w.request == request {
					w.wake(rest)
				}
			}
		case to == "1":
			t.wake(1)
		default:
			t.wake(len(t.waiters))
		}
	case *redis.Subscription:
		if t := u.topics[m.Channel]; t != nil && m.Kind == "subscribe" {
			t.confirmed = t.asked
			t.wake(len(t.waiters))
		}
	}
}

// reconcile subscribes to the channels with waiters, and
// unsubscribes from the others. An error is for go-redis to mend: it subscribes
// anew on its next connection, and until then the waiters poll.
func (u *Wakeups) reconcile(ctx context.Context, pubsub *redis.PubSub) {
	var wanted, unwanted []string
	u.mu.Lock()
	for channel, t := range u.topics {
		switch {
		case len(t.waiters) > 0 && !t.asked:
			t.asked = true
			wanted = append(wanted, channel)
		case len(t.waiters) == 0 && channel != u.inbox:
			unwanted = append(unwanted, channel)
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
