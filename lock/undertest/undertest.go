// Package undertest is for programs that test locks, as lockchaos does: it reaches behind a [lock.Hold] of
// a lock that is not one of package lock.
package undertest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/internal/probe"
)

// A LateKeeper is a [lock.Keeper] of a lock under test, which a [Hold] asks for an extension or a release also once it is over.
type LateKeeper interface {
	lock.Keeper
	// ExtendLate is as Extend, of a grant that was lost or released.
	ExtendLate(ctx context.Context, l lock.Lease, d time.Duration) error
	// ReleaseLate is as Release, of a grant that was lost or released. A service may
	// confirm a release again: after one that was answered, a confirmation says nothing,
	// and [Hold.Release] returns [ErrConfirmedAgain].
	ReleaseLate(ctx context.Context, l lock.Lease) error
}

// ErrConfirmedAgain is what a second release returns of a lock under test whose service confirmed
// it as it had confirmed the first, see [LateKeeper]. It is a [lock.ErrNotHeld].
var ErrConfirmedAgain = fmt.Errorf("%w: it was released before, although the service confirmed this release as well", lock.ErrNotHeld)

// A Hold is one of a lock under test. A [lock.Hold] that is over refuses an extension or a release by itself, and so hides
// what the service would do. A Hold whose keeper is a [LateKeeper] asks the service all the same, and stays over whatever it
// answers. Make it with [Of].
type Hold struct {
	*lock.Hold

	released, answered atomic.Bool // a release was asked for, and was answered
}

// Of is a hold for a test.
func Of(h *lock.Hold) *Hold { return &Hold{Hold: h} }

// Extend is [lock.Hold.Extend].
func (h *Hold) Extend(ctx context.Context, d time.Duration) error {
	over := h.released.Load()
	select {
	case <-h.Lost():
		over = true
	default:
	}
	if over {
		if k, _ := h.keeper(ctx); k != nil {
			return about("extend", h.Lease(), k.ExtendLate(ctx, h.Lease(), d))
		}
	}
	return h.Hold.Extend(ctx, d) //nolint:wrapcheck // it names the lock
}

// Release is [lock.Hold.Release].
func (h *Hold) Release(ctx context.Context) error {
	h.released.Store(true)
	var err error
	if k, over := h.keeper(ctx); k == nil || over == nil {
		err = h.Hold.Release(ctx)
	} else if err = k.ReleaseLate(ctx, h.Lease()); err == nil && h.answered.Load() {
		err = about("release", h.Lease(), ErrConfirmedAgain)
	} else {
		err = about("release", h.Lease(), err)
	}
	if err == nil || errors.Is(err, lock.ErrNotHeld) {
		h.answered.Store(true)
	}
	return err
}

// about says of an error what failed; nil stays nil.
func about(what string, l lock.Lease, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s lock %q: %w", what, l.Name, err)
}

// keeper is the keeper of the hold, nil if it is none that is asked late, and why the grant is over, if the service said so.
func (h *Hold) keeper(ctx context.Context) (late LateKeeper, over error) {
	probe.Replace(ctx, h.Hold, func(keeper any, why error) any {
		late, _ = keeper.(LateKeeper)
		over = why
		return keeper
	})
	return late, over
}

// Guard has the keeper that wrap returns take the place of the hold's own: a test of a lock
// recovers its panics so. It changes nothing of a hold of package lock's locks.
func Guard(h *lock.Hold, wrap func(lock.Keeper) lock.Keeper) {
	probe.Replace(context.Background(), h, func(keeper any, _ error) any {
		k, _ := keeper.(lock.Keeper)
		return wrap(k)
	})
}
