package oracle

import (
	"cmp"
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// A Generator makes small random histories: what a correct lock answers to
// clients whose requests and answers are late or lost, and for most of them a
// few changes that may make them impossible.
type Generator struct {
	r *rand.Rand
	shape

	specs             []history.Event
	ops               []*planned
	processes, owners int
}

// A shape is how large a history may be, and how likely it is in percent what happens in it.
type shape struct {
	clients, sessions, locks, capacity int // at the most
	crash, lost, unsure, sharing       int // of a client, a lease that is over, a request, and clients with one owner
	leases, fresh, careless            int // of requests with a lease, sessions with an owner of their own, and wrong answers
	unnamed, exclusive, late           int // of owners without a name, of writes that are called exclusive, and of late answers of extends
	pause                              int // between operations, in units
}

// A planned is an operation of a client, before the lock has answered it.
type planned struct {
	operation

	effect  time.Duration // never if there is none
	session int
	unsure  bool // whatever the lock does, the client does not learn it
}

// NewGenerator makes the same histories for the same seed.
func NewGenerator(seed uint64) *Generator {
	return &Generator{r: rand.New(rand.NewPCG(seed, 0x6f7261636c65))}
}

func (g *Generator) chance(percent int) bool { return g.r.IntN(100) < percent }

func (g *Generator) units(low, high int) time.Duration {
	return unit * time.Duration(low+g.r.IntN(high-low+1))
}

// gone is from when on a process may have been gone that was seen to be so at an instant; 0: from then.
func (g *Generator) gone(seen time.Duration) time.Duration {
	if g.chance(50) {
		return 0
	}
	return max(seen-g.units(0, 6), 0)
}

func pick[T any](g *Generator, of ...T) T { return of[g.r.IntN(len(of))] }

// Next is the next history. It has at least one operation, and is one that a reader accepts. Half of the
// histories are small, so that what is found in one is easy to read; the others are unusual in one or two ways.
func (g *Generator) Next() *history.History {
	for {
		s := shape{
			clients: 4, sessions: 2, locks: 1 + g.r.IntN(8)/7, capacity: 3, crash: 5, lost: 20, leases: 80, unsure: 11, pause: 3,
			sharing: pick(g, 0, 0, 0, 0, 40), fresh: pick(g, 0, 0, 100), careless: pick(g, 0, 12),
			unnamed: pick(g, 0, 0, 0, 0, 0, 0, 25), exclusive: pick(g, 0, 0, 0, 0, 0, 50), late: pick(g, 0, 0, 0, 0, 0, 50),
		}
		for range pick(g, 0, 0, 1, 2) {
			pick(g,
				func() { s.clients = 7 }, func() { s.sessions = 4 }, func() { s.locks = 3 }, func() { s.capacity = 6 },
				func() { s.crash, s.lost = 40, 50 }, func() { s.leases = pick(g, 0, 30, 100) }, func() { s.unsure = 35 },
				func() { s.sharing = 80 }, func() { s.pause = 1 },
			)()
		}
		g.shape = s
		ops := g.simulate()
		if g.chance(75) {
			for range 1 + g.r.IntN(4) {
				ops = g.change(ops)
			}
		}
		if len(ops) == 0 || crowded(ops) {
			continue
		}
		if h := render(g.specs, ops); h != nil {
			return h
		}
	}
}

// crowded reports whether a lock has more operations or grants than a search follows.
func crowded(ops []operation) bool {
	number, granted := make(map[string]int), make(map[string]int)
	return slices.ContainsFunc(ops, func(o operation) bool {
		number[o.Lock]++
		if o.granted() {
			granted[o.Lock]++
		}
		return number[o.Lock] > maxOperations || granted[o.Lock] > maxGrants
	})
}

// simulate lets clients use locks, of which each is correct or careless.
func (g *Generator) simulate() []operation {
	g.specs, g.ops, g.processes, g.owners = nil, nil, 0, 0
	for _, name := range []string{"k", "l", "m"}[:g.locks] {
		spec := history.Event{Type: history.OK, Op: history.Declare, Process: history.NoProcess, Lock: name, Fair: g.chance(20)}
		spec.Kind = pick(g, history.KindMutex, history.KindMutex, history.KindMutex, history.KindRW, history.KindSemaphore)
		if spec.Kind == history.KindSemaphore {
			spec.Capacity = 1 + g.r.IntN(g.capacity)
		} else {
			spec.Reentrant = g.chance(30)
		}
		if g.chance(15) {
			spec.Drift = g.units(1, 3)
		}
		if g.chance(8) {
			spec.Fenced = new(g.chance(50))
		}
		g.specs = append(g.specs, spec)
	}
	for range 2 + g.r.IntN(g.clients-1) {
		g.live()
	}
	slices.SortStableFunc(g.ops, func(a, b *planned) int { return cmp.Compare(a.effect, b.effect) })
	ops := make([]operation, 0, len(g.ops)+len(g.specs))
	for i := range g.specs {
		ops = g.play(ops, &g.specs[i], g.chance(30))
	}
	for _, p := range g.ops {
		if p.Op == history.Crash {
			ops = append(ops, p.operation)
		}
	}
	for _, spec := range g.specs {
		if at := g.units(1, 20); spec.Kind == history.KindSemaphore && g.chance(15) {
			spec.Time, spec.From, spec.Capacity = at, at+g.units(0, 5), 1+g.r.IntN(g.capacity)
			ops = append(ops, operation{Event: spec, kind: history.OK, complete: at, ends: never})
		}
	}
	slices.SortStableFunc(ops, func(a, b operation) int { return cmp.Compare(a.Time, b.Time) })
	unnamed := ""
	if g.chance(g.unnamed) {
		unnamed = string(rune('a' + g.r.IntN(3)))
	}
	for i := range ops {
		o := &ops[i]
		o.first, o.last = g.r.IntN(1000), g.r.IntN(1000) // ties are in a random order
		if o.Op != history.Crash && o.Op != history.Declare && (o.Owner == unnamed || g.chance(g.unnamed/3)) {
			o.Owner = processOwner(o.Process)
		}
		if o.Mode == history.Write && g.chance(g.exclusive) {
			o.Mode = history.Exclusive
		}
		if o.Op == history.Extend && o.complete != never && g.chance(g.late) {
			o.complete += g.units(3, 20)
		}
	}
	return ops
}

// identify gives what follows a process of its own, and perhaps another owner.
func (g *Generator) identify(owner string, other bool) (int, string) {
	g.processes++
	if other || owner == "" {
		owner = string(rune('a' + g.owners%26))
		g.owners++
	}
	return g.processes, owner
}

// live plans what one client does: sessions, each of which acquires a lock, does something, and mostly releases.
func (g *Generator) live() {
	process, owner := g.identify("", true)
	if len(g.ops) > 0 && g.chance(g.sharing) {
		owner = "a"
	}
	free, crash := g.units(0, 2), never
	if g.chance(g.crash) {
		crash = g.units(2, 14)
	}
	for range 1 + g.r.IntN(g.sessions) {
		spec, session := pick(g, g.specs...), len(g.ops)
		if g.chance(g.fresh) && session > 0 {
			_, owner = g.identify("", true)
		}
		todo := []history.Op{history.Acquire}
		for range g.r.IntN(4) {
			todo = append(todo, pick(g, history.Acquire, history.Extend, history.Extend, history.Access))
		}
		if g.chance(85) {
			todo = append(todo, history.Release)
		}
		if g.chance(8) {
			todo = todo[1:]
		}
		mode := pick(g, history.Read, history.Write)
		for _, op := range todo {
			if op == history.Acquire && g.chance(20) {
				mode = pick(g, history.Read, history.Write)
			}
			p := g.plan(op, spec, mode)
			p.Process, p.Owner, p.session = process, owner, session
			length := g.units(1, 1+g.pause)
			if g.chance(10) {
				length += g.units(1, 10)
			}
			p.Time = free + g.units(0, g.pause)
			p.complete = p.Time + length
			p.effect = p.Time + time.Duration(g.r.Int64N(int64(length)+1))
			if op == history.Extend && g.chance(50) { // by a watchdog, beside what its client does
				p.Process, _ = g.identify(owner, false)
			} else {
				free = p.complete + pick(g, unit, unit, unit, 0)
			}
			if p.complete >= crash {
				p.kind, p.unsure, p.complete = history.Info, true, never
				if g.chance(50) || p.effect >= crash {
					p.effect = never
				}
				if p.Time < crash {
					g.ops = append(g.ops, p)
				}
				g.ops = append(g.ops, &planned{effect: crash, operation: operation{
					Event: history.Event{Op: history.Crash, Process: process, Time: crash, From: g.gone(crash)}, kind: history.Info, complete: crash,
				}})
				process, owner = g.identify("", true)
				free, crash = max(free, crash)+unit, never
				break
			}
			if p.unsure = g.chance(g.unsure); p.unsure {
				p.kind = history.Info
				p.effect = pick(g, p.effect, p.effect+g.units(1, 15), never)
				if p.Process == process {
					process, owner = g.identify(owner, g.chance(50))
				}
				if g.chance(20) {
					p.complete = never
				}
			}
			g.ops = append(g.ops, p)
		}
	}
}

// plan is what is asked for.
func (g *Generator) plan(op history.Op, spec history.Event, mode history.Mode) *planned {
	p := &planned{operation: operation{Event: history.Event{Op: op, Lock: spec.Lock}, kind: history.OK, ends: never}}
	switch {
	case op == history.Access:
		p.Resource = "r"
		return p
	case spec.Kind == history.KindRW && (op == history.Acquire || g.chance(80)):
		p.Mode = mode
	case spec.Kind == history.KindSemaphore:
		p.Mode = history.Permit
		if op != history.Extend && g.chance(30) {
			p.Permits = 1 + g.r.IntN(max(2, (g.capacity+1)/2))
		}
	}
	if op != history.Release && g.chance(g.leases) {
		p.Lease = pick(g, g.units(30, 60), g.units(1, 2), g.units(2, 14), g.units(2, 14))
	}
	return p
}

// play has a lock answer what was planned, in the order of the effects, and appends that to what was played. It
// grants, or confirms, what the search says that it can, unless it is careless.
func (g *Generator) play(played []operation, spec *history.Event, fenced bool) []operation {
	asked := make([]operation, 0, len(g.ops))
	var mine []*planned
	for _, p := range g.ops {
		switch {
		case p.Op == history.Crash:
			asked = append(asked, p.operation)
		case p.Lock == spec.Lock && len(mine) < maxOperations:
			if p.Lease > 0 {
				p.ends = p.Time + p.Lease
			}
			mine = append(mine, p)
			asked = append(asked, p.operation)
			asked[len(asked)-1].kind = history.OK
		}
	}
	s := newSearch(*spec, asked)
	var w world
	refused, tokens, version, at := make(map[int]bool), make([]int64, maxOperations+1), 0, -1
	for _, p := range mine {
		if p.Op != history.Access {
			at++
		}
		if refused[p.session] && p.Op != history.Acquire {
			continue
		}
		if p.effect != never {
			played = append(played, g.expire(s, &w, p)...)
			p.kind = history.OK
			if p.Op == history.Access {
				if fenced && g.chance(70) {
					p.Token = tokens[0]
				}
				p.Value = string(rune('0'+version%10)) + ">" + string(rune('0'+(version+1)%10))
				version++
			} else {
				g.answer(s, &w, at, p)
				refused[p.session] = p.Op == history.Acquire && p.kind == history.Fail && !p.unsure && g.chance(80)
			}
			if granted := slices.IndexFunc(w.grants[:w.n], func(of grant) bool { return at >= 0 && of.parts&(1<<at) != 0 }); p.Op == history.Acquire && granted >= 0 {
				if first := bits.TrailingZeros32(uint32(w.grants[granted].parts)); first != at {
					tokens[at+1] = tokens[first+1]
				} else {
					tokens[0]++
					tokens[at+1] = tokens[0]
				}
				if fenced {
					p.Token = tokens[at+1]
				}
				if spec.Fair {
					p.Queued = new(tokens[0])
				}
			}
		}
		if p.unsure {
			p.kind = history.Info
		}
		if p.kind == history.OK && p.ends != never && g.chance(50) {
			p.recorded = p.ends
		}
		if p.kind != history.OK {
			p.Token, p.Queued = 0, nil
		}
		played = append(played, p.operation)
	}
	return played
}

// expire lets leases run out that have ended when an operation takes effect, and returns the notices of that.
func (g *Generator) expire(s *search, w *world, p *planned) (notices []operation) {
	for i := w.n - 1; i >= 0; i-- {
		end, setter := s.end(&w.grants[i]), &s.effects[w.grants[i].setter]
		if end > p.effect || !g.chance(70) {
			continue
		}
		if w.remove(i); g.chance(g.lost) {
			lost := notice(setter.operation, p.Time+g.units(0, 3))
			lost.Process, _ = g.identify(setter.Owner, false)
			notices = append(notices, lost)
		}
	}
	return notices
}

// notice tells the owner of an operation that the lock is lost.
func notice(o operation, when time.Duration) operation {
	return operation{
		Event: history.Event{Op: history.Lost, Lock: o.Lock, Owner: o.Owner, Mode: o.Mode, Time: when}, kind: history.OK, complete: when, ends: never,
	}
}

// answer lets an operation take effect in one of the ways in which it can, or refuses it.
func (g *Generator) answer(s *search, w *world, at int, p *planned) {
	e, careless := &s.effects[at], g.chance(g.careless)
	next := s.after(*w, at)
	switch {
	case len(next) > 0 && careless && p.Op != history.Acquire:
		p.kind = history.Fail
	case len(next) > 0:
		*w = pick(g, next...)
	case careless && p.Op == history.Acquire && w.n < maxGrants:
		w.grants[w.n] = grant{owner: e.owner, mode: e.mode, count: 1, permits: int8(e.Amount()), setter: int8(at), parts: 1 << at}
		w.n++
	case careless:
	default:
		p.kind, e.kind = history.Fail, history.Fail
		if p.Op != history.Acquire && len(s.after(*w, at)) == 0 { // some of it is held
			p.kind = history.Info
			p.complete = never
		}
		e.kind = history.OK
	}
}

// change makes one change at random.
func (g *Generator) change(ops []operation) []operation {
	if len(ops) == 0 {
		return ops
	}
	at := g.r.IntN(len(ops))
	o, other := &ops[at], ops[g.r.IntN(len(ops))]
	if o.Op == history.Declare || other.Op == history.Declare {
		return ops
	}
	step := g.units(-6, 6)
	shifted := *o
	shifted.From = min(shifted.From, shifted.Time+step)
	if shifted.Time += step; o.complete != never {
		shifted.complete += step
	}
	switch n := g.r.IntN(14); {
	case n == 0:
		return slices.Delete(ops, at, at+1)
	case n == 1 && !single(o.Op):
		shifted.Process += 300
		return append(ops, shifted)
	case n < 4:
		*o = shifted
	case n < 6 && o.Op == history.Crash, n == 4:
		lost := notice(*o, o.Time+g.units(-3, 8))
		lost.Process = 200 + g.r.IntN(3)
		return append(ops, lost)
	case n == 5:
		when := other.Time + g.units(-2, 6)
		return append(ops, operation{Event: history.Event{Op: history.Crash, Process: o.Process, Time: when, From: g.gone(when)}, kind: history.Info, complete: when, ends: never})
	case single(o.Op):
	case n < 8:
		o.kind = pick(g, history.OK, history.OK, history.Fail, history.Info)
		if o.complete == never {
			o.complete = o.Time + g.units(1, 5)
		}
	case n == 8 && o.complete != never:
		o.complete += g.units(-4, 6)
	case n == 9 && other.Op != history.Crash && o.Op != history.Access:
		o.Owner = other.Owner
	case n == 10 && o.asksLease():
		o.Lease, o.recorded = pick(g, 0, 0, g.units(1, 20), g.units(1, 20), g.units(1, 20)), pick(g, 0, 0, o.Time+g.units(0, 12))
	case n == 11:
		if o.Token > 0 {
			o.Token = max(1, o.Token+int64(g.r.IntN(4))-2)
		}
		if o.Queued != nil {
			o.Queued = new(max(0, *o.Queued+int64(g.r.IntN(6))-3))
		}
	case n == 12 && o.Mode == history.Permit && o.Op != history.Extend:
		o.Permits = g.r.IntN(max(4, g.capacity))
	case n == 12 && o.Mode != history.Permit && o.Mode != "":
		o.Mode = pick(g, history.Read, history.Write)
	case n == 13 && o.Op != history.Access:
		o.Op = pick(g, history.Acquire, history.Release, history.Extend)
	}
	return ops
}
