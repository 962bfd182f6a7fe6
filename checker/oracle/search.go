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

// maxGrants is how many grants a search follows at a time, and maxOperations how many operations of a lock.
const (
	maxGrants     = 12
	maxOperations = 31
)

// A mode is how a lock is held.
type mode int8

const (
	writes mode = iota
	reads
	permits
)

// A grant is what the lock knows of one.
type grant struct {
	owner   int8
	mode    mode
	count   int8
	permits int8
	setter  int8  // the operation that set the lease
	token   int8  // its place among the tokens of the lock; 0: not known
	parts   int32 // the acquires that are part of it, a bit each
}

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

	owner  int8
	mode   mode
	token  int8
	end    time.Duration // the earliest end of the lease; never: crashes tell
	before int32         // what its owner was answered before it was sent
	must   bool          // it was answered ok or fail
}

// A search looks for one world that explains the operations of a lock.
type search struct {
	effects []effect
	crashes []operation
	changes []operation // of the capacity, in order
	spec    history.Event
	tokens  Tokens
	// precede, if it is set, are two acquires of which the first takes effect
	// before the second.
	precede [2]int
	seen    map[world]struct{}
}

// newSearch prepares the operations of one lock. Refused acquires need nothing
// and do nothing, so they are left out.
func newSearch(spec history.Event, ops []operation) *search {
	s := &search{spec: spec, precede: [2]int{-1, -1}, seen: make(map[world]struct{}), effects: make([]effect, 0, len(ops))}
	var owners []string
	var tokens []int64
	for _, o := range ops {
		if o.Token > 0 && !slices.Contains(tokens, o.Token) {
			tokens = append(tokens, o.Token)
		}
	}
	slices.Sort(tokens)
	for _, o := range ops {
		switch {
		case o.Op == history.Crash:
			s.crashes = append(s.crashes, o)
			continue
		case o.Op == history.Declare:
			s.changes = append(s.changes, o)
			continue
		case o.Op == history.Lost, o.Op == history.Access, o.is(history.Acquire, history.Fail):
			continue
		}
		if !slices.Contains(owners, o.Owner) {
			owners = append(owners, o.Owner)
		}
		e := effect{
			operation: o, owner: int8(slices.Index(owners, o.Owner)), mode: modeOf(spec, &o, ops),
			token: int8(slices.Index(tokens, o.Token) + 1), must: o.kind != history.Info, end: o.ends,
		}
		if e.end != never {
			e.end -= spec.Drift
		}
		s.effects = append(s.effects, e)
	}
	if len(s.effects) > maxOperations {
		panic("oracle: too many operations on a lock")
	}
	for i := range s.effects {
		for j := range s.effects {
			if a, b := &s.effects[i], &s.effects[j]; a.owner == b.owner && a.last < b.first && a.must {
				b.before |= 1 << i
			}
		}
	}
	for _, o := range ops {
		if o.Op == history.Lost {
			s.lost(&o, modeOf(spec, &o, ops))
		}
	}
	return s
}

// modeOf is the mode of an operation. One that names none belongs to the mode
// of the owner's acquires that were not refused and were sent before its
// completion.
func modeOf(spec history.Event, o *operation, ops []operation) mode {
	switch {
	case spec.Kind == history.KindSemaphore:
		return permits
	case spec.Kind != history.KindRW, o.Mode == history.Write, o.Mode == history.Exclusive:
		return writes
	case o.Mode == history.Read:
		return reads
	case o.Op != history.Acquire && slices.ContainsFunc(ops, func(a operation) bool {
		return a.granted() && a.Owner == o.Owner && a.first < o.last && a.Mode == history.Read
	}):
		return reads
	default:
		return writes
	}
}

// lost lets the lease that the notice speaks of end with the notice: that of the
// last operation that was an acquire answered ok, or an extend answered ok and
// sent, before it. Of permits that counts for each grant, and so for each of
// these operations.
func (s *search) lost(notice *operation, of mode) {
	last := -1
	for i := range s.effects {
		e := &s.effects[i]
		before := e.Op == history.Acquire && e.last < notice.first || e.Op == history.Extend && e.first < notice.first
		switch {
		case e.Owner != notice.Owner || e.mode != of || e.kind != history.OK || !before:
		case of == permits:
			e.end = min(e.end, notice.Time)
		case last < 0 || s.effects[last].first < e.first:
			last = i
		}
	}
	if last >= 0 {
		s.effects[last].end = min(s.effects[last].end, notice.Time)
	}
}

// possible reports whether the operations of one lock are possible.
func (s *search) possible(tokens Tokens) bool {
	s.tokens = tokens
	clear(s.seen)
	return s.explore(world{until: -1 << 62})
}

// explore reports whether some order of what is still to come works.
func (s *search) explore(w world) bool {
	latest, over := never, true
	for i := range s.effects {
		if e := &s.effects[i]; e.must && w.done&(1<<i) == 0 {
			latest, over = min(latest, e.complete), false
		}
	}
	if over {
		return true
	}
	if _, known := s.seen[w]; known || w.until > latest {
		return false
	}
	s.seen[w] = struct{}{}
	for i := range s.effects {
		e := &s.effects[i]
		if w.done&(1<<i) != 0 || w.done&e.before != e.before || max(w.until, e.Time) > latest {
			continue
		}
		if slices.ContainsFunc(s.after(w, i), s.explore) {
			return true
		}
	}
	for g := range w.n {
		if end := s.end(&w.grants[g]); end != never && max(w.until, end) <= latest {
			next := w
			next.until = max(w.until, end)
			if next.remove(g); s.explore(next) {
				return true
			}
		}
	}
	return false
}

