package oracle

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// unit is the step between stamps: leases are at least a millisecond, and the steps are
// so coarse that many stamps are equal.
const unit = 10 * time.Millisecond

// longest is how many operations a history has at the most, of all locks together:
// a search follows no more than 31 of one lock.
const longest = 28

// A Generator makes small random histories: what a correct lock answers to
// clients whose requests and answers are late or lost, and for most of them a
// few changes that may make them impossible.
type Generator struct {
	r     *rand.Rand
	shape shape
}

// A shape is how large a history may be, and what is usual in it. Half of the
// histories are small, so that what is found in one is easy to read; the others are
// unusual in one or two ways.
type shape struct {
	clients    int // at the most
	operations int // on one lock at the most, before changes
	locks      int
	capacity   int  // of a semaphore, at the most
	crashes    int  // how many clients may crash
	crash      int  // how likely each is to, in percent
	lost       int  // how likely the holder is told of a lease that is over, in percent
	keepers    int  // how likely a client has a watchdog that is a process of its own, in percent
	unsure     int  // how likely the outcome of a request is unknown, in percent
	sharing    int  // how likely each other client has the owner of the first, in percent
	leases     int  // how likely an acquire or extend asks for a lease, in percent
	dense      bool // requests follow one another closely, so that many stamps are the same
}

func (g *Generator) anyShape() shape {
	s := shape{clients: 4, operations: 8, locks: 1, capacity: 3, crashes: 1, crash: 12, lost: 20, leases: 80, unsure: 11}
	if g.chance(20) {
		s.sharing = 40
	}
	if g.chance(12) {
		s.locks = 2
	}
	if g.chance(50) {
		return s
	}
	for range 1 + g.r.IntN(2) {
		switch g.r.IntN(10) {
		case 0:
			s.clients = 7
		case 1:
			s.operations = 14
		case 2:
			s.locks = 3
		case 3:
			s.capacity = 6
		case 4:
			s.crashes, s.crash, s.lost = 4, 40, 50
		case 5:
			s.keepers = 50
		case 6:
			s.leases = []int{0, 30, 100}[g.r.IntN(3)]
		case 7:
			s.unsure = 35
		case 8:
			s.sharing = 80
		default:
			s.dense = true
		}
	}
	return s
}

// NewGenerator makes the same histories for the same seed.
func NewGenerator(seed uint64) *Generator {
	return &Generator{r: rand.New(rand.NewPCG(seed, 0x6f7261636c65))}
}

// Next is the next history. It has at least one operation, and is one that a
// reader accepts.
func (g *Generator) Next() *history.History {
	for g.shape = g.anyShape(); ; {
		specs, ops := g.simulate()
		if g.chance(75) {
			for range 1 + g.r.IntN(4) {
				ops = g.change(ops)
			}
		}
		g.vary(specs, ops)
		if len(ops) == 0 || len(ops) > longest || crowded(ops) {
			continue
		}
		if h := render(specs, ops); h != nil {
			return h
		}
	}
}

// vary says some of it in another way, or later: owners go without a name, writes of
// read-write locks are called exclusive, locks are declared to be fenced or not, and the
// answers of extends are late.
func (g *Generator) vary(specs []history.Event, ops []operation) {
	if g.chance(12) {
		owner := ownerName(g.r.IntN(3))
		for i := range ops {
			if op := &ops[i]; op.op != history.Crash && (op.owner == owner || g.chance(10)) {
				op.owner, op.unnamed = processOwner(op.process), true
			}
		}
	}
	exclusive, late := g.chance(10), g.chance(15)
	for i := range ops {
		op := &ops[i]
		if exclusive && op.mode == history.Write && g.chance(50) {
			op.mode = history.Exclusive
		}
		if late && op.op == history.Extend && op.complete != never && g.chance(50) {
			op.complete += g.units(3, 20)
		}
	}
	for i := range specs {
		if g.chance(8) {
			specs[i].Fenced = new(g.chance(50))
		}
	}
}

