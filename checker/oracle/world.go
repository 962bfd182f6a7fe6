package oracle

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// Tokens says what a search asks of fencing tokens.
type Tokens int

// What a search asks, from the least on.
const (
	Ignore    Tokens = iota // tokens say nothing
	SameInner               // an inner grant has the token of the hold that it is part of
	InOrder                 // and each other grant has a greater token than all before it
)

// maxGrants is how many grants a search follows at a time.
const maxGrants = 12

// A grant is what the lock knows of one.
type grant struct {
	owner   int8
	mode    int8 // an index into the modes below
	count   int8
	permits int8
	setter  int8  // the operation that set the lease
	token   int8  // its place among the tokens of the lock; 0: not known
	parts   int32 // the acquires that are part of it, a bit each
}

const (
	writes int8 = iota
	reads
	permits
)

// A world is how far a search has come: what took effect, until when, and what
// the lock then knows. It has the earliest time that the order allows, which is
// the best: a later one only leaves less time for what is still to come.
type world struct {
	done   int32
	until  time.Duration
	grants [maxGrants]grant // sorted
	n      int8
	token  int8 // the place of the greatest token so far
}

// An effect is an operation as the search sees it.
type effect struct {
	operation

	owner   int8
	mode    int8
	token   int8
	end     time.Duration // the earliest end of the lease; never: crashes tell
	crashes []crash       // of a lease without an end: those that came after it was sent
	before  int32         // what its owner was answered before it was sent
	must    bool          // it was answered ok or fail
}

type crash struct {
	process int
	at      time.Duration
}

// A search looks for one world that explains the operations of a lock.
type search struct {
	effects  []effect
	spec     history.Event
	capacity int
	tokens   Tokens
	// precede, if it is set, are two acquires of which the first takes effect
	// before the second.
	precede [2]int
	seen    map[world]struct{}
	must    int32
}

// newSearch prepares the operations of one lock. Refused acquires need nothing
// and do nothing, so they are left out.
func newSearch(spec history.Event, ops []operation) *search {
	s := &search{spec: spec, capacity: spec.Capacity, precede: [2]int{-1, -1}, seen: make(map[world]struct{})}
	owners := make(map[string]int8)
	var tokens []int64
	for i := range ops {
		if ops[i].token > 0 {
			tokens = append(tokens, ops[i].token)
		}
	}
	slices.Sort(tokens)
	tokens = slices.Compact(tokens)
	for i := range ops {
		op := &ops[i]
		switch op.op {
		case history.Acquire:
			if op.kind == history.Fail {
				continue
			}
		case history.Release, history.Extend:
		default:
			continue
		}
		owner, known := owners[op.owner]
		if !known {
			owner = int8(len(owners))
			owners[op.owner] = owner
		}
		e := effect{
			operation: *op, owner: owner, mode: modeOf(spec, op, ops),
			must: op.kind != history.Info && !op.optional, end: op.promised(),
		}
		if op.token > 0 {
			at, _ := slices.BinarySearch(tokens, op.token)
			e.token = int8(at + 1)
		}
		if e.end != never {
			e.end -= spec.Drift
		}
		for j := range ops {
			if c := &ops[j]; c.op == history.Crash && sentBefore(op, c) {
				e.crashes = append(e.crashes, crash{process: c.process, at: c.invoke})
			}
		}
		s.effects = append(s.effects, e)
	}
	// At most 31 effects fit into a world.
	for i := range s.effects {
		for j := range s.effects {
			a, b := &s.effects[i], &s.effects[j]
			if i != j && a.owner == b.owner && a.last < b.first && a.must {
				b.before |= 1 << i
			}
		}
		if s.effects[i].must {
			s.must |= 1 << i
		}
	}
	for i := range ops {
		if ops[i].op == history.Lost {
			s.lost(&ops[i], ops)
		}
	}
	return s
}

// sentBefore reports whether an operation was sent before a process crashed. At
// the same stamp of another process it may have been.
func sentBefore(op, crash *operation) bool {
	if op.process == crash.process {
		return op.first < crash.first
	}
	return op.invoke <= crash.invoke
}

