package checker

import (
	"context"
	"fmt"
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
// formulas are those of [holding.Grant]. Two holds that touch in one instant do
// not overlap. A grant that was answered after its own lease needs one
// instant, between its earliest end and its answer, that no other hold has
// strictly inside. Both are decided exactly, by one sweep over the holds.
//
// Locks of permits are the business of [Capacity].
func MutualExclusion() Checker {
	return Checker{
		name: "mutual-exclusion", engine: "interval sweep",
		judge: func(_ context.Context, ev *evidence, all []*holding.Lock, f *findings) {
			locks := holding.Filter(all, func(l *holding.Lock) bool { return !l.Semaphore() && len(l.Declared)+len(l.Ops)+len(l.Losts) > 0 })
			if len(all) > 0 && len(locks) == 0 {
				return
			}
			for _, l := range locks {
				f.add(append(ev.sweep()[l].together, otherTokens(l)...)...)
			}
			f.unclear(locks)
			f.counts["holds"], f.counts["locks"] = holds(f, locks), len(all)
			f.valid = "no two owners held a lock at the same time, in " + say.Count(f.counts["holds"], "hold") +
				" of " + say.Count(f.counts["locks"], "lock")
			if n := shared(ev); n > 0 {
				f.counts["inner grants of another process"] = n
				f.valid += fmt.Sprintf("; %s of one owner to another process than holds it: all that use one name are one client to a lock", say.Count(n, "inner grant"))
			}
		},
	}
}

// holds counts the holds of some locks, and doubts a history whose grants show nothing: none of them held the
// lock for certain, or most were answered after their own expiry.
func holds(f *findings, locks []*holding.Lock) (n int) {
	given, late, certain := 0, 0, false
	for _, l := range locks {
		for _, op := range l.Ops {
			if op.Verb == holding.Acquire && op.OK() {
				given++
				if op.Expiry > 0 && op.Expiry <= op.Complete.Time {
					late++
				}
			}
		}
		n += len(l.Holds)
		certain = certain || slices.ContainsFunc(l.Holds, (*holding.Grant).Certain)
	}
	switch {
	case 2*late > given:
		f.doubt("%s: %d of %s were over when they were answered", expiresUnit, late, say.Count(given, "grant"))
	case certain:
	case given > 0:
		f.doubt("no lock was held for certain: each of %s may have ended before it was answered", say.Count(given, "grant"))
	default:
		f.doubt("no grant of a lock is known for certain")
	}
	return n
}

// shared counts the inner grants to another process than the one that was granted the hold, and that went on after it.
func shared(ev *evidence) (n int) {
	if !slices.ContainsFunc(ev.Locks(), func(l *holding.Lock) bool { return l.Reentrant || l.Kind == history.KindRW }) {
		return 0
	}
	last := map[int]int64{} // what each process did
	for op := range ev.Ops() {
		last[op.Process] = op.Invoke.Index
	}
	for _, l := range ev.Locks() {
		for _, h := range l.Holds {
			n += len(holding.Filter(h.Extensions, func(op *holding.Op) bool {
				return op.Verb == holding.Acquire && op.OK() && op.Process != h.Process() && last[h.Process()] > op.Complete.Index
			}))
		}
	}
	return n
}

// otherTokens are the first inner acquires that were given another token than the hold
// that they are part of. No order of the operations is at stake, so the search finds none
// of them.
func otherTokens(l *holding.Lock) []Violation {
	var found []Violation
	for _, h := range l.Holds {
		if h.Token() == 0 || h.Reads() {
			continue
		}
		at := slices.IndexFunc(h.Extensions, func(op *holding.Op) bool {
			return op.Verb == holding.Acquire && op.OK() && op.Token != 0 && op.Token != h.Token()
		})
		if at < 0 {
			continue
		}
		op := h.Extensions[at]
		found = append(found, violation(Reentrancy, l.Name, instant(op.Complete.Time), events(h.Acquire.Complete.Index, op.Complete.Index),
			"%s held %q with token %d, and was given token %d with its inner grant at %s",
			holder(l, h), l.Name, h.Token(), op.Token, seconds(op.Complete.Time)))
	}
	return found
}

// excludes reports whether two holds of a lock may not be at the same time: of a mutex all, of a read-write lock a write
// and any other, but for what its owner reads. (Of permits, any number may: see [Capacity].)
func excludes(l *holding.Lock, a, b *holding.Grant) bool {
	switch {
	case a == b:
		return false
	case l.Kind != history.KindRW:
		return true
	case a.Owner() == b.Owner():
		return !a.Reads() && !b.Reads()
	default:
		return !a.Reads() || !b.Reads()
	}
}

// overlaps finds the stretches that share more than an instant with an earlier
// one. For each it reports the one that reaches farthest.
func (l *lockSweep) overlaps(spans []holdSpan) {
	var latest [2][2]best[*holdSpan] // by late or not, by read or not
	farther := func(p, q *holdSpan) bool { return p.Until > q.Until }
	same := func(p, q *holdSpan) bool { return p.hold == q.hold }
	for i := range spans {
		p := &spans[i]
		find := func(late int) *holdSpan {
			reaches := func(q *holdSpan) bool { return excludes(l.Lock, q.hold, p.hold) && q.Until > p.From }
			q, _ := latest[late][0].but(reaches)
			if r, found := latest[late][1].but(reaches); found && (q == nil || r.Until > q.Until) {
				q = r
			}
			return q
		}
		switch q := find(0); {
		case q == nil:
		case p.late == nil:
			l.together = append(l.together, l.doubleGrant(q, p))
		default:
			l.ownership = append(l.ownership, l.foreign(p, q.hold))
		}
		if q := find(1); q != nil {
			l.ownership = append(l.ownership, l.foreign(q, p.hold))
		}
		latest[holding.Index(p.late != nil)][holding.Index(p.hold.Reads())].add(p, farther, same)
	}
}

func (l *lockSweep) doubleGrant(first, second *holdSpan) Violation {
	both, _ := first.Overlap(second.Span)
	kind, again, length := DoubleGrant, "was granted it", "both were owners "
	if first.hold.Owner() == second.hold.Owner() {
		kind, again, length = Reentrancy, "was granted it again", "a lock that is not declared re-entrant had two grants "
	}
	if second.From > second.hold.Start {
		again = "had its hold prolonged"
	}
	length += l.lasting(both)
	both.Until = max(min(both.Until, l.Record().End), both.From)
	return violation(kind, l.Name, both, events(first.hold.Proof.Complete.Index, second.hold.Proof.Complete.Index, first.hold.EndEvent),
		"%s held %q for certain from %s until %s; %s %s at %s: %s", holder(l.Lock, first.hold), l.Name, seconds(first.From), l.upTo(first.Until),
		holder(l.Lock, second.hold), again, seconds(second.From), length)
}

// noFreeTime says that a grant can't have been.
func (l *lockSweep) noFreeTime(h *holding.Grant, by []holdSpan) {
	s := holding.Span{From: h.Acquire.Invoke.Time, Until: h.Start}
	if l.Semaphore() {
		l.together = append(l.together, violation(OverCapacity, l.Name, s, besides(h, by),
			"%s was granted %s of %q some time between %s and %s, but too many of %d were out at every instant",
			holder(l.Lock, h), say.Count(h.Permits(), "permit"), l.Name, seconds(s.From), seconds(s.Until), l.Capacity))
		return
	}
	other := by[0]
	l.together = append(l.together, violation(DoubleGrant, l.Name, s, events(other.hold.Proof.Complete.Index, h.Proof.Complete.Index, other.hold.EndEvent),
		"%s was granted %q some time between %s and %s, but %s held it for certain from %s until %s",
		holder(l.Lock, h), l.Name, seconds(s.From), seconds(s.Until), holder(l.Lock, other.hold), seconds(other.From), l.upTo(other.Until)))
}
