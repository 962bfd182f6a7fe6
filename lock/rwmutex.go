package lock

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"time"
)

var (
	//go:embed scripts/rw_state.lua
	rwStateLua string
	//go:embed scripts/rw_acquire.lua
	rwAcquireLua string
	//go:embed scripts/rw_extend.lua
	rwExtendLua string
	//go:embed scripts/rw_release.lua
	rwReleaseLua string
	//go:embed scripts/rw_force.lua
	rwForceLua string
	//go:embed scripts/rw_inspect.lua
	rwInspectLua string
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
// that. A request takes the server a time in proportion to the number of holds,
// about a millisecond for a thousand; a renewal doesn't.
//
// A name is that of a RWMutex or of a lock of another kind. While a RWMutex is
// held, a [Mutex] of that name is refused; in the reverse case the RWMutex
// returns an error that says so.
type RWMutex struct {
	read, write RWSide
}

// RWMutex returns the read-write lock of that name, without asking the server.
// The name is not empty, which is checked when the lock is used.
func (c *Client) RWMutex(name string, o RWOptions) *RWMutex {
	read, write := c.object(name, c.kinds.rw.read), c.object(name, c.kinds.rw.write)
	if o.PreferWriters {
		k := *write.kind
		k.queued = true
		k.poll = min(c.config.Heartbeat/3, maxPoll)
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
// owner's holds of that side.
type RWSide struct{ object }

// Acquire asks for the side, and waits for it for at most [Options.Wait]. With
// Acquire in a [LockerFunc] it is a [Locker].
func (s *RWSide) Acquire(ctx context.Context, o Options) (*Hold, error) { return s.acquire(ctx, o) }

// Lock waits for the side until the context ends; see [Options.Wait], which is
// ignored, for servers that fail.
// After the context's error it may have been granted; what can be undone of
// that is undone in the background.
func (s *RWSide) Lock(ctx context.Context, o Options) (*Hold, error) {
	o.Wait = Forever
	return s.acquire(ctx, o)
}

// TryLock asks once, and returns [ErrNotAcquired] if another owner is in the
// way. [Options.Wait] is ignored.
func (s *RWSide) TryLock(ctx context.Context, o Options) (*Hold, error) {
	o.Wait = 0
	return s.acquire(ctx, o)
}

// TryLockFor waits for at most that long, and then returns [ErrNotAcquired].
// [Options.Wait] is ignored. A request that is in flight at that moment is
// awaited, so that its outcome is known.
func (s *RWSide) TryLockFor(ctx context.Context, wait time.Duration, o Options) (*Hold, error) {
	o.Wait = wait
	return s.acquire(ctx, o)
}

// Unlock releases a hold of this side; see [Hold.Release].
func (s *RWSide) Unlock(ctx context.Context, h *Hold) error {
	if h == nil {
		return noHold(s.name)
	}
	if !h.isOf(&s.object) {
		return fmt.Errorf("unlock %q with a hold of another lock or side: %w", s.name, ErrNotHeld)
	}
	return h.Release(ctx)
}

// IsHeldBy reports whether the owner holds this side; see [Mutex.IsLocked] for how current
// the answer is.
func (s *RWSide) IsHeldBy(ctx context.Context, owner string) (bool, error) {
	n, err := s.HoldCount(ctx, owner)
	return n > 0, err
}

// HoldCount returns how many grants of this side the owner holds; see [Mutex.IsLocked].
func (s *RWSide) HoldCount(ctx context.Context, owner string) (int, error) {
	st, err := s.inspectRW(ctx, owner)
	if s.keys.channel == s.keys.writers() {
		return st.ownWrites, err
	}
	return st.ownReads, err
}

// Readers returns how many owners hold the read side; among them may be the one
// that writes. See [Mutex.IsLocked] for how current the answer is.
func (m *RWMutex) Readers(ctx context.Context) (int, error) {
	s, err := m.read.inspectRW(ctx, "")
	return s.readers, err
}

// IsReadLocked reports whether any owner holds the read side; see [Mutex.IsLocked].
func (m *RWMutex) IsReadLocked(ctx context.Context) (bool, error) {
	n, err := m.Readers(ctx)
	return n > 0, err
}

// IsWriteLocked reports whether an owner holds the write side; see [Mutex.IsLocked].
func (m *RWMutex) IsWriteLocked(ctx context.Context) (bool, error) {
	s, err := m.read.inspectRW(ctx, "")
	return s.writes > 0, err
}

// TTL returns how long either side is held unless it is extended or released; 0
// if no owner holds one. See [Mutex.IsLocked].
func (m *RWMutex) TTL(ctx context.Context) (time.Duration, error) {
	s, err := m.read.inspectRW(ctx, "")
	return s.ttl, err
}

// ForceUnlock ends all grants of both sides, of any owner, and reports
// whether there were any. Holders learn of it at their next extension or
// release.
func (m *RWMutex) ForceUnlock(ctx context.Context) (bool, error) {
	c, k := m.read.client, m.read.keys
	mark := k.mark(rand.Text())
	v, err := await(ctx, c, nil, func(ctx context.Context) (any, error) {
		return c.run(ctx, on(c.kinds.rw.force, []string{k.lock, mark}, k.readers(), k.writers(), markLife.Milliseconds()))
	})
	if err != nil {
		return false, fmt.Errorf("force unlock %q: %w", m.Name(), err)
	}
	return v == int64(1), nil
}

// readers and writers are the channels on which the two sides wait.
func (k keys) readers() string { return k.of("readers") }
func (k keys) writers() string { return k.of("writers") }

// rwKinds are the sides of a read-write lock, and the scripts of both.
type rwKinds struct {
	read, write    *kind
	force, inspect script
}

func newRWKinds() rwKinds {
	step := func(source string) script { return newScript(rwStateLua + source) }
	acquire, extend, release := step(rwAcquireLua), step(rwExtendLua), step(rwReleaseLua)
	side := func(what string) *kind {
		return &kind{
			acquire: func(g *grant) call {
				place := int64(0)
				if g.kind.queued && g.waits {
					place = milliseconds(g.client.config.Heartbeat)
				}
				keys := []string{g.keys.lock, g.keys.mark(g.request)}
				return on(acquire, keys, what, g.request, g.owner, milliseconds(g.lease), place)
			},
			extend: func(g *grant, d time.Duration) call {
				field := what + ":" + g.request + ":" + g.owner
				return on(extend, []string{g.keys.lock}, field, milliseconds(d))
			},
			release: func(g *grant, withdraw bool) call {
				keys := []string{g.keys.lock, g.keys.mark(g.request)}
				return on(release, keys, what, g.request, g.owner, markLife.Milliseconds(),
					g.keys.readers(), g.keys.writers(), flag(withdraw))
			},
			denied: ErrUpgrade,
		}
	}
	k := rwKinds{
		read: side("read"), write: side("write"),
		force: step(rwForceLua), inspect: step(rwInspectLua),
	}
	k.read.broad = true // all that wait get in at once
	return k
}

// rwState is who holds the sides of a lock.
type rwState struct {
	readers, writes, ownReads, ownWrites int
	ttl                                  time.Duration
}

func (s *RWSide) inspectRW(ctx context.Context, owner string) (rwState, error) {
	c := s.client
	v, err := await(ctx, c, nil, func(ctx context.Context) (any, error) {
		return c.run(ctx, on(c.kinds.rw.inspect, []string{s.keys.lock}, owner))
	})
	if err != nil {
		return rwState{}, fmt.Errorf("inspect lock %q: %w", s.name, err)
	}
	fields, ok := v.([]any)
	if !ok || len(fields) != 5 {
		return rwState{}, fmt.Errorf("inspect lock %q: strange reply %v", s.name, v)
	}
	var n [5]int64
	for i, f := range fields {
		n[i], _ = f.(int64)
	}
	return rwState{int(n[0]), int(n[1]), int(n[2]), int(n[3]), duration(n[4])}, nil
}