// modeOf is the mode of an operation. One that names none belongs to the mode
// of the owner's acquires that were not refused and were sent before its
// completion.
func modeOf(spec history.Event, op *operation, ops []operation) int8 {
	switch {
	case spec.Kind == history.KindSemaphore:
		return permits
	case spec.Kind != history.KindRW, op.mode == history.Write, op.mode == history.Exclusive:
		return writes
	case op.mode == history.Read:
		return reads
	case op.op == history.Acquire:
		return writes
	}
	for i := range ops {
		if a := &ops[i]; granted(a) && a.owner == op.owner && a.first < op.last && a.mode == history.Read {
			return reads
		}
	}
	return writes
}

// lost lets the lease that the notice speaks of end with the notice: that of the
// last operation that was an acquire answered ok, or an extend answered ok and
// sent, before it. Of permits that counts for each grant, and so for each of
// these operations.
func (s *search) lost(notice *operation, ops []operation) {
	mode := modeOf(s.spec, notice, ops)
	last := -1
	for i := range s.effects {
		e := &s.effects[i]
		if e.operation.owner != notice.owner || e.mode != mode || e.kind != history.OK {
			continue
		}
		before := e.op == history.Acquire && e.last < notice.first || e.op == history.Extend && e.first < notice.first
		switch {
		case !before:
		case mode == permits:
			e.end = min(e.end, notice.invoke)
		case last < 0 || s.effects[last].first < e.first:
			last = i
		}
	}
	if last >= 0 {
		s.effects[last].end = min(s.effects[last].end, notice.invoke)
	}
}

// possible reports whether the operations of one lock are possible.
func (s *search) possible(tokens Tokens) bool {
	s.tokens = tokens
	clear(s.seen)
	return s.explore(world{until: -1 << 62})
}

// endAnswered lets grants end when a release of their owner, or an extend that was
// refused, was sent, and asks of these no more than that.
func (s *search) endAnswered() *search {
	for i := range s.effects {
		e := &s.effects[i]
		if e.op == history.Acquire || e.op == history.Extend && e.kind != history.Fail {
			continue
		}
		for j := range s.effects {
			if o := &s.effects[j]; o.owner == e.owner && o.mode == e.mode && o.first < e.last {
				o.end = min(o.end, e.invoke)
			}
		}
		s.must &^= 1 << i
		e.must = false
	}
	return s
}

// explore reports whether some order of what is still to come works.
func (s *search) explore(w world) bool {
	if w.done&s.must == s.must {
		return true
	}
	latest := never
	for i := range s.effects {
		if e := &s.effects[i]; e.must && w.done&(1<<i) == 0 {
			latest = min(latest, e.complete)
		}
	}
	if w.until > latest {
		return false
	}
	if _, known := s.seen[w]; known {
		return false
	}
	s.seen[w] = struct{}{}
	for i := range s.effects {
		e := &s.effects[i]
		if w.done&(1<<i) != 0 || w.done&e.before != e.before || max(w.until, e.invoke) > latest {
			continue
		}
		next := w
		next.done |= 1 << i
		next.until = max(w.until, e.invoke)
		if s.apply(next, i) {
			return true
		}
	}
	for g := range w.n {
		end := s.end(&w.grants[g])
		if end == never || max(w.until, end) > latest {
			continue
		}
		next := w
		next.until = max(w.until, end)
		next.remove(g)
		if s.explore(next) {
			return true
		}
	}
	return false
}

// end is the earliest end of a grant's lease. One without an end may be dropped
// when the first process crashes that has a part in the grant.
func (s *search) end(g *grant) time.Duration {
	e := &s.effects[g.setter]
	end := e.end
	if e.promised() != never {
		return end
	}
	for _, c := range e.crashes {
		for i := range s.effects {
			if g.parts&(1<<i) != 0 && s.effects[i].process == c.process {
				end = min(end, c.at)
			}
		}
	}
	return end
}

