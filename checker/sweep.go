package checker

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// A lockSweep is what one pass over the holds of a lock finds.
//
// For one owner at a time, a history is explained by some order of its
// operations if and only if: no two holds are certain at the same instant
// (P1), a grant without any certain length has an instant at which no other
// hold is certain (P1b), and every answer belongs to a hold (P2). Moving a
// grant to the end of its window and the end of a hold to its earliest end
// only shrinks what must be apart, so that if any choice works, this one does.
// Of permits it is the same with sums in place of disjointness.
type lockSweep struct {
	*holding.Lock
	together  []Violation // P1 and P1b, by leases alone
	ownership []Violation // P2, and P1 where only a late confirmation proves the hold
	first     *Violation  // of either; nil if there is none
}

// sweep is what was found in each lock.
func sweep(r *holding.Record) map[*holding.Lock]*lockSweep {
	swept := map[*holding.Lock]*lockSweep{}
	for _, l := range r.Locks() {
		s := &lockSweep{Lock: l}
		s.run()
		if all := slices.Concat(s.together, s.ownership); len(all) > 0 {
			s.first = new(slices.MinFunc(all, byTime))
		}
		swept[l] = s
	}
	return swept
}

// A holdSpan is a stretch of a hold: covered by its lease, or by a late
// confirmation only.
type holdSpan struct {
	holding.Span
	hold *holding.Grant
	late *holding.Late // nil: covered by the lease
}

// byLease reports whether a stretch is covered by the lease.
func byLease(p holdSpan) bool { return p.late == nil }

func (l *lockSweep) run() {
	for _, op := range l.Uncovered {
		l.ownership = append(l.ownership, l.uncovered(op))
	}
	for i := range l.Denied {
		l.ownership = append(l.ownership, l.denied(&l.Denied[i]))
	}
	if len(l.Holds) == 0 || l.Semaphore() && l.Capacity == 0 {
		return
	}
	spans := make([]holdSpan, 0, len(l.Holds))
	for _, h := range l.Holds {
		from := h.Start
		add := func(s holding.Span, late *holding.Late) {
			if s.From < s.Until {
				spans = append(spans, holdSpan{s, h, late})
			}
		}
		for i := range h.Late {
			late := &h.Late[i]
			add(holding.Span{From: from, Until: late.From}, nil)
			add(late.Span, late)
			from = max(from, late.Until)
		}
		add(holding.Span{From: from, Until: h.End}, nil)
	}
	slices.SortStableFunc(spans, func(a, b holdSpan) int { return cmp.Compare(a.From, b.From) })
	if l.Semaphore() {
		l.permits(spans)
	} else {
		l.overlaps(spans)
	}
	l.checkFreeTime(spans)
}

// entire are the holds as one stretch each: where a lease ends and a late
// confirmation begins to count, nothing is free.
func entire(holds []*holding.Grant) []holdSpan {
	var spans []holdSpan
	for _, h := range holds {
		if h.Certain() {
			spans = append(spans, holdSpan{h.Span(), h, nil})
		}
	}
	return spans
}

// checkFreeTime looks at the grants that were answered too late to be certain for any time: whether they fit somewhere
// between their earliest end and their answer.
func (l *lockSweep) checkFreeTime(spans []holdSpan) {
	var leased, all *room
	for _, h := range l.Holds {
		if h.Certain() && (len(h.Late) == 0 || h.Late[0].From > h.Start) {
			continue
		}
		if leased == nil {
			leased, all = l.room(holding.Filter(spans, byLease)), l.room(entire(l.Holds))
		}
		end, sent := h.End, h.Acquire.Invoke.Time
		if h.Proof.Verb == holding.Acquire { // granted in that time
			granted := holding.Span{From: max(min(end, h.Acquire.Ends, h.Start), sent), Until: h.Start}
			if by, none := leased.without(h, granted); none {
				l.noFreeTime(h, by)
				continue
			}
		}
		if !h.Certain() { // and kept
			if by, none := all.without(h, holding.Span{From: max(end, sent), Until: h.Start}); none {
				l.ownership = append(l.ownership, l.notHeld(h, by))
			}
		}
	}
}

// A room is when how much of a lock is held.
type room struct {
	*lockSweep
	spans []holdSpan      // in order of their beginnings
	reach []time.Duration // for how long each, or one before it, lasts
}

func (l *lockSweep) room(spans []holdSpan) *room {
	r := &room{lockSweep: l, spans: spans, reach: make([]time.Duration, len(spans))}
	for i, p := range spans {
		r.reach[i] = max(p.Until, r.reach[max(i-1, 0)])
	}
	return r
}

// without reports whether there was no instant of a span at which a grant had room, and what was in its way then.
func (r *room) without(h *holding.Grant, s holding.Span) (by []holdSpan, none bool) {
	last := sort.Search(len(r.spans), func(i int) bool { return r.spans[i].From > s.Until })
	first := last
	for first > 0 && r.reach[first-1] >= s.From {
		first--
	}
	by = holding.Filter(r.spans[first:last], func(p holdSpan) bool { return p.Until >= s.From && excludes(r.Lock, p.hold, h) })
	most := 0
	if r.Semaphore() {
		_, most = r.CapacityIn(h.Acquire.Invoke.Time, s.Until)
		most -= h.Permits()
	}
	fits := func(at time.Duration) bool {
		out := 0
		for _, p := range by {
			if p.From < at && at < p.Until {
				out += p.hold.Permits()
			}
		}
		return out <= most
	}
	if fits(s.From) || fits(s.Until) || slices.ContainsFunc(by, func(p holdSpan) bool { return p.Until <= s.Until && fits(p.Until) }) {
		return nil, false
	}
	if !r.Semaphore() {
		by = holding.Filter(by, func(p holdSpan) bool { return p.From < s.From && p.Until > s.From })
	}
	return by, true
}

// lasting says for how long holds overlap, as far as the history goes.
func (l *lockSweep) lasting(s holding.Span) string {
	if s.Until <= l.Record().End {
		return "for at least " + say.Span(s.Until-s.From)
	}
	text := "when the history ended"
	if seen := l.Record().End - s.From; seen > 0 {
		text = "for at least " + say.Span(seen) + ", until the history ended"
	}
	if s.Until != history.Never {
		text += ", " + say.Span(s.Until-l.Record().End) + " before the first of the leases could end"
	}
	return text
}

// upTo says when a hold ends, as far as the history goes.
func (l *lockSweep) upTo(t time.Duration) string {
	if t > l.Record().End {
		t = history.Never
	}
	return seconds(t)
}
