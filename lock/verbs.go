package lock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// verbs are the ways to ask for a lock and to give it back.
type verbs struct{ of asker }

// An asker is a lock that has the verbs.
type asker interface {
	Name() string
	// acquire is Acquire, and says in its errors what it was to do.
	acquire(ctx context.Context, o Options) (*Hold, error)
	// granted reports whether a hold is one of this lock.
	granted(h *Hold) bool
}

// errUnmade says that a lock is a zero value.
var errUnmade = errors.New("a lock without a client: make it with one")

// want asks for the lock, unless that is a zero value.
func (v verbs) want(ctx context.Context, o Options) (*Hold, error) {
	if v.of == nil {
		return nil, errUnmade
	}
	return v.of.acquire(ctx, o)
}

// Acquire asks for the lock, and waits for it for at most [Options.Wait]. A request that is
// in flight at that moment is awaited, so that its outcome is known.
func (v verbs) Acquire(ctx context.Context, o Options) (*Hold, error) { return v.want(ctx, o) }

// Lock waits for the lock until the context ends. [Options.Wait] is ignored, but for what it
// says of servers that fail. After the context's error the lock may have been granted; what
// can be undone of that is undone in the background.
func (v verbs) Lock(ctx context.Context, o Options) (*Hold, error) {
	return v.TryLockFor(ctx, Forever, o)
}

// TryLock asks once, and returns [ErrNotAcquired] if another owner is in the way.
// [Options.Wait] is ignored.
func (v verbs) TryLock(ctx context.Context, o Options) (*Hold, error) { return v.TryLockFor(ctx, 0, o) }

// TryLockFor is Acquire with that wait: [Options.Wait] is ignored.
func (v verbs) TryLockFor(ctx context.Context, wait time.Duration, o Options) (*Hold, error) {
	o.Wait = wait
	return v.want(ctx, o)
}

// Unlock releases a hold of this lock; see [Hold.Release].
func (v verbs) Unlock(ctx context.Context, h *Hold) error {
	switch {
	case v.of == nil:
		return fmt.Errorf("unlock: %w: %w", errUnmade, ErrNotHeld)
	case h == nil:
		return fmt.Errorf("unlock %q without a hold: %w", v.of.Name(), ErrNotHeld)
	case !v.of.granted(h):
		return fmt.Errorf("unlock %q with a hold of %q, which is of another lock or side: %w", v.of.Name(), h.Lease().Name, ErrNotHeld)
	}
	return h.Release(ctx)
}
