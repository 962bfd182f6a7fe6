// Package undertest is for programs that test locks, as lockchaos does: it reaches behind a [lock.Hold] of
// a lock that is not one of package lock.
package undertest

import (
	"context"
	"time"

	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/internal/probe"
)

// A LateKeeper is a [lock.Keeper] of a lock under test. A [lock.Hold] that is over refuses an
// extension or a release by itself, and so hides what the service would do. Of a
// LateKeeper, Hold.Extend and Hold.Release ask the service all the same, and the hold
// stays over whatever it answers.
type LateKeeper interface {
	lock.Keeper
	// ExtendLate is as Extend, of a grant that was lost or released.
	ExtendLate(ctx context.Context, l lock.Lease, d time.Duration) error
	// ReleaseLate is as Release, of a grant that was lost or released. A service may
	// confirm a release again: after one that was answered, a confirmation says nothing,
	// and Hold.Release returns [lock.ErrNotHeld].
	ReleaseLate(ctx context.Context, l lock.Lease) error
}

// ErrConfirmedAgain is what a second release returns of a lock under test whose service confirmed
// it as it had confirmed the first, see [LateKeeper]. The error is also a [lock.ErrNotHeld].
var ErrConfirmedAgain = probe.ErrConfirmedAgain

// Guard has the keeper that wrap returns take the place of the hold's own: a test of a lock
// recovers its panics so. It changes nothing of a hold of package lock's locks.
func Guard(h *lock.Hold, wrap func(lock.Keeper) lock.Keeper) {
	probe.Replace(h, func(keeper any) any {
		k, _ := keeper.(lock.Keeper)
		return wrap(k)
	})
}
