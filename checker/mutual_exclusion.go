package checker

import (
	"context"

	"github.com/lockchaos/lockchaos/workload/history"
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
// Locks of permits are not judged: where a history has one, and no violation
// elsewhere, the verdict is Unknown.
func MutualExclusion() Checker {
	return &property{
		name: "mutual-exclusion", engine: "interval sweep",
		judge: func(_ context.Context, ev *evidence) *findings {
			f := &findings{violations: ev.swept().exclusion}
			book := ev.book()
			unjudged(f, ev)
			if len(book.Holds) == 0 {
				f.doubt("nobody was granted a lock for certain")
			}
			f.valid = "no two owners held a lock at the same time, in " + plural(len(book.Holds), "hold") +
				" of " + plural(len(book.Promises), "lock")
			return f
		},
	}
}

// unjudged says what the sweep has not judged.
func unjudged(f *findings, ev *evidence) {
	book := ev.book()
	for _, name := range ev.locks() {
		if book.Promises[name].Kind == history.KindSemaphore {
			f.doubt("lock %q gives permits, which are not judged", name)
		}
		if why := book.Unclear[name]; why != "" {
			f.doubt("lock %q: %s", name, why)
		}
	}
}
