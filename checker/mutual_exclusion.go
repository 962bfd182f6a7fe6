package checker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// MutualExclusion is the checker of "mutual-exclusion": no two owners hold a
// lock at the same time for certain, in modes that exclude each other.
//
// A hold is certain from the completion of its grant until the earliest
// instant at which its lease or an operation of its own can have ended it; the
// formulas are those of [holding.Hold]. Two holds that touch in one instant do
// not overlap. A grant that was answered after its own lease needs one
// instant, between its earliest end and its answer, that no other hold has
// strictly inside. Both are decided exactly, by one sweep over the holds.
//
// Locks of permits are the business of [Capacity].
func MutualExclusion() Checker {
	return &property{
		name: "mutual-exclusion", engine: "interval sweep",
		applies: func(ev *evidence) bool {
			return len(ev.Locks()) == 0 || ev.any(func(l *holding.Lock) bool { return l.Used && isExclusive(l) })
		},
		judge: func(_ context.Context, ev *evidence, f *findings) {
			f.add(ev.sweep().exclusion...)
			ev.unclear(f, isExclusive)
			grants(f, ev, isExclusive)
			f.counts["holds"], f.counts["locks"] = ev.holds(isExclusive), len(ev.Locks())
			f.valid = "no two owners held a lock at the same time, in " + say.Count(f.counts["holds"], "hold") +
				" of " + say.Count(f.counts["locks"], "lock")
		},
	}
}

// grants doubts a history whose grants of locks of a kind show nothing: none of them held the
// lock for certain, or most were answered after their own expiry.
func grants(f *findings, ev *evidence, of func(*holding.Lock) bool) {
	given, late, certain := 0, 0, false
	for _, l := range ev.Locks() {
		if !of(l) {
			continue
		}
		for _, op := range l.Ops {
			if op.Verb == holding.Acquire && op.OK() {
				given++
				if op.Expiry > 0 && op.Expiry <= op.Complete.Time {
					late++
				}
			}
		}
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
}

// sweepResult are the violations that one pass over the holds of each lock found.
//
// For one owner at a time, a history is explained by some order of its
// operations if and only if: no two holds are certain at the same instant
// (P1), a grant without any certain length has an instant at which no other
// hold is certain (P1b), and every answer belongs to a hold (P2). Moving a
// grant to the end of its window and the end of a hold to its earliest end
// only shrinks what must be apart, so that if any choice works, this one does.
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
		found = append(found, Violation{
			Kind: Reentrancy, Lock: l.Name, From: op.Complete.Time, Until: op.Complete.Time,
			Events: events(h.Acquire.Complete.Index, op.Complete.Index),
			Explanation: fmt.Sprintf("%s held %q with token %d, and was given token %d with its inner grant at %s",
				holder(l, h), l.Name, h.Token(), op.Token, seconds(op.Complete.Time)),
		})
	}
	return found
}

// A holdSpan is a stretch of a hold: covered by its lease, or by a late
// confirmation only.
type holdSpan struct {
	holding.Span
	hold *holding.Grant
	late *holding.Late // nil: covered by the lease
}

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
		return
	}
	l.overlaps(spans)
	l.checkFreeTime(spans)
}

// latestEnds are the two holdSpans that reach farthest, of different holds (in a
// read-write lock, one owner may hold both modes).
type latestEnds [2]*holdSpan

func (l *lockSweep) same(a, b *holdSpan) bool {
	return a.hold == b.hold ||
		l.rw() && a.hold.Owner() == b.hold.Owner() && a.hold.Reads() != b.hold.Reads()
}

func (l *lockSweep) push(f *latestEnds, p *holdSpan) {
	switch {
	case f[0] == nil:
		f[0] = p
	case l.same(f[0], p):
		if p.Until > f[0].Until {
			f[0] = p
		}
	case p.Until > f[0].Until:
		f[0], f[1] = p, f[0]
	case f[1] == nil || p.Until > f[1].Until:
		f[1] = p
	}
}

// reach is the holdSpan of another owner that goes beyond the start of p.
func (l *lockSweep) reach(f *latestEnds, p *holdSpan) *holdSpan {
	for _, q := range f {
		if q != nil && !l.same(q, p) && q.Until > p.From {
			return q
		}
	}
	return nil
}

