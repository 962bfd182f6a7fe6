// Package faults has everything that can go wrong: a [Spec] for each fault, which
// says what it does, what it needs, how it is described, drawn at random and made.
//
// There is a file for each family of faults, with its specs and their mechanisms.
// [All] lists the specs, and a [Plan] is what a run does with them.
package faults

import (
	"context"

	"github.com/lockchaos/lockchaos/history"
)

// A Fault is a planned step at the site where it is to happen.
type Fault struct {
	Planned

	// Inject makes it happen, waits until its effect was observed, and returns
	// that. An error means that the effect was not observed; what had been begun
	// is undone then.
	Inject func(ctx context.Context) (Injection, error)
}

// An Injection is a fault that took effect.
type Injection struct {
	// Effect says what was observed: "2 links refuse", "redis-2 is master". Of
	// an armed fault it says what that waits for.
	Effect string
	// AwaitFiring is for an armed fault: one that Inject has only set up, and that waits
	// for its trigger. It blocks until the fault fired, and says what was observed. It fails
	// when the context ends, or the fault is healed, before that. It may be
	// called once. Nil: the fault is in effect.
	AwaitFiring func(ctx context.Context) (effect string, err error)
	// Heal ends the fault, waits until that was observed and says what was.
	// It is nil for a fault that has no duration. A second call does nothing.
	Heal Heal
}

// Heal ends a fault.
type Heal func(ctx context.Context) (effect string, err error)

// A Step is one fault of a [Plan], as data.
type Step = history.PlannedStep
