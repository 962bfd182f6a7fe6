package checker

import (
	"cmp"
	"container/heap"
	"iter"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// witnessed reports whether one order of the requests of a part, the likeliest,
// explains them: a yes is a proof by the same model that the search uses, and
// takes no search. In that order grants come as late as they can, and whatever
// ends a hold as early as it can.
func witnessed(p part) bool {
	if p.shared != nil {
		c := newSharedInPlace(p.shared, p.capacity)
		for r := range inTurn(p.requests) {
			if !c.step(r) {
				return false
			}
		}
		return true
	}
	s := p.from
	for r := range inTurn(p.requests) {
		var ok bool
		if s, ok = s.step(r); !ok {
			return false
		}
	}
	return true
}

// A turn is when a request takes effect in that order.
type turn struct {
	at   time.Duration
	rank int32 // at the same instant
	asks int32 // which of the requests it is
	*request
}

// inTurn is that order. Each has its turn within its interval, so that the order
// respects which were answered before others were invoked.
func inTurn(requests []*request) iter.Seq[*request] {
	// Those that have their turn when they are invoked are in order.
	early, late := make([]turn, 0, len(requests)), make([]turn, 0, len(requests))
	for i, r := range requests {
		t := turn{at: r.until, rank: 3, asks: int32(i), request: r} //nolint:gosec // fewer than events, which fit into memory
		switch {
		case r.until == history.Never, r.outcome == history.OK && r.verb != history.Acquire && !r.proves:
			t.at, t.rank = r.invoke, 0
			early = append(early, t)
			continue
		case r.outcome == history.OK && r.verb == history.Acquire && r.op.Unknown():
			t.rank = 1 // right before what proves it
		case r.outcome == history.OK && r.verb != history.Acquire:
			t.rank = 2
		}
		late = append(late, t)
	}
	sortStable(early, func(a, b turn) int { return cmp.Compare(a.at, b.at) })
	slices.SortFunc(late, func(a, b turn) int {
		if a.at != b.at {
			return cmp.Compare(a.at, b.at)
		}
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.asks, b.asks))
	})
	return func(yield func(*request) bool) {
		early := early
		for _, t := range append(late, turn{at: history.Never}) {
			for ; len(early) > 0 && early[0].at <= t.at; early = early[1:] {
				if !yield(early[0].request) {
					return
				}
			}
			if t.request != nil && !yield(t.request) {
				return
			}
		}
	}
}

// A sharedInPlace is a [shared] that is changed in place, at a cost that does not grow
// with how many hold the lock.
type sharedInPlace struct {
	capacity int
	now      time.Duration
	writers  map[int]*occupant // by account; all holders of a semaphore
	readers  map[int]*occupant
	out      int      // permits
	ending   outgoing // holders of permits that nothing confirms later
}

func newSharedInPlace(from *shared, capacity int) *sharedInPlace {
	c := &sharedInPlace{capacity: capacity, now: from.now, writers: map[int]*occupant{}, readers: map[int]*occupant{}}
	for i := range from.holders {
		h := from.holders[i]
		c.add(&h)
	}
	return c
}

func (c *sharedInPlace) find(account int) *occupant {
	if h := c.writers[account]; h != nil {
		return h
	}
	return c.readers[account]
}

func (c *sharedInPlace) add(h *occupant) {
	if h.read && c.capacity == 0 {
		c.readers[h.account] = h
		return
	}
	c.writers[h.account] = h
	c.out += h.permits
	c.mayEnd(h)
}

func (c *sharedInPlace) remove(h *occupant) {
	if c.readers[h.account] == h {
		delete(c.readers, h.account)
		return
	}
	delete(c.writers, h.account)
	c.out -= h.permits
}

// mayEnd puts a holder of permits, whose end is new, among those that may go.
func (c *sharedInPlace) mayEnd(h *occupant) {
	if c.capacity > 0 && h.pinned <= 0 {
		heap.Push(&c.ending, leaving{h, h.ends(0)})
	}
}

// step is [shared.step] in place. After a no, it is of no use.
func (c *sharedInPlace) step(r *request) bool {
	now := max(c.now, r.invoke)
	if now > r.until {
		return false
	}
	h := c.find(r.owner)
	switch {
	case r.outcome == history.OK && r.verb == history.Acquire:
		return c.grant(r, h, now)
	case h == nil:
		c.now = now
		return r.outcome != history.OK
	case r.outcome == history.Fail:
		c.now = h.ends(now)
		c.remove(h)
		return c.now <= r.until
	case r.outcome == history.OK && r.verb == history.Release && h.most == 1:
		c.remove(h)
	case r.outcome == history.OK && r.verb == history.Release:
		h.pinned--
		h.least, h.most = max(h.least, 1)-1, h.most-1
		c.mayEnd(h)
	case r.outcome == history.OK:
		h.pinned--
		h.least, h.lease = max(h.least, 1), r.lease
		c.mayEnd(h)
	case r.verb == history.Release: // may have ended it
		h.least = max(h.least-1, 0)
		c.mayEnd(h)
	default: // may have cut its lease
		h.lease = min(h.lease, r.lease)
		c.mayEnd(h)
	}
	c.now = now
	return true
}

func (c *sharedInPlace) grant(r *request, mine *occupant, now time.Duration) bool {
	granted := newOccupant(r)
	if mine != nil {
		switch {
		case r.again:
			granted.countOn(mine, r)
		case c.capacity == 0:
			now = mine.ends(now)
		}
		c.remove(mine)
	}
	if c.capacity == 0 {
		drop := func(holders map[int]*occupant) {
			for account, h := range holders {
				if h.owner != granted.owner {
					now = h.ends(now)
					delete(holders, account)
				}
			}
		}
		drop(c.writers)
		if !granted.read {
			drop(c.readers)
		}
	}
	for c.capacity > 0 && c.out+granted.permits > c.capacity {
		if len(c.ending) == 0 {
			return false
		}
		first, _ := heap.Pop(&c.ending).(leaving)
		if h := first.occupant; c.writers[h.account] == h && h.pinned <= 0 && h.ends(0) == first.at { // else that is not so any more
			now = h.ends(now)
			c.remove(h)
		}
	}
	c.now = now
	c.add(&granted)
	return now <= r.until
}

// A leaving is when a holder of permits may be gone.
type leaving struct {
	*occupant
	at time.Duration
}

// outgoing is a heap of them, the first on top.
type outgoing []leaving

func (o outgoing) Len() int           { return len(o) }
func (o outgoing) Less(i, j int) bool { return o[i].at < o[j].at }
func (o outgoing) Swap(i, j int)      { o[i], o[j] = o[j], o[i] }

// Push adds one.
func (o *outgoing) Push(x any) {
	if l, ok := x.(leaving); ok {
		*o = append(*o, l)
	}
}

// Pop takes the last.
func (o *outgoing) Pop() any {
	old := *o
	last := old[len(old)-1]
	*o = old[:len(old)-1]
	return last
}
