package oracle

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// unit is the step between stamps: leases are at least a millisecond, and the steps are so coarse that many stamps are equal.
const unit = 10 * time.Millisecond

// A Generator makes small random histories: what a correct lock answers to clients whose requests and answers are late or
// lost, and for most of them a few changes that may make them impossible.
type Generator struct {
	r *rand.Rand
	shape

	specs             []history.Event
	ops               []operation
	processes, owners int
}

// A shape is how large a history may be, and how likely it is in percent what happens in it.
type shape struct {
	clients, length, locks, capacity, pause int // at the most; a length is of what a client does, in operations, and pauses between operations are in units
	crash, lost, unsure                     int // of a client, a lease, and a request
	leases, fresh, sharing                  int // of requests with a lease, holds with an owner of their own, and clients with one owner
	careless, unnamed, exclusive, late      int // of wrong answers, owners without a name, writes that are called exclusive, and late answers of extends
}

// NewGenerator makes the same histories for the same seed.
func NewGenerator(seed uint64) *Generator {
	return &Generator{r: rand.New(rand.NewPCG(seed, 0x6f7261636c65))}
}

func (g *Generator) chance(percent int) bool { return g.r.IntN(100) < percent }

func (g *Generator) units(low, high int) time.Duration {
	return unit * time.Duration(low+g.r.IntN(high-low+1))
}

func pick[T any](g *Generator, of ...T) T { return of[g.r.IntN(len(of))] }

// Next is the next history. It has at least one operation, and is one that a reader accepts. Half of the histories are
// small, so that what is found in one is easy to read; the others are unusual in one or two ways.
func (g *Generator) Next() *history.History {
	for {
		g.shape = shape{
			clients: 4, length: 8, locks: 1 + g.r.IntN(8)/7, capacity: 3, crash: 5, lost: 5, leases: 80, unsure: 11, pause: 3,
			sharing: pick(g, 0, 0, 0, 0, 40), fresh: pick(g, 0, 0, 100), careless: pick(g, 0, 12),
			unnamed: pick(g, 0, 0, 0, 0, 0, 0, 25), exclusive: pick(g, 0, 0, 0, 0, 0, 50), late: pick(g, 0, 0, 0, 0, 0, 50),
		}
		for range pick(g, 0, 0, 1, 2) {
			pick(g,
				func() { g.clients = 7 }, func() { g.length = 16 }, func() { g.locks = 3 }, func() { g.capacity = 6 },
				func() { g.crash, g.lost = 40, 20 }, func() { g.leases = pick(g, 0, 30, 100) }, func() { g.unsure = 35 },
				func() { g.sharing = 80 }, func() { g.pause = 1 },
			)()
		}
		g.specs, g.ops, g.processes, g.owners = nil, nil, 0, 0
		g.declare()
		for range 2 + g.r.IntN(g.clients-1) {
			before := len(g.ops)
			if g.live(); crowded(g.ops, maxOperations) {
				g.ops = g.ops[:before]
			}
		}
		ops := g.answer()
		if g.chance(75) {
			for range 1 + g.r.IntN(4) {
				ops = g.change(ops)
			}
		}
		if len(ops) == 0 || crowded(ops, maxGrants) {
			continue
		}
		if h := render(g.specs, ops); h != nil {
			return h
		}
	}
}

// crowded reports whether a lock has more operations than a search follows, or more than so many grants.
func crowded(ops []operation, grants int) bool {
	number, granted := make(map[string]int), make(map[string]int)
	return slices.ContainsFunc(ops, func(o operation) bool {
		number[o.Lock]++
		if o.granted() {
			granted[o.Lock]++
		}
		return number[o.Lock] > maxOperations || granted[o.Lock] > grants
	})
}

// declare says what each lock is, and plans the changes of capacities.
func (g *Generator) declare() {
	for _, name := range []string{"k", "l", "m"}[:g.locks] {
		spec := history.Event{Type: history.OK, Op: history.Declare, Process: history.NoProcess, Lock: name, Fair: g.chance(20)}
		if g.chance(15) {
			spec.Drift = g.units(1, 3)
		}
		if g.chance(8) {
			spec.Fenced = new(g.chance(50))
		}
		spec.Kind = pick(g, history.KindMutex, history.KindMutex, history.KindMutex, history.KindRW, history.KindSemaphore)
		if spec.Kind != history.KindSemaphore {
			spec.Reentrant = g.chance(30)
		} else if spec.Capacity = 1 + g.r.IntN(g.capacity); g.chance(15) {
			changed := spec
			changed.Time, changed.Capacity = g.units(1, 20), 1+g.r.IntN(g.capacity)
			changed.From = changed.Time + g.units(0, 5)
			g.ops = append(g.ops, operation{Event: changed, kind: history.OK, complete: changed.Time, ends: never})
		}
		g.specs = append(g.specs, spec)
	}
}

