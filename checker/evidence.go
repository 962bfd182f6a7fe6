package checker

import (
	"maps"
	"slices"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
)

// evidence is a history with what several checkers derive from it, once.
type evidence struct {
	history *history.History

	derived  *holding.Holdings
	ordered  []string
	sweep    *sweepResult
	byLock   [][]*history.Operation // by place of the lock in the holdings
	heldBy   [][]*holding.Hold
	places   map[string]int32 // of the locks
	proofs   proof
	proving  []bool             // by operation: whether it alone proves a grant
	granted  []bool             // by account: whether it was ever granted something
	searched map[string]Verdict // of each lock that the search has judged
}

func newEvidence(h *history.History) *evidence { return &evidence{history: h} }

func (ev *evidence) holdings() *holding.Holdings {
	if ev.derived == nil {
		holdings := holding.Derive(ev.history)
		ev.derived = holdings
		ev.places = make(map[string]int32, len(holdings.Locks))
		for i, name := range holdings.Locks {
			ev.places[name] = int32(i) //nolint:gosec // fewer than operations, which fit into memory
		}
		ev.byLock = grouped(holdings.Operations, len(holdings.Locks), holdings.Place)
		ev.heldBy = grouped(holdings.Holds, len(holdings.Locks), holdings.PlaceOf)
		ev.ordered = slices.Sorted(maps.Keys(holdings.Guarantees))
	}
	return ev.derived
}

// derive finds what checkers share, so that each may judge beside the others.
func (ev *evidence) derive() {
	ev.holdings()
	ev.proven()
	ev.sweepResult()
}

func (ev *evidence) operations() []history.Operation { return ev.holdings().Operations }

// onLock are the acquires, releases and extends of a lock.
func (ev *evidence) onLock(lock string) []*history.Operation {
	ev.holdings()
	place, known := ev.places[lock]
	if !known {
		return nil
	}
	return ev.byLock[place]
}

// held are the holds of each lock, in order of their Start, by its place in the
// holdings.
func (ev *evidence) held() [][]*holding.Hold {
	ev.holdings()
	return ev.heldBy
}

// heldOf are the holds of one lock, in order of their Start.
func (ev *evidence) heldOf(lock string) []*holding.Hold {
	ev.holdings()
	if place, known := ev.places[lock]; known {
		return ev.heldBy[place]
	}
	return nil
}

// sortStable is [slices.SortStableFunc] for a list that is most often in order.
func sortStable[T any](list []T, compare func(a, b T) int) {
	if !slices.IsSortedFunc(list, compare) {
		slices.SortStableFunc(list, compare)
	}
}

// grouped are the elements of a list by their places, of which there are so many,
// in their order. Those with a negative place are left out.
func grouped[T any](list []T, places int, place func(*T) int32) [][]*T {
	ends := make([]int32, places)
	for i := range list {
		if at := place(&list[i]); at >= 0 {
			ends[at]++
		}
	}
	sum := int32(0)
	for i, n := range ends {
		ends[i] = sum
		sum += n
	}
	all := make([]*T, sum)
	for i := range list {
		if at := place(&list[i]); at >= 0 {
			all[ends[at]] = &list[i]
			ends[at]++
		}
	}
	groups := make([][]*T, places)
	from := int32(0)
	for i, end := range ends {
		groups[i] = all[from:end:end]
		from = end
	}
	return groups
}

// locks are the names of all locks, in order.
func (ev *evidence) locks() []string {
	ev.holdings()
	return ev.ordered
}

// clear reports whether the account of the lock is complete, so that both
// engines are exact.
func (ev *evidence) clear(lock string) bool { return ev.holdings().Unclear[lock] == "" }

// holds are how many holds there are of locks of that kind.
func (ev *evidence) holds(of func(kind string) bool) int {
	n := 0
	holdings := ev.holdings()
	for i := range holdings.Holds {
		if of(holdings.Guarantees[holdings.Holds[i].Lock].Kind) {
			n++
		}
	}
	return n
}

// sees reports whether some event is what it is asked about.
func (ev *evidence) sees(is func(*history.Event) bool) bool {
	for i := range ev.history.Events {
		if is(&ev.history.Events[i]) {
			return true
		}
	}
	return false
}

// has reports whether some lock is of that kind.
func (ev *evidence) has(of func(kind string) bool) bool {
	for _, p := range ev.holdings().Guarantees {
		if of(p.Kind) {
			return true
		}
	}
	return false
}

func isSemaphore(kind string) bool { return kind == history.KindSemaphore }

func isExclusive(kind string) bool { return kind != history.KindSemaphore }
