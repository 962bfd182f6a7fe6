package checker

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
)

// requestsOf makes requests of what can matter to the order of one lock, in order of
// their invokes. Owners whose account is unclear are left out: without them, a
// legal history stays legal.
//
// An acquire that failed, or whose outcome is unknown and that nothing proves,
// is optional and left out (but one by a holder may have cut its lease); so are
// the releases and extends of owners that were never granted the lock, unless
// they were confirmed. An unknown acquire that a later confirmation proves
// happened before that confirmation.
func requestsOf(l *holding.Lock) []request {
	granted := make([]bool, len(l.Accounts))
	proofs, proving := map[*holding.Op]time.Duration{}, map[*holding.Op]bool{}
	for _, h := range l.Holds {
		granted[h.Account] = true
		if h.Proof != h.Acquire {
			proofs[h.Acquire], proving[h.Proof] = h.Proof.Complete.Time, true
		}
	}
	requests := make([]request, 0, len(l.Ops))
	add := func(op *holding.Op, account int32) {
		r := request{
			op: op, until: op.Complete.Time, done: op.OK(), account: account, again: l.Reentrant || l.Accounts[account],
		}
		r.proves = proving[op]
		switch {
		case op.OK():
		case op.Verb == holding.Acquire && op.Unknown():
			at, proven := proofs[op]
			if !proven && (!granted[account] || !r.again || r.op.Ends == history.Never) {
				return
			}
			if r.done, r.until = proven, history.Never; proven {
				r.until = at
			}
		case op.Verb == holding.Acquire || !granted[account]:
			return
		case op.Unknown():
			r.until = history.Never
		}
		requests = append(requests, r)
	}
	for _, op := range l.Ops {
		if l.Doubtful[op.Owner] != "" {
			continue
		}
		if op.Account >= 0 {
			add(op, op.Account)
		}
		for _, account := range l.Also[op] {
			add(op, account)
		}
	}
	if l.Semaphore() {
		pin(requests)
	}
	return requests
}

// pin notes in each grant how often the hold is confirmed later.
func pin(requests []request) {
	grants := map[int32]*request{}
	for i := range requests {
		switch r := &requests[i]; {
		case !r.done:
		case r.grants():
			grants[r.account] = r
			r.pinned = 0
		default:
			if g := grants[r.account]; g != nil {
				g.pinned++
			}
		}
	}
}

// likely reports whether one order of the requests, the likeliest, explains them: a yes is a
// proof by the same rules that the search uses, and takes no search. In that order grants come
// as late as they can, and whatever ends a hold as early as it can.
func likely(l *holding.Lock, requests []request) bool {
	s := holders{capacity: capacityOf(l)}
	for r := range inTurn(requests) {
		if !s.step(r) {
			return false
		}
	}
	return true
}

// capacityOf is the capacity of a semaphore; 0 of other locks.
func capacityOf(l *holding.Lock) int {
	if !l.Semaphore() {
		return 0
	}
	return l.Capacity
}

// A turn is when a request takes effect in that order.
type turn struct {
	at   time.Duration
	asks int32 // which of the requests it is
	rank uint8 // at the same instant
}

// inTurn is that order. Each has its turn within its interval, so that the order
// respects which were answered before others were invoked.
func inTurn(requests []request) iter.Seq[*request] {
	// Those that have their turn when they are invoked are in order.
	late, early := make([]turn, 0, len(requests)/2+1), make([]turn, 0, len(requests)/2)
	for i := range requests {
		r := &requests[i]
		t := turn{at: r.until, rank: 3, asks: int32(i)} //nolint:gosec // fewer than events, which fit into memory
		switch {
		case r.until == history.Never, r.done && !r.grants() && !r.proves:
			t.at, t.rank = r.op.Invoke.Time, 0
			early = append(early, t)
			continue
		case r.grants() && r.op.Unknown():
			t.rank = 1 // right before what proves it
		case r.done && !r.grants():
			t.rank = 2
		}
		late = append(late, t)
	}
	slices.SortStableFunc(late, func(a, b turn) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.rank, b.rank)) })
	return func(yield func(*request) bool) {
		early := early
		for _, t := range append(late, turn{at: history.Never, asks: -1}) {
			for ; len(early) > 0 && early[0].at <= t.at; early = early[1:] {
				if !yield(&requests[early[0].asks]) {
					return
				}
			}
			if t.asks >= 0 && !yield(&requests[t.asks]) {
				return
			}
		}
	}
}