// crowded reports whether a lock may have more grants at a time than a search follows.
func crowded(ops []operation) bool {
	number := make(map[string]int)
	for i := range ops {
		if granted(&ops[i]) {
			number[ops[i].lock]++
		}
	}
	return slices.ContainsFunc(slices.Collect(maps.Values(number)), func(n int) bool { return n > maxGrants })
}

func (g *Generator) chance(percent int) bool { return g.r.IntN(100) < percent }

func (g *Generator) units(low, high int) time.Duration {
	return unit * time.Duration(low+g.r.IntN(high-low+1))
}

// spec is what a random lock promises.
func (g *Generator) spec(name string) (spec history.Event, fenced bool) {
	spec = history.Event{Type: history.OK, Op: history.Declare, Process: history.NoProcess, Lock: name, Kind: history.KindMutex}
	switch g.r.IntN(6) {
	case 0:
	case 1:
		spec.Reentrant = true
	case 2:
		fenced = true
		spec.Reentrant = g.chance(30)
	case 3:
		spec.Kind = history.KindRW
		spec.Reentrant = g.chance(30)
		fenced = g.chance(10)
	case 4:
		spec.Kind = history.KindSemaphore
		spec.Capacity = 1 + g.r.IntN(g.shape.capacity)
		fenced = g.chance(10)
	default:
		spec.Fair = true
		switch g.r.IntN(5) {
		case 0:
			spec.Kind = history.KindRW
		case 1:
			spec.Kind, spec.Capacity = history.KindSemaphore, 1+g.r.IntN(g.shape.capacity)
		default:
			spec.Reentrant = g.chance(20)
		}
	}
	if g.chance(15) {
		spec.Drift = g.units(1, 3)
	}
	return spec, fenced
}

// A client does one thing after the other.
type client struct {
	process, owner int
	free           time.Duration
	crashed        time.Duration
	keeps          *client // of a watchdog: whose holds it prolongs
}

// A slot is the time of an operation that is still to be chosen.
type slot struct {
	client           int
	invoke, complete time.Duration
	effect           time.Duration
}

// A held is a grant of the simulated lock.
type held struct {
	owner, process int
	mode           history.Mode
	count, permits int
	end            time.Duration
	token          int64
}

// A simulated is a correct lock, or a careless one.
type simulated struct {
	spec history.Event
	// careless says of each request in turn whether the lock grants it, or
	// confirms it, whatever it needs.
	careless func() bool
	fenced   bool
	grants   []held
	token    int64
	queued   int64
}

