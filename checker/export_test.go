package checker

import (
	"context"

	"github.com/lockchaos/lockchaos/history"
)

// Compare gives the verdicts of the two engines on one lock, and whether both
// are exact there.
func Compare(ctx context.Context, h *history.History, lock string) (sweep, searched Verdict, exact bool) {
	ev := newEvidence(h)
	sweep = Valid
	if _, bad := ev.sweepResult().invalid[lock]; bad {
		sweep = Invalid
	}
	searched, _, _ = explore(ctx, whole(ev, lock, reduce(ev, lock)))
	return sweep, searched, ev.clear(lock) && !ties(ev)[lock]
}

// Doubted is the result of a property that could not be decided for these reasons.
func Doubted(reasons ...string) Result {
	var f findings
	for _, reason := range reasons {
		f.doubt("%s", reason)
	}
	return f.result()
}

// Witnessed reports whether a likely order explains what was done with the lock,
// and what the search says without one.
func Witnessed(ctx context.Context, h *history.History, lock string) (bool, Verdict) {
	ev := newEvidence(h)
	p := whole(ev, lock, reduce(ev, lock))
	searched, _, _ := explore(ctx, p)
	return witnessed(p), searched
}

// CompareSegments gives the verdicts of the search on a whole lock and on its
// segments, for a history that the sweep found legal, and how many cuts were
// made.
func CompareSegments(ctx context.Context, h *history.History, lock string) (all, parts Verdict, cuts int) {
	ev := newEvidence(h)
	holdings := ev.holdings()
	if _, bad := ev.sweepResult().invalid[lock]; bad || !ev.clear(lock) {
		return Valid, Valid, 0
	}
	requests := reduce(ev, lock)
	all, _, _ = explore(ctx, whole(ev, lock, requests))
	parts = Valid
	var cutUp []part
	if p := holdings.Guarantees[lock]; p.Kind == history.KindMutex {
		cutUp = segments(ev, lock, requests, 1)
	} else {
		cutUp = sharedSegments(ev, lock, requests, p.Capacity, 1)
	}
	for _, p := range cutUp {
		v, _, _ := explore(ctx, p)
		parts = Worst(parts, v)
	}
	return all, parts, len(cutUp) - 1
}

// Disagreement is what a report says if the engines differ on the lock.
func Disagreement(ctx context.Context, h *history.History, lock string) (Result, bool) {
	ev := newEvidence(h)
	linearizable(ctx, ev, newFindings())
	ev.searched[lock] = Invalid
	ev.sweepResult()
	f := newFindings()
	disagreements(f, ev)
	r := f.result()
	r.Name = "engines-agree"
	return r, len(f.doubts) > 0
}

// Sum is the verdict of several results.
func Sum(results []Result, differ bool) Verdict { return sum(results, differ) }

// Prepared is a history of which it is known who held what: what both engines
// begin with.
type Prepared struct {
	ev       *evidence
	lock     string
	requests []*request
}

// Prepare derives who held the lock. The requests are all operations on it, as
// one would search who had no sweep.
func Prepare(h *history.History, lock string) *Prepared {
	ev := newEvidence(h)
	_, held := ev.proven()
	for i := range held {
		held[i] = true
	}
	return &Prepared{ev: ev, lock: lock, requests: reduce(ev, lock)}
}

// Sweep decides by the sweep.
func (p *Prepared) Sweep() Verdict {
	p.ev.sweep = nil
	if _, bad := p.ev.sweepResult().invalid[p.lock]; bad {
		return Invalid
	}
	return Valid
}

// Search decides by porcupine alone: nothing is left out, or cut.
func (p *Prepared) Search(ctx context.Context) Verdict {
	v, _, _ := explore(ctx, part{requests: p.requests})
	return v
}
