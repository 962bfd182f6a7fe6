package checker

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
)

// evidence is a history, or a window of one, with what several checkers derive
// from it, once.
type evidence struct {
	history *history.History
	from    int64                    // the first event that no earlier window had
	known   map[string]struct{}      // the locks of all windows
	aside   map[string]int           // how many holds of each owner go on that are not in this window
	missing map[string]time.Duration // when the last of the holds ended that are forgotten, of each semaphore

	room     *holding.Holdings // one that is not used any more; nil for none
	derived  *holding.Holdings
	locked   int             // how many locks are known
	several  int             // how many holds aside the owners of new holds had
	late     []*holding.Hold // confirmed so late that others are missing
	ordered  []string
	sweep    *sweepResult
	sweeping time.Duration          // how long it took
	byLock   [][]*history.Operation // by place of the lock in the holdings
	heldBy   [][]*holding.Hold
	places   map[string]int32 // of the locks
	proofs   proof
	proving  []bool             // by operation: whether it alone proves a grant
	accessed *bool              // whether a resource was used
	granted  []bool             // by account: whether it was ever granted something
	searched map[string]Verdict // of each lock that the search has judged

	undecided []*holding.Hold      // holds that a later window has to compare again
	waiting   []*history.Operation // uses that a later window has to judge
}

func newEvidence(h *history.History) *evidence { return &evidence{history: h} }

func (ev *evidence) holdings() *holding.Holdings {
	if ev.derived == nil {
		if ev.room == nil {
			ev.room = &holding.Holdings{}
		}
		holdings := holding.DeriveIn(ev.room, ev.history)
		ev.derived = holdings
		ev.places = make(map[string]int32, len(holdings.Locks))
		for i, name := range holdings.Locks {
			ev.places[name] = int32(i) //nolint:gosec // fewer than operations, which fit into memory
		}
		ev.byLock = grouped(holdings.Operations, len(holdings.Locks), holdings.Place)
		ev.heldBy = grouped(holdings.Holds, len(holdings.Locks), holdings.PlaceOf)
		if ev.known == nil {
			ev.known = map[string]struct{}{}
		}
		ev.ordered = make([]string, 0, len(ev.derived.Guarantees))
		for name := range ev.derived.Guarantees {
			ev.known[name] = struct{}{}
			ev.ordered = append(ev.ordered, name)
		}
		slices.Sort(ev.ordered)
		ev.locked = len(ev.known)
		ev.compare()
	}
	return ev.derived
}

// compare compares the holds with those of other windows.
func (ev *evidence) compare() {
	if len(ev.aside) == 0 && len(ev.missing) == 0 {
		return
	}
	for i := range ev.derived.Holds {
		h := &ev.derived.Holds[i]
		if ev.fresh(&h.Proof) {
			ev.several += ev.aside[h.Owner]
		}
		if len(h.Late) > 0 && isSemaphore(ev.derived.Guarantees[h.Lock].Kind) && slices.ContainsFunc(h.Late, func(s holding.LateSpan) bool {
			return ev.fresh(&s.By) && s.From < ev.missing[h.Lock]
		}) {
			ev.late = append(ev.late, h)
		}
	}
}

// derive finds what checkers share: then each may judge beside the others, and
// beside what follows.
func (ev *evidence) derive() {
	ev.holdings()
	ev.proven()
	began := time.Now()
	ev.sweepResult()
	ev.sweeping = time.Since(began)
	ev.accesses()
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
func (ev *evidence) clear(lock string) bool {
	holdings := ev.holdings()
	return holdings.Unclear[lock] == "" && holdings.Pending[lock] == ""
}

// end is the number of events until the end of the window.
func (ev *evidence) end() int64 {
	if n := len(ev.history.Events); n > 0 {
		return ev.history.Events[n-1].Index + 1
	}
	return 0
}

// events are those that no earlier window had: the last of the history.
func (ev *evidence) events() []history.Event {
	all := ev.history.Events
	at, _ := slices.BinarySearchFunc(all, ev.from, func(e history.Event, from int64) int { return cmp.Compare(e.Index, from) })
	return all[at:]
}

// fresh reports whether an operation was answered in this window, and has not
// been counted in an earlier one.
func (ev *evidence) fresh(op *history.Operation) bool { return op.Complete.Index >= ev.from }

// latest is the latest instant until which later events may show that a hold
// lasted for certain: its End where nothing can prolong it any more.
func (ev *evidence) latest(h *holding.Hold) time.Duration {
	a := &ev.holdings().Accounts[h.Account]
	if ev.history.Unfinished && !a.Settled && a.Hold >= 0 && h.Acquire.Invoke.Index >= a.Hold {
		return history.Never
	}
	return h.End
}

// perhapsInner reports whether what is under way decides if a grant began a hold, or
// was an inner grant of the one before.
func (ev *evidence) perhapsInner(h *holding.Hold) bool {
	return ev.history.Unfinished && h.Again && ev.holdings().Accounts[h.Account].Busy
}

// holds are the holds that were proven in this window, of locks of that kind.
func (ev *evidence) holds(of func(kind string) bool) int {
	n := 0
	holdings := ev.holdings()
	for i := range holdings.Holds {
		h := &holdings.Holds[i]
		if ev.fresh(&h.Proof) && of(holdings.Guarantees[h.Lock].Kind) {
			n++
		}
	}
	return n
}

// accesses reports whether a resource was used.
func (ev *evidence) accesses() bool {
	if ev.accessed == nil {
		sees := ev.sees(func(e *history.Event) bool { return e.Op == history.Access })
		ev.accessed = &sees
	}
	return *ev.accessed
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
