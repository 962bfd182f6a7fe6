package holding

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// permits are the grants of a semaphore that one owner has, as far as is known
// from the order of its operations alone.
type permits struct {
	slots   []slot
	spare   int32 // the account of its acquires with an unknown outcome, plus 1
	unknown []int // how many permits each of them asked for that nothing has proven
	latest  int32 // the account that was given back last, plus 1

	// The latest completions of what it asked for.
	acquired, released, extended int64
	vague                        bool // a release or extend has an unknown outcome
}

// A slot is a grant of a semaphore that its owner may have.
type slot struct {
	account int32
	busy    bool // granted, and not given back for certain
	asked   bool // a release with an unknown outcome was sent
	permits int
	process int
	expires time.Duration // less drift; [history.Never] if it has no end
	start   time.Duration // the first answer that proves it
	alive   time.Duration // when it was certainly there
	over    bool          // its lease had ended when it was answered
	since   int64         // the place of the operation that gave the lease
	sent    time.Duration // when that was sent
}

// take notes that an operation gave the lease of the slot.
func (s *slot) take(op *history.Operation, drift time.Duration) {
	if s.expires = op.Expires(); s.expires == 0 {
		s.expires = history.Never
	} else {
		s.expires -= drift
	}
	s.alive, s.since, s.sent = op.Invoke.Time, place(op), op.Invoke.Time
	s.over = s.expires <= op.Complete.Time
}

// ends is when the lease of a slot can first have ended, as far as is known when
// op is answered.
func (r *grouper) ends(s *slot, op *history.Operation) time.Duration {
	end := s.expires
	for _, e := range r.lostTo[owned{lock: op.Invoke.Lock, owner: op.Invoke.Owner}] {
		if e.Index > s.since && e.Index < place(op) {
			end = min(end, e.Time)
		}
	}
	for _, c := range r.crashed[s.process] {
		if s.expires == history.Never && c.Time >= s.sent {
			end = min(end, c.Time)
		}
	}
	return max(end, s.alive)
}

// permits finds the accounts of an operation on a semaphore: a slot for each
// grant that its owner may have at a time. Where it could be of several that
// differ, the owner is confused.
func (r *grouper) permits(l *lockOwners, p *lockOwner, op *history.Operation, at int64) {
	e := op.Invoke
	en := entry{op: op, at: at}
	if !op.Failed() || e.Op != history.Acquire {
		r.inOrder(l, p, op)
	}
	if e.Op == history.Acquire {
		r.granted(l, p, en)
		return
	}
	var busy []int
	total := 0
	for i := range p.slots {
		if p.slots[i].busy {
			busy = append(busy, i)
			total += p.slots[i].permits
		}
	}
	possible := total
	for _, n := range p.unknown {
		possible += n
	}
	switch {
	case op.OK() && e.Op == history.Release && e.Permits > possible:
		r.tooMany(l, p, busy, en)
	case op.OK() && len(p.unknown) > 0:
		r.proven(l, p, len(busy), en)
	case len(busy) == 0 && op.Unknown() && len(p.unknown) > 0:
		r.add(p.spare-1, en)
	case len(busy) == 0:
		r.add(r.slot(l, p, e.Owner), en)
	case op.Failed():
		r.refused(l, p, busy, total, en)
	case e.Op == history.Extend && (len(busy) > 1 || op.OK() && e.Index < p.released):
		r.confused(l, e.Owner, "owner "+e.Owner+" extended one of several grants, and nothing tells which")
	case e.Op == history.Extend:
		s := &p.slots[busy[0]]
		r.add(s.account, en)
		if op.OK() {
			s.take(op, r.holdings.Guarantees[l.lock].Drift)
			s.start = min(s.start, op.Complete.Time)
			s.over = false // it was still there when the extend was sent
		}
	default:
		r.givenBack(l, p, busy, possible, en)
	}
}

// inOrder checks that the operations of an owner follow one another as far as
// they must.
func (r *grouper) inOrder(l *lockOwners, p *lockOwner, op *history.Operation) {
	e := op.Invoke
	switch {
	case e.Op == history.Acquire && e.Index < p.released, e.Op == history.Release && e.Index < max(p.acquired, p.released):
		r.confused(l, e.Owner, "the operations of owner "+e.Owner+" overlap, so that their order is unknown")
	case e.Op == history.Acquire && p.vague:
		r.confused(l, e.Owner, "owner "+e.Owner+" was used again after an operation with an unknown outcome")
	case e.Op == history.Acquire && e.Index < p.extended, e.Op == history.Extend && !op.Unknown() && e.Index < p.acquired:
		r.confused(l, e.Owner, "an extend of owner "+e.Owner+" overlaps its acquire")
	}
	if op.Unknown() {
		p.vague = p.vague || e.Op != history.Acquire
		return
	}
	switch e.Op {
	case history.Acquire:
		p.acquired = max(p.acquired, op.Complete.Index)
	case history.Release:
		p.released = max(p.released, op.Complete.Index)
	default:
		p.extended = max(p.extended, op.Complete.Index)
	}
}

// slot is the account of what an owner without any permits did.
func (r *grouper) slot(l *lockOwners, p *lockOwner, owner string) int32 {
	if len(p.slots) == 0 {
		p.slots = append(p.slots, slot{account: r.open(l, owned{owner: owner})})
	}
	if p.latest > 0 {
		return p.latest - 1
	}
	return p.slots[0].account
}

