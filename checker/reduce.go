package checker

import (
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockchaos/lockchaos/history"
)

// isAnswer reports whether the service answered a release or an extend.
func isAnswer(op *history.Operation) bool {
	return (op.Invoke.Op == history.Release || op.Invoke.Op == history.Extend) && !op.Unknown()
}

// A proof is when an operation's grant was proven at the latest; 0 if it was
// not.
type proof []time.Duration

// proven are the proofs of all acquires, and whether each account was ever
// granted something.
func (ev *evidence) proven() (proof, []bool) {
	if ev.proofs == nil {
		holdings := ev.holdings()
		ev.proofs, ev.granted = make(proof, len(holdings.Operations)), make([]bool, len(holdings.Accounts))
		ev.proving = make([]bool, len(holdings.Operations))
		for i := range holdings.Holds {
			h := &holdings.Holds[i]
			ev.proofs[h.Acquire.Ordinal()] = h.Proof.Complete.Time
			ev.proving[h.Proof.Ordinal()] = h.Proof.Ordinal() != h.Acquire.Ordinal()
			ev.granted[h.Account] = true
		}
	}
	return ev.proofs, ev.granted
}

// reduce makes requests of what can matter to the order of one lock, in order of
// their invokes. Owners whose account is unclear are left out: without them, a
// legal history stays legal.
//
// An acquire that failed, or whose outcome is unknown and that nothing proves,
// is optional and left out (but one by a holder may have cut its lease); so are
// the releases and extends of owners that were never granted the lock, unless
// they were confirmed. An unknown acquire that a later confirmation proves
// happened before that confirmation.
func reduce(ev *evidence, lock string) []*request {
	proofs, held := ev.proven()
	holdings, ops := ev.holdings(), ev.onLock(lock)
	promise, doubtful := holdings.Guarantees[lock], holdings.Doubtful(lock)
	store := make([]request, 0, len(ops))
	add := func(op *history.Operation, account int) {
		e := op.Invoke
		r := request{
			op: op, verb: e.Op, outcome: op.Complete.Type, owner: account + 1, again: promise.Reentrant || holdings.Accounts[account].Read,
			invoke: e.Time, until: op.Complete.Time, lease: holdings.Lease(op), proves: ev.proving[op.Ordinal()],
		}
		switch {
		case op.OK():
		case e.Op == history.Acquire && op.Unknown():
			at := proofs[op.Ordinal()]
			if at == 0 && (!held[account] || !r.again || r.lease == history.Never) {
				return
			}
			r.until = history.Never
			if at != 0 {
				r.outcome, r.until = history.OK, at
			}
		case e.Op == history.Acquire || !held[account]:
			return
		case op.Unknown():
			r.until = history.Never
		}
		store = append(store, r)
	}
	for _, op := range ops {
		if doubtful[op.Invoke.Owner] != "" {
			continue
		}
		one, more := holdings.AccountsOf(op)
		if one >= 0 {
			add(op, one)
		}
		for _, account := range more {
			add(op, int(account))
		}
	}
	requests := make([]*request, len(store))
	for i := range store {
		requests[i] = &store[i]
	}
	return requests
}

// operations is what porcupine judges.
func operations(requests []*request) []porcupine.Operation {
	ops := make([]porcupine.Operation, len(requests))
	for i, r := range requests {
		ops[i] = porcupine.Operation{
			ClientId: r.op.Invoke.Process, Input: r, Call: int64(r.invoke), Return: int64(r.until),
		}
	}
	return ops
}
