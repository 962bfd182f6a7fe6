package lock

import (
	"context"
	"crypto/rand"
	_ "embed"
	"fmt"
	"time"
)

var (
	//go:embed scripts/fair_queue.lua
	fairQueueLua string
	//go:embed scripts/fair_acquire.lua
	fairAcquireLua string
	//go:embed scripts/fair_release.lua
	fairReleaseLua string
	//go:embed scripts/fair_force.lua
	fairForceLua string
	//go:embed scripts/fair_waiters.lua
	fairWaitersLua string
)

// fair are the lock with a queue, and its scripts that are no part of a kind.
type fair struct {
	kind           *kind
	force, waiters script
}

func newFair(sources map[string]string) fair {
	acquire, release := newScript(sources["fair_acquire"]), newScript(sources["fair_release"])
	extend := newScript(extendLua)
	return fair{
		kind: &kind{
			acquire: func(g *grant) call {
				c := g.client.config
				return on(acquire, append(g.keys.queue(), g.keys.mark(g.request)),
					g.owner, g.request, milliseconds(g.lease), milliseconds(c.Heartbeat), flag(g.waits), g.place, g.keys.channel)
			},
			extend: func(g *grant, d time.Duration) call {
				return on(extend, []string{g.keys.lock}, g.request, milliseconds(d))
			},
			release: func(g *grant, withdraw bool) call {
				return on(release, append(g.keys.queue(), g.keys.mark(g.request)),
					g.request, markLife.Milliseconds(), g.keys.channel, flag(withdraw))
			},
			queued: true,
			broad:  true,
		},
		force:   newScript(sources["fair_force"]),
		waiters: newScript(fairWaitersLua),
	}
}

// queue are the keys of a lock and its queue: the lock, the places of those who
// wait, and their deadlines.
func (k keys) queue() []string { return []string{k.lock, k.of("places"), k.deadlines()} }

func (k keys) deadlines() string { return k.of("deadlines") }

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
	k := *c.kinds.fair.kind
	k.poll = min(c.config.Heartbeat/3, maxPoll)
	return &FairMutex{Mutex{c.object(name, &k)}}
}

// ForceUnlock ends all grants of the lock, of any owner, and reports whether
// there were any. Holders learn of it at their next extension or release; those
// who wait keep their places.
func (m *FairMutex) ForceUnlock(ctx context.Context) (bool, error) {
	v, err := m.number(ctx, on(m.client.kinds.fair.force,
		append(m.keys.queue(), m.keys.mark(rand.Text())), m.keys.channel, markLife.Milliseconds()))
	if err != nil {
		return false, fmt.Errorf("force unlock %q: %w", m.name, err)
	}
	return v == 1, nil
}

// Waiters returns how many wait for the lock and are alive; see [Mutex.IsLocked] for how
// current the answer is.
func (m *FairMutex) Waiters(ctx context.Context) (int, error) {
	v, err := m.number(ctx, on(m.client.kinds.fair.waiters, []string{m.keys.deadlines()}))
	if err != nil {
		return 0, fmt.Errorf("count who waits for %q: %w", m.name, err)
	}
	return int(v), nil
}

// number runs a script that returns one.
func (m *FairMutex) number(ctx context.Context, s call) (int64, error) {
	return await(ctx, m.client, nil, func(ctx context.Context) (int64, error) {
		v, err := m.client.run(ctx, s)
		n, _ := v.(int64)
		return n, err
	})
}
