package oracle

import (
	"cmp"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// unit is the step between stamps: leases are at least a millisecond, and the steps are so coarse that many stamps are equal.
const unit = 10 * time.Millisecond

// maxLength is how many operations a client has at the most.
const maxLength = 16

// A Generator makes small random histories: what a correct lock answers to clients whose requests and answers are late or
// lost, and for most of them a few changes that may make them impossible.
type Generator struct {
	r *rand.Rand
	shape

	specs []history.Event
	ops   []operation
	used  int // of the numbers of processes and owners
}

// A shape is how large a history may be, and how likely it is in percent what happens in it.
type shape struct {
	clients, length, locks, capacity, pause int // at the most; a length is of what a client does, in operations, and pauses between operations are in units
	crash, unsure                           int // of a client, and a request
	leases, renamed, sharing                int // of requests with a lease, holds with an owner of their own, and clients with one owner
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
			clients: 4, length: 8, locks: 1 + g.r.IntN(8)/7, capacity: 3, crash: 5, leases: 80, unsure: 11, pause: 3,
			sharing: pick(g, 0, 0, 0, 0, 40), renamed: pick(g, 0, 0, 100), careless: pick(g, 0, 30),
			unnamed: pick(g, 0, 0, 0, 0, 0, 0, 25), exclusive: pick(g, 0, 0, 0, 0, 0, 50), late: pick(g, 0, 0, 0, 0, 0, 50),
		}
		for range pick(g, 0, 0, 1, 2) {
			pick(g,
				func() { g.clients = 7 }, func() { g.length = maxLength }, func() { g.locks = 3 }, func() { g.capacity = 6 },
				func() { g.crash = 40 }, func() { g.leases = pick(g, 0, 30, 100) }, func() { g.unsure = 35 },
				func() { g.sharing = 80 }, func() { g.pause = 1 },
			)()
		}
		g.specs, g.ops, g.used = nil, nil, 0
		g.declare()
		for clients := 2 + g.r.IntN(g.clients-1); clients > 0 && len(g.ops) <= maxOperations-maxLength; clients-- {
			g.live()
		}
		ops := g.answer()
		for range pick(g, 0, 1, 2, 3, 4) {
			ops = g.change(ops)
		}
		if h := render(g.specs, ops); h != nil && len(ops) > 0 {
			return h
		}
	}
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

// fresh is a number that was not used before, of a process or of an owner.
func (g *Generator) fresh() int {
	g.used++
	return g.used
}

func (g *Generator) owner() string { return string(rune('a' + g.fresh()%26)) }

// live plans what one client does: it acquires a lock, does something, mostly releases, and may begin again with another one.
func (g *Generator) live() {
	process, owner, free := g.fresh(), g.owner(), g.units(0, 2)
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
		watchdog := op == history.Extend && g.chance(60) // beside what its client does
		switch {
		case !watchdog:
			free = o.complete + pick(g, unit, unit, unit, 0)
		case g.chance(g.late):
			o.complete += g.units(3, 20)
			fallthrough
		default:
			o.Process = g.fresh()
		}
		if g.chance(g.unsure) {
			o.kind, o.complete = history.Info, pick(g, never, o.complete, o.complete, o.complete, o.complete)
			if !watchdog {
				process, owner = g.fresh(), pick(g, owner, g.owner())
			}
		}
		g.ops = append(g.ops, o)
		switch op = pick(g, history.Acquire, history.Extend, history.Extend, history.Access, history.Release, history.Release); {
		case o.Op == history.Release:
			op, spec, mode = pick(g, history.Acquire, history.Acquire, op), pick(g, g.specs...), pick(g, history.Read, history.Write)
			if g.chance(g.renamed) {
				owner = g.owner()
			}
		case op == history.Acquire && g.chance(20):
			mode = pick(g, history.Read, history.Write)
		}
	}
	if last := &g.ops[len(g.ops)-1]; g.chance(g.crash) {
		crash := last.Time + g.units(0, 4)
		if last.complete >= crash {
			last.kind, last.complete = history.Info, never
		}
		g.ops = append(g.ops, g.notice(history.Crash, *last, crash))
	}
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
	if (op == history.Acquire || op == history.Extend) && g.chance(g.leases) {
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
	nameless, unnamed := pick(g, g.ops...).Owner, g.chance(g.unnamed)
	for i, o := range answered {
		if o.Owner != "" && (unnamed && o.Owner == nameless || g.chance(g.unnamed/3)) {
			answered[i].Owner = processOwner(o.Process)
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
	at := s.at(o)
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
		o.kind = pick(g, history.OK, history.Fail, history.Fail, history.Fail)
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
	switch n := g.r.IntN(16); {
	case n == 0:
		return slices.Delete(ops, at, at+1)
	case n < 3:
		step := g.units(-6, 6)
		if o.Time, o.From, o.recorded = o.Time+step, min(o.From, o.Time+step), 0; o.complete != never {
			o.complete += step
		}
	case n < 6:
		return append(ops, g.notice(pick(g, history.Lost, history.Lost, history.Crash), *o, other.Time+g.units(-2, 6)))
	case single(o.Op):
	case n < 10:
		if o.kind = pick(g, history.OK, history.OK, history.Fail, history.Info); o.complete == never {
			o.complete = o.Time + g.units(1, 5)
		}
	case n == 10 && o.complete != never:
		o.complete += g.units(-4, 6)
	case n == 11 && o.Op != history.Access:
		o.Owner = cmp.Or(other.Owner, o.Owner)
	case n == 12 && (o.Op == history.Acquire || o.Op == history.Extend):
		o.Lease, o.recorded = pick(g, 0, 0, g.units(1, 20), g.units(1, 20), g.units(1, 20)), pick(g, 0, 0, o.Time+g.units(1, 12))
	case n == 13 && o.Queued != nil && g.chance(50):
		o.Queued = new(max(0, *o.Queued+int64(g.r.IntN(6))-3))
	case n == 13 && o.Token > 0:
		o.Token = max(1, o.Token+int64(g.r.IntN(4))-2)
	case n == 14 && o.Mode == history.Permit && o.Op != history.Extend:
		o.Permits = g.r.IntN(max(4, g.capacity))
	case n == 14 && o.Mode != history.Permit && o.Mode != "":
		o.Mode = pick(g, history.Read, history.Write)
	case n == 15 && o.Op != history.Access:
		o.Op, o.Lease, o.recorded, o.Token, o.Queued = pick(g, history.Acquire, history.Release, history.Extend), 0, 0, 0, nil
	}
	return ops
}

// Shrink makes a history smaller for as long as it still is what is asked for: it leaves out one operation or two.
func Shrink(h *history.History, still func(*history.History) bool) *history.History {
	specs := slices.DeleteFunc(declared(h), func(e history.Event) bool { return e.Op != history.Declare })
	ops, progress := operations(h), true
	try := func(less []operation) {
		if smaller := render(specs, less); smaller != nil && still(smaller) {
			h, ops, progress = smaller, less, true
		}
	}
	for progress {
		progress = false
		for i := len(ops) - 1; i >= 0; i-- { //nolint:modernize // ops shrinks meanwhile
			for j := i; j >= 0 && i < len(ops); j-- {
				try(slices.DeleteFunc(slices.Clone(ops), func(o operation) bool { return o.first == ops[i].first || o.first == ops[j].first }))
			}
		}
	}
	return h
}

// Lines is a history as its file.
func Lines(h *history.History) string {
	var b strings.Builder
	for i := range h.Events {
		line, _ := json.Marshal(&h.Events[i]) // of strings and numbers, which does not fail
		b.Write(append(line, '\n'))
	}
	return b.String()
}
