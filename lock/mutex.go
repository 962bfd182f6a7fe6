package lock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// A Mutex is a re-entrant mutual exclusion lock on Redis. Whoever owns it is
// said in the options: there is no hidden owner such as a goroutine. It is a
// name and a client, so two Mutexes of one name are the same lock.
//
// The order among those who wait is not promised.
type Mutex struct {
	client *Client
	name   string
	keys   keys
}

// Mutex returns the mutex of that name, without asking the server. The name is
// not empty, which is checked when the mutex is used.
func (c *Client) Mutex(name string) *Mutex {
	return &Mutex{client: c, name: name, keys: keysOf(c.config.Prefix, name)}
}

// Name returns the lock's name.
func (m *Mutex) Name() string { return m.name }

// Lock waits for the lock until the context ends. [Options.Wait] is ignored.
// After the context's error the lock may have been granted; what can be undone
// of that is undone in the background.
func (m *Mutex) Lock(ctx context.Context, o Options) (*Hold, error) {
	o.Wait = Forever
	return m.acquire(ctx, o)
}

// TryLock asks once, and returns [ErrNotAcquired] if somebody else holds the
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
	if name := h.Lease().Name; name != m.name {
		return fmt.Errorf("unlock %q with a hold of %q: %w", m.name, name, ErrNotHeld)
	}
	return h.Release(ctx)
}

// ForceUnlock ends all grants of the lock, whoever holds it, and reports whether
// there were any. Holders learn of it at their next extension or release.
func (m *Mutex) ForceUnlock(ctx context.Context) (bool, error) {
	c := m.client
	v, err := await(ctx, c, nil, func(ctx context.Context) (any, error) {
		return c.run(ctx, call{c.scripts.force, []string{m.keys.lock}, []any{m.keys.channel}})
	}, nil)
	if err != nil {
		return false, fmt.Errorf("force unlock %q: %w", m.name, err)
	}
	return v == int64(1), nil
}

// IsLocked reports whether anybody holds the lock.
func (m *Mutex) IsLocked(ctx context.Context) (bool, error) {
	s, err := m.inspect(ctx)
	return s.grants > 0, err
}

// IsHeldBy reports whether the owner holds the lock.
func (m *Mutex) IsHeldBy(ctx context.Context, owner string) (bool, error) {
	n, err := m.HoldCount(ctx, owner)
	return n > 0, err
}

// HoldCount returns how many grants the owner holds: 0 if it is not the holder.
func (m *Mutex) HoldCount(ctx context.Context, owner string) (int, error) {
	s, err := m.inspect(ctx)
	if s.owner != owner {
		return 0, err
	}
	return s.grants, err
}

// TTL returns how long the lock is held unless it is extended or released; 0
// if nobody holds it.
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
		return c.run(ctx, call{c.scripts.inspect, []string{m.keys.lock}, nil})
	}, nil)
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
	return state{owner, int(grants), time.Duration(ttl) * time.Millisecond}, nil
}

func (m *Mutex) acquire(ctx context.Context, o Options) (*Hold, error) {
	h, err := m.acquireOr(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("acquire lock %q: %w", m.name, err)
	}
	return h, nil
}

func (m *Mutex) acquireOr(ctx context.Context, o Options) (*Hold, error) {
	c := m.client
	if err := m.check(o); err != nil {
		return nil, err
	}
	g := &grant{Mutex: m, owner: o.Owner, request: rand.Text(), lease: o.Lease, watched: o.Lease == 0}
	if g.owner == "" {
		g.owner = rand.Text()
	}
	if g.watched {
		g.lease = c.config.Watchdog
	}
	begin := time.Now()
	a, err := g.try(ctx)
	waits := err == nil && !a.granted && o.Wait > 0
	if waits {
		a, err = g.wait(ctx, a, begin, o.Wait)
	}
	if err == nil && !a.granted {
		err = ErrNotAcquired
	}
	if waits {
		c.observe(Waited, g.leased(a), time.Since(begin), err)
	}
	if err != nil {
		return nil, err
	}
	return g.hold(a, begin), nil
}

func (m *Mutex) check(o Options) error {
	errs := []error{o.Validate()}
	if m.name == "" {
		errs = append(errs, errors.New("empty name: give the lock a name"))
	}
	if margin := m.client.margin(o.Lease); o.Lease >= time.Millisecond && o.Lease <= margin {
		errs = append(errs, fmt.Errorf("lease of %v: give more than the %v that are left out for clock drift", o.Lease, margin))
	}
	return errors.Join(errs...)
}
