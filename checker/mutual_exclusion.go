package checker

import (
	"context"
	"slices"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// MutualExclusion is the checker of "mutual-exclusion": no two owners hold a
// lock at the same time for certain, in modes that exclude each other.
//
// A hold is certain from the completion of its grant until the earliest
// instant at which its lease or an operation of its own can have ended it; the
// formulas are those of [history.Hold]. Two holds that touch in one instant do
// not overlap. A grant that was answered after its own lease needs one
// instant, between its earliest end and its answer, that no other hold has
// strictly inside. Both are decided exactly, by one sweep over the holds.
//
// Locks of permits are the business of [Capacity].
func MutualExclusion() Checker {
	return &property{
		name: "mutual-exclusion", engine: "interval sweep",
		applies: func(ev *evidence) bool {
			return len(ev.locks()) == 0 || ev.sees(func(e *history.Event) bool {
				return (e.Op.OfHolder() || e.Op == history.Declare) && isExclusive(ev.holdings().Guarantees[e.Lock].Kind)
			})
		},
		judge: func(_ context.Context, ev *evidence, f *findings) {
			for _, v := range ev.sweepResult().exclusion {
				f.add(v)
			}
			unclear(f, ev, isExclusive)
			f.used(ev.sweepResult().memory)
			grants(f, ev, isExclusive)
			f.valid = "no two owners held a lock at the same time, in " + say.Count(ev.holds(isExclusive), "hold") +
				" of " + say.Count(len(ev.locks()), "lock")
		},
	}
}

// grants doubts a history whose grants of locks of a kind show nothing: none of them held the
// lock for certain, or most were answered after their own expiry.
func grants(f *findings, ev *evidence, of func(kind string) bool) {
	holdings := ev.holdings()
	given, late := 0, 0
	for i := range holdings.Operations {
		op := &holdings.Operations[i]
		if op.Invoke.Op != history.Acquire || !op.OK() || !of(holdings.Guarantees[op.Invoke.Lock].Kind) {
			continue
		}
		given++
		if op.Complete.Expires > 0 && op.Complete.Expires <= op.Complete.Time {
			late++
		}
	}
	certain := slices.ContainsFunc(holdings.Holds, func(h holding.Hold) bool { return h.End > h.Start && of(holdings.Guarantees[h.Lock].Kind) })
	switch {
	case 2*late > given:
		f.doubt("%s: %d of %s were over when they were answered", expiresUnit, late, say.Count(given, "grant"))
	case certain:
	case given > 0:
		f.doubt("no lock was held for certain: each of %s may have ended before it was answered", say.Count(given, "grant"))
	default:
		f.doubt("no grant of a lock is known for certain")
	}
}

// unclear says which locks of a kind have an account that is incomplete.
func unclear(f *findings, ev *evidence, of func(kind string) bool) {
	holdings := ev.holdings()
	if len(holdings.Unclear) == 0 {
		return
	}
	for _, name := range ev.locks() {
		if why := holdings.Unclear[name]; why != "" && of(holdings.Guarantees[name].Kind) {
			f.doubt("lock %q: %s", name, why)
		}
	}
}
