package lock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// An Observer is told what a [Client] does. Observe is called from several
// goroutines, for one lease in order, and never with a lock of the client held.
// It should return soon: the operation that it is told of waits for it. It must
// not extend or release the hold that it is told of.
type Observer interface {
	Observe(e Event)
}

// An Event is something that happened to a lease.
type Event struct {
	Kind EventKind
	// Lease is the grant. A wait without a grant has no Expires and Holds.
	Lease Lease
	// At is when it happened.
	At time.Time
	// Took is how long the call or the request took; 0 for Renewing and Lost.
	Took time.Duration
	// Err is nil if it went well.
	Err error
	// Context is that of the call which the event belongs to. Of what the client does by
	// itself, a renewal or a loss, it is the background.
	Context context.Context //nolint:containedctx // it is handed on, and not kept
}

// EventKind says what happened.
type EventKind int

// The kinds of events.
const (
	// Acquired follows a grant. Each call that asks for a lock ends with one of Acquired,
	// Refused and Failed.
	Acquired EventKind = iota + 1
	// Waited ends the wait of a call that was not granted the lock at once, with Err unless
	// it was granted.
	Waited
	// Renewing comes right before a request to extend the lease is sent that
	// no caller asked for: by the watchdog, or because the lock was handed over for a
	// shorter lease. Renewed always follows it.
	Renewing
	// Renewed ends what Renewing began: Err is nil, [ErrNotHeld], what kept the answer
	// away, or [ErrLost] where the answer came after the end of the lease.
	Renewed
	// Lost says that the holder may no longer believe that it holds.
	Lost
	// Released ends a request to release: Err is nil, [ErrNotHeld], or what kept
	// the answer away.
	Released
	// Refused ends a call that asked for a lock and certainly doesn't have it: Err is
	// one of the definite refusals, such as [ErrNotAcquired].
	Refused
	// Failed ends a call that asked for a lock with any other error: the lock may have
	// been granted.
	Failed
	// Extended ends an extension that the holder asked for: Err is nil, [ErrNotHeld],
	// or what kept the answer away.
	Extended
	// Warned tells once of what costs time or safety on this server: Err says what. There is no lease.
	Warned
)

// endOf is how a call ends that asked for a lock.
func endOf(err error) EventKind {
	for _, definite := range []error{ErrNotAcquired, ErrNotReplicated, ErrNotSet, ErrTooMany} {
		if errors.Is(err, definite) {
			return Refused
		}
	}
	return Failed
}

// String returns the kind's name in lower case.
func (k EventKind) String() string {
	names := [...]string{"acquired", "waited", "renewing", "renewed", "lost", "released", "refused", "failed", "extended", "warned"}
	if k < Acquired || k > Warned {
		return fmt.Sprintf("event %d", int(k))
	}
	return names[k-1]
}
