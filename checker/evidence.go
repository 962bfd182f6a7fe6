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
