package oracle

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// What a search asks of fencing tokens, from the least on.
const (
	noTokens  = iota // they say nothing
	sameInner        // an inner grant has the token of the hold that it is part of
	inOrder          // and each other grant has a greater token than all before it
)

// maxGrants is how many grants a search follows at a time, and maxOperations how many operations of a lock.
const (
	maxGrants     = 16
	maxOperations = 31
)

// A grant is what the lock knows of one.
type grant struct {
	parts  uint32 // the acquires that are part of it, a bit each; 0: there is no grant
	count  int8
	setter int8  // the operation that set the lease
	token  int16 // its place among the tokens of the lock; 0: not known
}

// A world is how far a search has come: what took effect, until when, and what the lock then knows. It has the earliest
// time that the order allows, which is the best: a later one only leaves less time for what is still to come.
type world struct {
	until  time.Duration
	done   uint32
	token  int32            // the place of the greatest so far
	grants [maxGrants]grant // in order of their parts, so that worlds are equal that differ in nothing else
}

// An effect is an operation as the search sees it.
type effect struct {
	operation

	mode   history.Mode // read, write or permit
	token  int16
	end    time.Duration // the earliest end of the lease; never: crashes tell
	before uint32        // what comes before it: what its owner was answered before it was sent
}

// A search looks for one world that explains the operations of a lock.
type search struct {
	effects    []effect
	crashes    []operation
	capacities []history.Event // in order
	spec       history.Event
	tokens     int
	seen       map[world]bool
	found      world // that explains them
}

// newSearch prepares the operations of one lock. Refused acquires need nothing and do nothing, so they are left out.
func newSearch(spec history.Event, ops []operation) *search {
	s := &search{spec: spec, capacities: []history.Event{spec}, effects: make([]effect, 0, len(ops)), seen: make(map[world]bool)}
	tokens := []int64{0}
	for i := range ops {
		tokens = append(tokens, ops[i].Token)
	}
	slices.Sort(tokens)
	tokens = slices.Compact(tokens)
	for i := range ops {
		switch o := &ops[i]; {
		case o.Op == history.Crash:
			s.crashes = append(s.crashes, *o)
		case o.Lock != spec.Lock:
		case o.Op == history.Declare:
			s.capacities = append(s.capacities, o.Event)
		case o.Op != history.Lost && o.Op != history.Access && !o.is(history.Acquire, history.Fail):
			token, _ := slices.BinarySearch(tokens, o.Token)
			e := effect{operation: *o, mode: modeOf(spec, o, ops), token: int16(token), end: o.ends}
			if e.end != never {
				e.end -= spec.Drift
			}
			s.effects = append(s.effects, e)
		}
	}
	if len(s.effects) > maxOperations {
		panic("oracle: too many operations on a lock")
	}
	for i := range s.effects {
		for j := range s.effects {
			if a, b := &s.effects[i], &s.effects[j]; a.Owner == b.Owner && a.last < b.first && a.kind != history.Info {
				b.before |= 1 << i
			}
		}
	}
	for i := range ops {
		if ops[i].Op == history.Lost && ops[i].Lock == spec.Lock {
			s.lost(&ops[i], modeOf(spec, &ops[i], ops))
		}
	}
	return s
}

// modeOf is the mode of an operation: read, write or permit. One that names none belongs to the mode of the owner's acquires that were not
// refused and were sent before its completion.
func modeOf(spec history.Event, o *operation, ops []operation) history.Mode {
	switch {
	case spec.Kind == history.KindSemaphore:
		return history.Permit
	case spec.Kind != history.KindRW, o.Mode == history.Write, o.Mode == history.Exclusive:
		return history.Write
	case o.Mode == history.Read, o.Op != history.Acquire && slices.ContainsFunc(ops, func(a operation) bool {
		return a.granted() && a.Lock == o.Lock && a.Owner == o.Owner && a.first < o.last && a.Mode == history.Read
	}):
		return history.Read
	default:
		return history.Write
	}
}

// lost lets the lease that the notice speaks of end with the notice: that of the last operation that was an acquire
// answered ok, or an extend answered ok and sent, before it. Of permits that counts for each grant, and so for each of
// these operations.
func (s *search) lost(notice *operation, of history.Mode) {
	var last *effect
	for i := range s.effects {
		e := &s.effects[i]
		before := e.Op == history.Acquire && e.last < notice.first || e.Op == history.Extend && e.first < notice.first
		switch {
		case e.Owner != notice.Owner || e.mode != of || e.kind != history.OK || !before:
		case of == history.Permit:
			e.end = min(e.end, notice.Time)
		case last == nil || last.first < e.first:
			last = e
		}
	}
	if last != nil {
		last.end = min(last.end, notice.Time)
	}
}

// possible reports whether the operations of one lock are possible.
func (s *search) possible(tokens int) bool {
	s.tokens = tokens
	clear(s.seen)
	return s.explore(world{until: -1 << 62})
}

// explore reports whether some order of what is still to come works.
func (s *search) explore(w world) bool {
	latest, over := never, true
	for i := range s.effects {
		if e := &s.effects[i]; e.kind != history.Info && w.done&(1<<i) == 0 {
			latest, over = min(latest, e.complete), false
		}
	}
	if over {
		s.found = w
	}
	if over || s.seen[w] || w.until > latest {
		return over
	}
	s.seen[w] = true
	for i := range s.effects {
		e := &s.effects[i]
		next := w.done&(1<<i) == 0 && w.done&e.before == e.before && max(w.until, e.Time) <= latest
		if next && slices.ContainsFunc(s.after(w, i), s.explore) {
			return true
		}
	}
	for i := range w.held() {
		if end := s.end(&w.grants[i]); end != never && max(w.until, end) <= latest {
			next := w
			next.until = max(w.until, end)
			if next.remove(i); s.explore(next) {
				return true
			}
		}
	}
	return false
}