// simulate lets clients use correct locks.
func (g *Generator) simulate() ([]history.Event, []operation) {
	names := []string{"k", "l", "m"}[:g.shape.locks]
	var specs []history.Event
	percent := 0
	if g.chance(45) {
		percent = 12
	}
	locks := make([]*simulated, len(names))
	for i, name := range names {
		spec, fenced := g.spec(name)
		specs = append(specs, spec)
		locks[i] = &simulated{spec: spec, fenced: fenced, careless: func() bool { return g.chance(percent) }}
	}
	clients := make([]*client, 2+g.r.IntN(g.shape.clients-1))
	processes, owners := len(clients), len(clients)
	for i := range clients {
		clients[i] = &client{process: i + 1, owner: i, free: g.units(0, 2), crashed: never}
	}
	for _, c := range clients[1:] {
		if g.chance(g.shape.sharing) {
			c.owner = clients[0].owner
		}
	}
	for _, c := range clients {
		if g.chance(g.shape.keepers) {
			processes++
			clients = append(clients, &client{process: processes, free: g.units(0, 2), crashed: never, keeps: c})
		}
	}
	fresh := g.chance(25)
	number := 4 + g.r.IntN(g.shape.operations-3)*len(names)
	var slots []slot
	for range number {
		at := g.r.IntN(len(clients))
		c := clients[at]
		s := slot{client: at}
		if g.shape.dense {
			s.invoke = c.free + g.units(0, 1)
			s.complete = s.invoke + g.units(1, 2)
		} else {
			s.invoke = c.free + g.units(0, 3)
			s.complete = s.invoke + g.units(1, 4)
		}
		if g.chance(10) {
			s.complete += g.units(1, 10)
		}
		s.effect = s.invoke + time.Duration(g.r.Int64N(int64(s.complete-s.invoke)+1))
		c.free = s.complete + unit
		if g.chance(5) {
			c.free = s.complete
		}
		slots = append(slots, s)
	}
	var ops []operation
	for range g.shape.crashes {
		if g.chance(g.shape.crash) {
			clients[g.r.IntN(len(clients))].crashed = g.units(2, 14)
		}
	}
	slices.SortFunc(slots, func(a, b slot) int { return cmp.Compare(a.effect, b.effect) })
	type late struct {
		at    time.Duration
		op    operation
		owner int
	}
	var pending []late
	version := int64(0)
	for _, s := range slots {
		c := clients[s.client]
		lock := locks[g.r.IntN(len(locks))]
		pending = slices.DeleteFunc(pending, func(l late) bool {
			if l.at > s.effect {
				return false
			}
			for _, lock := range locks {
				if lock.spec.Lock == l.op.lock {
					op := l.op
					lock.answer(&op, l.owner, l.at)
				}
			}
			return true
		})
		for _, lock := range locks {
			lock.grants = slices.DeleteFunc(lock.grants, func(h held) bool {
				end := h.end - lock.spec.Drift
				for _, other := range clients {
					if h.end == never && other.process == h.process {
						end = other.crashed
					}
				}
				if end > s.effect || !g.chance(70) {
					return false
				}
				if g.chance(g.shape.lost) {
					ops = append(ops, operation{
						op: history.Lost, kind: history.OK, process: 100 + h.owner, lock: lock.spec.Lock, owner: ownerName(h.owner),
						mode: h.mode, queued: -1, invoke: s.complete, complete: s.complete,
					})
				}
				return true
			})
		}
		if s.invoke >= c.crashed {
			// Its work is done by another process.
			processes++
			owners++
			c.process, c.owner, c.crashed = processes, owners, never
		}
		if c.keeps != nil {
			c.owner = c.keeps.owner
		}
		op := g.choose(lock, c, s)
		if op.op == history.Access {
			op.value = version2(version)
			version++
		}
		out := op
		switch {
		case s.complete >= c.crashed:
			// It is not answered any more.
			op.kind, op.complete = history.Info, never
			if g.chance(50) {
				lock.answer(&out, c.owner, s.effect)
			}
		case op.op != history.Access && g.chance(g.shape.unsure):
			op.kind = history.Info
			switch g.r.IntN(3) {
			case 0:
				lock.answer(&out, c.owner, s.effect)
			case 1:
				pending = append(pending, late{at: s.effect + g.units(1, 15), op: op, owner: c.owner})
			default:
			}
			if g.chance(20) {
				op.complete = never
			}
			processes++
			c.process = processes
			if g.chance(50) {
				owners++
				c.owner = owners
			}
		case op.op == history.Access:
			op.kind = history.OK
		default:
			lock.answer(&op, c.owner, s.effect)
			if op.op == history.Release && op.kind == history.OK && fresh {
				owners++
				c.owner = owners
			}
		}
		ops = append(ops, op)
		if s.complete >= c.crashed {
			ops = append(ops, operation{
				op: history.Crash, kind: history.Info, process: op.process, invoke: c.crashed, complete: c.crashed,
			})
			processes++
			owners++
			c.process, c.owner, c.crashed = processes, owners, never
		}
	}
	for _, c := range clients {
		if c.crashed != never && c.crashed > c.free {
			ops = append(ops, operation{
				op: history.Crash, kind: history.Info, process: c.process, invoke: c.crashed, complete: c.crashed,
			})
		}
	}
	// Ties are in a random order.
	slices.SortStableFunc(ops, func(a, b operation) int { return cmp.Compare(a.invoke, b.invoke) })
	for i := range ops {
		ops[i].first = g.r.IntN(1000)
		ops[i].last = g.r.IntN(1000)
	}
	return specs, ops
}

func ownerName(owner int) string { return string(rune('a' + owner%26)) }

func version2(version int64) string {
	return string(rune('0'+version%10)) + ">" + string(rune('0'+(version+1)%10))
}

