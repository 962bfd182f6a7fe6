package checker

import (
	"context"
	"fmt"
	"slices"
	"sort"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// Ownership is the checker of "ownership": every answer to a release or extend
// agrees with who held the lock. It is left out where none was answered.
//
// A confirmed one needs a hold of that owner at some instant of the call, else
// another owner's hold was ended or prolonged: foreign-release. "Not held" needs that every hold of the owner can have
// ended by then; else the service has forgotten a grant: premature-loss. Both are decided exactly.
func Ownership() Checker {
	return Checker{
		name: "ownership", engine: "interval sweep",
		of: func(l *holding.Lock) bool { return slices.ContainsFunc(l.Ops, isAnswer) },
		judge: func(_ context.Context, ev *evidence, locks []*holding.Lock, f *findings) {
			for _, l := range locks {
				f.add(ev.sweep()[l].ownership...)
				for _, op := range l.Ops {
					if isAnswer(op) {
						f.counts["answers"]++
					}
				}
			}
			f.unclear(ev.Locks())
			f.valid = say.Count(f.counts["answers"], "answer") + " to releases and extends agreed with who held the lock"
		},
	}
}

// isAnswer reports whether the service answered a release or an extend.
func isAnswer(op *holding.Op) bool {
	return (op.Verb == holding.Release || op.Verb == holding.Extend) && !op.Unknown()
}

// foreign is the release or extend that was confirmed after its lease,
// although another had been granted the lock in between.
func (l *lockSweep) foreign(p *holdSpan, other *holding.Grant) Violation {
	by := p.late.By
	return violation(ForeignRelease, l.Name, by.Span(), events(by.Complete.Index, other.Proof.Complete.Index, p.hold.Proof.Complete.Index),
		"the %s of %s on %q was confirmed at %s, but its lease had run out at %s and %s had been granted the lock by %s",
		by.Verb, holder(l.Lock, p.hold), l.Name, seconds(by.Complete.Time), seconds(p.From), holder(l.Lock, other), seconds(other.Start))
}

// notHeld is a release or extend that was confirmed, whose owner can't have held the lock.
func (l *lockSweep) notHeld(h *holding.Grant, by []holdSpan) Violation {
	op := h.Proof
	was := fmt.Sprintf("the %s of %s on %q was confirmed at %s, but", op.Verb, holder(l.Lock, h), l.Name, seconds(op.Complete.Time))
	if l.Semaphore() {
		return violation(ForeignRelease, l.Name, op.Span(), besides(h, by),
			"%s its permits can't have been out: too many of %d were at every instant", was, l.Capacity)
	}
	other := by[0]
	end := other.hold.EndEvent
	if end > op.Complete.Index { // what came later proves nothing more
		end = -1
	}
	return violation(ForeignRelease, l.Name, op.Span(), events(other.hold.Proof.Complete.Index, op.Complete.Index, end),
		"%s %s held the lock from %s until %s", was, holder(l.Lock, other.hold), seconds(other.From), l.upTo(other.Until))
}

// uncovered is an answer for which the owner had no grant.
func (l *lockSweep) uncovered(op *holding.Op) Violation {
	by, but := "", "had no grant left that can have lasted until then"
	if n := int(op.Permits); n > 0 {
		by, but = say.Count(n, "permit")+" by ", "cannot have had so many then"
	}
	v := violation(ForeignRelease, l.Name, op.Span(), events(op.Invoke.Index, op.Complete.Index), "the %s of %s%s on %q was confirmed at %s, but it %s",
		op.Verb, by, caller(l.Record(), op), l.Name, seconds(op.Complete.Time), but)
	if h := another(l.Lock, op.Owner, op.Span()); h != nil {
		v.Events = events(op.Invoke.Index, op.Complete.Index, h.Proof.Complete.Index)
		v.Explanation += fmt.Sprintf("; %s held the lock from %s until %s", holder(l.Lock, h), seconds(h.Start), l.upTo(h.End))
	}
	return v
}

// another is who held the lock besides an owner from one instant until another, of the latest to begin the last; nil if none did.
func another(l *holding.Lock, owner int32, s holding.Span) *holding.Grant {
	at := sort.Search(len(l.Holds), func(i int) bool { return l.Holds[i].Start > s.From })
	for _, h := range slices.Backward(l.Holds[max(0, at-8):at]) {
		if h.Owner() != owner && h.End >= s.Until {
			return h
		}
	}
	return nil
}

// denied is "not held" to an owner that must have held.
func (l *lockSweep) denied(d *holding.Denial) Violation {
	op := d.Operation
	good := "it had no end"
	if d.Good != history.Never {
		good = fmt.Sprintf("it was good until %s, %s longer", seconds(d.Good), say.Span(d.Good-op.Complete.Time))
	}
	return violation(PrematureLoss, l.Name, op.Span(), events(d.Hold.Proof.Complete.Index, op.Complete.Index),
		"%s was granted %q at %s and was told at %s, by the answer to its %s, that it did not hold it; %s",
		holder(l.Lock, d.Hold), l.Name, seconds(d.Hold.Start), seconds(op.Complete.Time), op.Verb, good)
}
