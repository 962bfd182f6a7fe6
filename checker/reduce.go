package checker

import (
	"cmp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockchaos/lockchaos/workload/history"
)

// isAnswer reports whether the service answered a release or an extend.
func isAnswer(op *history.Operation) bool {
	return (op.Invoke.Op == history.Release || op.Invoke.Op == history.Extend) && !op.Unknown()
}

// reduce makes requests of what can matter to the order of one lock.
//
// An acquire that failed, or whose outcome is unknown and that nothing proves,
// is optional and left out (but one by a holder may have cut its lease); so are the releases and extends of owners that
// were never granted the lock, unless they were confirmed. An unknown acquire
// that a later confirmation proves happened before that confirmation.
func reduce(book *history.Book, lock string, ops []history.Operation) []*request {
	proven := map[int64]time.Duration{} // invoke of an acquire: when it was granted at the latest
	owners := map[string]int{}
	for i := range book.Holds {
		h := &book.Holds[i]
		if h.Lock != lock {
			continue
		}
		proven[h.Acquire.Invoke.Index] = h.Proof.Complete.Time
		if _, ok := owners[h.Owner]; !ok {
			owners[h.Owner] = len(owners) + 1
		}
	}
	promise := book.Promises[lock]
	var requests []*request
	for i := range ops {
		op := &ops[i]
		e := &op.Invoke
		if e.Lock != lock || e.Op != history.Acquire && e.Op != history.Release && e.Op != history.Extend {
			continue
		}
		r := &request{
			op: op, verb: e.Op, outcome: op.Complete.Type, name: e.Owner, again: promise.Reentrant,
			invoke: e.Time, until: op.Complete.Time,
		}
		_, held := owners[e.Owner]
		switch {
		case op.OK():
			r.lease = book.Lease(op)
		case e.Op == history.Acquire && op.Unknown():
			at, ok := proven[e.Index]
			if !ok && (!held || !promise.Reentrant || e.Lease == 0) {
				continue
			}
			r.until, r.lease = history.Never, history.Never
			if e.Lease > 0 {
				r.lease = e.Time + e.Lease - promise.Drift
			}
			if ok {
				r.outcome, r.until = history.OK, at
			}
		case e.Op == history.Acquire || !held:
			continue
		case op.Unknown():
			r.until, r.lease = history.Never, history.Never
			if e.Op == history.Extend && e.Lease > 0 {
				r.lease = e.Time + e.Lease - promise.Drift
			}
		}
		if !held {
			owners[e.Owner] = len(owners) + 1
		}
		r.owner = owners[e.Owner]
		requests = append(requests, r)
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

// A part is what is searched as one: requests, and the state before them.
type part struct {
	requests []*request
	from     state
}

// segments cuts the requests of a lock that the sweep found legal into parts
// that are judged one after another. First it tightens: the true extent of a
// hold contains its certain one, so that holds with a certain extent follow
// one another in its order. A grant comes no earlier than the earliest end of
// the hold before, and whatever was confirmed to a holder took effect before
// the next one was answered.
//
// Then it cuts where nothing is in flight and the state is known: the lock was
// released, or it is certainly held, once and with a known lease. An owner whose
// outcome is unknown or that has not released may still be in the way, but not
// if it did nothing later: then it is as good as gone.
func segments(book *history.Book, lock string, requests []*request) []part {
	var holds []*history.Hold
	for i := range book.Holds {
		if h := &book.Holds[i]; h.Lock == lock && h.End > h.Start {
			holds = append(holds, h)
		}
	}
	c := cutter{
		holds: holds, last: map[int]*request{}, alive: map[int]bool{}, owners: map[int]*record{},
	}
	tightened := tighten(holds, requests)
	for _, r := range tightened {
		c.last[r.owner] = r
	}
	var parts []part
	from, before := 0, state{}
	for i, r := range tightened {
		if i > from && r.invoke > c.latest {
			if now, known := c.known(r.invoke); known {
				parts = append(parts, part{requests: tightened[from:i], from: before})
				from, before = i, now
			}
		}
		c.take(r)
	}
	return append(parts, part{requests: tightened[from:], from: before})
}

// A record is what a cutter knows of one owner.
type record struct {
	name     string
	open     int           // its grants less its releases
	blind    bool          // an outcome, or the lease, is unknown
	lease    time.Duration // of its last acquire or extend
	extended time.Duration // when that was answered
}

// A cutter goes through the requests of a lock in order of their invokes.
type cutter struct {
	holds  []*history.Hold
	next   int              // the first hold that begins later
	latest time.Duration    // when the last known operation so far was answered
	last   map[int]*request // the last request of each owner
	owners map[int]*record  // what is known of each owner
	alive  map[int]bool     // owners that may hold, and will do more
}

func (c *cutter) take(r *request) {
	o := c.owners[r.owner]
	if o == nil {
		o = &record{name: r.name}
		c.owners[r.owner] = o
	}
	switch {
	case r.until == history.Never || r.op.Unknown():
		o.blind = true
	case r.outcome == history.OK && r.verb == history.Release:
		o.open--
	case r.outcome == history.OK:
		if r.verb == history.Acquire {
			o.open++
		}
		o.blind = o.blind || r.invoke <= o.extended
		o.lease, o.extended = r.lease, r.until
	default:
	}
	if r.until != history.Never {
		c.latest = max(c.latest, r.until)
	}
	if (o.open > 0 || o.blind) && c.last[r.owner] != r {
		c.alive[r.owner] = true
	} else {
		delete(c.alive, r.owner)
	}
}

// known is the state of the lock right before t, when nothing is in flight, if
// that is the same in every order.
func (c *cutter) known(t time.Duration) (state, bool) {
	for c.next < len(c.holds) && c.holds[c.next].Start < t {
		c.next++
	}
	if c.next == 0 {
		return state{}, len(c.alive) == 0
	}
	h := c.holds[c.next-1]
	if h.Ended == history.EndReleased && h.Release != nil && h.Release.OK() && h.Release.Complete.Time < t {
		return state{}, len(c.alive) == 0
	}
	if len(c.alive) != 1 || h.End < t {
		return state{}, false
	}
	for id := range c.alive {
		if o := c.owners[id]; o.name == h.Owner && o.open == 1 && !o.blind {
			return state{owner: id, least: 1, most: 1, lease: o.lease}, true
		}
	}
	return state{}, false
}

// tighten narrows the windows of the requests, and sorts them by invoke.
func tighten(holds []*history.Hold, requests []*request) []*request {
	at := map[int64]int{} // which hold was granted, by the acquire's invoke
	for i, h := range holds {
		at[h.Acquire.Invoke.Index] = i
	}
	current := map[int]int{} // which hold an owner has
	tightened := make([]*request, len(requests))
	for i, r := range requests {
		narrow := *r
		tightened[i] = &narrow
		j, granted := at[r.op.Invoke.Index]
		if granted {
			current[r.owner] = j
			if j > 0 {
				narrow.invoke = max(r.invoke, holds[j-1].End)
			}
			continue
		}
		j, holding := current[r.owner]
		if r.outcome == history.OK && r.verb != history.Acquire && holding && j+1 < len(holds) &&
			holds[j].Owner != holds[j+1].Owner && r.invoke <= holds[j+1].Start {
			narrow.until = min(r.until, holds[j+1].Start)
		}
	}
	slices.SortStableFunc(tightened, func(a, b *request) int { return cmp.Compare(a.invoke, b.invoke) })
	return tightened
}
