package lock

import (
	"context"
	"crypto/rand"
	_ "embed"
	"fmt"
	"time"
)

var (
	//go:embed scripts/hash.lua
	hashLua string
	//go:embed scripts/tickets.lua
	ticketsLua string
	//go:embed scripts/free.lua
	freeLua string
	//go:embed scripts/acquire.lua
	acquireLua string
	//go:embed scripts/extend.lua
	extendLua string
	//go:embed scripts/sole.lua
	soleLua string
	//go:embed scripts/release.lua
	releaseLua string
	//go:embed scripts/force.lua
	forceLua string
	//go:embed scripts/inspect.lua
	inspectLua string
)

// newMutexKind is the plain lock; fenced gives its grants tokens.
func newMutexKind(sources map[string]string, fenced bool) *kind {
	acquire, release := newScript(sources["acquire"]), newScript(sources["release"])
	extend := newScript(extendLua)
	return &kind{
		acquire: func(g *grant) call {
			return on(acquire, g.places[:], g.held, milliseconds(g.lease), g.ticket(), g.extra())
		},
		extend: func(g *grant, d time.Duration) call {
			return on(extend, []string{g.keys.lock}, g.request, milliseconds(d))
		},
		release: func(g *grant, withdraw bool) call {
			ticket := ""
			if withdraw {
				ticket = g.drawn()
			}
			return on(release, g.places[:], g.held, g.mark(withdraw), ticket, g.keys.channel)
		},
		plain:     true,
		fenced:    fenced,
		tickets:   true,
		traceless: true,
	}
}

// extra is what there is to say of a request: nothing, if it asks for the first
// time and for no token. Else it is the life of the last token.
func (g *grant) extra() any {
	if !g.kind.fenced && g.refused.sent.IsZero() {
		return ""
	}
	return g.tokenLife()
}

// plain are what a plain lock is while one request holds it, and its keys: the lock, the
// mark, the tickets, the token. All but the first are made at once, since that is done for
// every grant.
func (k keys) plain(request, owner string) (held string, places [4]any) {
	all := "held " + request + " " + owner + k.part + "released:" + request + k.end + k.part + "tickets" + k.end + k.part + "token" + k.end
	mark := len("held ") + len(request) + len(" ") + len(owner)
	tickets := mark + len(k.part) + len("released:") + len(request) + len(k.end)
	token := tickets + len(k.part) + len("tickets") + len(k.end)
	return all[:mark], [4]any{k.lock, all[mark:tickets], all[tickets:token], all[token:]}
}

// What a release leaves for copies of the request to acquire.
const (
	noMark = iota
	markAlways
	markIfHeld
)

