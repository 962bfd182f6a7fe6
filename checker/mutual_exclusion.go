package checker

import (
	"context"
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
		name: "mutual-exclusion", engine: "interval sweep", sweeps: true,
		applies: func(ev *evidence) bool { return len(ev.locks()) == 0 || ev.has(isExclusive) },
		judge: func(_ context.Context, ev *evidence, f *findings) {
			for _, v := range ev.swept().exclusion {
				f.add(v)
			}
			unclear(f, ev, isExclusive)
			f.used(ev.swept().memory)
			f.counts["holds"] += ev.holds(isExclusive)
			f.counts["locks"] = len(ev.known)
			f.need(len(ev.book().Holds) > 0, "nobody was granted a lock for certain")
		},
		conclude: func(f *findings) {
			f.valid = "no two owners held a lock at the same time, in " + plural(f.counts["holds"], "hold") +
				" of " + plural(f.counts["locks"], "lock")
		},
	}
}

// unclear says which locks of a kind have an account that is incomplete.
func unclear(f *findings, ev *evidence, of func(kind string) bool) {
	book := ev.book()
	if len(book.Unclear) == 0 {
		return
	}
	for _, name := range ev.locks() {
		if why := book.Unclear[name]; why != "" && of(book.Promises[name].Kind) {
			f.doubt("lock %q: %s", name, why)
		}
	}
}
