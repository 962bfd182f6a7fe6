package checker

import (
	"fmt"
	"html"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockchaos/lockchaos/history"
)

// A request is one operation as the lease model sees it: what was asked and
// answered, and when, because porcupine tells a model no time.
type request struct {
	op      *history.Operation
	verb    history.Op // acquire, extend or release
	outcome history.Type
	owner   int           // the account that it belongs to, from 1
	again   bool          // the lock is re-entrant
	proves  bool          // it alone shows that an acquire with an unknown outcome was granted
	pinned  int           // of a grant of permits: how often it is confirmed later
	invoke  time.Duration // the earliest instant of its effect
	until   time.Duration // the latest: its completion, or Never
	lease   time.Duration // the end that it gives the hold; Never for none
}

// A state of the lease model. A lock whose holder may have released it already
// has a least count of 0.
type state struct {
	owner       int // 0: free
	least, most int
	lease       time.Duration // when the hold may end by itself
	now         time.Duration // the earliest instant that the order so far allows
}

// step says whether r can be the next operation, and what follows. A lease may
// run out whenever that helps the operation: the step over the end of a lease
// is part of the operation that needs it, so that the model is deterministic.
// Of two orders with the same outcome the one with the lesser now allows more.
func (s state) step(r *request) (state, bool) {
	now := max(s.now, r.invoke)
	if now > r.until {
		return s, false
	}
	mine := s.owner == r.owner
	expired := max(now, s.lease)
	switch {
	case r.outcome == history.OK && r.verb == history.Acquire && mine && r.again:
		least := 1 // the old hold may have ended: the count may begin again
		if s.least > 0 && s.lease > r.until {
			least = s.least + 1
		}
		return state{owner: r.owner, least: least, most: s.most + 1, lease: r.lease, now: now}, true
	case r.outcome == history.OK && r.verb == history.Acquire:
		if s.owner != 0 && s.least > 0 {
			now = expired
		}
		return state{owner: r.owner, least: 1, most: 1, lease: r.lease, now: now}, now <= r.until
	case r.outcome == history.OK && r.verb == history.Extend:
		return state{owner: s.owner, least: max(s.least, 1), most: s.most, lease: r.lease, now: now}, mine
	case r.outcome == history.OK: // release
		if !mine {
			return s, false
		}
		if s.most == 1 {
			return state{now: now}, true
		}
		return state{owner: s.owner, least: max(s.least, 1) - 1, most: s.most - 1, lease: s.lease, now: now}, true
	case r.outcome == history.Fail:
		if !mine {
			return state{owner: s.owner, least: s.least, most: s.most, lease: s.lease, now: now}, true
		}
		if s.least > 0 {
			now = expired
		}
		return state{now: now}, now <= r.until
	case r.verb == history.Extend || r.verb == history.Acquire: // may have cut the lease
		s.now = now
		if mine {
			s.lease = min(s.lease, r.lease)
		}
		return s, true
	default: // may have released
		s.now = now
		if mine {
			s.least = max(s.least-1, 0)
		}
		return s, true
	}
}

func (s state) hash() uint64 {
	h := uint64(s.owner)
	for _, v := range [...]uint64{uint64(s.least), uint64(s.most), uint64(s.lease), uint64(s.now)} {
		h = (h ^ v) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return h
}

// leaseModel is the sequential specification of a lock with leases and owners,
// and counts where it is re-entrant, which begins in the given state. may is asked before each step and ends
// the search where it says no; took is told of each step that was possible.
func leaseModel(from state, may func() bool, took func()) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return from },
		Step: func(s, in, _ any) (bool, any) {
			from, ok1 := s.(state)
			r, ok2 := in.(*request)
			if !ok1 || !ok2 || !may() {
				return false, s
			}
			to, ok := from.step(r)
			if ok {
				took()
			}
			return ok, to
		},
		Hash: func(s any) uint64 {
			if s, ok := s.(state); ok {
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

// describe is a short label: "acquire a ok #7". Porcupine's page takes its
// texts for HTML.
func (r *request) describe() string {
	return html.EscapeString(fmt.Sprintf("%s %s %s #%d", r.verb, r.op.Invoke.Owner, r.outcome, r.op.Invoke.Index))
}
