package lock

import (
	"context"
	"crypto/rand"

	"github.com/lockchaos/lockchaos/lock/internal/transport"
)

func newFairKind() *kind {
	return &kind{
		acquire: func(g *grant) transport.Call {
			return on("fair_acquire", g.keys.queue(g.request), g.owner, g.request, milliseconds(g.lease),
				milliseconds(g.client.config.Heartbeat), flag(g.waits), g.place, g.keys.channel)
		},
		extend: extendOne,
		release: func(g *grant, withdraw bool) transport.Call {
			return g.orOne(on("fair_release", g.keys.queue(g.request), g.request, markLife.Milliseconds(), g.keys.channel, flag(withdraw)), withdraw)
		},
		force: func(o *object) transport.Call {
			return on("fair_force", o.keys.queue(rand.Text()), o.keys.channel, markLife.Milliseconds())
		},
		queued: true,
	}
}

// queue are the keys of a lock and its queue: the lock, the places of those who
// wait, and their deadlines; and the mark of a request.
func (k keys) queue(request string) []string {
	return []string{k.lock, k.of("places"), k.of("deadlines"), k.mark(request)}
}

// A FairMutex is a [Mutex] whose waiters are served in the order of their
// arrival. Arrival is the instant, on the server's clock, at which the server
// carried out the first request of a call that may wait; neither the clocks of
// the clients nor what a waiter does later matters.
//
// A waiter asks again every third of [Config.Heartbeat], and is alive for the
// others for a heartbeat from its last request. Its turn comes when the lock is
// free and no live waiter arrived before it. A waiter that was silent for longer
// may be passed by; once it is heard of again, it goes before all who arrived
// later, as it does when the server has lost the queue. One that gives up leaves
// the queue at once. So those who died cost the others a heartbeat, however many
// of them died together. Waiters may have different heartbeats.
//
// A call that doesn't wait is granted a free lock only if no live waiter waits for
// it, and takes no place in the queue. An owner that holds the lock is granted it
// again at once, whichever clients wait.
//
// A FairMutex and a Mutex of one name exclude each other, but the latter knows
// nothing of the queue: it may go before those who wait, and its release is found
// by their next request.
type FairMutex struct{ Mutex }

// FairMutex returns the fair mutex of that name, without asking the server.
func (c *Client) FairMutex(name string) *FairMutex {
	return &FairMutex{Mutex{c.object(name, kinds.fair)}}
}

// Waiters returns how many wait for the lock and are alive; see [Mutex.State] for how
// current the answer is.
func (m *FairMutex) Waiters(ctx context.Context) (int, error) {
	v, err := m.run(ctx, on("fair_waiters", []string{m.keys.of("deadlines")}), 1)
	return int(number(v[0])), wrap(err, "count who waits for %q", m.name)
}
