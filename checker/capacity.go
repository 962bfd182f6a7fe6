package checker

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/internal/say"
)

const noCapacity = "nothing says how many permits %q has: its declaration has no capacity"

// Capacity is the checker of "capacity": at no instant are more permits of a
// semaphore out for certain than it was declared to have, and each grant that was answered too late to be certain had
// room at some instant. Both are decided exactly, by one sweep over the holds.
//
// A capacity that changes is judged by the greatest that there was between the last request for a permit that is out and
// the answer to the grant. One that was not declared is not judged: the verdict is Unknown.
func Capacity() Checker {
	return Checker{
		name: "capacity", engine: "interval sweep",
		of: (*holding.Lock).Semaphore,
		judge: func(_ context.Context, ev *evidence, locks []*holding.Lock, f *findings) {
			f.unclear(locks)
			for _, l := range locks {
				if f.add(ev.sweep()[l].together...); l.Capacity == 0 {
					f.doubt(noCapacity, l.Name)
				}
			}
			f.counts["grants"] = holds(f, locks)
			f.valid = "no more permits were out than there are, in " + say.Count(f.counts["grants"], "grant")
		},
	}
}

// permits sweeps the holds of a semaphore.
func (l *lockSweep) permits(spans []holdSpan) {
	leased := holding.Filter(spans, byLease)
	reported := map[*holding.Grant]bool{}
	l.over(leased, func(p *holdSpan, out []*holdSpan) {
		reported[p.hold] = true
		l.together = append(l.together, l.overCapacity(p, out))
	})
	if len(leased) == len(spans) {
		return
	}
	l.over(entire(l.Holds), func(p *holdSpan, out []*holdSpan) {
		late, other := lateOne(p, out)
		if late != nil && !reported[p.hold] {
			l.ownership = append(l.ownership, l.foreign(late, other))
		}
	})
}

// over calls found for each stretch that takes more out than there is, with those
// that are out already, in order. What comes back in an instant does so before anything goes out.
func (l *lockSweep) over(spans []holdSpan, found func(p *holdSpan, out []*holdSpan)) {
	var out []*holdSpan // with some that have ended, and their sum
	sum := 0
	for i := range spans {
		p := &spans[i]
		if sum += p.hold.Permits(); sum > l.Capacity || len(l.Declared) > 1 {
			out = slices.DeleteFunc(out, func(q *holdSpan) bool { return q.Until <= p.From })
			sum = p.hold.Permits()
			for _, q := range out {
				sum += q.hold.Permits()
			}
			if sum > l.capacityOf(p, out) {
				found(p, out)
			}
		}
		out = append(out, p)
	}
}

// capacityOf is how many permits there were at the most when the last of some stretches was granted: after all of them
// had been asked for.
func (l *lockSweep) capacityOf(p *holdSpan, out []*holdSpan) int {
	from := p.hold.Acquire.Invoke.Time
	for _, q := range out {
		from = max(from, q.hold.Acquire.Invoke.Time)
	}
	_, most := l.CapacityIn(from, p.From)
	return most
}

// lateOne is a stretch at a time for which only a late confirmation accounts, of a
// hold that is there when p begins, and who else is there.
func lateOne(p *holdSpan, out []*holdSpan) (late *holdSpan, other *holding.Grant) {
	other = p.hold
	for _, q := range append(slices.Clone(out), p) {
		for i := range q.hold.Late {
			if s := &q.hold.Late[i]; s.Until > p.From {
				if q == p && len(out) > 0 {
					other = out[len(out)-1].hold
				}
				return &holdSpan{Span: s.Span, hold: q.hold, late: s}, other
			}
		}
	}
	return nil, nil
}

// maxOut bounds the grants of other permits that the evidence names.
const maxOut = 32

func (l *lockSweep) overCapacity(p *holdSpan, out []*holdSpan) Violation {
	sum, until, proofs := p.hold.Permits(), p.Until, []int64{p.hold.Proof.Complete.Index}
	for i, q := range out {
		sum += q.hold.Permits()
		until = min(until, q.Until)
		if i >= len(out)-maxOut {
			proofs = append(proofs, q.hold.Proof.Complete.Index)
		}
	}
	lasting := l.lasting(holding.Span{From: p.From, Until: until})
	until = max(min(until, l.Record().End), p.From)
	v := violation(OverCapacity, l.Name, holding.Span{From: p.From, Until: until}, events(proofs...),
		"%s was granted %s of %q at %s, which made %d, and the lock has %d",
		holder(l.Lock, p.hold), say.Count(p.hold.Permits(), "permit"), l.Name, seconds(p.From), sum, l.capacityOf(p, out))
	if len(out) > 0 {
		v.Explanation += fmt.Sprintf("; %s were out %s", say.Count(sum, "permit"), lasting)
	}
	return v
}

// besides are the grant of a hold and two others that were out at its end.
func besides(h *holding.Grant, by []holdSpan) []int64 {
	list := []int64{h.Proof.Complete.Index}
	for _, p := range slices.Backward(by) {
		if p.From < h.Start && p.Until >= h.Start && len(list) < 3 {
			list = append(list, p.hold.Proof.Complete.Index)
		}
	}
	return events(list...)
}
