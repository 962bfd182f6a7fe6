package lock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/lockchaos/lockchaos/lock/internal/transport"
)

// The errors that a caller matches with errors.Is. [ErrNotAcquired],
// [ErrNotHeld], [ErrNotReplicated], [ErrNotSet] and [ErrTooMany] are definite:
// what was asked for did not happen and left nothing behind. After any other
// error, those of a context included, it may have happened.
var (
	// ErrNotAcquired says that another owner holds the lock, and that the wait
	// that was allowed, if any, is over.
	ErrNotAcquired = errors.New("lock not acquired")
	// ErrNotHeld says that the caller does not hold the lock (any longer): it was lost, unless it is an [ErrReleased].
	ErrNotHeld = errors.New("lock not held")
	// ErrReleased says that the hold was released before. It is an [ErrNotHeld].
	ErrReleased = fmt.Errorf("%w: it was released before", ErrNotHeld)
	// ErrNotReplicated says that too few replicas acknowledged the grant, and
	// that it was undone.
	ErrNotReplicated = errors.New("lock not replicated")
	// ErrLost is the cause of a hold's context once the holder may no longer
	// believe that it holds.
	ErrLost = errors.New("lock lost")
	// ErrClosed says that the client was closed.
	ErrClosed = transport.ErrClosed
)

// Forever is the [Options.Wait] that has no end of its own: the context ends it.
const Forever time.Duration = math.MaxInt64

// A Locker grants locks by name. It is the smallest thing that a workload can
// drive: all that implement it can be tested by lockchaos.
//
// Acquire blocks for at most o.Wait, and returns a [Hold] or an error.
// [ErrNotAcquired] and [ErrNotReplicated] are definite refusals; after any
// other error the lock may have been granted, for no longer than its lease.
type Locker interface {
	Acquire(ctx context.Context, name string, o Options) (*Hold, error)
}

// A LockerFunc is a function as a [Locker], for kinds of lock that are asked for
// in another way:
//
//	both := lock.LockerFunc(func(ctx context.Context, _ string, o lock.Options) (*lock.Hold, error) {
//		return multi.Acquire(ctx, o) // whose members have names of their own
//	})
type LockerFunc func(ctx context.Context, name string, o Options) (*Hold, error)

// Acquire calls f.
func (f LockerFunc) Acquire(ctx context.Context, name string, o Options) (*Hold, error) {
	return f(ctx, name, o)
}

// Options say how a lock is asked for. The zero value is the safe choice: it asks once, under an
// owner of its own, and so neither blocks nor enters another one's hold; and it keeps the hold alive until that is
// released, so that no other owner works beside one that takes longer than it thought. The lock of a process
// that died is free after [Config.Watchdog].
type Options struct {
	// Owner is who asks. An owner that already holds a re-entrant lock is
	// granted it again. Goroutines that share an owner share its holds.
	// Default: a fresh random identity for each call. A [Mutex] that was granted
	// without an owner can't be entered again, for the grant may be passed on to
	// another caller of the same client.
	Owner string
	// Lease is how long the grant lasts unless it is extended, at least a
	// millisecond. Zero: a watchdog extends it until it is released or lost.
	Lease time.Duration
	// Wait is how long to wait for a lock that another owner holds. Zero: one try. See
	// [Forever]. The wait outlives a server that can't be reached, doesn't answer, or answers
	// that it can't do anything at the moment, because it loads its data, its cluster isn't
	// whole, or the slot of the lock is moving: it is asked again, after pauses of 10ms at
	// first and of 640ms at most. Where the last request before the end of the wait failed
	// so, its error is returned. An error that won't pass, such as that of a user who may
	// not run scripts, ends the wait at once. A request that is under way when the wait ends is
	// awaited for 5s more at most, however often the Redis client repeats it.
	Wait time.Duration
}

// Validate joins everything that is wrong with the options. An implementation
// of [Locker] calls it first.
func (o Options) Validate() error {
	var wrong mistakes
	wrong.note(o.Lease < 0, "lease of %v: give a positive one, or 0 for a watchdog", o.Lease)
	wrong.note(o.Lease > 0 && o.Lease < time.Millisecond, "lease of %v: give at least 1ms, or 0 for a watchdog", o.Lease)
	wrong.note(o.Wait < 0, "wait of %v: give 0 for one try, or Forever", o.Wait)
	return errors.Join(wrong...)
}

// A Lease is a grant as plain data.
type Lease struct {
	// Name is the lock's name and Owner is who was granted it.
	Name, Owner string
	// Request tells this grant from every other one, of the same owner too.
	Request string
	// Token is the fencing token; 0 if the lock gives none.
	Token int64
	// Queued is the place in the lock's queue that the grant came from: of two
	// that waited, the one with the smaller number arrived first. 0 if it did not
	// wait, if the place was lost before (the caller was silent for too long, or an
	// earlier copy of its request was granted the lock unheard, until the lease was over),
	// or if the lock keeps no queue ([FairMutex] does).
	Queued int64
	// Holds is the owner's hold count right after the grant, 1 for a first one.
	Holds int
	// Length is the lease that was asked for, or the watchdog's. A lock that is watched and was
	// handed over has 5s at first, until the watchdog renews it after 100ms.
	Length time.Duration
	// Expires is the last instant at which the holder may believe that it
	// holds: the time before the request that won was sent, plus the lease,
	// less a margin for clock drift. It carries a monotonic reading. The zero
	// Time means that the grant does not run out.
	Expires time.Time
	// Node is the server that granted it, where that is known.
	Node string
}
