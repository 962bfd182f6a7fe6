package checker

import (
	"maps"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
)

// cover counts what the history, or its next window, met: by the names in
// package history.
func cover(ev *evidence, counts map[string]int) {
	for i := range ev.history.Events {
		e := &ev.history.Events[i]
		if e.Index < ev.from {
			continue
		}
		switch {
		case e.Op == history.Crash:
			counts[history.MetCrashes]++
		case e.Type == history.Info && e.Process >= 0:
			counts[history.MetUnknown]++
		case e.Op == history.Acquire && e.Type == history.Fail:
			counts[history.MetRefusals]++
		case (e.Op == history.Release || e.Op == history.Extend) && e.Type == history.Fail:
			counts[history.MetNotHeld]++
		case e.Op == history.Acquire && e.Type == history.OK && e.Queued != nil:
			counts[history.MetQueued]++
		case e.Op == history.Extend && e.Type == history.OK:
			counts[history.MetRenewals]++
		default:
		}
	}
	ops := ev.operations()
	for i := range ops {
		if op := &ops[i]; op.Invoke.Op == history.Access && op.Failed() && ev.fresh(op) && refusedStale(op) {
			counts[history.MetStale]++
		}
	}
	counts[history.MetContention] += contended(ev)
	if ev.several > 0 {
		counts[history.MetSeveral] += ev.several
	}
	coverHolds(ev, counts)
}

// refusedStale reports whether the resource refused an access because of its
// token.
func refusedStale(op *history.Operation) bool {
	return token(op) != 0 && op.Complete.Error != history.Abandoned
}

// The owners are forgotten that are done after so many holds, and from so many
// owners on: so few that they stay in the processor's cache.
const forgetEvery, forgetFrom = 4096, 128

// coverHolds counts what the holds of a history, or of its next window, show.
func coverHolds(ev *evidence, counts map[string]int) {
	book := ev.book()
	latest := make([]*holding.Hold, len(book.Locks))                         // of each lock: of those that began, the one that lasts longest
	owners, more := map[string]*holding.Hold{}, map[string][]*holding.Hold{} // what each holds, and more of it
	many := forgetFrom                                                       // owners; twice as many as there were when those were last forgotten that are done
	since := time.Duration(-1)
	if ev.from > 0 && len(ev.history.Events) > 0 {
		at, _ := slices.BinarySearchFunc(ev.history.Events, ev.from, func(e history.Event, index int64) int {
			return int(min(max(e.Index-index, -1), 1))
		})
		if at < len(ev.history.Events) {
			since = ev.history.Events[at].Time
		}
	}
	for i := range book.Holds {
		h := &book.Holds[i]
		latest := &latest[book.PlaceOf(h)]
		over := h.Ended == holding.EndExpired || h.Ended == holding.EndLost || len(h.Late) > 0
		if over && h.End >= since && h.End < ev.history.End() {
			counts[history.MetExpiries]++
		}
		if ev.fresh(&h.Proof) {
			if other := *latest; other != nil && other.Owner != h.Owner {
				switch {
				case other.End > h.Start:
					counts[history.MetShared]++
				case other.End > h.Acquire.Invoke.Time:
					counts[history.MetHandOvers]++
				}
			}
			count := func(mine *holding.Hold) {
				switch {
				case mine.End <= h.Start:
				case mine.Lock != h.Lock:
					counts[history.MetSeveral]++
				case mine.Mode == history.Write && h.Mode == history.Read:
					counts[history.MetDowngrades]++
				default:
					counts[history.MetReentries]++
				}
			}
			if one := owners[h.Owner]; one != nil {
				count(one)
			}
			for _, mine := range more[h.Owner] {
				count(mine)
			}
		}
		for j := range h.Extensions {
			if x := &h.Extensions[j]; x.Invoke.Op == history.Acquire && x.OK() && ev.fresh(x) {
				counts[history.MetReentries]++
			}
		}
		if other := *latest; other == nil || h.End >= other.End {
			*latest = h
		}
		gone := func(mine *holding.Hold) bool { return mine.End <= h.Start }
		if one := owners[h.Owner]; one == nil || gone(one) {
			owners[h.Owner] = h
		} else {
			more[h.Owner] = append(slices.DeleteFunc(more[h.Owner], gone), h)
		}
		if len(owners) >= many || i%forgetEvery == 0 {
			maps.DeleteFunc(owners, func(_ string, one *holding.Hold) bool { return gone(one) })
			maps.DeleteFunc(more, func(_ string, list []*holding.Hold) bool {
				return !slices.ContainsFunc(list, func(h *holding.Hold) bool { return !gone(h) })
			})
			many = max(forgetFrom, 2*len(owners))
		}
	}
}
