package checker

import (
	"context"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// Ownership is the checker of "ownership": every answer to a release or extend
// agrees with who held the lock.
//
// A confirmed one needs a hold of that owner at some instant of the call, else
// another owner's hold was ended or prolonged: foreign-release. A confirmation
// after the lease is legal as long as no other owner was granted the lock in
// between. "Not held" needs a hold that can have ended by then, by its lease,
// by its release, or by an operation with an unknown outcome; else the service
// has forgotten a grant: premature-loss. Both are decided exactly.
//
// Of permits, a confirmed release of more than the owner can have is a
// foreign-release, too. A refusal is about all grants of the owner: those that
// can't have ended must have fewer permits than it asked to give back.
//
// It is left out where no release or extend was answered.
func Ownership() Checker {
	return &property{
		name: "ownership", engine: "interval sweep",
		applies: func(ev *evidence) bool {
			return ev.sees(func(e *history.Event) bool {
				return (e.Op == history.Release || e.Op == history.Extend) && (e.Type == history.OK || e.Type == history.Fail)
			})
		},
		judge: func(_ context.Context, ev *evidence, f *findings) {
			for _, v := range ev.sweepResult().ownership {
				f.add(v)
			}
			unclear(f, ev, func(string) bool { return true })
			ops := ev.operations()
			for i := range ops {
				if op := &ops[i]; isAnswer(op) {
					f.counts["answers"]++
				}
			}
			f.valid = say.Count(f.counts["answers"], "answer") + " to releases and extends agreed with who held the lock"
		},
	}
}
