package checker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/internal/say"
)

// Capacity is the checker of "capacity": no more permits of a semaphore are
// out, for certain and at the same time, than it was declared to have.
//
// A permit is certainly out for as long as its hold is certain, by the formulas
// of [holding.Hold]; permits that are given back in the instant in which others
// are granted are not out together. A grant that was answered after its own
// lease needs one instant, between its earliest end and its answer, at which
// its permits still fit. Both are decided exactly, by one sweep over the ends
// of the holds.
//
// A semaphore whose capacity was not declared is not judged: the verdict is
// Unknown.
func Capacity() Checker {
	return &property{
		name: "capacity", engine: "interval sweep",
		applies: func(ev *evidence) bool { return ev.any(isSemaphore) },
		judge: func(_ context.Context, ev *evidence, f *findings) {
			f.add(ev.sweep().capacity...)
			ev.unclear(f, isSemaphore)
			for _, l := range ev.Locks() {
				if l.Semaphore() && l.Capacity == 0 {
					f.doubt("nothing says how many permits %q has: its declaration has no capacity", l.Name)
				}
			}
			grants(f, ev, isSemaphore)
			f.counts["grants"] = ev.holds(isSemaphore)
			f.valid = "no more permits were out than there are, in " + say.Count(f.counts["grants"], "grant")
		},
	}
}

// An edge is where permits go out or come back.
type edge struct {
	at       time.Duration
	out      bool
	permits  int
	holdSpan *holdSpan
}

// edges are those of the holdSpans in order of time. What comes back in an
// instant does so before anything goes out.
func edges(holdSpans []holdSpan) []edge {
	list := make([]edge, 0, 2*len(holdSpans))
	for i := range holdSpans {
		p := &holdSpans[i]
		list = append(list,
			edge{at: p.From, out: true, permits: p.hold.Permits(), holdSpan: p},
			edge{at: p.Until, permits: p.hold.Permits(), holdSpan: p})
	}
	slices.SortStableFunc(list, func(a, b edge) int {
		if a.at != b.at || a.out == b.out {
			return cmp.Compare(a.at, b.at)
		}
		if b.out {
			return -1
		}
		return 1
	})
	return list
}

// permits sweeps the holds of a semaphore.
func (l *lockSweep) permits(holdSpans []holdSpan) {
	leased := filter(holdSpans, func(p holdSpan) bool { return p.late == nil })
	reported := map[*holding.Grant]bool{}
	l.over(edges(leased), func(p *holdSpan, out []*holdSpan) {
		reported[p.hold] = true
		l.capacity = append(l.capacity, l.overCapacity(p, out))
	})
	if len(leased) < len(holdSpans) {
		l.over(edges(entire(l.Holds)), func(p *holdSpan, out []*holdSpan) {
			late, other := lateOne(p, out)
			if late != nil && !reported[p.hold] {
				l.ownership = append(l.ownership, l.foreign(late, other))
			}
		})
	}
	granted, kept := l.tooLate()
	found := map[*holding.Grant]bool{}
	if len(granted) > 0 {
		u := newUse(leased)
		for _, q := range granted {
			if !u.fits(q.span, l.Capacity-q.hold.Permits()) {
				found[q.hold] = true
				l.capacity = append(l.capacity, l.noPermit(q.hold, leased))
			}
		}
	}
	if len(kept) > 0 {
		u := newUse(entire(l.Holds))
		for _, q := range kept {
			if !found[q.hold] && !u.fits(q.span, l.Capacity-q.hold.Permits()) {
				l.ownership = append(l.ownership, l.notKept(q.hold, holdSpans))
			}
		}
	}
}

// entire are the holds as one holdSpan each: where a lease ends and a late
// confirmation begins to count, nothing is free.
func entire(holds []*holding.Grant) []holdSpan {
	var holdSpans []holdSpan
	for _, h := range holds {
		if h.Certain() {
			holdSpans = append(holdSpans, holdSpan{Span: holding.Span{From: h.Start, Until: h.End}, hold: h})
		}
	}
	return holdSpans
}

// over calls found for each holdSpan that takes more out than there is, with those
// that are out already.
func (l *lockSweep) over(list []edge, found func(p *holdSpan, out []*holdSpan)) {
	out := outside{at: map[*holdSpan]int{}}
	sum := 0
	for _, e := range list {
		if !e.out {
			if out.back(e.holdSpan) { // a holdSpan has its start before its end
				sum -= e.permits
			}
			continue
		}
		sum += e.permits
		if sum > l.Capacity {
			found(e.holdSpan, out.holdSpans())
		}
		out.add(e.holdSpan)
	}
}

// An outside is the holdSpans that are out, in order.
type outside struct {
	list []*holdSpan // nil where one came back
	at   map[*holdSpan]int
}

func (o *outside) add(p *holdSpan) {
	o.at[p] = len(o.list)
	o.list = append(o.list, p)
}

