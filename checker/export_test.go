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

// CheckWindows is CheckReader with windows of so many events at the least.
func CheckWindows(ctx context.Context, r Source, least int, checkers ...Checker) (Report, error) {
	m := usualLimits()
	m.least, m.crowd = least, 8*least
	return checkRemembering(ctx, r, m, checkers)
}

// CheckPieces is CheckReader with windows that end at the first instant in which
// they have so many events. Where it forgets, each lock is put aside that no
// client asks for, and no hold is remembered for its process alone, so that
// [UseWithinLease] is not to be judged.
func CheckPieces(ctx context.Context, r Source, least int, forget bool, checkers ...Checker) (Report, error) {
	m := usualLimits()
	m.least, m.growth, m.crowd = least, 0, 8*least
	if forget {
		m.crowd, m.processes = 0, 0
	}
	return checkRemembering(ctx, r, m, checkers)
}

// Kept is how many events [CheckReader] keeps at the end of a history.
func Kept(ctx context.Context, r Source) (int, error) {
	s := stream{session: newSession(nil), limits: usualLimits()}
	err := s.judge(ctx, r)
	n := len(s.window)
	for _, lock := range s.idle {
		for range lock.all() {
			n++
		}
	}
	for _, list := range s.archived {
		n += len(list)
	}
	return n, err
}

func checkRemembering(ctx context.Context, r Source, m limits, checkers []Checker) (Report, error) {
	s := stream{session: newSession(checkers), limits: m}
	err := s.judge(ctx, r)
	return s.session.report(), err
}

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

// PutAside puts the events of a client on a lock aside and takes them back.
func PutAside(events []history.Event) []history.Event {
	s := stream{idle: map[string]*resting{}, aside: map[string]int{}, dubious: map[string]struct{}{}}
	for i := range events {
		s.rest(&events[i], history.Never, i%2 == 0)
	}
	s.wake(events[0].Lock)
	return s.window
}
