package checker

import (
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// A resting is a lock that was put aside because no client asks for it, though
// one may hold it.
type resting struct {
	events []shelvedOf
	ends   time.Duration // when the first of the holds that go on ends by itself; Never if there is none
	held   bool          // there are holds that go on
}

// drop forgets the locks that are as good as new, because each of their owners is
// settled: what was held is over before all that follows, and no later operation can
// belong to it. But tokens and places in the queue are compared with those of later
// grants, and accesses may belong to the holds that are kept for their processes.
func (s *stream) drop(c *carry) {
	matters := make([]bool, len(c.book.Locks))
	for i := range c.book.Accounts {
		if a := &c.book.Accounts[i]; !a.Settled {
			matters[a.Place] = true
		}
	}
	for i := range c.book.Holds {
		if h := &c.book.Holds[i]; h.Token != 0 || queued(h) >= 0 {
			matters[c.book.PlaceOf(h)] = true
		}
	}
	for place, lock := range c.book.Locks {
		matters[place] = matters[place] || c.used[lock] || c.later[lock] || s.shelves[lock] > 0 || !c.ev.clear(lock)
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
	put := shelvedOf{shelved: shelve(e), owner: nameOf(e)}
	if put.holds = holds; holds {
		r.held, r.ends = true, min(r.ends, ends)
		s.aside[put.owner]++
		s.soonest = min(s.soonest, ends)
	}
	r.events = append(r.events, put)
}

// heldAtRest are the ends of the holds that go on after a window, of the locks that
// can be put aside, by where in the window the request is.
func (s *stream) heldAtRest(c *carry) map[int]time.Duration {
	held := map[int]time.Duration{}
	for i := range c.book.Holds {
		h := &c.book.Holds[i]
		if _, open := c.free[h.Lock]; open && !c.busy[c.book.PlaceOf(h)] && h.End > s.last {
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
	for i := range r.events {
		e := &r.events[i]
		s.window = append(s.window, e.event(owner{lock, e.owner}))
		if e.holds {
			if s.aside[e.owner]--; s.aside[e.owner] == 0 {
				delete(s.aside, e.owner)
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
		if r.ends <= s.last || r.held && len(gone) > 0 && slices.ContainsFunc(r.events, func(e shelvedOf) bool {
			_, crashed := gone[e.process]
			return crashed
		}) {
			s.wake(lock)
		} else {
			s.soonest = min(s.soonest, r.ends)
		}
	}
}

// crowded reports whether so many events are kept that locks must be put aside. One
// of which there are many events stays if a client asked for it of late: it would
// come back soon.
func (c *carry) crowded() bool {
	const many = 16
	all, kept, fresh := 0, make([]int, len(c.book.Locks)), make([]bool, len(c.book.Locks))
	for i, keep := range c.keep {
		if keep {
			all++
		}
		if e := &c.ev.history.Events[i]; e.Op.OfHolder() {
			place := c.ev.places[e.Lock]
			fresh[place] = fresh[place] || e.Index >= c.ev.from
			if keep {
				kept[place]++
			}
		}
	}
	crowded := all > c.crowd
	for place := range c.busy {
		c.busy[place] = c.busy[place] || !crowded || fresh[place] && kept[place] > many
	}
	return crowded
}

// rests reports whether an event is of a lock that is put aside.
func (c *carry) rests(e *history.Event) bool {
	return e.Op.OfHolder() && !c.busy[c.ev.places[e.Lock]]
}

// mayRest reports whether a lock that is held can be put aside without a loss.
func (c *carry) mayRest(lock string) bool {
	_, broken := c.broken[lock]
	return !broken && c.ev.clear(lock) && !c.book.Promises[lock].Fair // the places in its queue are not put aside
}

// broken are the locks with a violation in the last window: it counts once as long
// as it is found again in the next.
func (s *session) broken() map[string]struct{} {
	broken := map[string]struct{}{}
	for _, r := range s.runs {
		for k := range r.found.before {
			broken[k.lock] = struct{}{}
		}
	}
	return broken
}
