package holding

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strconv"

	"github.com/lockchaos/lockchaos/history"
)

// A grouper sorts what happened by the account that it belongs to: one for
// each owner of each lock, of a read-write lock another for its reads, and of a
// semaphore one for each grant that the owner has at a time.
type grouper struct {
	holdings *Holdings
	entries  []entry
	sorted   []entry // by account
	accounts []owned
	places   []int32 // of the lock of each account among those of the holdings
	sizes    []int32 // entries of each account
	of       []int32 // the account of each operation
	also     map[int][]int32
	before   history.Before
	crashed  crashes
	losts    []*history.Event
	lostTo   map[owned][]*history.Event // of semaphores, by owner

	last   *lockOwners // of the lock that was asked for last
	latest [64]struct {
		*lockOwners
		at int32 // in its list
	} // the owners that processes acted for last
	byLock map[string]*lockOwners
	room   []lockOwner // for the first lock
}

// A lockOwners has the owners of one lock.
type lockOwners struct {
	lock  string
	place int32 // among the locks of the holdings
	kind  string
	list  []lockOwner
	table *ownerTable // nil while list is short
}

// ownerTable finds owners by the hash of their names: their indices in the
// list of the owners of a lock, plus 1.
type ownerTable struct {
	slots []int32 // a power of two, at least twice as many as owners
	seed  maphash.Seed
}

// A lockOwner is one owner of one lock.
type lockOwner struct {
	owner    string
	account  int32    // of a mutex, of the writes of a read-write lock; else -1
	reads    int32    // of the reads of a read-write lock; -1
	asked    [2]int64 // of a read-write lock: the first acquires, of a write and of a read, that were not refused
	*permits          // of a semaphore; else nil
}

// again is a new grouper in the place of one that is not used any more.
func (r *grouper) again() grouper {
	fresh := grouper{entries: r.entries[:0], sorted: r.sorted, accounts: r.accounts[:0], places: r.places[:0], sizes: r.sizes[:0], of: r.of}
	for _, l := range r.byLock {
		if cap(l.list) > cap(fresh.room) {
			fresh.room = l.list[:0]
		}
	}
	return fresh
}

func (r *grouper) read(h *history.History) {
	ops := r.holdings.Operations
	r.entries = slices.Grow(r.entries, len(ops))
	r.single(h)
	r.byLock = make(map[string]*lockOwners, len(r.holdings.Guarantees))
	var ofPermits []*history.Operation // in the order of their accounts, which is not that of their invokes
	r.of = cleared(r.of, len(ops))
	for i := range r.of {
		r.of[i], r.holdings.placeOf[i] = -1, -1
	}
	const each = 2 // operations of most owners that come once: an acquire and a release
	r.accounts = slices.Grow(r.accounts, len(ops)/each+1)
	r.places, r.sizes = slices.Grow(r.places, len(ops)/each+1), slices.Grow(r.sizes, len(ops)/each+1)
	r.modes(ops)
	for i := range ops {
		op := &ops[i]
		e := op.Invoke
		if e.Op != history.Acquire && e.Op != history.Release && e.Op != history.Extend {
			continue
		}
		l := r.ownersOf(e.Lock)
		r.holdings.placeOf[i] = l.place
		if l.kind == history.KindSemaphore {
			ofPermits = append(ofPermits, op)
			continue
		}
		p := r.owner(l, e)
		at := place(op)
		switch l.kind {
		case history.KindRW:
			r.add(r.account(l, p, e.Owner, r.reads(l, p, e, op.Complete.Index)), entry{op: op, at: at})
		default:
			r.add(r.account(l, p, e.Owner, false), entry{op: op, at: at})
		}
	}
	slices.SortFunc(ofPermits, func(a, b *history.Operation) int { return cmp.Compare(place(a), place(b)) })
	for _, op := range ofPermits {
		l := r.ownersOf(op.Invoke.Lock)
		r.permits(l, l.owner(op.Invoke.Owner), op, place(op))
	}
	for _, e := range r.losts {
		r.lost(e)
	}
	r.renamed(ops)
}

