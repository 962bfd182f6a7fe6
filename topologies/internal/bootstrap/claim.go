package bootstrap

import (
	"context"
	"errors"
)

// What a run writes to a store that is not ours: the claim, the proof, and all that locks
// write, which is below a name of ours.
const (
	// ClaimKey says who drives the servers.
	ClaimKey = "lockchaos:claim"
	// LocksPrefix is below what locks on a consensus store keep their keys, or nodes.
	LocksPrefix = "/lockchaos"
)

// ErrClaimLost says that the servers gave a claim up which was not renewed for a lease.
var ErrClaimLost = errors.New("the servers have given up this run's claim to them, which was not renewed in time")

// An Introduction is what a member that is not ours says of itself and of the others.
type Introduction struct {
	// Member tells it apart from all others of its cluster.
	Member string
	// Members is how many there are.
	Members int
	Version string
	// Leaderless says why it does not serve clients now, which may pass; empty if it does.
	Leaderless string
}

// A Claim is the right to drive servers that are not ours, as they keep it: for a lease,
// unless it is renewed.
type Claim interface {
	// Owner is who has it, as the member that listens there knows; empty if there is none.
	Owner(ctx context.Context, at Address) (string, error)
	// Renew begins the lease again; [ErrClaimLost] if it has ended.
	Renew(ctx context.Context) error
	// Sweep removes what this run has written: of what has a name of ours, all that was
	// made after the claim.
	Sweep(ctx context.Context) error
	// Release ends the claim.
	Release(ctx context.Context) error
}