// process is a number that no process had before.
func (g *Generator) process() int {
	g.processes++
	return g.processes
}

// owner is a name that no owner had before, unless there are too many.
func (g *Generator) owner() string {
	g.owners++
	return string(rune('a' + (g.owners-1)%26))
}

// live plans what one client does: it acquires a lock, does something, mostly releases, and may begin again with another one.
func (g *Generator) live() {
	process, owner, free, before := g.process(), g.owner(), g.units(0, 2), len(g.ops)
	if g.chance(g.sharing) {
		owner = "a"
	}
	op, spec, mode := history.Acquire, pick(g, g.specs...), pick(g, history.Read, history.Write)
	for range 1 + g.r.IntN(g.length) {
		o := g.plan(op, spec, mode)
		o.Process, o.Owner, o.Time = process, owner, free+g.units(0, g.pause)
		if o.complete = o.Time + g.units(1, 1+g.pause); g.chance(10) {
			o.complete += g.units(1, 10)
		}
		if o.Lease > 0 {
			o.ends = o.Time + o.Lease
		}
		watchdog := op == history.Extend && g.chance(50) // beside what its client does
		switch {
		case !watchdog:
			free = o.complete + pick(g, unit, unit, unit, 0)
		case g.chance(g.late):
			o.complete += g.units(3, 20)
			fallthrough
		default:
			o.Process = g.process()
		}
		if g.chance(g.unsure) {
			o.kind, o.complete = history.Info, pick(g, never, o.complete, o.complete, o.complete, o.complete)
			if !watchdog {
				process, owner = g.process(), pick(g, owner, g.owner())
			}
		}
		if g.ops = append(g.ops, o); o.Lease > 0 && g.chance(g.lost) {
			g.ops = append(g.ops, g.notice(history.Lost, o, o.ends+g.units(0, 5)))
		}
		switch op = pick(g, history.Acquire, history.Extend, history.Extend, history.Access, history.Release, history.Release); {
		case o.Op == history.Release:
			op, spec, mode = pick(g, history.Acquire, history.Acquire, op), pick(g, g.specs...), pick(g, history.Read, history.Write)
			if g.chance(g.fresh) {
				owner = g.owner()
			}
		case op == history.Acquire && g.chance(20):
			mode = pick(g, history.Read, history.Write)
		}
	}
	if g.chance(g.crash) {
		g.crashAt(g.units(2, 14), process, before)
	}
}

// crashAt lets the process of a client crash, whose operations are those from a place on.
func (g *Generator) crashAt(when time.Duration, process, from int) {
	g.ops = append(g.ops[:from], slices.DeleteFunc(g.ops[from:], func(o operation) bool { return o.Time >= when })...)
	for i := range g.ops[from:] {
		if o := &g.ops[from+i]; o.complete >= when {
			o.kind, o.complete, process = history.Info, never, o.Process
		}
	}
	g.ops = append(g.ops, g.notice(history.Crash, operation{Event: history.Event{Process: process}}, when))
}

// notice is a crash of the process of an operation, or tells its owner that the lock is lost.
func (g *Generator) notice(op history.Op, of operation, when time.Duration) operation {
	o := operation{Event: history.Event{Op: op, Process: of.Process, Time: when}, kind: history.Info, complete: when, ends: never}
	if op == history.Crash {
		o.From = pick(g, 0, max(when-g.units(0, 6), 0)) // from when on the process may have been gone
	} else {
		o.kind, o.Process, o.Lock, o.Owner, o.Mode = history.OK, 200+g.r.IntN(3), of.Lock, of.Owner, of.Mode
	}
	return o
}

// plan is what is asked for.
func (g *Generator) plan(op history.Op, spec history.Event, mode history.Mode) operation {
	o := operation{Event: history.Event{Op: op, Lock: spec.Lock}, kind: history.OK, ends: never}
	switch {
	case op == history.Access:
		o.Resource = "r"
	case spec.Kind == history.KindRW && (op == history.Acquire || g.chance(80)):
		if o.Mode = mode; mode == history.Write && g.chance(g.exclusive) {
			o.Mode = history.Exclusive
		}
	case spec.Kind == history.KindSemaphore:
		if o.Mode = history.Permit; op != history.Extend && g.chance(30) {
			o.Permits = 1 + g.r.IntN(max(2, (g.capacity+1)/2))
		}
	}
	if o.asksLease() && g.chance(g.leases) {
		o.Lease = pick(g, g.units(30, 60), g.units(1, 2), g.units(2, 14), g.units(2, 14))
	}
	return o
}

