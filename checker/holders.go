package checker

import (
	"maps"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
)

// A request is one operation as the rules of a lock see it: what was asked and
// answered, and when, because porcupine tells a model no time.
type request struct {
	op      *holding.Op
	until   time.Duration // the latest instant of its effect: its completion, or Never
	account int32         // that it belongs to
	pinned  int32         // of a grant of permits: how often it is confirmed later
	done    bool          // it was answered ok, or is an acquire that a later answer proves
	again   bool          // the lock is re-entrant
	proves  bool          // it alone shows that an acquire with an unknown outcome was granted
}

// grants reports whether it is an acquire that was granted.
func (r *request) grants() bool { return r.done && r.op.Verb == holding.Acquire }

// An occupant is one of those who may hold a lock.
type occupant struct {
	owner       int32
	permits     int
	least, most int           // its count; one that may have released already has a least count of 0
	lease       time.Duration // when the hold may end by itself
	pinned      int32         // how often it will be confirmed
	reads       bool
}

// ends is the earliest instant, from now on, at which the hold can be over.
func (h *occupant) ends(now time.Duration) time.Duration {
	if h.least == 0 {
		return now
	}
	return max(now, h.lease)
}

// Holders are the state of a lock, and its rules: a mutex has one holder, a read-write lock one
// writer or several readers, and a semaphore as many as its capacity allows. A lease may run out
// whenever that helps an operation: the step over the end of a lease is part of the operation
// that needs it, so that the rules are deterministic. Holders whose leases have run out stay
// until they are in the way.
type holders struct {
	capacity int                // of a semaphore; 0 of other locks
	now      time.Duration      // the earliest instant that the order so far allows
	by       map[int32]occupant // their accounts
	writers  int                // that may hold
	out      int                // permits
}

// newHolders are those of a lock that is free.
func newHolders(l *holding.Lock) *holders {
	return &holders{by: map[int32]occupant{}, capacity: l.Capacity}
}

func (s *holders) count(h occupant, by int) {
	s.out += by * h.permits
	if !h.reads {
		s.writers += by
	}
}

func (s *holders) remove(account int32) {
	s.count(s.by[account], -1)
	delete(s.by, account)
}

// step lets r be the next operation, and reports whether it can be. After a no, the state is of
// no use. Of two orders with the same outcome the one with the lesser now allows more.
func (s *holders) step(r *request) bool {
	now := max(s.now, r.op.Invoke.Time)
	if now > r.until {
		return false
	}
	if r.grants() {
		return s.grant(r, now)
	}
	h, mine := s.by[r.account]
	if !mine {
		s.now = now
		return !r.done
	}
	over := false
	switch {
	case r.op.Failed():
		end := h.ends(now)
		switch {
		case !r.op.GivesUp():
			now = end
		case end > r.until: // nothing explains that it was refused; else its owner had given the hold up when it was sent
			return false
		}
		over = true
	case r.done:
		h.pinned--
		switch {
		case r.op.Verb == holding.Extend:
			h.least, h.lease = max(h.least, 1), r.op.Ends
		case h.most == 1:
			over = true
		default:
			h.least, h.most = max(h.least, 1)-1, h.most-1
		}
	case r.op.Verb == holding.Release: // may have ended it
		h.least = max(h.least-1, 0)
	default: // may have cut its lease
		h.lease = min(h.lease, r.op.Ends)
	}
	if over {
		s.remove(r.account)
	} else {
		s.by[r.account] = h
	}
	s.now = now
	return now <= r.until
}

// grant lets r be granted. What is in its way must have ended.
func (s *holders) grant(r *request, now time.Duration) bool {
	g := occupant{
		owner: r.op.Owner, reads: r.op.Mode == holding.Read && s.capacity == 0, permits: r.op.Amount(),
		least: 1, most: 1, lease: r.op.Ends, pinned: r.pinned,
	}
	if h, mine := s.by[r.account]; mine {
		switch {
		case r.again: // the count goes on, unless the old hold may have ended: then it may begin again
			g.most = h.most + 1
			if h.least > 0 && h.lease > r.until {
				g.least = h.least + 1
			}
		case s.capacity == 0:
			now = h.ends(now)
		}
		s.remove(r.account)
	}
	if s.capacity == 0 && (s.writers > 0 || !g.reads) {
		for account, h := range s.by {
			if h.owner != g.owner && (!h.reads || !g.reads) {
				now = h.ends(now)
				s.remove(account)
			}
		}
	}
	for s.capacity > 0 && s.out+g.permits > s.capacity {
		// There is a choice of whose lease has run out: of those that nothing confirms later,
		// the one that runs out first leaves the most to what comes after.
		first, end := int32(-1), history.Never
		for account, h := range s.by {
			if at := h.ends(now); h.pinned <= 0 && (at < end || first < 0 || at == end && account < first) {
				first, end = account, at
			}
		}
		if first < 0 {
			return false
		}
		now = end
		s.remove(first)
	}
	s.now = now
	s.by[r.account] = g
	s.count(g, 1)
	return now <= r.until
}

func (s *holders) equal(o *holders) bool { return s.now == o.now && maps.Equal(s.by, o.by) }

func (s *holders) hash() (sum uint64) {
	for account, x := range s.by {
		h := uint64(s.now) //nolint:gosec // only a hash
		for _, v := range [...]int64{int64(account), int64(x.least), int64(x.most), int64(x.lease)} {
			h = (h ^ uint64(v)) * 0x9e3779b97f4a7c15 //nolint:gosec // only a hash
			h ^= h >> 29
		}
		sum += h
	}
	return sum
}

// model is the sequential specification of a lock that begins free. May is asked before each
// step and ends the search where it says no; took is told how many holders a new state has.
func model(l *holding.Lock, may func() bool, took func(holders int)) porcupine.Model {
	of := func(s any) *holders {
		state, _ := s.(*holders)
		return state
	}
	return porcupine.Model{
		Init: func() any { return newHolders(l) },
		Step: func(s, in, _ any) (bool, any) {
			r, is := in.(*request)
			if !is || !may() {
				return false, s
			}
			to := *of(s)
			if to.by = maps.Clone(to.by); !to.step(r) {
				return false, s
			}
			took(len(to.by))
			return true, &to
		},
		Equal: func(a, b any) bool { return of(a).equal(of(b)) },
		Hash:  func(s any) uint64 { return of(s).hash() },
	}
}
