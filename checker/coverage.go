package checker

import (
	"cmp"
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
	grants := make([]int32, ev.Names()) // of each owner of a lock
	locks := make([]*holding.Lock, ev.Names())
	more := map[int32][]*holding.Grant{} // the holds of the owners of several locks
	for _, l := range ev.Locks() {
		add(history.MetContention, contended(l))
		for _, h := range l.Holds {
			grants[h.Owner()]++
			if before := locks[h.Owner()]; before != nil && before != l {
				more[h.Owner()] = nil
			}
			locks[h.Owner()] = l
		}
		coverHolds(l, ev.End, grants, add)
		for _, h := range l.Holds {
			grants[h.Owner()] = 0
		}
	}
	for _, l := range ev.Locks() {
		for _, h := range l.Holds {
			if list, is := more[h.Owner()]; is {
				more[h.Owner()] = append(list, h)
			}
		}
	}
	for _, list := range more {
		slices.SortStableFunc(list, func(a, b *holding.Grant) int { return cmp.Compare(a.Start, b.Start) })
		var held []*holding.Grant
		for _, h := range list {
			held = slices.DeleteFunc(held, func(mine *holding.Grant) bool { return mine.End <= h.Start })
			add(history.MetSeveral, len(filter(held, func(mine *holding.Grant) bool { return mine.Acquire.Lock != h.Acquire.Lock })))
			held = append(held, h)
		}
	}
	return counts
}

// coverHolds counts what the holds of a lock show.
func coverHolds(l *holding.Lock, end time.Duration, grants []int32, add func(string, int)) {
	var last *holding.Grant              // of those that began, the one that lasts longest
	held := map[int32][]*holding.Grant{} // those that go on, by owner
	for _, h := range l.Holds {
		if over := h.Ended == holding.Expired || h.Ended == holding.ToldLost || len(h.Late) > 0; over && h.End < end {
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
		if grants[h.Owner()] > 1 {
			mine := slices.DeleteFunc(held[h.Owner()], func(mine *holding.Grant) bool { return mine.End <= h.Start })
			for _, m := range mine {
				if m.Mode() == holding.Write && h.Reads() {
					add(history.MetDowngrades, 1)
				} else {
					add(history.MetReentries, 1)
				}
			}
			held[h.Owner()] = append(mine, h)
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
