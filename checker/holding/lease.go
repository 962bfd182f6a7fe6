package holding

import (
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// A lease is how long an acquire or extend that was not refused is good.
type lease struct {
	certain  time.Duration // less drift
	validity time.Duration // as the holder was told
	lost     int64         // index of the lost that cut it, else -1
}

// lease is the lease that an operation gave.
func (a *ownerState) lease(op *Op) lease {
	l, cut := a.cutLeases[op]
	if !cut {
		l = lease{validity: history.Never, lost: -1}
		if expires := op.Expires(); expires > 0 {
			l.validity = expires
		}
	}
	l.certain = op.Ends
	return l
}

// computeLeases notes how long each acquire and extend of one owner is good that was
// answered ok, or may have been done.
func (a *ownerState) computeLeases(ops []*Op) {
	notices := false
	for _, e := range ops {
		if e.Verb == Lost {
			notices = true
			continue
		}
		if expires := e.Expires(); expires > 0 && !e.Failed() && e.Verb != Release {
			e.Ends = max(expires-a.Drift, 0)
		}
	}
	if !notices {
		return
	}
	a.cutLeases = map[*Op]lease{}
	for i, e := range ops {
		if e.Verb != Lost {
			continue
		}
		told := e.Invoke
		if op := noticed(ops, told); op != nil {
			if l := a.lease(op); l.lost < 0 && told.Time < l.validity {
				l.validity, l.lost = told.Time, told.Index
				a.cutLeases[op] = l
				op.Ends = min(op.Ends, told.Time)
			}
		}
		a.disillusion(ops[:i], told)
	}
}

// noticed is the operation that a notice of loss is about: of the acquires that were
// answered ok before it, and of the extends that were sent before it and answered ok,
// the last.
func noticed(ops []*Op, lost Stamp) (last *Op) {
	latest := int64(-1)
	for _, e := range ops {
		at := e.Complete.Index
		if e.Verb == Extend {
			at = e.Invoke.Index
		}
		if gives(e) && at < lost.Index && at > latest {
			last, latest = e, at
		}
	}
	return last
}

// gives reports whether an operation gave a lease for certain.
func gives(op *Op) bool { return op.OK() && (op.Verb == Acquire || op.Verb == Extend) }

// disillusion ends, with a notice, what the holder believed by the last answer
// before it: an extend that is under way was not heard of yet.
func (a *ownerState) disillusion(ops []*Op, lost Stamp) {
	for _, e := range slices.Backward(ops) {
		if gives(e) && e.Complete.Index <= lost.Index {
			l := a.lease(e)
			l.validity = min(l.validity, lost.Time)
			a.cutLeases[e] = l
			return
		}
	}
}
