package checker_test

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// simulate records what the clients of a correct lease lock see: requests
// that take effect late or never, answers that are lost, leases that run out,
// renewals and re-entry. Every attempt has an owner of its own. It is legal.
func simulate(rnd *rand.Rand, clients, ticks int) *history.History {
	return simulateBug(rnd, clients, ticks, "")
}

// The bugs that a simulated server may have.
const (
	bugForeignDelete = "a release deletes the lock whoever holds it"
	bugForeignExtend = "an extend prolongs the lock whoever holds it"
	bugConstantToken = "all owners are one to it"
	bugForgets       = "it forgets grants"
	bugShortLease    = "a lease is shorter than it was asked for"
	bugOneTooMany    = "it gives one permit more than it has"
	bugReadersIn     = "readers are let in beside a writer"
	bugFirstRelease  = "the first release of a re-entrant lock frees it"
	bugNoExpiry      = "leases never run out"
)

// simulateBug is simulate with a server that has a bug.
func simulateBug(rnd *rand.Rand, clients, ticks int, bug string) *history.History {
	s := &simulation{
		bug: bug,

		rnd: rnd, kind: history.KindMutex, reentrant: rnd.IntN(3) == 0, maxLease: 3 + rnd.IntN(20), lost: rnd.IntN(3),
		h: &history.History{}, holders: map[string]*granted{},
	}
	switch rnd.IntN(4) {
	case 0:
		s.kind = history.KindRW
	case 1:
		s.kind, s.capacity, s.reentrant = history.KindSemaphore, 1+rnd.IntN(3), false
	default:
	}
	switch bug {
	case "":
	case bugOneTooMany:
		s.kind, s.capacity, s.reentrant = history.KindSemaphore, 1+rnd.IntN(3), false
	case bugReadersIn:
		s.kind, s.capacity = history.KindRW, 0
	default:
		s.kind, s.capacity, s.reentrant = history.KindMutex, 0, bug == bugFirstRelease
	}
	s.record(history.Event{
		Process: history.NoProcess, Type: history.OK, Op: history.Declare, Lock: "k",
		Kind: s.kind, Capacity: s.capacity, Reentrant: s.reentrant,
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
	kind      string
	capacity  int
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
	holders map[string]*granted // by owner, and mode
	bug     string              // what is wrong with it
}

// granted is what an owner holds.
type granted struct {
	owner   string
	read    bool
	permits int
	count   int
	until   time.Duration
}

type client struct {
	process int
	owner   string
	mode    history.Mode
	permits int
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
	for key, g := range s.holders {
		if s.now > g.until && s.bug != bugNoExpiry {
			delete(s.holders, key)
		}
	}
	key := e.Owner + string(e.Mode)
	mine := s.holders[key]
	switch s.bug {
	case bugForgets:
		if s.rnd.IntN(20) == 0 {
			clear(s.holders)
			mine = nil
		}
	case bugConstantToken:
		key = ""
		mine = s.holders[key]
	case bugForeignDelete, bugForeignExtend:
		for other, g := range s.holders {
			if (e.Op == history.Release) == (s.bug == bugForeignDelete) && e.Op != history.Acquire {
				key, mine = other, g
			}
		}
	default:
	}
	switch {
	case e.Op == history.Acquire:
		if r.ok = s.admits(e, mine); !r.ok {
			break
		}
		if mine == nil {
			mine = &granted{owner: e.Owner, read: e.Mode == history.Read, permits: max(e.Permits, 1)}
			s.holders[key] = mine
		}
		mine.until = s.now + e.Lease
		if s.bug == bugShortLease {
			mine.until = s.now + e.Lease/2
		}
		mine.count++
	case mine == nil:
		r.ok = false
	case e.Op == history.Extend:
		r.ok = true
		mine.until = s.now + e.Lease
	default:
		r.ok = true
		if mine.count--; mine.count == 0 || s.bug == bugFirstRelease {
			delete(s.holders, key)
		}
	}
	r.done = true
}

// admits reports whether the server grants a request.
func (s *simulation) admits(e *history.Event, mine *granted) bool {
	if s.bug == bugConstantToken {
		return true
	}
	if mine != nil && !s.reentrant && e.Mode != history.Read {
		return false
	}
	out := max(e.Permits, 1)
	for _, g := range s.holders {
		out += g.permits
		if s.kind != history.KindSemaphore && g.owner != e.Owner && (!g.read || e.Mode != history.Read) {
			if s.bug == bugReadersIn && e.Mode == history.Read {
				continue
			}
			return false
		}
	}
	return s.kind != history.KindSemaphore || out <= s.capacity || s.bug == bugOneTooMany && out == s.capacity+1
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
		switch s.kind {
		case history.KindRW:
			c.mode = []history.Mode{history.Read, history.Write}[s.rnd.IntN(2)]
		case history.KindSemaphore:
			c.mode, c.permits = history.Permit, 1+s.rnd.IntN(s.capacity)
		default:
		}
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
	if s.kind == history.KindRW && c.mode == history.Write && c.count == 1 && s.rnd.IntN(4) == 0 {
		e.Op, e.Lease, c.mode = history.Acquire, time.Duration(1+s.rnd.IntN(s.maxLease)), history.Read // and does not give back the write
	}
	e.Owner, e.Mode, e.Permits = c.owner, c.mode, c.permits
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
