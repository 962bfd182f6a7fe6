package lock

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/lockchaos/lockchaos/lock/internal/transport"
)

// newMutexKind is the plain lock; fenced gives its grants tokens.
func newMutexKind(fenced bool) *kind {
	return &kind{
		acquire: func(g *grant) transport.Call {
			c := on("acquire", g.keys.plain(g.request), g.held(), milliseconds(g.lease), g.ticket, g.tokenLife())
			if g.client.transport.Sharded() && !fenced { // a token needs the key of the last one
				narrow := on("acquire_one", []string{g.keys.lock}, g.held(), milliseconds(g.lease))
				c.Narrow = &narrow
			}
			return c
		},
		extend: extendOne,
		release: func(g *grant, withdraw bool) transport.Call {
			keys := g.keys.plain(g.request)
			switch {
			case withdraw:
				return g.orOne(on("release", keys, g.held(), 1, g.ticket), true)
			case g.copied:
				return g.orOne(on("release", keys, g.held(), 2, ""), false)
			default: // a mark is for copies of the request to acquire
				return g.orOne(on("release", keys[:3], g.held()), false)
			}
		},
		force: func(o *object) transport.Call {
			return on("force", o.keys.plain(rand.Text()))
		},
		usesMutexScripts: true,
		fenced:           fenced,
		tickets:          true,
	}
}

// orOne adds to a release what does for the lock's key alone.
func (g *grant) orOne(c transport.Call, withdraw bool) transport.Call {
	if g.client.transport.Sharded() {
		narrow := on("release_one", []string{g.keys.lock}, g.request, flag(withdraw))
		c.Narrow = &narrow
	}
	return c
}

// extendOne moves the end of one grant of a lock that is one key.
func extendOne(g *grant, d time.Duration) transport.Call {
	return on("extend", []string{g.keys.lock}, g.request, milliseconds(d))
}

// plain are the keys of a plain lock: the lock, the tickets, the token, the mark of a request.
func (k keys) plain(request string) []string {
	return []string{k.lock, k.of("tickets"), k.of("token"), k.mark(request)}
}

// flag is how a script is told yes or no.
func flag(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// A Mutex is a re-entrant mutual exclusion lock on Redis. Its owner is
// said in the options: there is no hidden owner such as a goroutine. It is a
// name and a client, so two Mutexes of one name are the same lock.
//
// A waiter draws a ticket, and the script that releases the lock grants it to the
// first ticket whose client hears of it. That is mostly the order of arrival, which
// is not promised: see [FairMutex]. A hold of the watchdog that was handed over so ends within
// 5s at first, which its [Lease] says, and is renewed after 100ms.
//
// Where the answer to a release was lost, a repetition that finds the hold gone
// counts as its success, if the lease had not ended when the first one was sent:
// nothing stays on the server by which it could be told from a lock that was lost
// at that very time.
type Mutex struct{ object }

// Mutex returns the mutex of that name, without asking the server. The name is
// not empty, which is checked when the mutex is used.
func (c *Client) Mutex(name string) *Mutex { return &Mutex{c.object(name, kinds.mutex)} }

// Acquire asks for the lock, and waits for it for at most [Options.Wait]. A request that is
// in flight at that moment is awaited, so that its outcome is known. After any error but [ErrNotAcquired] and [ErrNotReplicated]
// the lock may have been granted; what can be undone of that is undone in the background.
func (m *Mutex) Acquire(ctx context.Context, o Options) (*Hold, error) { return m.acquire(ctx, o) }

// ForceUnlock ends all grants of the lock, of any owner, and reports whether
// there were any. Holders learn of it at their next extension or release; a client
// that passes the lock on in memory may do so until its batch ends: see
// [Config.Batch]. Waiters of a [FairMutex] keep their places.
func (m *Mutex) ForceUnlock(ctx context.Context) (bool, error) { return m.forceUnlock(ctx) }

// A State is who holds a lock, as a server knows it.
type State struct {
	// Owner is who holds it, as [Options.Owner] said; "" if no client does. A grant without an owner has a random one.
	Owner string
	// Holds is how many grants the owner has, 0 if no client holds the lock, and TTL for how long unless one of them is
	// extended or released.
	Holds int
	TTL   time.Duration
}

// State returns who holds the lock.
//
// It only reads, as all methods of that name do, so a server that was the master
// before a failover may answer them: with what it knew then. They are for people and
// metrics. Whether a hold is still good, [Hold.Extend] says.
func (m *Mutex) State(ctx context.Context) (State, error) {
	v, err := m.run(ctx, on("inspect", []string{m.keys.lock}), 3)
	owner, _ := v[0].(string)
	return State{owner, int(number(v[1])), duration(number(v[2]))}, wrap(err, "inspect lock %q", m.name)
}
