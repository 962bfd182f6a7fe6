package lock

import (
	"context"
)

// A PermitSemaphore is a [Semaphore] whose permits end: what was taken is a
// [Hold] with a lease, which is extended, watched and lost as that of a lock, so
// a process that dies leaves its permits to others. Leases run on the server's
// clock.
//
// See [Client.Permits] for a [Locker].
//
// It limits how many work at a time as long as they look at [Lease.Expires]; see
// the package comment for what a failover means. The order among those who wait
// is that of [Semaphore], and how many permits there are has to be said first as
// there.
type PermitSemaphore struct{ permits }

// PermitSemaphore returns the semaphore of that name, without asking the server.
// It has nothing to do with a [Mutex] of that name, and shares its permits with
// the [Semaphore] of that name.
func (c *Client) PermitSemaphore(name string) *PermitSemaphore {
	return &PermitSemaphore{c.permits(name)}
}

// Acquire asks for n permits, all or none, and waits for them for at most
// [Options.Wait]; without a wait it is refused also if others wait. The hold is
// that of all of them together: they are released together, and [Lease.Holds] is
// n. [Options.Owner] is a label: an owner may hold any number of permits.
//
// The errors are those of [Mutex.Acquire], and at once [ErrTooMany] or
// [ErrNotSet].
func (s *PermitSemaphore) Acquire(ctx context.Context, n int, o Options) (*Hold, error) {
	var h *Hold
	err := atLeastOne(n)
	if err == nil {
		h, err = s.request(permitsKind(n, true)).acquireOr(ctx, o)
	}
	return h, wrap(err, "acquire %d permits of semaphore %q", n, s.name)
}
