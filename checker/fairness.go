package checker

import (
	"context"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// Fairness is the checker of "fairness": a lock that was declared fair grants
// requests in the order in which it queued them, by the Queued numbers that the service gave. A request that was granted
// after one that was queued later was overtaken.
//
// That a grant came before another is proven where it was answered before the other was asked for; and where both holds
// have a certain extent and exclude each other. An inner grant, an upgrade or a second permit does not wait for what its
// owner has itself: grants of one owner are compared only if the first was given back before the second was asked for.
func Fairness() Checker {
	return Checker{
		name: "fairness", engine: "interval sweep",
		of: func(l *holding.Lock) bool {
			return l.Fair && slices.ContainsFunc(l.Ops, func(op *holding.Op) bool { return op.Verb == holding.Acquire && op.OK() && op.Queued >= 0 })
		},
		judge: func(_ context.Context, _ *evidence, locks []*holding.Lock, f *findings) {
			f.unclear(locks)
			for _, l := range locks {
				q := queue{Lock: l, findings: f, holds: holding.Filter(l.Holds, func(h *holding.Grant) bool { return queued(h) >= 0 }), found: map[*holding.Grant]bool{}}
				f.counts["grants"] += len(q.holds)
				if !q.Semaphore() {
					q.byExtent()
				}
				q.byAnswer()
			}
			f.valid = say.Count(f.counts["grants"], "grant") + " came in the order in which they were queued"
		},
	}
}

// A queue is the grants of one lock that have a place in its queue, in order of their starts.
type queue struct {
	*holding.Lock
	*findings
	holds []*holding.Grant
	found map[*holding.Grant]bool // those that overtook
}

// queued is the place in the queue that a hold was granted from; -1 if it is not
// known.
func queued(h *holding.Grant) int64 { return h.Acquire.Queued }

// A lastQueued is which of some grants was queued last, and which of those of other owners.
type lastQueued struct{ best[*holding.Grant] }

func (l *lastQueued) take(h *holding.Grant) {
	l.add(h, func(a, b *holding.Grant) bool { return queued(a) > queued(b) }, func(a, b *holding.Grant) bool { return a.Owner() == b.Owner() })
}

// overtook takes note that a grant came after the last of some others, if that was queued later and is of another owner.
func (q *queue) overtook(before *lastQueued, h *holding.Grant) {
	if by, is := before.but(func(b *holding.Grant) bool { return b.Owner() != h.Owner() }); is {
		q.compare(by, h)
	}
}

func (q *queue) compare(by, h *holding.Grant) {
	if queued(by) <= queued(h) || q.found[h] {
		return
	}
	q.found[h] = true
	q.add(violation(Overtaken, q.Name, holding.Span{From: by.Start, Until: max(by.Start, h.Start)}, events(by.Acquire.Complete.Index, h.Acquire.Complete.Index),
		"%s was granted %q at %s from place %d of the queue, %s before %s, which had place %d",
		holder(q.Lock, by), q.Name, seconds(by.Start), queued(by), say.Span(h.Start-by.Start), holder(q.Lock, h), queued(h)))
}

// asked is when a grant was asked for.
func asked(h *holding.Grant) time.Duration { return h.Acquire.Invoke.Time }

// byExtent finds the grants that came after one that was queued later, by holds
// that exclude each other, in order of their starts.
func (q *queue) byExtent() {
	var all, writes lastQueued
	start := func(h *holding.Grant) time.Duration { return h.Start }
	inTurn(holding.Filter(q.holds, (*holding.Grant).Certain), start, start, func(h *holding.Grant) {
		if all.take(h); !h.Reads() {
			writes.take(h)
		}
	}, func(h *holding.Grant) {
		if h.Reads() {
			q.overtook(&writes, h)
		} else {
			q.overtook(&all, h)
		}
	})
}

// byAnswer finds the others that were asked for after one that was queued later
// had been answered; of the same owner, given back.
func (q *queue) byAnswer() {
	var all lastQueued
	answered := func(h *holding.Grant) time.Duration { return h.Acquire.Complete.Time }
	inTurn(q.holds, asked, answered, all.take, func(h *holding.Grant) { q.overtook(&all, h) })
	own := map[int32]*holding.Grant{} // of each owner, of what it gave back
	returned := func(h *holding.Grant) time.Duration {
		if h.Ended == holding.EndReleased && h.Release.OK() {
			return h.Release.Complete.Time
		}
		return history.Never
	}
	inTurn(q.holds, asked, returned, func(h *holding.Grant) {
		if own[h.Owner()] == nil || queued(h) > queued(own[h.Owner()]) {
			own[h.Owner()] = h
		}
	}, func(h *holding.Grant) {
		if before := own[h.Owner()]; before != nil {
			q.compare(before, h)
		}
	})
}