// choose is what a client does next.
func (g *Generator) choose(lock *simulated, c *client, s slot) operation {
	op := operation{
		kind: history.OK, process: c.process, lock: lock.spec.Lock, owner: ownerName(c.owner), queued: -1,
		invoke: s.invoke, complete: s.complete,
	}
	var mine *held
	for i := range lock.grants {
		if lock.grants[i].owner == c.owner && (mine == nil || g.chance(50)) {
			mine = &lock.grants[i]
		}
	}
	pick := g.r.IntN(100)
	if c.keeps != nil {
		op.op = history.Extend
		if mine != nil {
			op.mode = mine.mode
		}
	} else if mine != nil {
		op.mode = mine.mode
		again := 8
		if lock.spec.Reentrant || lock.spec.Kind != "" {
			again = 25
		}
		switch {
		case pick < again:
			op.op = history.Acquire
		case pick < 40:
			op.op = history.Extend
		case pick < 50:
			op.op = history.Access
			op.token = mine.token
		default:
			op.op = history.Release
		}
	} else {
		switch {
		case pick < 80:
			op.op = history.Acquire
		case pick < 90:
			op.op = history.Release
		case pick < 96:
			op.op = history.Extend
		default:
			op.op = history.Access
		}
	}
	switch lock.spec.Kind {
	case history.KindRW:
		if op.op == history.Acquire || op.mode == "" {
			op.mode = history.Read
			if g.chance(45) {
				op.mode = history.Write
			}
		}
		if op.op != history.Acquire && g.chance(20) {
			op.mode = ""
		}
	case history.KindSemaphore:
		op.mode = history.Permit
		switch {
		case op.op == history.Acquire && g.chance(30):
			op.permits = 1 + g.r.IntN(max(2, (g.shape.capacity+1)/2))
		case op.op == history.Release && mine != nil && g.chance(40):
			op.permits = mine.permits
			if g.chance(30) {
				op.permits = 0
				for _, h := range lock.grants {
					if h.owner == c.owner {
						op.permits += h.permits
					}
				}
			}
		default:
		}
	default:
		op.mode = ""
	}
	if op.op == history.Access {
		op.resource = "r"
		op.mode = ""
		if lock.fenced && g.chance(30) {
			op.token = 0
		}
	}
	if op.op == history.Extend && c.keeps == nil && g.chance(50) {
		op.process = 100 + c.owner
	}
	if op.op == history.Acquire || op.op == history.Extend {
		pick := g.r.IntN(8)
		switch {
		case !g.chance(g.shape.leases): // kept alive by a watchdog
		case pick < 2:
			op.lease = g.units(30, 60)
		case pick == 2:
			op.lease = g.units(1, 2)
		default:
			op.lease = g.units(2, 14)
		}
	}
	return op
}

// answer lets the operation take effect, and sets its outcome.
func (l *simulated) answer(op *operation, owner int, at time.Duration) {
	end := never
	if op.lease > 0 {
		end = at + op.lease
		if owner%2 == 0 {
			op.expires = op.invoke + op.lease
		}
	}
	op.kind = history.OK
	if op.op == history.Acquire {
		l.acquire(op, owner, end)
		return
	}
	has := 0
	for i := range l.grants {
		if l.grants[i].owner == owner && (op.mode == "" || l.grants[i].mode == op.mode) {
			has += l.grants[i].permits
		}
	}
	careless := l.careless()
	switch {
	case careless && has == 0:
		return
	case careless:
		op.kind, op.expires = history.Fail, 0
		return
	}
	if has == 0 || op.mode == history.Permit && op.op == history.Release && has < op.permits {
		op.kind, op.expires = history.Fail, 0
		return
	}
	if op.mode == history.Permit && op.op == history.Release && has == op.permits {
		l.grants = slices.DeleteFunc(l.grants, func(h held) bool { return h.owner == owner })
		return
	}
	for i := range l.grants {
		h := &l.grants[i]
		if h.owner != owner || op.mode != "" && h.mode != op.mode || op.op == history.Release && op.permits > 0 && h.permits != op.permits {
			continue
		}
		if op.op == history.Extend {
			h.end = end
			return
		}
		h.count--
		if h.count == 0 {
			l.grants = slices.Delete(l.grants, i, i+1)
		}
		return
	}
	op.kind = history.Info
}

