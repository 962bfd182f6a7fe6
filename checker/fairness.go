package checker

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
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
			return ev.sees(func(e *history.Event) bool {
				return e.Op == history.Acquire && e.Type == history.OK && e.Queued != nil && ev.holdings().Guarantees[e.Lock].Fair
			})
		},
		judge: func(_ context.Context, ev *evidence, f *findings) {
			fairness(ev, f)
			f.valid = say.Count(f.counts["grants"], "grant") + " came in the order in which they were queued"
		},
	}
}

// queued is the place in the queue that a hold was granted from; -1 if it is not
// known.
func queued(h *holding.Hold) int64 {
	if place := h.Acquire.Complete.Queued; place != nil && h.Acquire.OK() {
		return *place
	}
	return -1
}

// A last is which of some grants was queued last, and which of those of other
// owners.
type last [2]*holding.Hold

func (l *last) add(h *holding.Hold) {
	switch {
	case l[0] == nil || queued(h) > queued(l[0]):
		if l[0] != nil && l[0].Owner != h.Owner {
			l[1] = l[0]
		}
		l[0] = h
	case h.Owner != l[0].Owner && (l[1] == nil || queued(h) > queued(l[1])):
		l[1] = h
	}
}

// but is which was queued last, of owners but one.
func (l *last) but(owner string) *holding.Hold {
	if l[0] != nil && l[0].Owner == owner {
		return l[1]
	}
	return l[0]
}

func fairness(ev *evidence, f *findings) {
	holdings := ev.holdings()
	for _, lock := range ev.locks() {
		if !holdings.Guarantees[lock].Fair {
			continue
		}
		if why := holdings.Unclear[lock]; why != "" {
			f.doubt("lock %q: %s", lock, why)
		}
		holds := filter(ev.heldOf(lock), func(h *holding.Hold) bool { return queued(h) >= 0 })
		f.counts["grants"] += len(holds)
		found := map[*holding.Hold]bool{}
		if !isSemaphore(holdings.Guarantees[lock].Kind) {
			byExtent(f, holds, found)
		}
		byAnswer(f, holds, found)
	}
}

// byExtent finds the grants that came after one that was queued later, by holds
// that exclude each other, in order of their starts.
func byExtent(f *findings, holds []*holding.Hold, found map[*holding.Hold]bool) {
	var all, writes last
	began := 0 // how many began before the one that is looked at
	for _, h := range holds {
		for ; holds[began].Start < h.Start; began++ {
			b := holds[began]
			if b.End <= b.Start {
				continue
			}
			all.add(b)
			if b.Mode != history.Read {
				writes.add(b)
			}
		}
		if h.End <= h.Start {
			continue
		}
		before := all.but(h.Owner)
		if h.Mode == history.Read {
			before = writes.but(h.Owner)
		}
		if before != nil && queued(before) > queued(h) {
			found[h] = true
			f.add(overtaken(before, h))
		}
	}
}

// byAnswer finds the others that were asked for after one that was queued later
// had been answered; of the same owner, given back.
func byAnswer(f *findings, holds []*holding.Hold, found map[*holding.Hold]bool) {
	asked, answered, returned := slices.Clone(holds), slices.Clone(holds), []*holding.Hold(nil)
	for _, h := range holds {
		if h.Ended == holding.EndReleased && h.Release != nil && h.Release.OK() {
			returned = append(returned, h)
		}
	}
	slices.SortStableFunc(asked, func(a, b *holding.Hold) int { return cmp.Compare(a.Acquire.Invoke.Time, b.Acquire.Invoke.Time) })
	slices.SortStableFunc(answered, func(a, b *holding.Hold) int {
		return cmp.Compare(a.Acquire.Complete.Time, b.Acquire.Complete.Time)
	})
	slices.SortStableFunc(returned, func(a, b *holding.Hold) int {
		return cmp.Compare(a.Release.Complete.Time, b.Release.Complete.Time)
	})
	var all last
	own := map[string]*holding.Hold{}
	for _, h := range asked {
		from := h.Acquire.Invoke.Time
		for len(answered) > 0 && answered[0].Acquire.Complete.Time < from {
			all.add(answered[0])
			answered = answered[1:]
		}
		for len(returned) > 0 && returned[0].Release.Complete.Time < from {
			if r := returned[0]; own[r.Owner] == nil || queued(r) > queued(own[r.Owner]) {
				own[r.Owner] = r
			}
			returned = returned[1:]
		}
		for _, before := range [...]*holding.Hold{all.but(h.Owner), own[h.Owner]} {
			if before != nil && queued(before) > queued(h) && !found[h] {
				found[h] = true
				f.add(overtaken(before, h))
			}
		}
	}
}

func overtaken(by, h *holding.Hold) Violation {
	return Violation{
		Kind: Overtaken, Lock: h.Lock, From: by.Start, Until: max(by.Start, h.Start),
		Events: events(by.Acquire.Complete.Index, h.Acquire.Complete.Index),
		Explanation: fmt.Sprintf("%s was granted %q at %s from place %d of the queue, %s before %s, which had place %d",
			holder(by), h.Lock, seconds(by.Start), queued(by), say.Span(h.Start-by.Start), holder(h), queued(h)),
	}
}
