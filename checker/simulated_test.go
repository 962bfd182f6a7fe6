package checker_test

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/lockchaos/lockchaos/workload/history"
)

// simulate records what the clients of a correct lease lock see: requests
// that take effect late or never, answers that are lost, leases that run out,
// renewals and re-entry. Every attempt has an owner of its own. It is legal.
func simulate(rnd *rand.Rand, clients, ticks int) *history.History {
	s := &simulation{rnd: rnd, reentrant: rnd.IntN(3) == 0, maxLease: 3 + rnd.IntN(20), lost: rnd.IntN(3), h: &history.History{}}
	s.record(history.Event{
		Process: history.Nobody, Type: history.OK, Op: history.Declare, Lock: "k", Reentrant: s.reentrant,
	})
	for i := range clients {
		s.clients = append(s.clients, &client{process: i})
	}
	s.processes = clients
	for range ticks {
		s.now++
		rnd.Shuffle(len(s.clients), func(i, j int) { s.clients[i], s.clients[j] = s.clients[j], s.clients[i] })
		for _, i := range rnd.Perm(len(s.late)) {
			if rnd.IntN(4) == 0 && s.late[i] != nil { // a request whose sender has given up arrives
				s.apply(s.late[i])
				s.late[i] = nil
			}
		}
		for _, c := range s.clients {
			s.step(c)
		}
	}
	for _, c := range s.clients {
		if c.sent != nil {
			e := c.sent.invoke
			e.Type = history.Info
			s.record(e)
		}
	}
	return s.h
}

type simulation struct {
	rnd       *rand.Rand
	reentrant bool
	maxLease  int
	lost      int // of ten answers, how many are lost
	now       time.Duration
	h         *history.History
	clients   []*client
	processes int
	attempts  int
	late      []*sent

	// The server.
	holder string
	count  int
	until  time.Duration
}

type client struct {
	process int
	owner   string
	count   int
	sent    *sent
}

// sent is a request on its way, or its answer.
type sent struct {
	invoke history.Event
	done   bool
	ok     bool
}

func (s *simulation) record(e history.Event) history.Event {
	e.Time, e.Index = s.now, int64(len(s.h.Events))
	s.h.Events = append(s.h.Events, e)
	return e
}

func (s *simulation) apply(r *sent) {
	e := &r.invoke
	if s.now > s.until {
		s.holder, s.count = "", 0
	}
	mine := s.holder == e.Owner
	switch e.Op {
	case history.Acquire:
		r.ok = s.holder == "" || mine && s.reentrant
		if r.ok {
			s.holder, s.until = e.Owner, s.now+e.Lease
			s.count++
		}
	case history.Extend:
		if r.ok = mine; mine {
			s.until = s.now + e.Lease
		}
	default:
		if r.ok = mine; mine {
			if s.count--; s.count == 0 {
				s.holder = ""
			}
		}
	}
	r.done = true
}

func (s *simulation) step(c *client) {
	switch {
	case c.sent == nil:
		if s.rnd.IntN(3) == 0 {
			s.send(c)
		}
	case !c.sent.done && s.rnd.IntN(12) == 0 && s.lost > 0: // gives up, and the request may still arrive
		s.giveUp(c)
	case !c.sent.done:
		if s.rnd.IntN(2) == 0 {
			s.apply(c.sent)
			if c.sent.invoke.Op == history.Acquire && !c.sent.ok && s.rnd.IntN(2) == 0 {
				c.sent.done = false // waits
			}
		}
	case s.rnd.IntN(10) < s.lost:
		s.giveUp(c)
	case s.rnd.IntN(2) == 0:
		s.answer(c)
	}
}

func (s *simulation) giveUp(c *client) {
	e := c.sent.invoke
	e.Type = history.Info
	s.record(e)
	if !c.sent.done {
		s.late = append(s.late, c.sent)
	}
	c.sent = nil
	c.process = s.processes
	s.processes++
	if s.rnd.IntN(2) == 0 || e.Op == history.Acquire && s.rnd.IntN(2) == 0 {
		c.owner, c.count = "", 0 // else it goes on with the same owner, and cleans up
	} else if c.count == 0 {
		c.count = 1
	}
}

func (s *simulation) answer(c *client) {
	e := c.sent.invoke
	e.Type = history.Fail
	if c.sent.ok {
		e.Type = history.OK
	}
	s.record(e)
	switch {
	case e.Op == history.Acquire && c.sent.ok:
		c.count++
	case e.Op == history.Acquire && c.count == 0, e.Op != history.Acquire && !c.sent.ok:
		c.owner, c.count = "", 0
	case e.Op == history.Release:
		if c.count--; c.count == 0 {
			c.owner = ""
		}
	}
	c.sent = nil
}

func (s *simulation) send(c *client) {
	e := history.Event{
		Process: c.process, Type: history.Invoke, Op: history.Acquire, Lock: "k",
		Lease: time.Duration(1 + s.rnd.IntN(s.maxLease)),
	}
	if c.owner == "" {
		s.attempts++
		c.owner, c.count = "o"+strconv.Itoa(s.attempts), 0
	} else {
		switch s.rnd.IntN(4) {
		case 0:
			e.Op = history.Extend
		case 1:
			if !s.reentrant {
				e.Op = history.Release
			}
		default:
			e.Op = history.Release
		}
	}
	if e.Op == history.Release {
		e.Lease = 0
	}
	e.Owner = c.owner
	c.sent = &sent{invoke: s.record(e)}
}

// mutate changes a history a little, so that it may not be legal any more.
func mutate(rnd *rand.Rand, h *history.History) {
	for range 1 + rnd.IntN(3) {
		i := rnd.IntN(len(h.Events))
		e := &h.Events[i]
		if e.Op == history.Declare {
			continue
		}
		switch {
		case e.Type != history.Invoke:
			e.Type = []history.Type{history.OK, history.OK, history.Fail, history.Info}[rnd.IntN(4)]
		case e.Lease > 0:
			e.Lease = max(1, e.Lease+time.Duration(rnd.IntN(21)-10))
			for j := i + 1; j < len(h.Events); j++ {
				if h.Events[j].Process == e.Process {
					h.Events[j].Lease = e.Lease
					break
				}
			}
		}
	}
}
