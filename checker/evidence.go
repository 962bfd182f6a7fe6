package checker

import (
	"slices"
	"sync"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
)

// evidence is a record with what several checkers derive from it, once.
type evidence struct {
	*holding.Record

	sweep    func() map[*holding.Lock]*lockSweep // of all locks, once
	searched map[*holding.Lock]Verdict           // of each lock that the search has judged
}

// newEvidence derives who held what.
func newEvidence(r *holding.Record) *evidence {
	r.Derive()
	return &evidence{Record: r, sweep: sync.OnceValue(func() map[*holding.Lock]*lockSweep { return sweep(r) })}
}

func evidenceOf(h *history.History) *evidence { return newEvidence(holding.RecordOf(h)) }

// any reports whether something is so of a lock.
func (ev *evidence) any(is func(*holding.Lock) bool) bool {
	return slices.ContainsFunc(ev.Locks(), is)
}

// anyOp reports whether something is so of an operation.
func (ev *evidence) anyOp(is func(*holding.Op) bool) bool {
	for op := range ev.Ops() {
		if is(op) {
			return true
		}
	}
	return false
}

// unclear says of which locks of a kind the account of an owner can't be told.
func (ev *evidence) unclear(f *findings, of func(*holding.Lock) bool) {
	for _, l := range ev.Locks() {
		if l.Unclear != "" && of(l) {
			f.doubt("lock %q: %s", l.Name, l.Unclear)
		}
	}
}

func isSemaphore(l *holding.Lock) bool { return l.Semaphore() }

func isExclusive(l *holding.Lock) bool { return !l.Semaphore() }

func anyLock(*holding.Lock) bool { return true }