// overlaps finds the holdSpans that share more than an instant with an earlier
// one. For each holdSpan it reports the one that reaches farthest.
func (l *lockSweep) overlaps(spans []holdSpan) {
	var latest [2][2]latestEnds // by late or not, by read or not
	index := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	for i := range spans {
		p := &spans[i]
		read := l.rw() && p.hold.Reads()
		find := func(late bool) *holdSpan {
			q := l.reach(&latest[index(late)][0], p)
			if !read {
				if r := l.reach(&latest[index(late)][1], p); r != nil && (q == nil || r.Until > q.Until) {
					q = r
				}
			}
			return q
		}
		if q := find(false); q != nil {
			if p.late == nil {
				l.exclusion = append(l.exclusion, l.doubleGrant(q, p))
			} else {
				l.ownership = append(l.ownership, l.foreign(p, q.hold))
			}
		}
		if q := find(true); q != nil {
			l.ownership = append(l.ownership, l.foreign(q, p.hold))
		}
		l.push(&latest[index(p.late != nil)][index(read)], p)
	}
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
func (l *lockSweep) upTo(t time.Duration) string { return upTo(t, l.until) }

func (l *lockSweep) doubleGrant(a, b *holdSpan) Violation {
	both, _ := a.Overlap(b.Span)
	first, second := a, b
	length := "both were owners " + l.lasting(both)
	both.Until = max(min(both.Until, l.until), both.From)
	v := Violation{
		Kind: DoubleGrant, Lock: l.Name, From: both.From, Until: both.Until,
		Events: events(first.hold.Proof.Complete.Index, second.hold.Proof.Complete.Index, first.hold.EndEvent),
	}
	again := "was granted it"
	if first.hold.Owner() == second.hold.Owner() {
		v.Kind = Reentrancy
		again = "was granted it again"
		length = "a lock that is not declared re-entrant had two grants " + l.lasting(holding.Span{From: both.From, Until: min(a.Until, b.Until)})
	}
	if second.From > second.hold.Start {
		again = "had its hold prolonged"
	}
	v.Explanation = fmt.Sprintf("%s held %q for certain from %s until %s; %s %s at %s: %s",
		holder(l.Lock, first.hold), l.Name, seconds(first.From), l.upTo(first.Until),
		holder(l.Lock, second.hold), again, seconds(second.From), length)
	return v
}

// A stretch is a maximal union of overlapping spans, with the holdSpan that
// began it.
type stretch struct {
	holding.Span
	hold   *holding.Grant
	owners map[int32]struct{} // of a read-write lock
}

// union merges what overlaps; what only touches leaves an instant free.
func (l *lockSweep) union(spans []holdSpan) []stretch {
	var union []stretch
	for _, p := range spans {
		if n := len(union); n > 0 && p.From < union[n-1].Until {
			union[n-1].Until = max(union[n-1].Until, p.Until)
		} else {
			union = append(union, stretch{Span: p.Span, hold: p.hold})
		}
		if l.rw() {
			u := &union[len(union)-1]
			if u.owners == nil {
				u.owners = map[int32]struct{}{}
			}
			u.owners[p.hold.Owner()] = struct{}{}
		}
	}
	return union
}

// within is the stretch that has the whole span strictly inside.
func within(union []stretch, s holding.Span) *stretch {
	at, _ := slices.BinarySearchFunc(union, s.From, func(u stretch, t time.Duration) int {
		if u.From < t {
			return -1
		}
		return 1
	})
	if at == 0 || union[at-1].Until <= s.Until {
		return nil
	}
	return &union[at-1]
}

// A query asks whether a hold fits somewhere into a span.
type query struct {
	hold *holding.Grant
	span holding.Span
}

// tooLate are the grants that were answered too late to be certain for any
// time, with the spans in which they were granted, and in which they were kept.
func (l *lockSweep) tooLate() (granted, kept []query) {
	for _, h := range l.Holds {
		if h.Certain() && (len(h.Late) == 0 || h.Late[0].From > h.Start) {
			continue
		}
		if h.Proof.Verb == holding.Acquire {
			end := min(h.End, h.Acquire.Ends, h.Start)
			granted = append(granted, query{hold: h, span: holding.Span{From: max(end, h.Acquire.Invoke.Time), Until: h.Start}})
		}
		if !h.Certain() {
			kept = append(kept, query{hold: h, span: holding.Span{From: max(h.End, h.Acquire.Invoke.Time), Until: h.Start}})
		}
	}
	return granted, kept
}

// checkFreeTime finds those of them that had no free instant.
func (l *lockSweep) checkFreeTime(spans []holdSpan) {
	granted, kept := l.tooLate()
	if len(granted)+len(kept) == 0 {
		return
	}
	found := map[*holding.Grant]bool{}
	leased := l.blocks(filter(spans, func(p holdSpan) bool { return p.late == nil }))
	for _, q := range granted {
		if u := leased.around(q); u != nil {
			found[q.hold] = true
			l.exclusion = append(l.exclusion, l.noFreeTime(u, q.hold))
		}
	}
	all := l.blocks(entire(l.Holds))
	for _, q := range kept {
		if u := all.around(q); u != nil && !found[q.hold] {
			l.ownership = append(l.ownership, l.notHeld(u, q.hold))
		}
	}
}

// blocks are when the lock was held.
type blocks struct {
	*lockSweep
	spans              []holdSpan
	everything, writes []stretch
}

func (l *lockSweep) blocks(spans []holdSpan) *blocks {
	b := &blocks{lockSweep: l, spans: spans, everything: l.union(spans)}
	if l.rw() {
		b.writes = l.union(filter(spans, func(p holdSpan) bool { return !p.hold.Reads() }))
	}
	return b
}

// around is the stretch that has all the time of a query strictly inside, and in
// which no other owner can hold the lock.
func (b *blocks) around(q query) *stretch {
	if !b.rw() {
		return within(b.everything, q.span)
	}
	read := q.hold.Reads()
	union := b.everything
	if read {
		union = b.writes
	}
	u := within(union, q.span)
	if u == nil {
		return nil
	}
	if _, own := u.owners[q.hold.Owner()]; !own {
		return u
	}
	// What the owner holds in the other mode is not in its way.
	return within(b.union(filter(b.spans, func(p holdSpan) bool {
		reads := p.hold.Reads()
		return p.From <= q.span.Until && p.Until >= q.span.From &&
			(!read || !reads) && (p.hold.Owner() != q.hold.Owner() || reads == read)
	})), q.span)
}

// filter is a list of those that are kept.
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

func (l *lockSweep) noFreeTime(u *stretch, h *holding.Grant) Violation {
	return Violation{
		Kind: DoubleGrant, Lock: l.Name, From: h.Acquire.Invoke.Time, Until: h.Start,
		Events: events(u.hold.Proof.Complete.Index, h.Proof.Complete.Index, u.hold.EndEvent),
		Explanation: fmt.Sprintf("%s was granted %q some time between %s and %s, but %s held it for certain from %s until %s",
			holder(l.Lock, h), l.Name, seconds(h.Acquire.Invoke.Time), seconds(h.Start),
			holder(l.Lock, u.hold), seconds(u.From), l.upTo(u.Until)),
	}
}
