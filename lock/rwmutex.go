package lock

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/lockchaos/lockchaos/lock/internal/transport"
)

// ErrUpgrade says that an owner asked to write while it holds the read side
// only: it would wait for itself. It comes with [ErrNotAcquired].
var ErrUpgrade = errors.New("upgrade from reading to writing: release the read side first")

// RWOptions say how a [RWMutex] treats those who wait. The zero value prefers
// neither side: the first request when the lock is free enough is granted, so that a
// stream of readers may starve the writers.
type RWOptions struct {
	// PreferWriters makes new readers wait while a writer of this RWMutex waits;
	// owners that hold a side already still get in again. All readers of that
	// name keep to it, whatever their own RWMutex says. A waiting writer asks
	// every third of [Config.Heartbeat], and at least every 3s. One that died
	// keeps readers out until its heartbeat is over and they ask again, 3s later
	// at most.
	PreferWriters bool
}

// A RWMutex is a re-entrant lock that many owners may hold for reading at once,
// or one for writing. As with a [Mutex], the owner is said in the options, and
// two RWMutexes of one name are the same lock.
//
// The owner that writes may also read. If it releases the write side first, it
// goes on as a reader, and the readers that waited get in. The reverse, writing
// while holding the read side only, is refused at once with [ErrUpgrade],
// because two readers that did it would wait for each other for ever.
//
// Every grant has an end of its own, on either side: a reader that died is in
// no writer's way after its lease, and neither another hold nor its release changes
// that. What a request costs the server hardly grows with the number of holds.
//
// A name is that of a RWMutex or of a lock of another kind: while one of them is
// held, the other returns an error that says so.
type RWMutex struct {
	read, write RWSide
}

// RWMutex returns the read-write lock of that name, without asking the server.
// The name is not empty, which is checked when the lock is used.
func (c *Client) RWMutex(name string, o RWOptions) *RWMutex {
	read, write := c.object(name, kinds.read), c.object(name, kinds.write)
	if o.PreferWriters {
		k := *write.kind
		k.queued = true
		write.kind = &k
	}
	read.keys.channel, write.keys.channel = read.keys.readers(), write.keys.writers()
	return &RWMutex{RWSide{read}, RWSide{write}}
}

// Read returns the side that many owners hold at once.
func (m *RWMutex) Read() *RWSide { return &m.read }

// Write returns the side that one owner holds alone.
func (m *RWMutex) Write() *RWSide { return &m.write }

// Name returns the lock's name.
func (m *RWMutex) Name() string { return m.read.name }

// A RWSide is one side of a [RWMutex]. The [Lease.Holds] of its grants count the
// owner's holds of that side. See [Client.Readers] and [Client.Writers] for a [Locker].
type RWSide struct{ object }

// Acquire asks for this side, as [Mutex.Acquire] does for a lock.
func (s *RWSide) Acquire(ctx context.Context, o Options) (*Hold, error) { return s.acquire(ctx, o) }

// A RWState is who holds the sides of a [RWMutex], as a server knows it.
type RWState struct {
	// Readers is how many owners hold the read side; among them may be the one that writes.
	Readers int
	// Writes is how many grants of the write side there are, all of one owner.
	Writes int
	// OwnReads and OwnWrites are how many grants of either side the owner has that was asked about.
	OwnReads, OwnWrites int
	// TTL is how long either side is held unless it is extended or released; 0 if no owner holds one.
	TTL time.Duration
}

// State returns who holds the lock, and how many grants of it the owner has, "" for none; see [Mutex.State] for how
// current the answer is.
func (m *RWMutex) State(ctx context.Context, owner string) (RWState, error) {
	v, err := m.read.run(ctx, on("rw_inspect", []string{m.read.keys.lock}, owner), 5)
	return RWState{int(number(v[0])), int(number(v[1])), int(number(v[2])), int(number(v[3])), duration(number(v[4]))},
		wrap(err, "inspect lock %q", m.Name())
}

// ForceUnlock ends all grants of both sides, of any owner, and reports
// whether there were any. Holders learn of it at their next extension or
// release.
func (m *RWMutex) ForceUnlock(ctx context.Context) (bool, error) { return m.read.forceUnlock(ctx) }

// readers and writers are the channels on which the two sides wait.
func (k keys) readers() string { return k.of("readers") }
func (k keys) writers() string { return k.of("writers") }

// newSideKind is a side of a read-write lock: "read" or "write".
func newSideKind(what string) *kind {
	return &kind{
		acquire: func(g *grant) transport.Call {
			place := int64(0)
			if g.kind.queued && g.waits {
				place = milliseconds(g.client.config.Heartbeat)
			}
			return on("rw_acquire", g.keys.side(g.request), what, g.request, g.owner, milliseconds(g.lease), place)
		},
		extend: func(g *grant, d time.Duration) transport.Call {
			return on("rw_extend", []string{g.keys.lock}, what+":"+g.request+":"+g.owner, milliseconds(d))
		},
		release: func(g *grant, withdraw bool) transport.Call {
			return on("rw_release", g.keys.side(g.request), what, g.request, g.owner, markLife.Milliseconds(),
				g.keys.readers(), g.keys.writers(), flag(withdraw))
		},
		force: func(o *object) transport.Call {
			return on("rw_force", o.keys.side(rand.Text()), o.keys.readers(), o.keys.writers(), markLife.Milliseconds())
		},
		denied: ErrUpgrade,
	}
}

// side are the keys of a lock without a queue, and the mark of a request.
func (k keys) side(request string) []string { return []string{k.lock, k.mark(request)} }
