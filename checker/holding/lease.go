package holding

import (
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

// cutLease ends what the holder was told of a lease.
func (a *ownerState) cutLease(op *Op, at time.Duration, lost int64) {
	l := a.lease(op)
	l.validity, l.lost = min(l.validity, at), lost
	if a.cutLeases == nil {
		a.cutLeases = map[*Op]lease{}
	}
	a.cutLeases[op] = l
}

// hearNotices ends the leases of which a notice tells that they are lost.
func (a *ownerState) hearNotices(ops []*Op) {
	for i, told := range ops {
		if told.Verb != Lost {
			continue
		}
		// The notice is about what was asked last, of the acquires that were answered ok before it and the extends that were
		// sent before it and answered ok. What its holder believed was the last answer: it had not heard of an extend that was under way.
		var asked, heard *Op
		for _, op := range ops[:i] {
			if !gives(op) {
				continue
			}
			if asked = op; op.Complete.Index <= told.Invoke.Index && (heard == nil || op.Complete.Index > heard.Complete.Index) {
				heard = op
			}
		}
		if asked == nil {
			continue
		}
		if l := a.lease(asked); l.lost < 0 && told.Invoke.Time < l.validity {
			asked.Ends = min(asked.Ends, told.Invoke.Time)
			a.cutLease(asked, told.Invoke.Time, told.Invoke.Index)
		}
		if heard != nil {
			a.cutLease(heard, told.Invoke.Time, a.lease(heard).lost)
		}
	}
}

// gives reports whether an operation gave a lease for certain.
func gives(op *Op) bool { return op.OK() && (op.Verb == Acquire || op.Verb == Extend) }