// at is the place of an operation.
func (s *search) at(o *operation) int {
	return slices.IndexFunc(s.effects, func(e effect) bool { return e.first == o.first })
}

// of is an acquire that is part of a grant: all are by one owner, in one mode.
func (s *search) of(g *grant) *effect { return &s.effects[bits.TrailingZeros32(g.parts)] }

// end is the earliest end of a grant's lease. One without an end may be dropped when the first process crashes that has a
// part in the grant; at the same stamp of another process, the crash may have come after what was sent.
func (s *search) end(g *grant) time.Duration {
	e := &s.effects[g.setter]
	end := e.end
	if e.ends != never {
		return end
	}
	for i := range s.crashes {
		c := &s.crashes[i]
		sent := e.Time <= c.Time && e.Process != c.Process || e.first < c.first && e.Process == c.Process
		for i := range s.effects {
			if sent && g.parts&(1<<i) != 0 && s.effects[i].Process == c.Process {
				end = min(end, max(c.gone(), e.Time))
			}
		}
	}
	return end
}

// after is the worlds in which an operation has taken effect: one for each way in which it can. This is the table of effects.
func (s *search) after(w world, at int) (next []world) {
	e := &s.effects[at]
	w.done |= 1 << at
	w.until = max(w.until, e.Time)
	has := 0
	var mine []int
	for i, g := range w.held() {
		if of := s.of(&g); of.Owner == e.Owner && of.mode == e.mode {
			has, mine = has+of.Amount(), append(mine, i)
		}
	}
	switch {
	case e.Op == history.Acquire && e.mode == history.Permit:
		return s.takeOut(w, at)
	case e.Op == history.Acquire:
		return s.acquire(w, at, mine)
	case e.kind == history.Fail: // the owner does not have it, or has fewer permits
		another := func(o effect) bool { // was asked for by the same owner
			return o.Op == history.Acquire && o.Owner == e.Owner && o.first != s.of(&w.grants[mine[0]]).first
		}
		if has < e.Amount() {
			next = append(next, w)
		} else if e.Op == history.Release && (e.mode != history.Permit || !slices.ContainsFunc(s.effects, another)) && !slices.ContainsFunc(mine, func(i int) bool { return s.end(&w.grants[i]) > e.complete }) {
			for _, i := range slices.Backward(mine) { // which its owner gave up
				w.remove(i)
			}
			next = append(next, w)
		}
	case e.Op == history.Extend:
		for _, i := range mine {
			extended := w
			extended.grants[i].setter = int8(at)
			next = append(next, extended)
		}
	case e.mode == history.Permit:
		return s.giveBack(w, mine, e.Permits)
	case len(mine) > 0:
		if w.grants[mine[0]].count--; w.grants[mine[0]].count == 0 {
			w.remove(mine[0])
		}
		next = append(next, w)
	}
	return next
}

// acquire grants a mutex, or a read-write lock.
func (s *search) acquire(w world, at int, mine []int) []world {
	e, g := &s.effects[at], grant{}
	for _, h := range w.held() {
		if other := s.of(&h); other.Owner != e.Owner && (e.mode == history.Write || other.mode == history.Write) {
			return nil
		}
	}
	if len(mine) > 0 {
		if e.mode == history.Write && !s.spec.Reentrant {
			return nil
		}
		g = w.grants[mine[0]]
		w.remove(mine[0])
	}
	if e.token != 0 && s.tokens != noTokens {
		if g.token != 0 && g.token != e.token || g.token == 0 && s.tokens == inOrder && int32(e.token) <= w.token {
			return nil
		}
		g.token, w.token = e.token, max(w.token, int32(e.token))
	}
	g.count, g.setter, g.parts = g.count+1, int8(at), g.parts|1<<at
	w.add(g)
	return []world{w}
}

// takeOut grants permits of a semaphore: at once, or at the instant of a change of its capacity, if there are enough then.
func (s *search) takeOut(w world, at int) (next []world) {
	e, out := &s.effects[at], s.effects[at].Amount()
	for _, h := range w.held() {
		out += s.of(&h).Amount()
	}
	for i, c := range s.capacities {
		granted := w
		granted.until = max(w.until, c.From)
		over := i+1 < len(s.capacities) && s.capacities[i+1].From <= granted.until || granted.until > e.complete && e.kind != history.Info
		if !over && (c.Capacity == 0 || out <= c.Capacity) {
			granted.add(grant{parts: 1 << at, count: 1, setter: int8(at)})
			next = append(next, granted)
		}
	}
	return next
}

// giveBack releases whole grants of a semaphore: as many as have the permits together that the release names, or one if
// it names none.
func (s *search) giveBack(w world, mine []int, named int) (next []world) {
	for choice := 1; choice < 1<<len(mine); choice++ {
		less, sum := w, 0
		for i, g := range slices.Backward(mine) {
			if choice&(1<<i) != 0 {
				sum += s.of(&w.grants[g]).Amount()
				less.remove(g)
			}
		}
		if named == 0 && choice&(choice-1) == 0 || named != 0 && sum == named {
			next = append(next, less)
		}
	}
	return next
}

// held are the grants that there are.
func (w *world) held() []grant {
	n := 0
	for n < maxGrants && w.grants[n].parts != 0 {
		n++
	}
	return w.grants[:n]
}

func (w *world) remove(i int) {
	copy(w.grants[i:], w.grants[i+1:])
	w.grants[maxGrants-1] = grant{}
}

func (w *world) add(g grant) {
	w.grants[len(w.held())] = g // which panics where there are too many
	slices.SortFunc(w.held(), func(a, b grant) int { return cmp.Compare(a.parts, b.parts) })
}
