package checker

import (
	"cmp"
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
	grants := map[int32]int{} // of permits, by account: how often each is confirmed later
	add := func(op *holding.Op, account int32) {
		r := request{
			op: op, until: op.Complete.Time, done: op.OK(), account: account, again: l.Reentrant || l.Accounts[account], proves: proving[op],
		}
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
		if l.Semaphore() && r.grants() {
			grants[account] = len(requests)
		} else if of, is := grants[account]; is && r.done {
			requests[of].pinned++
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
	return requests
}

// likely reports whether one order of the requests, the likeliest, explains them: a yes is a
// proof by the same rules that the search uses, and takes no search. In that order grants come
// as late as they can, and whatever ends a hold as early as it can. Each request has its turn within
// its interval, so that the order respects which were answered before others were invoked.
func likely(l *holding.Lock, requests []request) bool {
	type turn struct {
		at   time.Duration
		asks int32 // which of the requests it is
		rank uint8 // at the same instant
	}
	turns := make([]turn, len(requests))
	for i := range requests {
		r := &requests[i]
		t := turn{at: r.until, rank: 3, asks: int32(i)} //nolint:gosec // fewer than events, which fit into memory
		switch {
		case r.until == history.Never, r.done && !r.grants() && !r.proves:
			t.at, t.rank = r.op.Invoke.Time, 0
		case r.grants() && r.op.Unknown():
			t.rank = 1 // right before what proves it
		case r.done && !r.grants():
			t.rank = 2
		}
		turns[i] = t
	}
	slices.SortStableFunc(turns, func(a, b turn) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.rank, b.rank)) })
	s := newHolders(l)
	return !slices.ContainsFunc(turns, func(t turn) bool { return !s.step(&requests[t.asks]) })
}
