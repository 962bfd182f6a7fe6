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

// sweepResult are the violations that one pass over the holds of each lock found.
//
// For one owner at a time, a history is explained by some order of its
// operations if and only if: no two holds are certain at the same instant
// (P1), a grant without any certain length has an instant at which no other
// hold is certain (P1b), and every answer belongs to a hold (P2). Moving a
// grant to the end of its window and the end of a hold to its earliest end
// only shrinks what must be apart, so that if any choice works, this one does.
// Of permits it is the same with sums in place of disjointness.
type sweepResult struct {
	exclusion []Violation                 // P1 and P1b, by leases alone
	capacity  []Violation                 // the same of permits
	ownership []Violation                 // P2, and P1 where only a late confirmation proves the hold
	first     map[*holding.Lock]Violation // the first of either, of the locks that have one
}

// sweep is what was found in all locks.
func (ev *evidence) sweep() *sweepResult {
	if ev.swept != nil {
		return ev.swept
	}
	s := &sweepResult{first: map[*holding.Lock]Violation{}}
	for _, l := range ev.Locks() {
		w := lockSweep{Lock: l, until: ev.End}
		w.run()
		for _, list := range [...][]Violation{w.exclusion, w.capacity, w.ownership} {
			for _, v := range list {
				if other, more := s.first[l]; !more || byTime(v, other) < 0 {
					s.first[l] = v
				}
			}
		}
		s.exclusion = append(append(s.exclusion, w.exclusion...), otherTokens(l)...)
		s.capacity = append(s.capacity, w.capacity...)
		s.ownership = append(s.ownership, w.ownership...)
	}
	ev.swept = s
	return s
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

// A lockSweep sweeps the holds of one lock.
type lockSweep struct {
	*holding.Lock
	until                          time.Duration // the end of the history, where a violation has no other
	exclusion, capacity, ownership []Violation
}

func (l *lockSweep) rw() bool { return l.Kind == history.KindRW }

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
		for i := range h.Late {
			late := &h.Late[i]
			if late.From > from {
				spans = append(spans, holdSpan{Span: holding.Span{From: from, Until: late.From}, hold: h})
			}
			if late.From < late.Until {
				spans = append(spans, holdSpan{Span: late.Span, hold: h, late: late})
			}
			from = max(from, late.Until)
		}
		if h.End > from {
			spans = append(spans, holdSpan{Span: holding.Span{From: from, Until: h.End}, hold: h})
		}
	}
	byStart := func(a, b holdSpan) int { return cmp.Compare(a.From, b.From) }
	if !slices.IsSortedFunc(spans, byStart) {
		slices.SortStableFunc(spans, byStart)
	}
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
			spans = append(spans, holdSpan{Span: holding.Span{From: h.Start, Until: h.End}, hold: h})
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
			leased, all = l.room(filter(spans, byLease)), l.room(entire(l.Holds))
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

// A room is when how much of a lock is held: what began before an instant less what ended by then.
type room struct {
	*lockSweep
	spans        []holdSpan // in order of their beginnings
	all, writing use
}

// use is how many permits are out when; of other locks one for each hold.
type use struct {
	out, back         []time.Duration
	outSums, backSums []int
}

func (l *lockSweep) room(spans []holdSpan) *room {
	r := &room{lockSweep: l, spans: spans, all: useOf(spans)}
	if l.rw() {
		r.writing = useOf(filter(spans, func(p holdSpan) bool { return !p.hold.Reads() }))
	}
	return r
}

func useOf(spans []holdSpan) use {
	sums := func(at func(*holdSpan) time.Duration) (times []time.Duration, sums []int) {
		list := make([]*holdSpan, len(spans))
		for i := range spans {
			list[i] = &spans[i]
		}
		slices.SortFunc(list, func(a, b *holdSpan) int { return cmp.Compare(at(a), at(b)) })
		sum := 0
		for _, p := range list {
			sum += p.hold.Permits()
			times, sums = append(times, at(p)), append(sums, sum)
		}
		return times, sums
	}
	var u use
	u.out, u.outSums = sums(func(p *holdSpan) time.Duration { return p.From })
	u.back, u.backSums = sums(func(p *holdSpan) time.Duration { return p.Until })
	return u
}

// at is how many permits are out at t, of stretches that have t strictly inside.
func (u *use) at(t time.Duration) int {
	n := 0
	if i := sort.Search(len(u.out), func(i int) bool { return u.out[i] >= t }); i > 0 {
		n += u.outSums[i-1]
	}
	if i := sort.Search(len(u.back), func(i int) bool { return u.back[i] > t }); i > 0 {
		n -= u.backSums[i-1]
	}
	return n
}

// fits reports whether at some instant of the span no more than most are out.
func (u *use) fits(s holding.Span, most int) bool {
	if most < 0 {
		return false
	}
	if u.at(s.From) <= most || u.at(s.Until) <= most {
		return true
	}
	i := sort.Search(len(u.back), func(i int) bool { return u.back[i] >= s.From })
	for ; i < len(u.back) && u.back[i] <= s.Until; i++ {
		if u.at(u.back[i]) <= most {
			return true
		}
	}
	return false
}

// without reports whether there was no instant of a span at which a grant had room, and what was in its way then.
func (r *room) without(h *holding.Grant, s holding.Span) (by []holdSpan, none bool) {
	inTheWay := func(p holdSpan) bool {
		switch {
		case p.hold == h || p.From > s.Until || p.Until < s.From:
			return false
		case !r.rw():
			return true
		case p.hold.Owner() == h.Owner(): // what it holds in the other mode is not
			return !p.hold.Reads() && !h.Reads()
		default:
			return !p.hold.Reads() || !h.Reads()
		}
	}
	u, most := &r.all, 0
	if r.Semaphore() {
		_, most = r.CapacityIn(h.Acquire.Invoke.Time, s.Until)
		most -= h.Permits()
	} else if r.rw() && h.Reads() {
		u = &r.writing
	}
	if u.fits(s, most) {
		return nil, false
	}
	by = filter(r.spans, inTheWay)
	if others := useOf(by); r.rw() && others.fits(s, 0) {
		return nil, false
	}
	if !r.Semaphore() {
		by = filter(by, func(p holdSpan) bool { return p.From < s.From && p.Until > s.From })
	}
	return by, true
}

// lasting says for how long holds overlap, as far as the history goes.
func (l *lockSweep) lasting(s holding.Span) string {
	if s.Until <= l.until {
		return "for at least " + say.Span(s.Until-s.From)
	}
	text := "when the history ended"
	if seen := l.until - s.From; seen > 0 {
		text = "for at least " + say.Span(seen) + ", until the history ended"
	}
	if s.Until != history.Never {
		text += ", " + say.Span(s.Until-l.until) + " before the first of the leases could end"
	}
	return text
}

// upTo says when a hold ends, as far as the history goes.
func (l *lockSweep) upTo(t time.Duration) string {
	if t > l.until {
		t = history.Never
	}
	return seconds(t)
}

// filter is a list of those that are kept, which takes no more memory than it needs.
func filter[T any](list []T, keep func(T) bool) []T {
	n := 0
	for _, e := range list {
		if keep(e) {
			n++
		}
	}
	kept := make([]T, 0, n)
	for _, e := range list {
		if keep(e) {
			kept = append(kept, e)
		}
	}
	return kept
}
