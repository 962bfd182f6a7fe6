package history

import "slices"

// A register sorts what happened by the account that it belongs to: one for
// each owner of each lock, of a read-write lock another for its reads, and of a
// semaphore one for each grant that the owner has at a time.
type register struct {
	book     *Book
	entries  []entry
	accounts []owned
	sizes    []int32 // entries of each account
	of       []int32 // the account of each operation
	also     map[int][]int32
	crashed  map[int]*Event

	last  *ledger // of the lock that was asked for last
	books map[string]*ledger
}

// A ledger knows the owners of one lock.
type ledger struct {
	lock    string
	kind    string
	parties map[string]int32 // index into list, plus 1
	list    []party
}

// A party is one owner of one lock.
type party struct {
	account int32 // of a mutex, of the writes of a read-write lock; else -1
	reads   int32 // of the reads of a read-write lock; -1
	read    bool  // its latest acquire of a read-write lock was a read
	slots   []slot
}

// A slot is a grant of a semaphore that its owner may have.
type slot struct {
	account int32
	busy    bool // granted, and not given back for certain
	asked   bool // a release with an unknown outcome was sent
	permits int
	expires int64 // Never if it has no end
}

func (r *register) read(h *History) {
	ops := r.book.Operations
	r.entries = make([]entry, 0, len(ops))
	r.books = map[string]*ledger{}
	r.of = make([]int32, len(ops))
	for i := range r.of {
		r.of[i] = -1
	}
	for i := range ops {
		op := &ops[i]
		e := op.Invoke
		if e.Op != Acquire && e.Op != Release && e.Op != Extend {
			continue
		}
		l := r.ledger(e.Lock)
		p := l.party(e.Owner)
		at := place(op)
		switch l.kind {
		case KindSemaphore:
			r.permits(l, p, op, at)
		case KindRW:
			read := e.Mode == Read
			if e.Op == Acquire {
				p.read = read
			} else if e.Mode == "" {
				read = p.read
			}
			r.add(r.account(l, p, e.Owner, read), entry{op: op, at: at})
		default:
			r.add(r.account(l, p, e.Owner, false), entry{op: op, at: at})
		}
	}
	for i := range h.Events {
		e := &h.Events[i]
		switch e.Op {
		case Lost:
			r.lost(e)
		case Crash:
			if r.crashed == nil {
				r.crashed = map[int]*Event{}
			}
			r.crashed[e.Process] = e
		default:
		}
	}
}

func (r *register) ledger(lock string) *ledger {
	if r.last != nil && r.last.lock == lock {
		return r.last
	}
	l := r.books[lock]
	if l == nil {
		l = &ledger{lock: lock, kind: r.book.Promises[lock].Kind, parties: map[string]int32{}}
		r.books[lock] = l
	}
	r.last = l
	return l
}

// party is the owner, which is good until the next one is asked for.
func (l *ledger) party(owner string) *party {
	at := l.parties[owner]
	if at == 0 {
		l.list = append(l.list, party{account: -1, reads: -1})
		at = int32(len(l.list)) //nolint:gosec // fewer than operations, which fit into memory
		l.parties[owner] = at
	}
	return &l.list[at-1]
}

func (r *register) add(account int32, e entry) {
	e.account = account
	if e.op != nil {
		if at := e.op.at; r.of[at] < 0 {
			r.of[at] = account
		} else {
			if r.also == nil {
				r.also = map[int][]int32{}
			}
			r.also[at] = append(r.also[at], account)
		}
	}
	r.sizes[account]++
	r.entries = append(r.entries, e)
}

func (r *register) open(key owned) int32 {
	r.accounts = append(r.accounts, key)
	r.sizes = append(r.sizes, 0)
	return int32(len(r.accounts) - 1) //nolint:gosec // fewer than operations, which fit into memory
}

func (r *register) account(l *ledger, p *party, owner string, read bool) int32 {
	at := &p.account
	if read {
		at = &p.reads
	}
	if *at < 0 {
		*at = r.open(owned{lock: l.lock, owner: owner, read: read})
	}
	return *at
}