// apply lets an operation take effect, in each of the ways in which it can, and
// explores what follows.
func (s *search) apply(w world, at int) bool {
	e := &s.effects[at]
	if s.precede[1] == at && w.done&(1<<s.precede[0]) == 0 {
		return false
	}
	switch {
	case e.op == history.Acquire:
		return s.acquire(w, at)
	case e.kind == history.Fail:
		return s.refuse(w, at)
	case e.op == history.Extend:
		for g := range w.n {
			if w.grants[g].owner == e.owner && w.grants[g].mode == e.mode {
				next := w
				next.grants[g].setter = int8(at)
				next.sort()
				if s.explore(next) {
					return true
				}
			}
		}
		return false
	case e.mode == permits:
		return s.giveBack(w, at)
	default:
		for g := range w.n {
			if w.grants[g].owner == e.owner && w.grants[g].mode == e.mode {
				w.grants[g].count--
				if w.grants[g].count == 0 {
					w.remove(g)
				}
				w.sort()
				return s.explore(w)
			}
		}
		return false
	}
}

// acquire is the first four lines of the table of effects.
func (s *search) acquire(w world, at int) bool {
	e := &s.effects[at]
	out, mine := max(1, e.permits), int8(-1)
	for g := range w.n {
		other := &w.grants[g]
		same := other.owner == e.owner
		switch {
		case e.mode == permits:
			out += int(other.permits)
		case same && other.mode == e.mode:
			mine = g
		case same:
		case e.mode == writes || other.mode == writes:
			return false
		}
	}
	if e.mode == permits && s.capacity > 0 && out > s.capacity {
		return false
	}
	if mine >= 0 {
		if e.mode == writes && !s.spec.Reentrant {
			return false
		}
		g := &w.grants[mine]
		if s.tokens != Ignore && e.token != 0 {
			if g.token != 0 && g.token != e.token {
				return false
			}
			if g.token == 0 && s.tokens == InOrder && e.token <= w.token {
				return false
			}
			g.token = e.token
			w.token = max(w.token, e.token)
		}
		g.count++
		g.setter = int8(at)
		g.parts |= 1 << at
		w.sort()
		return s.explore(w)
	}
	if s.tokens == InOrder && e.token != 0 {
		if e.token <= w.token {
			return false
		}
		w.token = e.token
	}
	if w.n == maxGrants {
		panic("oracle: too many grants at a time")
	}
	w.grants[w.n] = grant{
		owner: e.owner, mode: e.mode, count: 1, permits: int8(max(1, e.permits)), setter: int8(at), parts: 1 << at,
	}
	if s.tokens != Ignore {
		w.grants[w.n].token = e.token
	}
	w.n++
	w.sort()
	return s.explore(w)
}

// refuse is "not held": the owner does not have it, or has fewer permits.
func (s *search) refuse(w world, at int) bool {
	e := &s.effects[at]
	has := 0
	for g := range w.n {
		if w.grants[g].owner == e.owner && w.grants[g].mode == e.mode {
			has += int(w.grants[g].permits)
		}
	}
	need := 1
	if e.mode == permits {
		need = max(1, e.permits)
	}
	return has < need && s.explore(w)
}

// giveBack releases whole grants of a semaphore: as many as have the permits
// together that the release names, or one if it names none.
func (s *search) giveBack(w world, at int) bool {
	e := &s.effects[at]
	for choice := 1; choice < 1<<w.n; choice++ {
		next, sum, number, valid := w, 0, 0, true
		for g := w.n - 1; g >= 0; g-- {
			if choice&(1<<g) == 0 {
				continue
			}
			valid = valid && w.grants[g].owner == e.owner
			sum += int(w.grants[g].permits)
			number++
			next.remove(g)
		}
		if !valid || e.permits == 0 && number != 1 || e.permits != 0 && sum != e.permits {
			continue
		}
		if s.explore(next) {
			return true
		}
	}
	return false
}

func (w *world) remove(g int8) {
	copy(w.grants[g:], w.grants[g+1:w.n])
	w.n--
	w.grants[w.n] = grant{}
}

// sort makes worlds equal that differ in nothing but the order of their grants.
func (w *world) sort() {
	slices.SortFunc(w.grants[:w.n], func(a, b grant) int {
		return cmp.Or(cmp.Compare(a.owner, b.owner), cmp.Compare(a.mode, b.mode), cmp.Compare(a.parts, b.parts))
	})
}