// granted finds a slot for an acquire. Those with an unknown outcome share an
// account, from which a later answer proves one.
func (r *grouper) granted(l *lockOwners, p *lockOwner, en entry) {
	e := en.op.Invoke
	if en.op.Unknown() {
		if p.spare == 0 {
			p.spare = r.open(l, owned{owner: e.Owner, slot: -1}) + 1
		}
		p.unknown = append(p.unknown, e.Amount())
		r.add(p.spare-1, en)
		return
	}
	i := slices.IndexFunc(p.slots, func(s slot) bool { return !s.busy })
	if i < 0 {
		i = len(p.slots)
		p.slots = append(p.slots, slot{account: r.open(l, owned{owner: e.Owner, slot: i})})
	}
	s := &p.slots[i]
	if en.op.OK() {
		*s = slot{account: s.account, busy: true, permits: e.Amount(), process: e.Process, start: en.op.Complete.Time}
		s.take(en.op, r.holdings.Guarantees[l.lock].Drift)
	}
	r.add(s.account, en)
}

// tooMany is the confirmed release of more permits than the owner can have. It
// belongs to no grant, and ends all of them.
func (r *grouper) tooMany(l *lockOwners, p *lockOwner, busy []int, en entry) {
	r.add(r.open(l, owned{owner: en.op.Invoke.Owner, slot: -2}), en)
	for _, i := range busy {
		p.slots[i].busy = false
		r.add(p.slots[i].account, en)
	}
}

// proven is a release or extend that was answered ok, and so may prove an
// acquire with an unknown outcome.
func (r *grouper) proven(l *lockOwners, p *lockOwner, busy int, en entry) {
	e := en.op.Invoke
	n := p.unknown[0]
	if busy > 0 || slices.ContainsFunc(p.unknown, func(other int) bool { return other != n }) || e.Op == history.Release && e.Permits != 0 && e.Permits != n {
		r.confused(l, e.Owner, "the "+string(e.Op)+" of owner "+e.Owner+" may belong to an acquire with an unknown outcome, or not")
		return
	}
	p.unknown = p.unknown[1:]
	r.add(p.spare-1, en)
	if e.Op == history.Release {
		p.latest = p.spare
	} else {
		s := slot{account: p.spare - 1, busy: true, permits: n, process: e.Process, start: en.op.Complete.Time}
		s.take(en.op, r.holdings.Guarantees[l.lock].Drift)
		p.slots = append(p.slots, s)
		p.spare = 0
		if len(p.unknown) > 0 { // whatever is confirmed next may belong to either
			p.spare = s.account + 1
		}
	}
}

// refused is the answer that the owner does not have so many permits.
func (r *grouper) refused(l *lockOwners, p *lockOwner, busy []int, total int, en entry) {
	e := en.op.Invoke
	n := e.Amount()
	switch {
	case n > total: // which is right
	case n > 1 && (len(busy) > 1 || len(p.unknown) > 0):
		r.confused(l, e.Owner, "owner "+e.Owner+" was told that it does not have several permits, and nothing tells which of its grants are gone")
	default:
		for _, i := range busy {
			if s := &p.slots[i]; e.Time > s.start { // else it may have been answered before the grant
				s.busy = false
			}
			r.add(p.slots[i].account, en)
		}
	}
}

// givenBack is a release of permits that the owner may have.
func (r *grouper) givenBack(l *lockOwners, p *lockOwner, busy []int, possible int, en entry) {
	op := en.op
	// Those that were not asked for yet, then those that last longest: of grants
	// of one size, this claims the least.
	slices.SortFunc(busy, func(i, j int) int {
		x, y := &p.slots[i], &p.slots[j]
		if x.asked != y.asked {
			return index(x.asked) - index(y.asked)
		}
		return cmp.Or(cmp.Compare(r.ends(y, op), r.ends(x, op)), i-j)
	})
	back, why := given(p.slots, busy, op.Invoke.Permits)
	switch {
	case !op.OK() || len(back) == len(busy):
	case p.vague:
		why = "gave back one of several grants after an operation with an unknown outcome, and nothing tells which"
	case slices.ContainsFunc(busy, func(i int) bool { return p.slots[i].over }):
		why = "gave back one of several grants, one of which was over when it was answered, and nothing tells which"
	}
	// An unknown release of several grants needs them all at once.
	gone := len(back) == 0 && possible >= op.Invoke.Permits || op.Unknown() && len(back) > 1 && slices.ContainsFunc(back, func(i int) bool {
		return p.slots[i].asked || r.ends(&p.slots[i], op) <= op.Invoke.Time
	})
	if why == "" && gone {
		if capacity := r.holdings.Guarantees[l.lock].Capacity; capacity > 0 && op.Invoke.Permits > capacity {
			return // there were never so many: it did nothing
		}
		why = "released several grants at once with an unknown outcome, and one of them may have been gone before"
	}
	if why != "" {
		r.confused(l, op.Invoke.Owner, "owner "+op.Invoke.Owner+" "+why)
		return
	}
	for _, i := range back {
		s := &p.slots[i]
		r.add(s.account, en)
		if op.OK() {
			s.busy = false
			p.latest = s.account + 1
		}
		s.asked = true
	}
}

// given are the grants that a release of so many permits gives back: one, or
// several that sum up to them. A release of no number gives back one grant. It
// says why that can't be told.
func given(slots []slot, busy []int, permits int) (back []int, why string) {
	size := slots[busy[0]].permits
	total := 0
	alike := true
	for _, i := range busy {
		total += slots[i].permits
		alike = alike && slots[i].permits == size
	}
	switch {
	case permits > total: // if it did anything at all
		return nil, ""
	case permits == total:
		return busy, ""
	case !alike:
		return nil, "gave back some of several grants of different sizes, and nothing tells which"
	case permits == 0:
		return busy[:1], ""
	case permits%size != 0:
		return nil, "gave back a part of what it had been granted"
	default:
		return busy[:permits/size], ""
	}
}