func (l *simulated) acquire(op *operation, owner int, end time.Duration) {
	out := max(1, op.permits)
	careless := l.careless()
	for i := range l.grants {
		h := &l.grants[i]
		switch {
		case op.mode == history.Permit:
			out += h.permits
		case h.owner == owner && h.mode == op.mode:
			if op.mode != history.Read && !l.spec.Reentrant {
				op.kind, op.expires = history.Fail, 0
				return
			}
			h.count++
			h.end = end
			op.token = h.token
			return
		case h.owner == owner, careless:
		case op.mode == history.Read && h.mode == history.Read:
		default:
			op.kind, op.expires = history.Fail, 0
			return
		}
	}
	if op.mode == history.Permit && out > l.spec.Capacity && !careless {
		op.kind, op.expires = history.Fail, 0
		return
	}
	l.token++
	if l.fenced {
		op.token = l.token
	}
	if l.spec.Fair {
		op.queued = l.queued
		l.queued++
	}
	l.grants = append(l.grants, held{
		owner: owner, process: op.process, mode: op.mode, count: 1, permits: max(1, op.permits), end: end, token: op.token,
	})
}

// change makes one change at random.
func (g *Generator) change(ops []operation) []operation {
	if len(ops) == 0 {
		return ops
	}
	at := g.r.IntN(len(ops))
	op := &ops[at]
	other := &ops[g.r.IntN(len(ops))]
	single := op.op == history.Lost || op.op == history.Crash
	switch g.r.IntN(14) {
	case 0:
		return slices.Delete(ops, at, at+1)
	case 1, 2:
		if !single {
			op.kind = []history.Type{history.OK, history.OK, history.Fail, history.Info}[g.r.IntN(4)]
			if op.complete == never {
				op.complete = op.invoke + g.units(1, 5)
			}
		}
	case 3, 4:
		step := g.units(-6, 6)
		op.invoke += step
		if op.complete != never {
			op.complete += step
		}
	case 5:
		if !single && op.complete != never {
			op.complete += g.units(-4, 6)
		}
	case 6:
		if op.op != history.Crash && other.op != history.Crash && op.op != history.Access {
			op.owner = other.owner
		}
	case 7:
		if op.op == history.Acquire || op.op == history.Extend {
			op.lease, op.expires = g.units(1, 20), 0
			if g.chance(40) {
				op.lease = 0
			}
			if g.chance(40) {
				op.expires = op.invoke + g.units(0, 12)
			}
		}
	case 8:
		if op.token > 0 {
			op.token = max(1, op.token+int64(g.r.IntN(4))-2)
		}
		if op.queued >= 0 {
			op.queued = max(0, op.queued+int64(g.r.IntN(6))-3)
		}
	case 9:
		if op.mode == history.Permit && op.op != history.Extend {
			op.permits = g.r.IntN(max(4, g.shape.capacity))
		}
		if op.mode == history.Read || op.mode == history.Write {
			op.mode = []history.Mode{history.Read, history.Write}[g.r.IntN(2)]
		}
	case 10:
		if op.op == history.Acquire || op.op == history.Release || op.op == history.Extend {
			op.op = []history.Op{history.Acquire, history.Release, history.Extend}[g.r.IntN(3)]
		}
	case 11:
		if op.op != history.Crash {
			when := op.invoke + g.units(-3, 8)
			lost := operation{
				op: history.Lost, kind: history.OK, process: 200 + g.r.IntN(3), lock: op.lock, owner: op.owner, mode: op.mode, queued: -1,
				invoke: when, complete: when,
			}
			return append(ops, lost)
		}
	case 12:
		when := other.invoke + g.units(-2, 6)
		return append(ops, operation{op: history.Crash, kind: history.Info, process: op.process, invoke: when, complete: when})
	default:
		if !single {
			copied := *op
			step := g.units(0, 10)
			copied.process += 300
			copied.invoke += step
			if copied.complete != never {
				copied.complete += step
			}
			return append(ops, copied)
		}
	}
	return ops
}
