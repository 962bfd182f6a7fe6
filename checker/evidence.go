package checker

import (
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

	derived  *holding.Book
	ordered  []string
	sweep    *swept
	sweeping time.Duration // how long it took
	byLock   map[string][]history.Operation
	proofs   proof
	proving  []bool             // by operation: whether it alone proves a grant
	held     []bool             // by account: whether it was ever granted something
	searched map[string]Verdict // of each lock that the search has judged

	undecided []*holding.Hold // holds that a later window has to compare again
}

func newEvidence(h *history.History) *evidence { return &evidence{history: h} }

func (ev *evidence) book() *holding.Book {
	if ev.derived == nil {
		ev.derived = holding.Derive(ev.history)
		if ev.known == nil {
			ev.known = map[string]struct{}{}
		}
		for name := range ev.derived.Promises {
			ev.known[name] = struct{}{}
			ev.ordered = append(ev.ordered, name)
		}
		slices.Sort(ev.ordered)
	}
	return ev.derived
}

func (ev *evidence) operations() []history.Operation { return ev.book().Operations }

// onLock are the operations of each lock.
func (ev *evidence) onLock(lock string) []history.Operation {
	if ev.byLock == nil {
		ev.byLock = map[string][]history.Operation{}
		if len(ev.locks()) == 1 {
			ev.byLock[ev.locks()[0]] = ev.operations()
			return ev.byLock[lock]
		}
		for _, op := range ev.operations() {
			if op.Invoke.Lock != "" {
				ev.byLock[op.Invoke.Lock] = append(ev.byLock[op.Invoke.Lock], op)
			}
		}
	}
	return ev.byLock[lock]
}

// locks are the names of all locks, in order.
func (ev *evidence) locks() []string {
	ev.book()
	return ev.ordered
}

// clear reports whether the account of the lock is complete, so that both
// engines are exact.
func (ev *evidence) clear(lock string) bool {
	book := ev.book()
	return book.Unclear[lock] == "" && book.Pending[lock] == ""
}

// end is the number of events until the end of the window.
func (ev *evidence) end() int64 {
	if n := len(ev.history.Events); n > 0 {
		return ev.history.Events[n-1].Index + 1
	}
	return 0
}

// fresh reports whether an operation was answered in this window, and has not
// been counted in an earlier one.
func (ev *evidence) fresh(op *history.Operation) bool { return op.Complete.Index >= ev.from }

// latest is the latest instant until which later events may show that a hold
// lasted for certain: its End where nothing can prolong it any more.
func (ev *evidence) latest(h *holding.Hold) time.Duration {
	a := &ev.book().Accounts[h.Account]
	if ev.history.Unfinished && !a.Settled && a.Hold >= 0 && h.Acquire.Invoke.Index >= a.Hold {
		return history.Never
	}
	return h.End
}

// holds are the holds that were proven in this window, of locks of that kind.
func (ev *evidence) holds(of func(kind string) bool) int {
	n := 0
	book := ev.book()
	for i := range book.Holds {
		h := &book.Holds[i]
		if ev.fresh(&h.Proof) && of(book.Promises[h.Lock].Kind) {
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
	for _, p := range ev.book().Promises {
		if of(p.Kind) {
			return true
		}
	}
	return false
}

func isSemaphore(kind string) bool { return kind == history.KindSemaphore }

func isExclusive(kind string) bool { return kind != history.KindSemaphore }