// answer has the locks answer what was planned, in the order of the answers: each grants, or confirms, what it can, and
// refuses the rest, unless it is careless. What has no answer may have taken effect where something needs it.
func (g *Generator) answer() (answered []operation) {
	for i := range g.ops {
		o := &g.ops[i]
		place := func(at time.Duration) int { return int(at/unit)<<20 | g.r.IntN(1<<10)<<10 | i } // ties are in a random order
		if o.first, o.last = place(o.Time), math.MaxInt; single(o.Op) {
			o.last = o.first
		} else if o.complete != never {
			o.last = place(o.complete)
		}
	}
	slices.SortFunc(g.ops, func(a, b operation) int { return cmp.Or(cmp.Compare(a.last, b.last), cmp.Compare(a.first, b.first)) })
	locks, refused := map[string]*service{}, map[string]bool{}
	for _, spec := range g.specs {
		s := &service{search: newSearch(spec, g.ops), fenced: g.chance(30)}
		for i := range s.effects { // nothing was answered yet
			s.effects[i].kind, s.effects[i].before = history.Info, 0
		}
		locks[spec.Lock] = s
	}
	for _, o := range g.ops {
		if !single(o.Op) {
			if refused[o.Owner] && o.Op != history.Acquire {
				continue
			}
			locks[o.Lock].answer(g, &o)
			refused[o.Owner] = o.is(history.Acquire, history.Fail) && g.chance(80)
		}
		answered = append(answered, o)
	}
	nameless, unnamed := pick(g, "a", "b", "c"), g.chance(g.unnamed)
	for i := range answered {
		o := &answered[i]
		if o.Owner != "" && (unnamed && o.Owner == nameless || g.chance(g.unnamed/3)) {
			o.Owner = processOwner(o.Process)
		}
	}
	return answered
}

// A service is a lock that answers: what its search found last is what it knows.
type service struct {
	*search

	fenced bool
	writes int // of its resource
}

// answer tells what becomes of an operation.
func (s *service) answer(g *Generator, o *operation) {
	if o.Op == history.Access {
		o.Value = strconv.Itoa(s.writes) + ">" + strconv.Itoa(s.writes+1)
		if s.writes++; s.fenced && g.chance(70) {
			o.Token = int64(s.found.token)
		}
		return
	}
	at := slices.IndexFunc(s.effects, func(e effect) bool { return e.first == o.first })
	can := func(kind history.Type) bool { // and does, with what it needs
		clear(s.seen)
		s.effects[at].kind = kind
		is := s.explore(s.found)
		if s.effects[at].kind = history.Info; is {
			o.kind = kind
		}
		return is
	}
	unsure, careless, w := o.kind == history.Info, g.chance(g.careless), &s.found
	switch {
	case unsure && g.chance(50):
	case careless && o.Op != history.Acquire:
		o.kind = pick(g, history.OK, history.Fail)
	case can(history.OK):
	case o.Op == history.Acquire:
		w.done |= 1 << at
		if o.kind = history.Fail; careless && len(w.held()) < maxGrants {
			o.kind = history.OK
			w.add(grant{parts: 1 << at, count: 1, setter: int8(at)})
		}
	case !can(history.Fail): // some of it is held
		o.kind = history.Info
	}
	for i := range w.held() {
		if g := &w.grants[i]; g.parts&(1<<at) != 0 {
			if g.token == 0 {
				w.token++
				g.token = int16(w.token)
			}
			if s.fenced {
				o.Token = int64(g.token)
			}
			if s.spec.Fair {
				o.Queued = new(int64(w.token))
			}
		}
	}
	if unsure {
		o.kind = history.Info
	}
	if o.kind == history.OK && o.ends != never && g.chance(50) {
		o.recorded = o.ends
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
	step, shifted := g.units(-6, 6), *o
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
		return append(ops, g.notice(history.Lost, *o, o.Time+g.units(-3, 8)))
	case n == 5:
		return append(ops, g.notice(history.Crash, *o, other.Time+g.units(-2, 6)))
	case single(o.Op):
	case n < 8:
		if o.kind = pick(g, history.OK, history.OK, history.Fail, history.Info); o.complete == never {
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
		o.Op, o.Lease, o.recorded, o.Token, o.Queued = pick(g, history.Acquire, history.Release, history.Extend), 0, 0, 0, nil
	}
	return ops
}
