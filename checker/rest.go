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
		if _, open := c.free[h.Lock]; open && !c.busy[h.Lock] && h.End > s.last {
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

// rests reports whether a lock that is held can be put aside without a loss.
func (c *carry) rests(lock string) bool {
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
