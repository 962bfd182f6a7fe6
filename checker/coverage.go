package checker

import (
	"maps"
	"slices"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
)

// cover counts what the history met: by the names in
// package history.
func cover(ev *evidence, counts map[string]int) {
	for i := range ev.history.Events {
		switch e := &ev.history.Events[i]; {
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
		if op := &ops[i]; op.Invoke.Op == history.Access && op.Failed() && refusedStale(op) {
			counts[history.MetStale]++
		}
	}
	counts[history.MetContention] += contended(ev)
	coverHolds(ev, counts)
}

// refusedStale reports whether the resource refused an access because of its
// token.
func refusedStale(op *history.Operation) bool {
	return token(op) != 0 && op.Complete.Error != history.Abandoned
}

// What is ongoing are the holds that are not over.
type ongoing struct {
	few  []*holding.Hold            // while there are few
	many map[string][]*holding.Hold // by owner, else
	n    int                        // how many there are, or were when those were last forgotten that are over
}

// join calls each for those of the owner of h that go on when h begins, and adds h. The
// holds come in order of their Start.
func (o *ongoing) join(h *holding.Hold, each func(mine *holding.Hold)) {
	const few = 32
	over := func(mine *holding.Hold) bool { return mine.End <= h.Start }
	if o.many == nil {
		o.few = slices.DeleteFunc(o.few, over)
		for _, mine := range o.few {
			if mine.Owner == h.Owner {
				each(mine)
			}
		}
		if o.few = append(o.few, h); len(o.few) > few {
			o.many, o.n = map[string][]*holding.Hold{}, few
			for _, mine := range o.few {
				o.many[mine.Owner] = append(o.many[mine.Owner], mine)
			}
		}
		return
	}
	list := slices.DeleteFunc(o.many[h.Owner], over)
	for _, mine := range list {
		each(mine)
	}
	if o.many[h.Owner] = append(list, h); len(o.many) > 2*o.n {
		maps.DeleteFunc(o.many, func(_ string, list []*holding.Hold) bool {
			return !slices.ContainsFunc(list, func(h *holding.Hold) bool { return !over(h) })
		})
		o.n = max(few, len(o.many))
	}
}

// coverHolds counts what the holds of a history show.
func coverHolds(ev *evidence, counts map[string]int) {
	holdings := ev.holdings()
	latest := make([]*holding.Hold, len(holdings.Locks)) // of each lock: of those that began, the one that lasts longest
	var held ongoing
	for i := range holdings.Holds {
		h := &holdings.Holds[i]
		latest := &latest[holdings.PlaceOf(h)]
		over := h.Ended == holding.EndExpired || h.Ended == holding.EndLost || len(h.Late) > 0
		if over && h.End < ev.history.End() {
			counts[history.MetExpiries]++
		}
		if other := *latest; other != nil && other.Owner != h.Owner {
			switch {
			case other.End > h.Start:
				counts[history.MetShared]++
			case other.End > h.Acquire.Invoke.Time:
				counts[history.MetHandOvers]++
			}
		}
		held.join(h, func(mine *holding.Hold) {
			switch {
			case mine.Lock != h.Lock:
				counts[history.MetSeveral]++
			case mine.Mode == history.Write && h.Mode == history.Read:
				counts[history.MetDowngrades]++
			default:
				counts[history.MetReentries]++
			}
		})
		for j := range h.Extensions {
			if x := &h.Extensions[j]; x.Invoke.Op == history.Acquire && x.OK() {
				counts[history.MetReentries]++
			}
		}
		if other := *latest; other == nil || h.End >= other.End {
			*latest = h
		}
	}
}
