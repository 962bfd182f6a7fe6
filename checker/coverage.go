package checker

import (
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
)

// cover counts what the history met: by the names in package history.
func cover(ev *evidence) map[string]int {
	counts := map[string]int{history.MetContention: 0}
	add := func(name string, n int) {
		if n > 0 {
			counts[name] += n
		}
	}
	for _, crashes := range ev.Crashes {
		add(history.MetCrashes, len(crashes))
	}
	for op := range ev.Ops() {
		switch {
		case op.Unknown() && !op.Open():
			counts[history.MetUnknown]++
		case op.Verb == holding.Access && op.Failed() && op.Token != 0 && !op.Abandoned(): // because of its token
			counts[history.MetStale]++
		case op.Verb == holding.Acquire && op.Failed():
			counts[history.MetRefusals]++
		case op.Verb != holding.Access && op.Failed():
			counts[history.MetNotHeld]++
		case op.Verb == holding.Acquire && op.OK() && op.Queued >= 0:
			counts[history.MetQueued]++
		case op.Verb == holding.Extend && op.OK():
			counts[history.MetRenewals]++
		}
	}
	for _, l := range ev.Locks() {
		add(history.MetContention, contended(l))
		coverHolds(l, ev.End, add)
	}
	all := ev.Holds()
	times := make([]int32, ev.Names()) // that each owner held something: without this, the judge of a million owners takes an eighth longer
	for _, h := range all {
		times[h.Owner()]++
	}
	held := map[int32][]*holding.Grant{} // by owner
	for _, h := range all {
		if times[h.Owner()] == 1 {
			continue
		}
		before := slices.DeleteFunc(held[h.Owner()], func(before *holding.Grant) bool { return before.End <= h.Start })
		held[h.Owner()] = append(before, h)
		for _, mine := range before {
			switch {
			case mine.Acquire.Lock != h.Acquire.Lock:
				add(history.MetSeveral, 1)
			case mine.Mode() == holding.Write && h.Reads():
				add(history.MetDowngrades, 1)
			default:
				add(history.MetReentries, 1)
			}
		}
	}
	return counts
}

// coverHolds counts what the holds of a lock show.
func coverHolds(l *holding.Lock, end time.Duration, add func(string, int)) {
	var last *holding.Grant // of those that began, the one that lasts longest
	for _, h := range l.Holds {
		if over := h.Ended == holding.EndExpired || h.Ended == holding.EndLost || len(h.Late) > 0; over && h.End < end {
			add(history.MetExpiries, 1)
		}
		if last != nil && last.Owner() != h.Owner() {
			switch {
			case last.End > h.Start:
				add(history.MetShared, 1)
			case last.End > h.Acquire.Invoke.Time:
				add(history.MetHandOvers, 1)
			}
		}
		for _, x := range h.Extensions {
			if x.Verb == holding.Acquire && x.OK() {
				add(history.MetReentries, 1)
			}
		}
		if last == nil || h.End >= last.End {
			last = h
		}
	}
}