// mark is what the release leaves: nothing where there can't be a copy.
func (g *grant) mark(withdraw bool) int {
	switch {
	case withdraw:
		return markAlways
	case g.copied:
		return markIfHeld
	default:
		return noMark
	}
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
// is not promised: see [FairMutex]. A hold that was handed over so ends within 5s
// at first. Unless it is released before, it is extended by itself to the lease
// that was asked for; its [Lease.Expires] follows, and an observer is told of a
// renewal.
//
// Where the answer to a release was lost, a repetition that finds the hold gone
// counts as its success, if the lease had not ended when the first one was sent:
// nothing stays on the server by which it could be told from a lock that was lost
// at that very time.
type Mutex struct{ object }

// Mutex returns the mutex of that name, without asking the server. The name is
// not empty, which is checked when the mutex is used.
func (c *Client) Mutex(name string) *Mutex {
	return &Mutex{c.object(name, c.kinds.mutex)}
}

// Acquire asks for the lock, and waits for it for at most [Options.Wait].
func (m *Mutex) Acquire(ctx context.Context, o Options) (*Hold, error) { return m.acquire(ctx, o) }

// Lock waits for the lock until the context ends; see [Options.Wait], which is
// ignored, for servers that fail.
// After the context's error the lock may have been granted; what can be undone
// of that is undone in the background.
func (m *Mutex) Lock(ctx context.Context, o Options) (*Hold, error) {
	o.Wait = Forever
	return m.acquire(ctx, o)
}

// TryLock asks once, and returns [ErrNotAcquired] if another owner holds the
// lock. [Options.Wait] is ignored.
func (m *Mutex) TryLock(ctx context.Context, o Options) (*Hold, error) {
	o.Wait = 0
	return m.acquire(ctx, o)
}

// TryLockFor waits for at most that long, and then returns [ErrNotAcquired].
// [Options.Wait] is ignored. A request that is in flight at that moment is
// awaited, so that its outcome is known.
func (m *Mutex) TryLockFor(ctx context.Context, wait time.Duration, o Options) (*Hold, error) {
	o.Wait = wait
	return m.acquire(ctx, o)
}

// Unlock releases a hold of this mutex; see [Hold.Release].
func (m *Mutex) Unlock(ctx context.Context, h *Hold) error {
	if h == nil {
		return noHold(m.name)
	}
	if !h.isOf(&m.object) {
		return fmt.Errorf("unlock %q with a hold of %q, which is another lock: %w", m.name, h.Lease().Name, ErrNotHeld)
	}
	return h.Release(ctx)
}

// isOf reports whether the hold was granted by that lock: by its client, under its keys.
func (h *Hold) isOf(o *object) bool {
	g, ok := h.keeper.(*grant)
	return ok && g.client == o.client && g.keys == o.keys
}

// noHold is what comes of unlocking without a hold.
func noHold(name string) error { return fmt.Errorf("unlock %q without a hold: %w", name, ErrNotHeld) }

// ForceUnlock ends all grants of the lock, of any owner, and reports whether
// there were any. Holders learn of it at their next extension or release; a client
// that passes the lock on in memory may do so until its batch ends: see
// [Config.Batch].
func (m *Mutex) ForceUnlock(ctx context.Context) (bool, error) {
	c := m.client
	_, keys := m.keys.plain(rand.Text(), "")
	v, err := await(ctx, c, nil, func(ctx context.Context) (any, error) {
		return c.run(ctx, on(c.kinds.force, keys[:], m.keys.channel))
	})
	if err != nil {
		return false, fmt.Errorf("force unlock %q: %w", m.name, err)
	}
	return v == int64(1), nil
}

// IsLocked reports whether any owner holds the lock.
//
// It only reads, as IsHeldBy, Owner, HoldCount and TTL do, so a server that was the master
// before a failover may answer them: with what it knew then. They are for people and
// metrics. Whether a hold is still good, [Hold.Extend] says.
func (m *Mutex) IsLocked(ctx context.Context) (bool, error) {
	s, err := m.inspect(ctx)
	return s.grants > 0, err
}

// IsHeldBy reports whether the owner holds the lock; see [Mutex.IsLocked].
func (m *Mutex) IsHeldBy(ctx context.Context, owner string) (bool, error) {
	n, err := m.HoldCount(ctx, owner)
	return n > 0, err
}

// Owner returns who holds the lock, as [Options.Owner] said; "" if no client does. A grant
// without an owner has a random one. See [Mutex.IsLocked].
func (m *Mutex) Owner(ctx context.Context) (string, error) {
	s, err := m.inspect(ctx)
	return s.owner, err
}

// HoldCount returns how many grants the owner holds: 0 if it is not the holder. See
// [Mutex.IsLocked].
func (m *Mutex) HoldCount(ctx context.Context, owner string) (int, error) {
	s, err := m.inspect(ctx)
	if s.owner != owner {
		return 0, err
	}
	return s.grants, err
}

// TTL returns how long the lock is held unless it is extended or released; 0
// if no owner holds it. See [Mutex.IsLocked].
func (m *Mutex) TTL(ctx context.Context) (time.Duration, error) {
	s, err := m.inspect(ctx)
	return s.ttl, err
}

// state is who holds a lock.
type state struct {
	owner  string
	grants int
	ttl    time.Duration
}

func (m *Mutex) inspect(ctx context.Context) (state, error) {
	c := m.client
	v, err := await(ctx, c, nil, func(ctx context.Context) (any, error) {
		return c.run(ctx, on(c.kinds.inspect, []string{m.keys.lock}))
	})
	if err != nil {
		return state{}, fmt.Errorf("inspect lock %q: %w", m.name, err)
	}
	fields, ok := v.([]any)
	if !ok || len(fields) != 3 {
		return state{}, fmt.Errorf("inspect lock %q: strange reply %v", m.name, v)
	}
	owner, _ := fields[0].(string)
	grants, _ := fields[1].(int64)
	ttl, _ := fields[2].(int64)
	return state{owner, int(grants), duration(ttl)}, nil
}
