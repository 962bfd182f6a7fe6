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
	*Lock
	accounts [][]*Op // what belongs to each
	slots    []slot
	spare    int   // the account of its acquires with an unknown outcome, plus 1
	unknown  []int // how many permits each of them asked for that nothing has proven

	answered [Access]int64 // the latest completions of what it asked for
	vague    bool          // a release or extend has an unknown outcome
	back     []int         // the accounts that the last release that was answered ok gave back
}

func (p *permits) open() int {
	p.accounts = append(p.accounts, nil)
	return len(p.accounts) - 1
}

func (p *permits) add(account int, op *Op) {
	p.accounts[account] = append(p.accounts[account], op)
}

// A slot is a grant of a semaphore that its owner may have.
type slot struct {
	account int
	busy    bool // granted, and not given back for certain
	asked   bool // a release with an unknown outcome was sent
	permits int
	process int
	expires time.Duration // the first end of its lease
	endless bool          // it has none, unless its process crashed or a notice told that it is lost
	start   time.Duration // the first answer that proves it
	over    bool          // its lease had ended when it was answered
	told    int64         // when the operation that gave the lease was answered
	sent    time.Duration // when that was sent: it was certainly there then
}

// grants notes that an operation gave the lease of the slot.
func (s *slot) grants(op *Op) {
	s.expires, s.endless, s.sent, s.told = op.Ends, op.Ends == history.Never, op.Invoke.Time, max(s.told, op.Complete.Index)
	s.over = s.expires <= op.Complete.Time
}

// ends is when the lease of a slot can first have ended, as far as is known.
func (p *permits) ends(s *slot) time.Duration {
	end := s.expires
	if at, crashed := p.record.crash(s.process, s.sent); crashed && s.endless {
		end = min(end, at)
	}
	return max(end, s.sent)
}

// take finds the accounts of an operation: a slot for each
// grant that its owner may have at a time. Where it could be of several that
// differ, the owner is confused.
func (p *permits) take(op *Op) {
	if op.Verb == Lost { // each of its grants
		for i := range p.slots {
			s := &p.slots[i]
			s.expires = min(s.expires, op.Invoke.Time)
			p.add(s.account, op)
		}
		return
	}
	if !op.Failed() || op.Verb != Acquire {
		p.inOrder(op)
	}
	if op.Verb == Acquire {
		p.granted(op)
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
	case op.OK() && op.Verb == Release && int(op.Permits) > possible:
		// More than the owner can have: it belongs to no grant, and ends all of them.
		p.add(p.open(), op)
		for _, i := range busy {
			p.slots[i].busy = false
			p.add(p.slots[i].account, op)
		}
	case op.OK() && len(p.unknown) > 0:
		p.proven(len(busy), op)
	case len(busy) == 0 && op.Unknown() && len(p.unknown) > 0:
		p.add(p.spare-1, op)
	case len(busy) == 0 && op.OK() && op.Verb == Extend && op.Invoke.Index < p.answered[Release] && len(p.back) > 1:
		for _, account := range p.back { // they were given back at once, after this one was extended
			p.add(account, op)
		}
	case len(busy) == 0:
		if len(p.slots) == 0 {
			p.slots = append(p.slots, slot{account: p.open()})
		}
		account := p.slots[0].account
		if n := len(p.back); n > 0 {
			account = p.back[n-1]
		}
		p.add(account, op)
	case op.Failed():
		p.refused(busy, total, op)
	case op.Verb == Extend && (len(busy) > 1 || op.OK() && op.Invoke.Index < p.answered[Release]):
		p.confused(op.Owner, "owner %s extended one of several grants, and nothing tells which")
	case op.Verb == Extend:
		s := &p.slots[busy[0]]
		p.add(s.account, op)
		if op.OK() {
			before, together := *s, op.Invoke.Index < s.told
			if s.grants(op); together { // either may have been last
				s.expires, s.endless = min(s.expires, before.expires), s.endless && before.endless
			}
			s.start = min(s.start, op.Complete.Time)
			s.over = false // it was still there when the extend was sent
		}
	default:
		p.givenBack(busy, total, possible, op)
	}
}

// inOrder checks that the operations of an owner follow one another as far as
// they must.
func (p *permits) inOrder(op *Op) {
	switch {
	case op.Verb == Acquire && op.Invoke.Index < p.answered[Release], op.Verb == Release && op.Invoke.Index < max(p.answered[Acquire], p.answered[Release]):
		p.confused(op.Owner, "the operations of owner %s overlap, so that their order is unknown")
	case op.Verb == Acquire && p.vague:
		p.confused(op.Owner, usedAgain)
	case op.Verb == Acquire && op.Invoke.Index < p.answered[Extend], op.Verb == Extend && !op.Unknown() && op.Invoke.Index < p.answered[Acquire]:
		p.confused(op.Owner, "an extend of owner %s overlaps its acquire")
	}
	if op.Unknown() {
		p.vague = p.vague || op.Verb != Acquire
	} else {
		p.answered[op.Verb] = max(p.answered[op.Verb], op.Complete.Index)
	}
}

