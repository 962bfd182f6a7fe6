package checker

import (
	"cmp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockchaos/lockchaos/history"
)

// An occupant is one of those who may hold a lock that several can hold: a
// read-write lock, or a semaphore.
type occupant struct {
	account     int
	owner       string
	read        bool
	permits     int
	least, most int
	lease       time.Duration // when the hold may end by itself
	pinned      int           // how often it will be confirmed
}

// ends is the earliest instant, from now on, at which the hold can be over.
func (h *occupant) ends(now time.Duration) time.Duration {
	if h.least == 0 {
		return now
	}
	return max(now, h.lease)
}

func newOccupant(r *request) occupant {
	e := r.op.Invoke
	return occupant{
		account: r.owner, owner: e.Owner, read: e.Mode == history.Read, permits: e.Amount(),
		least: 1, most: 1, lease: r.lease, pinned: r.pinned,
	}
}

// countOn lets the count of what an owner was granted again go on from the old
// hold, which may have ended: then it begins again.
func (h *occupant) countOn(old *occupant, r *request) {
	h.most = old.most + 1
	if old.least > 0 && old.lease > r.until {
		h.least = old.least + 1
	}
}

// A shared is a state of such a lock. Holders whose leases have run out stay
// until they are in the way.
type shared struct {
	holders []occupant // in order of their accounts
	now     time.Duration
}

func (s *shared) find(account int) (int, bool) {
	return slices.BinarySearchFunc(s.holders, account, func(h occupant, account int) int { return cmp.Compare(h.account, account) })
}

// at is a copy of the state at another time.
func (s *shared) at(now time.Duration) *shared {
	return &shared{holders: slices.Clone(s.holders), now: now}
}

func (s *shared) equal(o *shared) bool { return s.now == o.now && slices.Equal(s.holders, o.holders) }

func (s *shared) hash() uint64 {
	h := uint64(s.now) //nolint:gosec // only a hash
	for i := range s.holders {
		x := &s.holders[i]
		for _, v := range [...]int{x.account, x.least, x.most, int(x.lease)} {
			h = (h ^ uint64(v)) * 0x9e3779b97f4a7c15 //nolint:gosec // only a hash
			h ^= h >> 29
		}
	}
	return h
}

// step says whether r can be the next operation on the lock, and what follows.
// As with one occupant, the step over the end of a lease is part of the operation
// that needs it. A grant of permits may have the choice of whose lease has run
// out: it takes those that run out first, of the holders that nothing confirms
// later, which leaves the most to what comes after.
func (s *shared) step(r *request, capacity int) (*shared, bool) {
	now := max(s.now, r.invoke)
	if now > r.until {
		return s, false
	}
	i, mine := s.find(r.owner)
	switch {
	case r.outcome == history.OK && r.verb == history.Acquire:
		return s.grant(r, now, capacity)
	case r.outcome == history.OK && !mine:
		return s, false
	case r.outcome == history.OK:
		to := s.at(now)
		h := &to.holders[i]
		h.pinned--
		switch {
		case r.verb == history.Extend:
			h.least, h.lease = max(h.least, 1), r.lease
		case h.most == 1:
			to.holders = slices.Delete(to.holders, i, i+1)
		default:
			h.least, h.most = max(h.least, 1)-1, h.most-1
		}
		return to, true
	case !mine:
		return s.at(now), true
	case r.outcome == history.Fail:
		if now = s.holders[i].ends(now); now > r.until {
			return s, false
		}
		to := s.at(now)
		to.holders = slices.Delete(to.holders, i, i+1)
		return to, true
	default: // may have ended it, or cut its lease
		to := s.at(now)
		h := &to.holders[i]
		if r.verb == history.Release {
			h.least = max(h.least-1, 0)
		} else {
			h.lease = min(h.lease, r.lease)
		}
		return to, true
	}
}

func (s *shared) grant(r *request, now time.Duration, capacity int) (*shared, bool) {
	e := r.op.Invoke
	granted := newOccupant(r)
	to := &shared{}
	for i := range s.holders {
		switch h := &s.holders[i]; {
		case h.account == r.owner:
			switch {
			case r.again:
				granted.countOn(h, r)
			case capacity == 0:
				now = h.ends(now)
			}
		case capacity == 0 && h.owner != e.Owner && (!h.read || !granted.read):
			now = h.ends(now)
		default:
			to.holders = append(to.holders, *h)
		}
	}
	if capacity > 0 {
		var fits bool
		if now, fits = to.makeRoom(granted.permits, capacity, now); !fits {
			return s, false
		}
	}
	if now > r.until {
		return s, false
	}
	to.now = now
	i, _ := to.find(r.owner)
	to.holders = slices.Insert(to.holders, i, granted)
	return to, true
}

// makeRoom ends as many holds as must have ended for so many permits to fit.
func (s *shared) makeRoom(permits, capacity int, now time.Duration) (time.Duration, bool) {
	for i := range s.holders {
		permits += s.holders[i].permits
	}
	for permits > capacity {
		first := -1
		for i := range s.holders {
			h := &s.holders[i]
			if h.pinned <= 0 && (first < 0 || h.ends(now) < s.holders[first].ends(now)) {
				first = i
			}
		}
		if first < 0 {
			return now, false
		}
		h := &s.holders[first]
		now = h.ends(now)
		permits -= h.permits
		s.holders = slices.Delete(s.holders, first, first+1)
	}
	return now, true
}

