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
	crashed := len(a.record.Crashes) > 0
	c := sharers{record: a.record, reentrant: a.reentrant}
	notices := false
	for _, e := range ops {
		if e.Verb == Lost {
			notices = true
			continue
		}
		if crashed {
			c.take(e)
		}
		if e.Failed() || e.Verb == Release {
			continue
		}
		if expires := e.Expires(); expires > 0 {
			e.Ends = max(expires-a.Drift, 0)
		} else if crashed { // its holder is not told of a crash
			e.Ends = c.crash(e.Invoke.Time)
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

// The sharers are the processes that may have part in the hold of an owner: those
// that sent an acquire that belongs to it, and was not refused. Where it is
// not known which of them renews it, the first that crashes may end it.
type sharers struct {
	record    *Record
	reentrant bool
	granted   []int // of the acquires that were answered ok since the hold began
	perhaps   []int // of those with an unknown outcome, at any time
	count     int   // of the hold, at least
	answered  int64 // the last event that granted it
}

func (c *sharers) take(op *Op) {
	switch {
	case op.Failed():
		if op.Verb != Acquire && op.Invoke.Index > c.answered { // nothing is left of what was granted
			c.granted, c.count = c.granted[:0], 0
		}
	case op.Unknown():
		if op.Verb == Acquire {
			c.perhaps = append(c.perhaps, op.Process)
		}
	case op.Verb == Acquire:
		if c.count == 0 || !c.reentrant {
			c.begin()
		}
		c.granted, c.count, c.answered = append(c.granted, op.Process), c.count+1, op.Complete.Index
	default:
		if c.count == 0 && len(c.perhaps) == 1 { // it is what was granted
			c.granted, c.perhaps, c.count, c.answered = append(c.granted, c.perhaps[0]), nil, 1, op.Complete.Index
		}
		if op.Verb == Release {
			if c.count--; c.count <= 0 {
				c.begin()
			}
		}
	}
}

// begin begins the count of a hold, without those of another, unless an inner
// acquire with an unknown outcome may keep that alive.
func (c *sharers) begin() {
	c.count = 0
	if !c.reentrant || len(c.perhaps) == 0 {
		c.granted = c.granted[:0]
	}
}

// crash is when the first of them crashed from an instant on.
func (c *sharers) crash(from time.Duration) time.Duration {
	first, all := history.Never, c.granted
	if c.reentrant || c.count == 0 { // else another acquire of its owner has no part in it
		all = append(slices.Clip(all), c.perhaps...)
	}
	for _, process := range all {
		if at, crashed := c.record.crash(process, from); crashed {
			first = min(first, at)
		}
	}
	return first
}
