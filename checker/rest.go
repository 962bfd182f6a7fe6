package checker

import (
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/workload/history"
)

// A resting is a lock that was put aside because no client asks for it, though
// one may hold it.
type resting struct {
	events []shelvedOf
	held   []string      // the owner of each hold that goes on
	ends   time.Duration // when the first of those holds ends by itself; Never if there is none
}

// rest puts an event of a lock aside.
func (s *stream) rest(e *history.Event) {
	r := s.idle[e.Lock]
	if r == nil {
		r = &resting{ends: history.Never}
		s.idle[e.Lock] = r
	}
	r.events = append(r.events, shelvedOf{shelve(e), nameOf(e)})
}

// restHeld takes note of the holds that go on, of the locks that were put aside
// after a window.
func (s *stream) restHeld(c *carry) {
	for i := range c.book.Holds {
		h := &c.book.Holds[i]
		if _, open := c.free[h.Lock]; !open || c.busy[h.Lock] || h.End <= s.last {
			continue
		}
		if r := s.idle[h.Lock]; r != nil {
			r.held, r.ends = append(r.held, h.Owner), min(r.ends, h.End)
			s.aside[h.Owner]++
			s.soonest = min(s.soonest, r.ends)
		}
	}
}

// wake takes back what was put aside of a lock that no client asked for.
func (s *stream) wake(lock string) {
	r := s.idle[lock]
	if r == nil {
		return
	}
	for i := range r.events {
		s.window = append(s.window, r.events[i].event(owner{lock, r.events[i].owner}))
	}
	for _, name := range r.held {
		if s.aside[name]--; s.aside[name] == 0 {
			delete(s.aside, name)
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
		if r.ends <= s.last || len(r.held) > 0 && len(gone) > 0 && slices.ContainsFunc(r.events, func(e shelvedOf) bool {
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
