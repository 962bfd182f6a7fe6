package checker

import (
	"cmp"
	"fmt"
	"slices"
	"time"
	"unsafe"

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
type sweepResult struct {
	exclusion []Violation         // P1 and P1b, by leases alone
	capacity  []Violation         // the same of permits
	ownership []Violation         // P2, and P1 where only a late confirmation proves the hold
	invalid   map[string]struct{} // locks with one of either
	memory    int                 // in bytes
}

func (s *sweepResult) all() [3][]Violation {
	return [...][]Violation{s.exclusion, s.capacity, s.ownership}
}

func (ev *evidence) sweepResult() *sweepResult {
	if ev.sweep != nil {
		return ev.sweep
	}
	s := &sweepResult{invalid: map[string]struct{}{}}
	ev.sweep = s
	holdings := ev.holdings()
	end := ev.history.End()
	for i := range holdings.Uncovered {
		s.addOwnership(uncovered(holdings, &holdings.Uncovered[i], end))
	}
	for i := range holdings.Denied {
		s.addOwnership(denied(&holdings.Denied[i]))
	}
	for i := range holdings.Holds {
		h := &holdings.Holds[i]
		if h.Token != 0 && len(h.Extensions) > 0 && h.Mode != history.Read {
			s.otherToken(h)
		}
	}
	for place, holds := range ev.held() {
		promise := holdings.Guarantees[holdings.Locks[place]]
		if len(holds) == 0 || isSemaphore(promise.Kind) && promise.Capacity == 0 {
			continue
		}
		l := lockSweep{
			sweepResult: s, holdings: holdings, until: end,
			rw: promise.Kind == history.KindRW, semaphore: isSemaphore(promise.Kind), capacity: promise.Capacity,
		}
		l.run(holds)
	}
	return s
}

// otherToken tells the first inner acquire that was given another token than the hold
// that it is part of. No order of the operations is at stake, so the lock is
// not among the invalid ones that the search must find, too.
func (s *sweepResult) otherToken(h *holding.Hold) {
	for i := range h.Extensions {
		op := &h.Extensions[i]
		if op.Invoke.Op != history.Acquire || !op.OK() || op.Complete.Token == 0 || op.Complete.Token == h.Token {
			continue
		}
		s.exclusion = append(s.exclusion, Violation{
			Kind: Reentrancy, Lock: h.Lock, From: op.Complete.Time, Until: op.Complete.Time,
			Events: events(h.Acquire.Complete.Index, op.Complete.Index),
			Explanation: fmt.Sprintf("%s held %q with token %d, and was given token %d with its inner grant at %s",
				holder(h), h.Lock, h.Token, op.Complete.Token, seconds(op.Complete.Time)),
		})
		return
	}
}

func (s *sweepResult) addExclusion(v Violation) {
	s.exclusion = append(s.exclusion, v)
	s.invalid[v.Lock] = struct{}{}
}

func (s *sweepResult) addCapacity(v Violation) {
	s.capacity = append(s.capacity, v)
	s.invalid[v.Lock] = struct{}{}
}

func (s *sweepResult) addOwnership(v Violation) {
	s.ownership = append(s.ownership, v)
	s.invalid[v.Lock] = struct{}{}
}

// A holdSpan is a stretch of a hold: covered by its lease, or by a late
// confirmation only.
type holdSpan struct {
	holding.Span
	hold *holding.Hold
	late *holding.LateSpan // nil: covered by the lease
}

// A lockSweep sweeps the holds of one lock.
type lockSweep struct {
	*sweepResult
	holdings  *holding.Holdings
	rw        bool
	semaphore bool
	capacity  int
	until     time.Duration // the end of the history, where a violation has no other
}

func (l *lockSweep) run(holds []*holding.Hold) {
	holdSpans := make([]holdSpan, 0, len(holds))
	for _, h := range holds {
		from := h.Start
		for i := range h.Late {
			late := &h.Late[i]
			if late.From > from {
				holdSpans = append(holdSpans, holdSpan{Span: holding.Span{From: from, Until: late.From}, hold: h})
			}
			if late.From < late.Until {
				holdSpans = append(holdSpans, holdSpan{Span: late.Span, hold: h, late: late})
			}
			from = max(from, late.Until)
		}
		if h.End > from {
			holdSpans = append(holdSpans, holdSpan{Span: holding.Span{From: from, Until: h.End}, hold: h})
		}
	}
	byStart := func(a, b holdSpan) int { return cmp.Compare(a.From, b.From) }
	sortStable(holdSpans, byStart)
	l.memory = max(l.memory, cap(holdSpans)*int(unsafe.Sizeof(holdSpan{}))+len(holds)*int(unsafe.Sizeof(holding.Hold{})))
	if l.semaphore {
		l.permits(holds, holdSpans)
		return
	}
	l.overlaps(holdSpans)
	l.checkFreeTime(holds, holdSpans)
}

// latestEnds are the two holdSpans that reach farthest, of different holds (in a
// read-write lock, one owner may hold both modes).
type latestEnds [2]*holdSpan

func (l *lockSweep) same(a, b *holdSpan) bool {
	return a.hold == b.hold ||
		l.rw && a.hold.Owner == b.hold.Owner && (a.hold.Mode == history.Read) != (b.hold.Mode == history.Read)
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
func (l *lockSweep) overlaps(holdSpans []holdSpan) {
	var latest [2][2]latestEnds // by late or not, by read or not
	index := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	for i := range holdSpans {
		p := &holdSpans[i]
		read := l.rw && p.hold.Mode == history.Read
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
				l.addExclusion(l.doubleGrant(q, p))
			} else {
				l.addOwnership(l.foreign(p, q.hold))
			}
		}
		if q := find(true); q != nil {
			l.addOwnership(l.foreign(q, p.hold))
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
		Kind: DoubleGrant, Lock: first.hold.Lock, From: both.From, Until: both.Until,
		Events: events(first.hold.Proof.Complete.Index, second.hold.Proof.Complete.Index, first.hold.EndEvent),
	}
	again := "was granted it"
	if first.hold.Owner == second.hold.Owner {
		v.Kind = Reentrancy
		again = "was granted it again"
		length = "a lock that is not declared re-entrant had two grants " + l.lasting(holding.Span{From: both.From, Until: min(a.Until, b.Until)})
	}
	if second.From > second.hold.Start {
		again = "had its hold prolonged"
	}
	v.Explanation = fmt.Sprintf("%s held %q for certain from %s until %s; %s %s at %s: %s",
		holder(first.hold), first.hold.Lock, seconds(first.From), l.upTo(first.Until),
		holder(second.hold), again, seconds(second.From), length)
	return v
}

// foreign is the release or extend that was confirmed after its lease,
// although another had been granted the lock in between.
func (l *lockSweep) foreign(p *holdSpan, other *holding.Hold) Violation {
	by := &p.late.By
	return Violation{
		Kind: ForeignRelease, Lock: p.hold.Lock, From: by.Invoke.Time, Until: by.Complete.Time,
		Events: events(by.Complete.Index, other.Proof.Complete.Index, p.hold.Proof.Complete.Index),
		Explanation: fmt.Sprintf("the %s of %s on %q was confirmed at %s, but its lease had run out at %s and %s had been granted the lock by %s",
			by.Invoke.Op, holder(p.hold), p.hold.Lock, seconds(by.Complete.Time), seconds(p.From),
			holder(other), seconds(other.Start)),
	}
}

// A stretch is a maximal union of overlapping spans, with the holdSpan that
// began it.
type stretch struct {
	holding.Span
	hold   *holding.Hold
	owners map[string]struct{} // of a read-write lock
}

// union merges what overlaps; what only touches leaves an instant free.
func (l *lockSweep) union(holdSpans []holdSpan) []stretch {
	var union []stretch
	for _, p := range holdSpans {
		if n := len(union); n > 0 && p.From < union[n-1].Until {
			union[n-1].Until = max(union[n-1].Until, p.Until)
		} else {
			union = append(union, stretch{Span: p.Span, hold: p.hold})
		}
		if l.rw {
			u := &union[len(union)-1]
			if u.owners == nil {
				u.owners = map[string]struct{}{}
			}
			u.owners[p.hold.Owner] = struct{}{}
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
	hold *holding.Hold
	span holding.Span
}

// tooLate are the grants that were answered too late to be certain for any
// time, with the spans in which they were granted, and in which they were kept.
func (l *lockSweep) tooLate(holds []*holding.Hold) (granted, kept []query) {
	for _, h := range holds {
		if h.End > h.Start && (len(h.Late) == 0 || h.Late[0].From > h.Start) {
			continue
		}
		if h.Proof.Invoke.Op == history.Acquire {
			end := min(h.End, l.holdings.Lease(&h.Acquire), h.Start)
			granted = append(granted, query{hold: h, span: holding.Span{From: max(end, h.Acquire.Invoke.Time), Until: h.Start}})
		}
		if h.End <= h.Start {
			kept = append(kept, query{hold: h, span: holding.Span{From: max(h.End, h.Acquire.Invoke.Time), Until: h.Start}})
		}
	}
	return granted, kept
}

// checkFreeTime finds those of them that had no free instant.
func (l *lockSweep) checkFreeTime(holds []*holding.Hold, holdSpans []holdSpan) {
	granted, kept := l.tooLate(holds)
	if len(granted)+len(kept) == 0 {
		return
	}
	found := map[*holding.Hold]bool{}
	leased := l.blocks(filter(holdSpans, func(p holdSpan) bool { return p.late == nil }))
	for _, q := range granted {
		if u := leased.around(q); u != nil {
			found[q.hold] = true
			l.addExclusion(l.noFreeTime(u, q.hold))
		}
	}
	all := l.blocks(entire(holds))
	for _, q := range kept {
		if u := all.around(q); u != nil && !found[q.hold] {
			l.addOwnership(l.notHeld(u, q.hold))
		}
	}
}

// blocks are when the lock was held.
type blocks struct {
	*lockSweep
	holdSpans          []holdSpan
	everything, writes []stretch
}

func (l *lockSweep) blocks(holdSpans []holdSpan) *blocks {
	b := &blocks{lockSweep: l, holdSpans: holdSpans, everything: l.union(holdSpans)}
	if l.rw {
		b.writes = l.union(filter(holdSpans, func(p holdSpan) bool { return p.hold.Mode != history.Read }))
	}
	return b
}

// around is the stretch that has all the time of a query strictly inside, and in
// which no other owner can hold the lock.
func (b *blocks) around(q query) *stretch {
	if !b.rw {
		return within(b.everything, q.span)
	}
	read := q.hold.Mode == history.Read
	union := b.everything
	if read {
		union = b.writes
	}
	u := within(union, q.span)
	if u == nil {
		return nil
	}
	if _, own := u.owners[q.hold.Owner]; !own {
		return u
	}
	// What the owner holds in the other mode is not in its way.
	return within(b.union(filter(b.holdSpans, func(p holdSpan) bool {
		reads := p.hold.Mode == history.Read
		return p.From <= q.span.Until && p.Until >= q.span.From &&
			(!read || !reads) && (p.hold.Owner != q.hold.Owner || reads == read)
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

func (l *lockSweep) noFreeTime(u *stretch, h *holding.Hold) Violation {
	return Violation{
		Kind: DoubleGrant, Lock: h.Lock, From: h.Acquire.Invoke.Time, Until: h.Start,
		Events: events(u.hold.Proof.Complete.Index, h.Proof.Complete.Index, u.hold.EndEvent),
		Explanation: fmt.Sprintf("%s was granted %q some time between %s and %s, but %s held it for certain from %s until %s",
			holder(h), h.Lock, seconds(h.Acquire.Invoke.Time), seconds(h.Start),
			holder(u.hold), seconds(u.From), l.upTo(u.Until)),
	}
}

func (l *lockSweep) notHeld(u *stretch, h *holding.Hold) Violation {
	by := &h.Proof
	return Violation{
		Kind: ForeignRelease, Lock: h.Lock, From: by.Invoke.Time, Until: by.Complete.Time,
		Events: events(u.hold.Proof.Complete.Index, by.Complete.Index, u.hold.EndEvent),
		Explanation: fmt.Sprintf("the %s of %s on %q was confirmed at %s, but %s held the lock from %s until %s",
			by.Invoke.Op, holder(h), h.Lock, seconds(by.Complete.Time), holder(u.hold), seconds(u.From), l.upTo(u.Until)),
	}
}

func uncovered(holdings *holding.Holdings, op *history.Operation, end time.Duration) Violation {
	v := Violation{
		Kind: ForeignRelease, Lock: op.Invoke.Lock, From: op.Invoke.Time, Until: op.Complete.Time,
		Events: events(op.Invoke.Index, op.Complete.Index),
		Explanation: fmt.Sprintf("the %s of %s on %q was confirmed at %s, but it had no grant left that can have lasted until then",
			op.Invoke.Op, caller(op), op.Invoke.Lock, seconds(op.Complete.Time)),
	}
	if n := op.Invoke.Permits; n > 0 {
		v.Explanation = fmt.Sprintf("the %s of %s by %s on %q was confirmed at %s, but it cannot have had so many then",
			op.Invoke.Op, say.Count(n, "permit"), caller(op), op.Invoke.Lock, seconds(op.Complete.Time))
	}
	for i := range holdings.Holds {
		h := &holdings.Holds[i]
		if h.Start > op.Complete.Time {
			break
		}
		if h.Lock == op.Invoke.Lock && h.Owner != op.Invoke.Owner && h.Start <= op.Invoke.Time && op.Complete.Time <= h.End {
			v.Events = events(op.Invoke.Index, op.Complete.Index, h.Proof.Complete.Index)
			v.Explanation += fmt.Sprintf("; %s held the lock from %s until %s", holder(h), seconds(h.Start), upTo(h.End, end))
			break
		}
	}
	return v
}

func denied(d *holding.Denial) Violation {
	op := &d.Operation
	good := "it had no end"
	if d.Good != history.Never {
		good = fmt.Sprintf("it was good until %s, %s longer", seconds(d.Good), say.Span(d.Good-op.Complete.Time))
	}
	return Violation{
		Kind: PrematureLoss, Lock: op.Invoke.Lock, From: op.Invoke.Time, Until: op.Complete.Time,
		Events: events(d.Hold.Proof.Complete.Index, op.Complete.Index),
		Explanation: fmt.Sprintf("%s was granted %q at %s and was told at %s, by the answer to its %s, that it did not hold it; %s",
			holder(&d.Hold), op.Invoke.Lock, seconds(d.Hold.Start), seconds(op.Complete.Time), op.Invoke.Op, good),
	}
}
