package checker

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
)

// A part is what is searched as one: requests, and the state before them.
type part struct {
	requests []*request
	from     state
	shared   *shared // of a lock that several may hold
	capacity int
}

// partSize is the least number of requests that are worth a search of their
// own.
const partSize = 64

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
func segments(ev *evidence, lock string, requests []*request, size int) []part {
	holdings := ev.holdings()
	var holds []*holding.Hold
	doubtful := holdings.Doubtful(lock)
	for i := range holdings.Holds {
		if h := &holdings.Holds[i]; h.Lock == lock && h.End > h.Start && doubtful[h.Owner] == "" {
			holds = append(holds, h)
		}
	}
	n := len(holdings.Accounts) + 1
	c := cutter{holds: holds, last: make([]*request, n), owners: make([]record, n)}
	tightened := tighten(holds, requests, n, len(holdings.Operations))
	for _, r := range tightened {
		c.last[r.owner] = r
	}
	var parts []part
	from, before := 0, state{}
	for i, r := range tightened {
		if i-from >= size && r.invoke > c.latest {
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
	open     int           // its grants less its releases
	blind    bool          // an outcome, or the lease, is unknown
	alive    bool          // it may hold, and will do more
	lease    time.Duration // of its last acquire or extend
	extended time.Duration // when that was answered
}

// A cutter goes through the requests of a lock in order of their invokes.
type cutter struct {
	holds  []*holding.Hold
	next   int           // the first hold that begins later
	latest time.Duration // when the last known operation so far was answered
	last   []*request    // the last request of each owner
	owners []record      // what is known of each owner
	alive  []int         // owners that may hold, and will do more
}

func (c *cutter) take(r *request) {
	o := &c.owners[r.owner]
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
	alive := (o.open > 0 || o.blind) && c.last[r.owner] != r
	switch {
	case alive && !o.alive:
		c.alive = append(c.alive, r.owner)
	case !alive && o.alive:
		at := slices.Index(c.alive, r.owner)
		c.alive = slices.Delete(c.alive, at, at+1)
	}
	o.alive = alive
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
	if h.Ended == holding.EndReleased && h.Release != nil && h.Release.OK() && h.Release.Complete.Time < t {
		return state{}, len(c.alive) == 0
	}
	if len(c.alive) != 1 || h.End < t {
		return state{}, false
	}
	id := c.alive[0]
	if o := &c.owners[id]; id == h.Account+1 && o.open == 1 && !o.blind {
		return state{owner: id, least: 1, most: 1, lease: o.lease}, true
	}
	return state{}, false
}

// tighten narrows the windows of the requests, and sorts them by invoke.
func tighten(holds []*holding.Hold, requests []*request, owners, operations int) []*request {
	at := make([]int32, operations) // which hold an acquire was granted, plus 1
	for i, h := range holds {
		at[h.Acquire.Ordinal()] = int32(i + 1) //nolint:gosec // fewer than operations, which fit into memory
	}
	current := make([]int32, owners) // which hold an owner has, plus 1
	store := make([]request, len(requests))
	tightened := make([]*request, len(requests))
	for i, r := range requests {
		narrow := &store[i]
		*narrow = *r
		tightened[i] = narrow
		if j := int(at[r.op.Ordinal()]); j > 0 {
			current[r.owner] = int32(j) //nolint:gosec // as above
			if j > 1 {
				narrow.invoke = max(r.invoke, holds[j-2].End)
			}
			continue
		}
		j := int(current[r.owner])
		if r.outcome == history.OK && r.verb != history.Acquire && j > 0 && j < len(holds) &&
			holds[j-1].Account != holds[j].Account && r.invoke <= holds[j].Start {
			narrow.until = min(r.until, holds[j].Start)
		}
	}
	slices.SortStableFunc(tightened, func(a, b *request) int { return cmp.Compare(a.invoke, b.invoke) })
	return tightened
}