// renamed leaves out the owners that may be one client under two names. A client that
// names no owner has the name of its process, and goes on under another one after an
// unknown outcome: what the new process gives back or prolongs without having asked for
// it, or is granted again, may be what the old one holds.
func (r *grouper) renamed(ops []history.Operation) {
	unnamed := func(e *history.Event) bool { return e.Owner == "p"+strconv.Itoa(e.Process) }
	onLock := func(e *history.Event) bool { return e.Op.OfHolder() }
	retired := map[string][]*history.Operation{} // by lock
	for i := range ops {
		if op := &ops[i]; op.Unknown() && op.Complete.Index >= 0 && onLock(op.Invoke) && unnamed(op.Invoke) {
			retired[op.Invoke.Lock] = append(retired[op.Invoke.Lock], op)
		}
	}
	if len(retired) == 0 {
		return
	}
	began := map[int]int64{} // the first event of each process
	asked := map[owned]bool{}
	for i := range ops {
		op := &ops[i]
		e := op.Invoke
		if _, more := began[e.Process]; !more {
			began[e.Process] = e.Index
		}
		if !onLock(e) || op.Failed() || !unnamed(e) || len(retired[e.Lock]) == 0 {
			continue
		}
		key := owned{lock: e.Lock, owner: e.Owner}
		again := e.Op == history.Acquire && op.OK() && (r.holdings.Guarantees[e.Lock].Reentrant || e.Mode == history.Read)
		if e.Op == history.Acquire && !again || e.Op != history.Acquire && asked[key] {
			asked[key] = true
			continue
		}
		asked[key] = true
		for _, before := range retired[e.Lock] {
			if before.Complete.Index < began[e.Process] {
				why := "owners " + before.Invoke.Owner + " and " + e.Owner + ", named after their processes, may be one client that went on after an unknown outcome"
				l := r.ownersOf(e.Lock)
				r.confused(l, e.Owner, why)
				r.confused(l, before.Invoke.Owner, why)
			}
		}
	}
}

// single takes note of the events that are no operations.
func (r *grouper) single(h *history.History) {
	for i := range h.Events {
		e := &h.Events[i]
		switch e.Op {
		case history.Lost:
			r.losts = append(r.losts, e)
			if r.holdings.Guarantees[e.Lock].Kind == history.KindSemaphore {
				if r.lostTo == nil {
					r.lostTo = map[owned][]*history.Event{}
				}
				key := owned{lock: e.Lock, owner: e.LockOwner()}
				r.lostTo[key] = append(r.lostTo[key], e)
			}
		case history.Crash:
			if r.crashed == nil {
				r.crashed = crashes{}
			}
			r.crashed[e.Process] = append(r.crashed[e.Process], e)
		default:
		}
	}
}

func (r *grouper) ownersOf(lock string) *lockOwners {
	if r.last != nil && r.last.lock == lock {
		return r.last
	}
	l := r.byLock[lock]
	if l == nil {
		l = &lockOwners{lock: lock, place: int32(len(r.holdings.Locks)), kind: r.holdings.Guarantees[lock].Kind} //nolint:gosec // fewer than operations, which fit into memory
		r.byLock[lock] = l
		l.list, r.room = r.room, nil
		r.holdings.Locks = append(r.holdings.Locks, lock)
	}
	r.last = l
	return l
}

// owner is the owner of an event, which is good until the next one is asked for. Most
// often it is that of what the process did before.
func (r *grouper) owner(l *lockOwners, e *history.Event) *lockOwner {
	latest := &r.latest[e.Process%len(r.latest)]
	if latest.lockOwners != l || l.list[latest.at].owner != e.Owner {
		latest.lockOwners, latest.at = l, l.find(e.Owner)
	}
	return &l.list[latest.at]
}

// owner is the owner, which is good until the next one is asked for.
func (l *lockOwners) owner(owner string) *lockOwner { return &l.list[l.find(owner)] }

// find is where in the list an owner is. The few
// owners of a lock are found by their names: of 400,000 locks with one owner
// each, a map a lock takes 200 bytes more than that. Many are found by a table of
// their numbers. Where each asks once, and the accounts have their room from the
// beginning, the judge allocates a tenth less in all than with a map by name.
func (l *lockOwners) find(owner string) int32 {
	const few = 8
	var slot *int32
	if l.table == nil {
		for i := range l.list {
			if l.list[i].owner == owner {
				return int32(i) //nolint:gosec // few
			}
		}
		if len(l.list) == few {
			l.table = &ownerTable{seed: maphash.MakeSeed()}
			l.table.resize(8*few, l.list)
		}
	} else if 2*len(l.list) >= len(l.table.slots) {
		l.table.resize(4*len(l.table.slots), l.list)
	}
	if l.table != nil {
		if slot = l.table.slot(owner, l.list); *slot != 0 {
			return *slot - 1
		}
	}
	p := lockOwner{owner: owner, account: -1, reads: -1, asked: [2]int64{-1, -1}}
	if l.kind == history.KindSemaphore {
		p.permits = &permits{}
	}
	l.list = append(l.list, p)
	n := int32(len(l.list)) //nolint:gosec // fewer than operations, which fit into memory
	if slot != nil {
		*slot = n
	}
	return n - 1
}