// granted finds a slot for an acquire. Those with an unknown outcome share an
// account, from which a later answer proves one.
func (p *permits) granted(op *Op) {
	if op.Unknown() {
		if p.spare == 0 {
			p.spare = p.open() + 1
		}
		p.unknown = append(p.unknown, op.Amount())
		p.add(p.spare-1, op)
		return
	}
	i := slices.IndexFunc(p.slots, func(s slot) bool { return !s.busy })
	if i < 0 {
		i = len(p.slots)
		p.slots = append(p.slots, slot{account: p.open()})
	}
	s := &p.slots[i]
	if op.OK() {
		*s = slot{account: s.account, busy: true, permits: op.Amount(), process: op.Process, start: op.Complete.Time}
		s.grants(op)
	}
	p.add(s.account, op)
}

// proven is a release or extend that was answered ok, and so may prove an
// acquire with an unknown outcome.
func (p *permits) proven(busy int, op *Op) {
	n := p.unknown[0]
	if busy > 0 || slices.ContainsFunc(p.unknown, func(other int) bool { return other != n }) || op.Verb == Release && int(op.Permits) != 0 && int(op.Permits) != n {
		p.confused(op.Owner, "the "+op.Verb.String()+" of owner %s may belong to an acquire with an unknown outcome, or not")
		return
	}
	p.unknown = p.unknown[1:]
	p.add(p.spare-1, op)
	if op.Verb == Release {
		p.back = []int{p.spare - 1}
	} else {
		s := slot{account: p.spare - 1, busy: true, permits: n, process: op.Process, start: op.Complete.Time}
		s.grants(op)
		p.slots = append(p.slots, s)
		p.spare = 0
		if len(p.unknown) > 0 { // whatever is confirmed next may belong to either
			p.spare = s.account + 1
		}
	}
}

// refused is the answer that the owner does not have so many permits.
func (p *permits) refused(busy []int, total int, op *Op) {
	n := op.Amount()
	switch {
	case n > total: // which is right
	case n > 1 && (len(busy) > 1 || len(p.unknown) > 0):
		p.confused(op.Owner, "owner %s was told that it does not have several permits, and nothing tells which of its grants are gone")
	default:
		for _, i := range busy {
			if s := &p.slots[i]; op.Invoke.Time > s.start { // else it may have been answered before the grant
				s.busy = false
			}
			p.add(p.slots[i].account, op)
		}
	}
}

// givenBack is a release of permits that the owner may have.
func (p *permits) givenBack(busy []int, total, possible int, op *Op) {
	// Those that were not asked for yet, then those that last longest: of grants
	// of one size, this claims the least.
	slices.SortFunc(busy, func(i, j int) int {
		x, y := &p.slots[i], &p.slots[j]
		return cmp.Or(Index(x.asked)-Index(y.asked), cmp.Compare(p.ends(y), p.ends(x)), i-j)
	})
	back, why := given(p.slots, busy, total, int(op.Permits))
	switch {
	case !op.OK() || len(back) == len(busy):
	case p.vague:
		why = "gave back one of several grants after an operation with an unknown outcome, and nothing tells which"
	case slices.ContainsFunc(busy, func(i int) bool { return p.slots[i].over }),
		// By a crash: one before it was answered, and those that are given back when that was asked for.
		slices.ContainsFunc(busy, func(i int) bool { return p.ends(&p.slots[i]) <= p.slots[i].start }) &&
			slices.ContainsFunc(back, func(i int) bool { return p.ends(&p.slots[i]) < op.Invoke.Time }):
		why = "gave back one of several grants, one of which was over when it was answered, and nothing tells which"
	}
	// An unknown release of several grants needs them all at once.
	gone := len(back) == 0 && possible >= int(op.Permits) || op.Unknown() && len(back) > 1 && slices.ContainsFunc(back, func(i int) bool {
		return p.slots[i].asked || p.ends(&p.slots[i]) <= op.Invoke.Time
	})
	if why == "" && gone {
		if capacity := p.Capacity; capacity > 0 && int(op.Permits) > capacity {
			return // there were never so many: it did nothing
		}
		why = "released several grants at once with an unknown outcome, and one of them may have been gone before"
	}
	if why != "" {
		p.confused(op.Owner, "owner %s "+why)
		return
	}
	if op.OK() {
		p.back = nil
	}
	for _, i := range back {
		s := &p.slots[i]
		p.add(s.account, op)
		if op.OK() {
			s.busy = false
			p.back = append(p.back, s.account)
		}
		s.asked = true
	}
}

// given are the grants that a release of so many permits gives back: one, or
// several that sum up to them; busy have total. A release of no number gives back one grant. It
// says why that can't be told.
func given(slots []slot, busy []int, total, permits int) (back []int, why string) {
	size := slots[busy[0]].permits
	switch {
	case permits > total: // if it did anything at all
		return nil, ""
	case permits == total:
		return busy, ""
	case slices.ContainsFunc(busy, func(i int) bool { return slots[i].permits != size }):
		return nil, "gave back some of several grants of different sizes, and nothing tells which"
	case permits == 0:
		return busy[:1], ""
	case permits%size != 0:
		return nil, "gave back a part of what it had been granted"
	default:
		return busy[:permits/size], ""
	}
}
