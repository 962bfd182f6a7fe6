package checker

import (
	"encoding/binary"
	"iter"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// A resting is a lock that was put aside because no client asks for it, though
// one may hold it.
type resting struct {
	owner  string        // of the first event
	events []byte        // see put
	ends   time.Duration // when the first of the holds that go on ends by itself; Never if there is none
	held   bool          // there are holds that go on
}

// What an event that is put aside has, and others have not.
const (
	hasLease = 1 << iota
	hasExpires
	hasToken
	hasQueued
	hasPermits
	hasOwner // other than the first
)

// put adds an event in a few bytes without a pointer: there may be hundreds of
// thousands.
func (r *resting) put(e *archivedEvent, owner string) {
	if len(r.events) == 0 {
		r.owner = owner
		r.events = make([]byte, 0, 32)
	}
	words := e.typ | e.op<<2 | e.mode<<4
	if e.holds {
		words |= 1 << 7
	}
	at := len(r.events) + 1
	b := append(r.events, words, 0)
	b = binary.AppendUvarint(b, uint64(e.index))
	b = binary.AppendUvarint(b, uint64(e.time))
	b = binary.AppendVarint(b, int64(e.process))
	add := func(flag byte, is bool, number int64) {
		if is {
			b[at] |= flag
			b = binary.AppendVarint(b, number)
		}
	}
	add(hasLease, e.lease != 0, int64(e.lease))
	add(hasExpires, e.expires != 0, int64(e.expires))
	add(hasToken, e.token != 0, e.token)
	if e.queued != nil {
		add(hasQueued, true, *e.queued)
	}
	add(hasPermits, e.permits != 0, int64(e.permits))
	if owner != r.owner {
		add(hasOwner, true, int64(len(owner)))
		b = append(b, owner...)
	}
	r.events = b
}

// all are the events with their owners.
func (r *resting) all() iter.Seq2[string, *archivedEvent] {
	return func(yield func(string, *archivedEvent) bool) {
		for b := r.events; len(b) > 0; {
			words, has := b[0], b[1]
			b = b[2:]
			number := func() int64 {
				v, n := binary.Varint(b)
				b = b[n:]
				return v
			}
			unsigned := func() int64 {
				v, n := binary.Uvarint(b)
				b = b[n:]
				return int64(v) //nolint:gosec // as it was put
			}
			of := func(flag byte) int64 {
				if has&flag == 0 {
					return 0
				}
				return number()
			}
			e := archivedEvent{typ: words & 3, op: words >> 2 & 3, mode: words >> 4 & 7, holds: words>>7 == 1}
			e.index, e.time, e.process = unsigned(), time.Duration(unsigned()), int(number())
			e.lease, e.expires, e.token = time.Duration(of(hasLease)), time.Duration(of(hasExpires)), of(hasToken)
			if has&hasQueued != 0 {
				e.queued = new(int64)
				*e.queued = number()
			}
			e.permits = int32(of(hasPermits)) //nolint:gosec // as it was put
			owner := r.owner
			if has&hasOwner != 0 {
				n := number()
				owner, b = string(b[:n]), b[n:]
			}
			if !yield(owner, &e) {
				return
			}
		}
	}
}

// drop forgets the locks that are as good as new, because each of their owners is
// settled: what was held is over before all that follows, and no later operation can
// belong to it. But tokens and places in the queue are compared with those of later
// grants, and accesses may belong to the holds that are kept for their processes.
func (s *stream) drop(c *retention) {
	matters := make([]bool, len(c.holdings.Locks))
	for i := range c.holdings.Accounts {
		if a := &c.holdings.Accounts[i]; !a.Settled {
			matters[a.Place] = true
		}
	}
	for i := range c.holdings.Holds {
		if h := &c.holdings.Holds[i]; h.Token != 0 || queued(h) >= 0 {
			matters[c.holdings.PlaceOf(h)] = true
		}
	}
	for place, lock := range c.holdings.Locks {
		matters[place] = matters[place] || c.used[lock] || c.later[lock] || s.archivedOwners[lock] > 0 || !c.ev.clear(lock)
	}
	for i := range c.keep {
		if e := &s.window[i]; c.keep[i] && e.Op.OfHolder() {
			c.keep[i] = matters[c.ev.places[e.Lock]]
		}
	}
}

// rest puts an event of a lock aside. Where it asked for a hold that goes on, ends
// is when that ends by itself.
func (s *stream) rest(e *history.Event, ends time.Duration, holds bool) {
	r := s.idle[e.Lock]
	if r == nil {
		r = &resting{ends: history.Never}
		s.idle[e.Lock] = r
	}
	put, owner := archive(e), nameOf(e)
	if put.holds = holds; holds {
		r.held, r.ends = true, min(r.ends, ends)
		s.aside[owner]++
		s.soonest = min(s.soonest, ends)
	}
	r.put(&put, owner)
}

// heldAtRest are the ends of the holds that go on after a window, of the locks that
// can be put aside, by where in the window the request is.
func (s *stream) heldAtRest(c *retention) map[int]time.Duration {
	held := map[int]time.Duration{}
	for i := range c.holdings.Holds {
		h := &c.holdings.Holds[i]
		if _, open := c.free[h.Lock]; open && !c.busy[c.holdings.PlaceOf(h)] && h.End > s.last {
			held[c.at(h.Acquire.Invoke.Index)] = h.End
		}
	}
	return held
}

// wake takes back what was put aside of a lock that no client asked for.
func (s *stream) wake(lock string) {
	r := s.idle[lock]
	if r == nil {
		return
	}
	for name, e := range r.all() {
		s.window = append(s.window, e.event(owner{lock, name}))
		if e.holds {
			if s.aside[name]--; s.aside[name] == 0 {
				delete(s.aside, name)
			}
		}
	}
	delete(s.idle, lock)
	delete(s.dubious, lock)
}

// rouse takes back the locks of which a hold ended in this window, by its lease
// or by the crash of its process.
func (s *stream) rouse() {
	gone := map[int]struct{}{}
	for i := len(s.window) - 1; i >= 0 && len(s.aside) > 0; i-- {
		if e := &s.window[i]; e.Op == history.Crash && e.Index >= s.from {
			gone[e.Process] = struct{}{}
		}
	}
	if s.last < s.soonest && len(gone) == 0 {
		return
	}
	s.soonest = history.Never
	for lock, r := range s.idle {
		if r.ends <= s.last || r.held && len(gone) > 0 && r.isOf(gone) {
			s.wake(lock)
		} else {
			s.soonest = min(s.soonest, r.ends)
		}
	}
}

// isOf reports whether one of the processes has a part in it.
func (r *resting) isOf(processes map[int]struct{}) bool {
	for _, e := range r.all() {
		if _, is := processes[e.process]; is {
			return true
		}
	}
	return false
}

// crowded reports whether so many events are kept that locks must be put aside. One
// of which there are many events stays if a client asked for it of late: it would
// come back soon.
func (c *retention) crowded() bool {
	const many = 16
	all, kept, fresh := 0, make([]int, len(c.holdings.Locks)), make([]bool, len(c.holdings.Locks))
	for _, keep := range c.keep {
		if keep {
			all++
		}
	}
	if all <= c.crowd {
		for place := range c.busy {
			c.busy[place] = true
		}
		return false
	}
	for i, keep := range c.keep {
		if e := &c.ev.history.Events[i]; e.Op.OfHolder() {
			place := c.ev.places[e.Lock]
			fresh[place] = fresh[place] || e.Index >= c.ev.from
			if keep {
				kept[place]++
			}
		}
	}
	for place := range c.busy {
		c.busy[place] = c.busy[place] || fresh[place] && kept[place] > many
	}
	return true
}

// rests reports whether an event is of a lock that is put aside.
func (c *retention) rests(e *history.Event) bool {
	return e.Op.OfHolder() && !c.busy[c.ev.places[e.Lock]]
}

// mayRest reports whether a lock that is held can be put aside without a loss.
func (c *retention) mayRest(lock string) bool {
	_, broken := c.broken[lock]
	return !broken && c.ev.clear(lock) && !c.holdings.Guarantees[lock].Fair // the places in its queue are not put aside
}

// broken are the locks with a violation in the last window: it counts once as long
// as it is found again in the next. (Of what is found apart, the sweep has found all
// that is found again.)
func (s *session) broken(ev *evidence) map[string]struct{} {
	broken := map[string]struct{}{}
	for _, list := range ev.sweepResult().all() {
		for i := range list {
			broken[list[i].Lock] = struct{}{}
		}
	}
	s.each(false, func(r *run) {
		for k := range r.found.before {
			broken[k.lock] = struct{}{}
		}
	})
	return broken
}