func (o *outside) back(p *holdSpan) bool {
	at, is := o.at[p]
	if !is {
		return false
	}
	delete(o.at, p)
	o.list[at] = nil
	if len(o.list) > 2*len(o.at)+64 {
		o.holdSpans()
	}
	return true
}

func (o *outside) holdSpans() []*holdSpan {
	if len(o.list) > len(o.at) {
		o.list = slices.DeleteFunc(o.list, func(p *holdSpan) bool { return p == nil })
		for i, p := range o.list {
			o.at[p] = i
		}
	}
	return o.list
}

// lateOne is a holdSpan at a time for which only a late confirmation accounts, of a
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

func (l *lockSweep) overCapacity(p *holdSpan, out []*holdSpan) Violation {
	sum, until := p.hold.Permits(), p.Until
	for _, q := range out {
		sum += q.hold.Permits()
		until = min(until, q.Until)
	}
	lasting := l.lasting(holding.Span{From: p.From, Until: until})
	until = max(min(until, l.until), p.From)
	v := Violation{
		Kind: OverCapacity, Lock: l.Name, From: p.From, Until: until,
		Events: proofs(p, out),
		Explanation: fmt.Sprintf("%s was granted %s of %q at %s, which made %d, and the lock has %d",
			holder(l.Lock, p.hold), say.Count(p.hold.Permits(), "permit"), l.Name, seconds(p.From), sum, l.Capacity),
	}
	if len(out) > 0 {
		v.Explanation += fmt.Sprintf("; %s were out %s", say.Count(sum, "permit"), lasting)
	}
	return v
}

// maxOut bounds the grants of other permits that the evidence names.
const maxOut = 32

// proofs are the grants of a holdSpan and of those that were out, the last of them.
func proofs(p *holdSpan, out []*holdSpan) []int64 {
	list := []int64{p.hold.Proof.Complete.Index}
	for _, q := range out[max(0, len(out)-maxOut):] {
		list = append(list, q.hold.Proof.Complete.Index)
	}
	return events(list...)
}

// noPermit is a grant that was answered after its lease, and fitted nowhere.
func (l *lockSweep) noPermit(h *holding.Grant, holdSpans []holdSpan) Violation {
	return Violation{
		Kind: OverCapacity, Lock: l.Name, From: h.Acquire.Invoke.Time, Until: h.Start,
		Events: besides(h, holdSpans),
		Explanation: fmt.Sprintf("%s was granted %s of %q some time between %s and %s, but too many of %d were out at every instant",
			holder(l.Lock, h), say.Count(h.Permits(), "permit"), l.Name, seconds(h.Acquire.Invoke.Time), seconds(h.Start), l.Capacity),
	}
}

func (l *lockSweep) notKept(h *holding.Grant, holdSpans []holdSpan) Violation {
	by := h.Proof
	return Violation{
		Kind: ForeignRelease, Lock: l.Name, From: by.Invoke.Time, Until: by.Complete.Time,
		Events: besides(h, holdSpans),
		Explanation: fmt.Sprintf("the %s of %s on %q was confirmed at %s, but its permits can't have been out: too many of %d were at every instant",
			by.Verb, holder(l.Lock, h), l.Name, seconds(by.Complete.Time), l.Capacity),
	}
}

// besides are the grant of a hold and two others that were out at its end.
func besides(h *holding.Grant, holdSpans []holdSpan) []int64 {
	list := []int64{h.Proof.Complete.Index}
	for i := len(holdSpans) - 1; i >= 0 && len(list) < 3; i-- {
		if p := &holdSpans[i]; p.hold != h && p.From < h.Start && p.Until >= h.Start {
			list = append(list, p.hold.Proof.Complete.Index)
		}
	}
	return events(list...)
}

// use is how many permits are out when: those that went out before an instant
// less those that came back by then.
type use struct {
	out, back         []time.Duration
	outSums, backSums []int
}

func newUse(holdSpans []holdSpan) *use {
	u := &use{}
	sums := func(list []*holdSpan, at func(*holdSpan) time.Duration) (times []time.Duration, sums []int) {
		slices.SortFunc(list, func(a, b *holdSpan) int { return cmp.Compare(at(a), at(b)) })
		sum := 0
		for _, p := range list {
			sum += p.hold.Permits()
			times, sums = append(times, at(p)), append(sums, sum)
		}
		return times, sums
	}
	list := make([]*holdSpan, len(holdSpans))
	for i := range holdSpans {
		list[i] = &holdSpans[i]
	}
	u.out, u.outSums = sums(list, func(p *holdSpan) time.Duration { return p.From })
	u.back, u.backSums = sums(list, func(p *holdSpan) time.Duration { return p.Until })
	return u
}

// at is how many permits are out at t, of holdSpans that have t strictly inside.
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
