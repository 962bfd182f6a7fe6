package checker

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/internal/say"
)

// Fairness is the checker of "fairness": a lock that was declared fair grants
// requests in the order in which it queued them. It applies where grants of a
// lock that was declared fair say what place they had in its queue.
//
// Which request was sent first proves nothing: it may take longer than a later
// one to arrive. So the order is that of the Queued numbers, which the service gave.
// That a grant came before another is proven where it was answered before the
// other was asked for; and where both holds have a certain extent and exclude
// each other: then the one that begins first was granted first. A request that
// was granted after one that was queued later was overtaken.
//
// An inner grant, an upgrade or a second permit does not wait for what its owner
// has itself: grants of one owner are compared only if the first was given back
// before the second was asked for.
func Fairness() Checker {
	return &property{
		name: "fairness", engine: "interval sweep",
		applies: func(ev *evidence) bool {
			return ev.any(func(l *holding.Lock) bool {
				return l.Fair && slices.ContainsFunc(l.Ops, func(op *holding.Op) bool { return op.Verb == holding.Acquire && op.OK() && op.Queued >= 0 })
			})
		},
		judge: func(_ context.Context, ev *evidence, f *findings) {
			for _, l := range ev.Locks() {
				if !l.Fair {
					continue
				}
				if l.Unclear != "" {
					f.doubt("lock %q: %s", l.Name, l.Unclear)
				}
				q := queue{Lock: l, holds: filter(l.Holds, func(h *holding.Grant) bool { return queued(h) >= 0 }), found: map[*holding.Grant]bool{}}
				f.counts["grants"] += len(q.holds)
				f.add(q.overtaken()...)
			}
			f.valid = say.Count(f.counts["grants"], "grant") + " came in the order in which they were queued"
		},
	}
}

// A queue is the grants of one lock that have a place in its queue, in order of their starts.
type queue struct {
	*holding.Lock
	holds      []*holding.Grant
	found      map[*holding.Grant]bool // those that overtook
	violations []Violation
}

// overtaken are the grants that came before one that was queued earlier.
func (q *queue) overtaken() []Violation {
	if !q.Semaphore() {
		q.byExtent()
	}
	q.byAnswer()
	return q.violations
}

func (q *queue) overtook(by, h *holding.Grant) {
	q.found[h] = true
	q.violations = append(q.violations, Violation{
		Kind: Overtaken, Lock: q.Name, From: by.Start, Until: max(by.Start, h.Start),
		Events: events(by.Acquire.Complete.Index, h.Acquire.Complete.Index),
		Explanation: fmt.Sprintf("%s was granted %q at %s from place %d of the queue, %s before %s, which had place %d",
			holder(q.Lock, by), q.Name, seconds(by.Start), queued(by), say.Span(h.Start-by.Start), holder(q.Lock, h), queued(h)),
	})
}

// queued is the place in the queue that a hold was granted from; -1 if it is not
// known.
func queued(h *holding.Grant) int64 {
	if !h.Acquire.OK() {
		return -1
	}
	return h.Acquire.Queued
}

// A last is which of some grants was queued last, and which of those of other
// owners.
type last [2]*holding.Grant

func (l *last) add(h *holding.Grant) {
	switch {
	case l[0] == nil || queued(h) > queued(l[0]):
		if l[0] != nil && l[0].Owner() != h.Owner() {
			l[1] = l[0]
		}
		l[0] = h
	case h.Owner() != l[0].Owner() && (l[1] == nil || queued(h) > queued(l[1])):
		l[1] = h
	}
}

// but is which was queued last, of owners but one.
func (l *last) but(owner int32) *holding.Grant {
	if l[0] != nil && l[0].Owner() == owner {
		return l[1]
	}
	return l[0]
}

// byExtent finds the grants that came after one that was queued later, by holds
// that exclude each other, in order of their starts.
func (q *queue) byExtent() {
	var all, writes last
	began := 0 // how many began before the one that is looked at
	for _, h := range q.holds {
		for ; q.holds[began].Start < h.Start; began++ {
			b := q.holds[began]
			if !b.Certain() {
				continue
			}
			all.add(b)
			if !b.Reads() {
				writes.add(b)
			}
		}
		if !h.Certain() {
			continue
		}
		before := all.but(h.Owner())
		if h.Reads() {
			before = writes.but(h.Owner())
		}
		if before != nil && queued(before) > queued(h) {
			q.overtook(before, h)
		}
	}
}

// byAnswer finds the others that were asked for after one that was queued later
// had been answered; of the same owner, given back.
func (q *queue) byAnswer() {
	asked, answered, returned := slices.Clone(q.holds), slices.Clone(q.holds), []*holding.Grant(nil)
	for _, h := range q.holds {
		if h.Ended == holding.Released && h.Release != nil && h.Release.OK() {
			returned = append(returned, h)
		}
	}
	slices.SortStableFunc(asked, func(a, b *holding.Grant) int { return cmp.Compare(a.Acquire.Invoke.Time, b.Acquire.Invoke.Time) })
	slices.SortStableFunc(answered, func(a, b *holding.Grant) int {
		return cmp.Compare(a.Acquire.Complete.Time, b.Acquire.Complete.Time)
	})
	slices.SortStableFunc(returned, func(a, b *holding.Grant) int {
		return cmp.Compare(a.Release.Complete.Time, b.Release.Complete.Time)
	})
	var all last
	own := map[int32]*holding.Grant{}
	for _, h := range asked {
		from := h.Acquire.Invoke.Time
		for len(answered) > 0 && answered[0].Acquire.Complete.Time < from {
			all.add(answered[0])
			answered = answered[1:]
		}
		for len(returned) > 0 && returned[0].Release.Complete.Time < from {
			if r := returned[0]; own[r.Owner()] == nil || queued(r) > queued(own[r.Owner()]) {
				own[r.Owner()] = r
			}
			returned = returned[1:]
		}
		for _, before := range [...]*holding.Grant{all.but(h.Owner()), own[h.Owner()]} {
			if before != nil && queued(before) > queued(h) && !q.found[h] {
				q.overtook(before, h)
			}
		}
	}
}