func (p *ownerTable) resize(slots int, list []lockOwner) {
	p.slots = make([]int32, slots)
	for i := range list {
		*p.slot(list[i].owner, list) = int32(i + 1) //nolint:gosec // as above
	}
}

// slot is where in the table an owner is, or belongs.
func (p *ownerTable) slot(owner string, list []lockOwner) *int32 {
	mask := uint64(len(p.slots) - 1)
	for at := maphash.String(p.seed, owner) & mask; ; at = (at + 1) & mask {
		slot := &p.slots[at]
		if *slot == 0 || list[*slot-1].owner == owner {
			return slot
		}
	}
}

func (r *grouper) add(account int32, e entry) {
	e.account = account
	if e.op != nil {
		if at := e.op.Ordinal(); r.of[at] < 0 {
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

func (r *grouper) open(l *lockOwners, key owned) int32 {
	key.lock = l.lock
	r.accounts = append(r.accounts, key)
	r.places = append(r.places, l.place)
	r.sizes = append(r.sizes, 0)
	return int32(len(r.accounts) - 1) //nolint:gosec // fewer than operations, which fit into memory
}

func (r *grouper) account(l *lockOwners, p *lockOwner, owner string, read bool) int32 {
	at := &p.account
	if read {
		at = &p.reads
	}
	if *at < 0 {
		*at = r.open(l, owned{owner: owner, read: read})
	}
	return *at
}

func index(is bool) int {
	if is {
		return 1
	}
	return 0
}

// modes notes in which modes the owners of read-write locks asked for them.
func (r *grouper) modes(ops []history.Operation) {
	rw := false
	for _, p := range r.holdings.Guarantees {
		rw = rw || p.Kind == history.KindRW
	}
	if !rw {
		return
	}
	for i := range ops {
		e := ops[i].Invoke
		if e.Op != history.Acquire || ops[i].Failed() || r.holdings.Guarantees[e.Lock].Kind != history.KindRW {
			continue
		}
		if first := &r.ownersOf(e.Lock).owner(e.Owner).asked[index(e.Mode == history.Read)]; *first < 0 {
			*first = e.Index
		}
	}
}

// reads reports whether an event is about what its owner reads under a
// read-write lock. It was answered by the event until, or not at all.
func (r *grouper) reads(l *lockOwners, p *lockOwner, e *history.Event, until int64) bool {
	if e.Mode != "" || e.Op == history.Acquire {
		return e.Mode == history.Read
	}
	asked := func(read bool) bool {
		first := p.asked[index(read)]
		if r.before.Asked != nil {
			if earlier, ok := r.before.Asked(history.Owner{Lock: l.lock, Name: e.LockOwner()}, read); ok && (first < 0 || earlier < first) {
				first = earlier
			}
		}
		return first >= 0 && (until < 0 || first < until)
	}
	if asked(true) && asked(false) {
		r.confused(l, e.LockOwner(), "owner "+e.LockOwner()+" reads and writes, and its "+string(e.Op)+" does not say which of the two it is about")
	}
	return asked(true)
}

func (r *grouper) lost(e *history.Event) {
	l := r.ownersOf(e.Lock)
	p := l.owner(e.LockOwner())
	en := entry{lost: e, at: e.Index}
	switch l.kind {
	case history.KindSemaphore:
		for i := range p.slots {
			r.add(p.slots[i].account, en)
		}
	case history.KindRW:
		r.add(r.account(l, p, e.LockOwner(), r.reads(l, p, e, e.Index)), en)
	default:
		r.add(r.account(l, p, e.LockOwner(), false), en)
	}
}

// confused leaves an owner out of the account.
func (r *grouper) confused(l *lockOwners, owner, why string) {
	key := owned{lock: l.lock, owner: owner}
	r.holdings.doubts = append(r.holdings.doubts, doubt{key: key, why: why})
	r.holdings.disordered = append(r.holdings.disordered, key)
}

// grouped are the entries account by account, each in order of time.
func (r *grouper) grouped() []entry {
	next := make([]int32, len(r.sizes))
	sum := int32(0)
	for i, n := range r.sizes {
		next[i] = sum
		sum += n
	}
	r.sorted = slices.Grow(r.sorted[:0], len(r.entries))[:len(r.entries)]
	for _, e := range r.entries {
		r.sorted[next[e.account]] = e
		next[e.account]++
	}
	return r.sorted
}