func (r *register) lost(e *Event) {
	l := r.ledger(e.Lock)
	p := l.party(ownerOf(e))
	en := entry{lost: e, at: e.Index}
	if l.kind == KindSemaphore {
		for i := range p.slots {
			r.add(p.slots[i].account, en)
		}
		return
	}
	read := e.Mode == Read
	if e.Mode == "" && l.kind == KindRW {
		read = p.read
	}
	r.add(r.account(l, p, ownerOf(e), read), en)
}

// permits finds the slots of an operation on a semaphore.
func (r *register) permits(l *ledger, p *party, op *Operation, at int64) {
	e := op.Invoke
	en := entry{op: op, at: at}
	if e.Op == Acquire {
		i := slices.IndexFunc(p.slots, func(s slot) bool { return !s.busy })
		if i < 0 {
			i = len(p.slots)
			p.slots = append(p.slots, slot{account: r.open(owned{lock: l.lock, owner: e.Owner, slot: i})})
		}
		if s := &p.slots[i]; op.OK() {
			expires := int64(op.Expires())
			if expires == 0 {
				expires = int64(Never)
			}
			*s = slot{account: s.account, busy: true, permits: max(e.Permits, 1), expires: expires}
		}
		r.add(p.slots[i].account, en)
		return
	}
	var free, busy []int
	for i := range p.slots {
		if p.slots[i].busy {
			busy = append(busy, i)
		} else {
			free = append(free, i)
		}
	}
	switch {
	case len(p.slots) == 0:
		r.add(r.open(owned{lock: l.lock, owner: e.Owner}), en)
		p.slots = append(p.slots, slot{account: int32(len(r.accounts) - 1)}) //nolint:gosec // as above
		return
	case len(busy) == 0:
		s := &p.slots[free[len(free)-1]]
		r.add(s.account, en)
		if e.Op == Extend && op.OK() { // it proves an acquire with an unknown outcome
			s.busy, s.permits, s.expires = true, max(e.Permits, 1), int64(Never)
		}
		return
	case e.Op == Extend && len(busy) > 1:
		r.confused(l, e.Owner, "owner "+e.Owner+" extended one of several grants, and nothing tells which")
		return
	case op.Failed():
		slices.SortFunc(busy, func(i, j int) int { return int(min(max(p.slots[i].expires-p.slots[j].expires, -1), 1)) })
		r.add(p.slots[busy[0]].account, en)
		return
	case e.Op == Extend:
		r.add(p.slots[busy[0]].account, en)
		return
	}
	// Those that were not asked for yet, then those that last longest.
	slices.SortFunc(busy, func(i, j int) int {
		x, y := &p.slots[i], &p.slots[j]
		switch {
		case x.asked != y.asked:
			if x.asked {
				return 1
			}
			return -1
		case x.expires != y.expires:
			return int(min(max(y.expires-x.expires, -1), 1))
		default:
			return i - j
		}
	})
	back := given(p.slots, busy, e.Permits)
	if back == nil {
		r.confused(l, e.Owner, "owner "+e.Owner+" gave back another number of permits than it had been granted at a time")
		return
	}
	for _, i := range back {
		s := &p.slots[i]
		r.add(s.account, en)
		if op.OK() {
			s.busy = false
		}
		s.asked = true
	}
}

// given are the grants that a release of so many permits gives back: one of
// that size, or several that sum up to it. A release of no number gives back
// one grant.
func given(slots []slot, busy []int, permits int) []int {
	if permits == 0 {
		return busy[:1]
	}
	for at, i := range busy {
		if slots[i].permits == permits {
			return busy[at : at+1]
		}
	}
	for n, i := range busy {
		if permits -= slots[i].permits; permits <= 0 {
			if permits < 0 {
				return nil
			}
			return busy[:n+1]
		}
	}
	return nil
}

// confused leaves an owner out of the account.
func (r *register) confused(l *ledger, owner, why string) {
	key := owned{lock: l.lock, owner: owner}
	r.book.doubts = append(r.book.doubts, doubt{key: key, why: why})
	r.book.disordered = append(r.book.disordered, key)
}

// grouped are the entries account by account, each in order of time.
func (r *register) grouped() []entry {
	next := make([]int32, len(r.sizes))
	sum := int32(0)
	for i, n := range r.sizes {
		next[i] = sum
		sum += n
	}
	grouped := make([]entry, len(r.entries))
	for _, e := range r.entries {
		grouped[next[e.account]] = e
		next[e.account]++
	}
	return grouped
}