// pin notes in each grant how often the hold is confirmed later.
func pin(requests []*request) {
	grants := map[int]*request{}
	for _, r := range requests {
		switch {
		case r.outcome != history.OK:
		case r.verb == history.Acquire:
			grants[r.owner] = r
			r.pinned = 0
		default:
			if g := grants[r.owner]; g != nil {
				g.pinned++
			}
		}
	}
}

// sharedModel is the sequential specification of a read-write lock, or of a
// semaphore of some capacity, with leases and owners.
func sharedModel(from *shared, capacity int, may func() bool, took func(state int)) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return from },
		Step: func(s, in, _ any) (bool, any) {
			from, ok1 := s.(*shared)
			r, ok2 := in.(*request)
			if !ok1 || !ok2 || !may() {
				return false, s
			}
			to, ok := from.step(r, capacity)
			if ok {
				took(len(to.holders))
			}
			return ok, to
		},
		Equal: func(a, b any) bool {
			x, ok1 := a.(*shared)
			y, ok2 := b.(*shared)
			return ok1 && ok2 && x.equal(y)
		},
		Hash: func(s any) uint64 {
			if s, ok := s.(*shared); ok {
				return s.hash()
			}
			return 0
		},
		DescribeOperation: func(in, _ any) string {
			if r, ok := in.(*request); ok {
				return r.describe()
			}
			return ""
		},
	}
}

// sharedSegments cuts the requests of a lock that the sweep found legal where
// nothing is in flight and it is known who holds it. First it tightens: a request that
// waited was granted the lock no earlier than the last end of a hold before its
// answer, if at all there is an order, and if it held it for certain for some
// time.
//
// An owner whose outcome is unknown is as good as gone if it did nothing later.
func sharedSegments(ev *evidence, lock string, requests []*request, capacity, size int) []part {
	holdings := ev.holdings()
	var ends []time.Duration
	certain := make([]bool, len(holdings.Operations)) // whether an acquire was granted for certain for some time
	for i := range holdings.Holds {
		if h := &holdings.Holds[i]; h.Lock == lock {
			ends = append(ends, h.End)
			certain[h.Acquire.Ordinal()] = h.End > h.Start
		}
	}
	slices.Sort(ends)
	store := make([]request, len(requests))
	tightened := make([]*request, len(requests))
	n := len(holdings.Accounts) + 1
	last := make([]*request, n)
	for i, r := range requests {
		store[i] = *r
		r = &store[i]
		tightened[i] = r
		if r.verb == history.Acquire && certain[r.op.Ordinal()] {
			if at, _ := slices.BinarySearch(ends, r.until+1); at > 0 {
				r.invoke = max(r.invoke, ends[at-1])
			}
		}
	}
	slices.SortStableFunc(tightened, func(a, b *request) int { return cmp.Compare(a.invoke, b.invoke) })
	for _, r := range tightened {
		last[r.owner] = r
	}
	owners := make([]sharedRecord, n)
	var busy []int // owners that may hold
	latest := time.Duration(-1)
	var parts []part
	from, before := 0, &shared{}
	for i, r := range tightened {
		if i-from >= size && r.invoke > latest {
			if now, known := sharedState(owners, busy, last, r.invoke); known {
				parts = append(parts, part{requests: tightened[from:i], shared: before, capacity: capacity})
				from, before = i, now
			}
		}
		o := &owners[r.owner]
		o.take(r)
		if r.until != history.Never {
			latest = max(latest, r.until)
		}
		at := slices.Index(busy, r.owner)
		switch mayHold := o.open > 0 || o.blind; {
		case mayHold && at < 0:
			busy = append(busy, r.owner)
		case !mayHold && at >= 0:
			busy = slices.Delete(busy, at, at+1)
		}
	}
	return append(parts, part{requests: tightened[from:], shared: before, capacity: capacity})
}

// A sharedRecord is what is known of one owner on the way.
type sharedRecord struct {
	record
	grant     *request
	confirmed int
	done      *request
	twice     bool // its count is not known
}

func (o *sharedRecord) take(r *request) {
	o.done = r
	switch {
	case r.until == history.Never || r.op.Unknown():
		o.blind = true
	case r.outcome != history.OK:
		o.open = 0
	case r.verb == history.Release:
		o.open--
		o.confirmed++
	case r.verb == history.Extend:
		o.blind = o.blind || r.invoke <= o.extended
		o.lease, o.extended = r.lease, r.until
		o.confirmed++
	default:
		// Granted again when its lease may have run out: it may count on, or not.
		o.twice = o.open > 0 && (o.twice || o.lease < r.until)
		o.open++
		o.grant, o.confirmed, o.lease, o.extended = r, 0, r.lease, r.until
	}
}

// sharedState is who holds the lock right before t, when nothing is in flight,
// if that is the same in every order.
func sharedState(owners []sharedRecord, busy []int, last []*request, t time.Duration) (*shared, bool) {
	s := &shared{}
	for _, id := range busy {
		o := &owners[id]
		more := last[id] != o.done
		switch {
		case !o.blind && !o.twice && o.open == 1 && o.lease >= t:
			e := o.grant.op.Invoke
			s.holders = append(s.holders, occupant{
				account: id, owner: e.Owner, read: e.Mode == history.Read, permits: e.Amount(),
				least: 1, most: 1, lease: o.lease, pinned: o.grant.pinned - o.confirmed,
			})
		case more, o.lease >= t && o.open > 0 && !o.blind:
			return nil, false
		}
	}
	slices.SortFunc(s.holders, func(a, b occupant) int { return cmp.Compare(a.account, b.account) })
	return s, true
}
