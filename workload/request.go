package workload

import (
	"context"
	"errors"
	"time"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/lock"
)

// A Request says what a client asks for.
type Request struct {
	// Locks are the names of what it asks for: one, or several that are granted
	// together or not at all.
	Locks []string
	// Mode is how; empty is exclusive.
	Mode history.Mode
	// Permits is how many, in mode permit; 0 is 1.
	Permits int
	// Lease is for how long; 0 leaves it to the lock's watchdog.
	Lease time.Duration
	// Wait is for how long the client waits; 0 is one try.
	Wait time.Duration
	// Again asks under the owner of the latest attempt, and keeps what the client
	// holds: a re-entry, a writer that goes on as a reader, more permits, or
	// another lock beside those that it has.
	Again bool
}

// A Service is a [lock.Locker] that grants more than one lock in one way: for
// reading and for writing, several permits, or several locks together. What it
// does not know it refuses with an error.
type Service interface {
	Ask(ctx context.Context, r Request, o lock.Options) (*lock.Hold, error)
}

// Ask asks a locker, which needs to be a [Service] for anything but one lock with
// one holder. It is an error if that returns neither a hold nor an error.
func Ask(ctx context.Context, l lock.Locker, r Request, o lock.Options) (h *lock.Hold, err error) {
	s, several := l.(Service)
	switch {
	case several:
		h, err = s.Ask(ctx, r, o)
	case len(r.Locks) != 1 || r.Mode != "" && r.Mode != history.Exclusive:
		return nil, errors.New("the lock under test grants one lock at a time, to one holder")
	default:
		h, err = l.Acquire(ctx, r.Locks[0], o)
	}
	if h == nil && err == nil {
		err = errors.New("the lock under test returned neither a hold nor an error") // so that nothing is known of a grant
	}
	return h, err
}
