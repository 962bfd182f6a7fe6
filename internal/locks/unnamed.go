package locks

import (
	"context"
	"sync"
	"time"

	"github.com/lockchaos/lockchaos/lock"
)

// unnamed are the callers of a lock who name no owner to it. The history has the
// owners that they claim, and renewals are told under those.
type unnamed struct {
	observer lock.Observer // nil: none

	mu     sync.Mutex
	claims map[string]*claimed // by the owner in a lease, of all that were ever granted; for the observer
}

// claimed is the owner that a caller claims.
type claimed struct {
	owner string
	known chan struct{} // closed once it is
}

// claimLimit is how long the owner of a renewal is awaited. The call that was
// granted the lock returns at once, unless the lock is broken.
const claimLimit = 5 * time.Second

func newUnnamed(o lock.Observer) *unnamed {
	return &unnamed{observer: o, claims: map[string]*claimed{}}
}

// of asks l for locks without an owner.
func (u *unnamed) of(l lock.Locker) lock.LockerFunc {
	return func(ctx context.Context, name string, o lock.Options) (*lock.Hold, error) {
		owner := o.Owner
		o.Owner = ""
		h, err := l.Acquire(ctx, name, o)
		if err == nil && u.observer != nil && owner != "" {
			c := u.claim(h.Lease().Owner)
			c.owner = owner
			close(c.known)
		}
		return h, err
	}
}

// claim is what was claimed, or will be, for the owner in a lease.
func (u *unnamed) claim(name string) *claimed {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.claims[name] == nil {
		u.claims[name] = &claimed{known: make(chan struct{})}
	}
	return u.claims[name]
}

// Observe tells of renewals under the owner that was claimed.
func (u *unnamed) Observe(e lock.Event) {
	if u.observer != nil && (e.Kind == lock.Renewing || e.Kind == lock.Renewed) {
		e.Lease.Owner = u.owner(e.Lease.Owner)
		u.observer.Observe(e)
	}
}

// owner is what was claimed for the owner in a lease. A renewal may come before the
// call that was granted the lock has returned, which is awaited.
func (u *unnamed) owner(name string) string {
	c := u.claim(name)
	select {
	case <-c.known:
		return c.owner
	case <-time.After(claimLimit):
		return name
	}
}