// end is the earliest end of a grant's lease. One without an end may be dropped
// when the first process crashes that has a part in the grant; at the same stamp of
// another process, the crash may have come after what was sent.
func (s *search) end(g *grant) time.Duration {
	e := &s.effects[g.setter]
	end := e.end
	if e.ends != never {
		return end
	}
	for _, c := range s.crashes {
		sent := e.Time <= c.Time
		if e.Process == c.Process {
			sent = e.first < c.first
		}
		for i := range s.effects {
			if sent && g.parts&(1<<i) != 0 && s.effects[i].Process == c.Process {
				end = min(end, max(c.gone(), e.Time))
			}
		}
	}
	return end
}

// after is the worlds in which an operation has taken effect: one for each way in which it can.
func (s *search) after(w world, at int) (next []world) {
	e := &s.effects[at]
	if s.precede[1] == at && w.done&(1<<s.precede[0]) == 0 {
		return nil
	}
	w.done |= 1 << at
	w.until = max(w.until, e.Time)
	has := 0
	var mine []int8
	for g := range w.n {
		if w.grants[g].owner == e.owner && w.grants[g].mode == e.mode {
			has, mine = has+int(w.grants[g].permits), append(mine, g)
		}
	}
	switch {
	case e.Op == history.Acquire:
		return s.acquire(w, at, mine)
	case e.kind == history.Fail: // the owner does not have it, or has fewer permits
		if e.mode != permits && has > 0 || e.mode == permits && has >= e.Amount() {
			return nil
		}
		return []world{w}
	case e.Op == history.Extend:
		for _, g := range mine {
			extended := w
			extended.grants[g].setter = int8(at)
			next = append(next, extended)
		}
		return next
	case e.mode == permits:
		return giveBack(w, mine, e.Permits)
	case len(mine) == 0:
		return nil
	default:
		if w.grants[mine[0]].count--; w.grants[mine[0]].count == 0 {
			w.remove(mine[0])
		}
		return []world{w}
	}
}

// acquire is the first four lines of the table of effects.
func (s *search) acquire(w world, at int, mine []int8) []world {
	e := &s.effects[at]
	out := e.Amount()
	for _, other := range w.grants[:w.n] {
		out += int(other.permits)
		if e.mode != permits && other.owner != e.owner && (e.mode == writes || other.mode == writes) {
			return nil
		}
	}
	if e.mode == permits && len(s.changes) > 0 {
		return s.within(w, at, out)
	}
	inner := len(mine) > 0 && e.mode != permits
	known := s.tokens != Ignore && e.token != 0
	switch {
	case e.mode == permits && s.spec.Capacity > 0 && out > s.spec.Capacity, inner && e.mode == writes && !s.spec.Reentrant:
		return nil
	case inner:
		g := &w.grants[mine[0]]
		if known && (g.token != 0 && g.token != e.token || g.token == 0 && s.tokens == InOrder && e.token <= w.token) {
			return nil
		}
		if known {
			g.token, w.token = e.token, max(w.token, e.token)
		}
		g.count++
		g.setter, g.parts = int8(at), g.parts|1<<at
	default:
		if known && s.tokens == InOrder && e.token <= w.token {
			return nil
		}
		g := grant{owner: e.owner, mode: e.mode, count: 1, permits: int8(e.Amount()), setter: int8(at), parts: 1 << at}
		if known {
			g.token, w.token = e.token, max(w.token, e.token)
		}
		w.grants[w.n] = g // which panics where there are too many
		w.n++
		slices.SortFunc(w.grants[:w.n], func(a, b grant) int { // worlds are equal that differ in nothing but the order
			return cmp.Or(cmp.Compare(a.owner, b.owner), cmp.Compare(a.mode, b.mode), cmp.Compare(a.parts, b.parts))
		})
	}
	return []world{w}
}

// within grants permits of a semaphore whose capacity changes: at once, or at the instant of a change, if there are enough then.
func (s *search) within(w world, at int, out int) (next []world) {
	fixed := *s
	fixed.changes = nil
	fixed.spec.Capacity = s.spec.Capacity
	for _, change := range append([]operation{{Event: history.Event{From: w.until, Capacity: -1}}}, s.changes...) {
		if w.until = max(w.until, change.From); w.until > s.effects[at].complete {
			break
		}
		for _, c := range s.changes {
			if c.From <= w.until {
				fixed.spec.Capacity = c.Capacity
			}
		}
		if out <= fixed.spec.Capacity {
			next = append(next, fixed.acquire(w, at, nil)...)
		}
	}
	return next
}

// giveBack releases whole grants of a semaphore: as many as have the permits
// together that the release names, or one if it names none.
func giveBack(w world, mine []int8, named int) (next []world) {
	for choice := 1; choice < 1<<len(mine); choice++ {
		less, sum, number := w, 0, 0
		for i, g := range slices.Backward(mine) {
			if choice&(1<<i) != 0 {
				sum, number = sum+int(w.grants[g].permits), number+1
				less.remove(g)
			}
		}
		if named == 0 && number == 1 || named != 0 && sum == named {
			next = append(next, less)
		}
	}
	return next
}

func (w *world) remove(g int8) {
	copy(w.grants[g:], w.grants[g+1:w.n])
	w.n--
	w.grants[w.n] = grant{}
}
