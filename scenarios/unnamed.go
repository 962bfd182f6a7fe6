package scenarios

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/lock"
)

// aliases are what a lock calls those who name no owner. Its client alone knows
// them: the history has the owners that the callers claim, and renewals are told
// under those.
type aliases struct {
	observer lock.Observer // nil: nobody is told

	mu      sync.Mutex
	granted map[claim]*alias    // of those who hold what they claim
	holders map[string]claim    // by alias, of the same
	claims  map[string]*claimed // by alias, of all that were ever granted; for the observer
}

// A claim is an owner's to a lock.
type claim struct{ lock, owner string }

// An alias has so many holds of what was claimed.
type alias struct {
	name  string
	holds int
}

// claimed is who claims an alias.
type claimed struct {
	owner string
	known chan struct{} // closed once it is
}

// aliasLimit is how long the owner of a renewal is awaited. The call that was
// granted the lock returns at once, unless the lock is broken.
const aliasLimit = 5 * time.Second

func newAliases(o lock.Observer) *aliases {
	return &aliases{observer: o, granted: map[claim]*alias{}, holders: map[string]claim{}, claims: map[string]*claimed{}}
}

// of asks l for locks without an owner. Who holds one under the owner that it
// claims asks again by the alias that it has there.
func (a *aliases) of(l lock.Locker) lock.LockerFunc {
	return func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
		c := claim{name, o.Owner}
		o.Owner = a.holder(c)
		h, err := l.Acquire(ctx, name, o)
		if err == nil {
			a.hold(c, h.Lease().Owner)
		}
		return h, err
	}
}

// holder is the alias of who holds what it claims; empty for none.
func (a *aliases) holder(c claim) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if h := a.granted[c]; h != nil {
		return h.name
	}
	return ""
}

func (a *aliases) hold(c claim, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.owner == "" { // then it is who it is called
		c.owner = name
	}
	if a.granted[c] == nil {
		a.granted[c], a.holders[name] = &alias{name: name}, c
	}
	a.granted[c].holds++
	if a.observer == nil {
		return
	}
	if k := a.claim(name); k.owner == "" {
		k.owner = c.owner
		close(k.known)
	}
}

// claim is who claims an alias, or will. a.mu is held.
func (a *aliases) claim(name string) *claimed {
	if a.claims[name] == nil {
		a.claims[name] = &claimed{known: make(chan struct{})}
	}
	return a.claims[name]
}

// Observe tells of renewals under the owner that was claimed.
func (a *aliases) Observe(e lock.Event) {
	switch e.Kind {
	case lock.Renewing, lock.Renewed:
		if a.observer != nil {
			e.Lease.Owner = a.owner(e.Lease.Owner)
			a.observer.Observe(e)
		}
	case lock.Released:
		if e.Err == nil || errors.Is(e.Err, lock.ErrNotHeld) {
			a.release(e.Lease.Owner)
		}
	default:
	}
}

// owner is who claims an alias. A renewal may come before the call that was
// granted the lock has returned, which is awaited.
func (a *aliases) owner(name string) string {
	a.mu.Lock()
	k := a.claim(name)
	a.mu.Unlock()
	select {
	case <-k.known:
		return k.owner
	case <-time.After(aliasLimit):
		return name
	}
}

func (a *aliases) release(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, holds := a.holders[name]
	if !holds {
		return
	}
	if h := a.granted[c]; h.holds > 1 {
		h.holds--
		return
	}
	delete(a.granted, c)
	delete(a.holders, name)
}
