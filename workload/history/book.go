package history

import (
	"cmp"
	"slices"
	"time"
)

// A Book is the account of every lock: who held it when, and the answers of
// the service that no such account can explain.
type Book struct {
	// Holds are all holds in order of their Start.
	Holds []Hold
	// LeftOut are what seem to be the holds of owners whose accounts can't be
	// told, but in what order they acted. They prove nothing.
	LeftOut []Hold
	// Uncovered are the releases and extends that were answered ok although
	// the owner had no grant left that could explain it.
	Uncovered []Operation
	// Denied are the releases and extends that were answered "not held" before
	// the hold can have ended.
	Denied []Denial
	// Accounts are how the account of each owner of each lock stands at the
	// end of the history, in order of their first operations.
	Accounts []Account
	// Unclear says, for each lock whose account is incomplete, why.
	Unclear map[string]string
	// Pending says the same of an unfinished history, of locks with owners
	// whose later operations may still make them clear.
	Pending map[string]string
	// Promises are the promises of each lock.
	Promises map[string]Promise
	// Operations are those of the history, in order of their invokes.
	Operations []Operation

	held       []Hold          // the holds while they are derived
	leases     []lease         // of each acquire and extend that was not refused
	accountOf  []int32         // the account of each operation; -1 for none
	also       map[int][]int32 // and more of them
	beliefs    []Span          // where those of the holds begin their life
	doubts     []doubt         // what Unclear is made of
	disordered []owned         // owners whose account cannot be told
	unfinished bool            // see History
}

// A Denial is the answer "not held" to somebody who must have held.
type Denial struct {
	Operation Operation
	// Hold is the hold that was denied; its End and Belief end with the denial.
	Hold Hold
	// Good is the earliest instant at which the hold can have ended otherwise.
	Good time.Duration
}

// An Account is how matters stand between one owner and one lock at the end of
// a history. Of a read-write lock the reads of an owner have an account of
// their own, and of a semaphore each of the grants that it has at a time.
type Account struct {
	Lock, Owner string
	// Read says that it is the account of reads.
	Read bool
	// From is the index of the first event of what is not settled yet, and for
	// a settled account of what was settled last. Hold is the index of the
	// first event of the hold that is there, or of what an operation that is
	// under way may still be part of; -1 if there is neither.
	From, Hold int64
	// Cut is the index of the first event of the operation that may have cut a
	// later hold shortest; -1 if there is none.
	Cut int64
	// Settled says that the owner holds nothing and that nothing it did can
	// have any effect later, as if it had never been.
	Settled bool
	// Busy says that an operation is under way.
	Busy bool
	// Open says that an operation is under way, or that the owner holds the
	// lock for certain at the end of the history, since Since.
	Open bool
	// Since is the Start of the hold that is open; Never if there is none.
	Since time.Duration
}

// lease is how long an acquire or extend that was not refused is good.
type lease struct {
	given   bool
	certain time.Duration // less drift
	belief  time.Duration // as the holder was told
	lost    int64         // index of the lost that cut it, else -1
}

// doubt is why the account of a lock is incomplete.
type doubt struct {
	key  owned
	open bool // what the owner does next may end it
	past bool // it was there before the first event
	why  string
}

// Lease is how long the lock was promised by op, an acquire or extend that was
// not refused: its expiry less the declared drift, and no later than a lost
// that followed, or, without a lease, than the crash of a process of the hold;
// else [Never].
func (b *Book) Lease(op *Operation) time.Duration {
	if op.at < len(b.leases) && b.leases[op.at].given {
		return b.leases[op.at].certain
	}
	return Never
}

// AccountsOf are the indices of the accounts that the operation belongs to: one
// for an acquire, a release or an extend; several for a release that gives back
// several grants of a semaphore; none if the book could not tell, or for other
// operations.
func (b *Book) AccountsOf(op *Operation) (one int, more []int32) {
	return int(b.accountOf[op.at]), b.also[op.at]
}

// Doubtful are the owners of the lock whose accounts make it Unclear, or
// Pending, and why.
func (b *Book) Doubtful(lock string) map[string]string {
	if b.Unclear[lock] == "" && b.Pending[lock] == "" {
		return nil
	}
	owners := map[string]string{}
	for _, d := range b.doubts {
		if d.key.lock == lock {
			owners[d.key.owner] = d.why
		}
	}
	return owners
}

// owned tells apart whose operations belong together.
type owned struct {
	lock, owner string
	read        bool // of a read-write lock: its reads are holds of their own
	slot        int  // of a semaphore: its grants at a time are holds of their own
}

// entry is what happened to one owner of one lock: an operation, or a lost.
type entry struct {
	op      *Operation
	lost    *Event
	at      int64 // its place in the order of the account
	next    int64 // the least index of the first events from here on
	account int32
}

// Book derives the account. It takes O(n log n) time.
//
// The acquires and releases of one owner are expected to follow one another;
// its extends may come from a watchdog at the same time. Unclear says where
// they do not, and the account leaves that owner out. Where an owner was used
// again after an unknown outcome, Unclear says so and the account claims less
// than it might.
//
// Whoever reads under a read-write lock may do so again, as if it were
// re-entrant.
//
// An owner of a semaphore may be granted permits while it has some. Which of
// them a release gives back is not told: the account takes those that last
// longest, which claims the least if they are of one size. Where they are not,
// Unclear says so.
func (h *History) Book() *Book {
	ops := h.Operations()
	b := &Book{
		Unclear: map[string]string{}, Pending: map[string]string{}, Promises: h.Promises(), Operations: ops,
		leases: make([]lease, len(ops)), unfinished: h.Unfinished,
	}
	r := register{book: b, before: h.Before}
	r.read(h)
	entries := r.grouped()
	grants := 0
	for i := range ops {
		if ops[i].Invoke.Op == Acquire && ops[i].OK() {
			grants++
		}
	}
	b.held, b.beliefs = make([]Hold, 0, grants), make([]Span, 0, grants)
	b.Accounts = make([]Account, 0, len(r.accounts))
	b.accountOf, b.also = r.of, r.also
	for id, first := 0, 0; id < len(r.accounts); id++ {
		last := first + int(r.sizes[id])
		b.account(r.accounts[id], entries[first:last], r.crashed, h.End())
		first = last
	}
	b.order()
	b.remember(h.Before, r.accounts)
	b.conclude()
	slices.SortFunc(b.Uncovered, func(x, y Operation) int { return cmp.Compare(x.Complete.Index, y.Complete.Index) })
	slices.SortFunc(b.Denied, func(x, y Denial) int {
		return cmp.Compare(x.Operation.Complete.Index, y.Operation.Complete.Index)
	})
	return b
}

// account goes through what happened between one owner and one lock.
func (b *Book) account(key owned, entries []entry, crashed map[int]*Event, now time.Duration) {
	if !slices.IsSortedFunc(entries, byPlace) {
		slices.SortFunc(entries, byPlace)
	}
	promise := b.Promises[key.lock]
	promise.Reentrant = promise.Reentrant || key.read // who reads may read again
	b.lend(entries, promise, crashed)
	a := account{book: b, key: key, id: len(b.Accounts), promise: promise, renew: Never}
	for _, e := range entries {
		a.open = a.open || e.op != nil && e.op.Complete.Index < 0
	}
	a.read(entries)
	b.Accounts = append(b.Accounts, a.stands(now))
	if a.hold != nil {
		a.open = true // as far as the history goes
		a.end()
	}
}

// leftOut are the owners whose accounts can't be told, so far, and of which not
// even the order of what they did is known.
func (b *Book) leftOut() (left, disordered map[Owner]bool) {
	left, disordered = map[Owner]bool{}, map[Owner]bool{}
	for _, key := range b.disordered {
		key := Owner{key.lock, key.owner}
		left[key], disordered[key] = true, true
	}
	for key := range b.Doubts() {
		left[key] = true
	}
	return left, disordered
}

// busy are the owners, of a history that goes on, that are at it, where there is
// a doubt: their operations may still explain themselves.
func (b *Book) busy() map[Owner]bool {
	if !b.unfinished || len(b.doubts) == 0 {
		return nil
	}
	busy := map[Owner]bool{}
	for i := range b.Accounts {
		if a := &b.Accounts[i]; a.Busy {
			busy[Owner{a.Lock, a.Owner}] = true
		}
	}
	return busy
}

// remember takes note of the owners and locks that were unclear before.
func (b *Book) remember(before Before, accounts []owned) {
	if len(before.Unclear) == 0 {
		return
	}
	for lock := range b.Promises {
		if why := before.Unclear[lock]; why != "" {
			b.Unclear[lock] = why
		}
	}
	for _, key := range accounts {
		if why, ok := before.Owners[Owner{key.lock, key.owner}]; ok {
			b.doubts = append(b.doubts, doubt{key: key, why: why, past: true})
		}
	}
}

func byPlace(x, y entry) int { return cmp.Compare(x.at, y.at) }

// order lists the holds by start.
func (b *Book) order() {
	order := make([]int32, len(b.held))
	for i := range order {
		order[i] = int32(i) //nolint:gosec // a history that long does not fit into memory
	}
	slices.SortFunc(order, func(i, j int32) int {
		x, y := &b.held[i], &b.held[j]
		if x.Start != y.Start {
			return cmp.Compare(x.Start, y.Start)
		}
		return cmp.Compare(x.Proof.Complete.Index, y.Proof.Complete.Index)
	})
	b.Holds = make([]Hold, 0, len(b.held))
	for _, at := range order {
		if !b.held[at].perhaps {
			b.Holds = append(b.Holds, b.held[at])
		}
	}
	b.held = nil
}

// conclude drops what was concluded of owners whose account cannot be told,
// and says which locks are unclear. Of a history that goes on, an owner that is
// not settled may still explain itself.
func (b *Book) conclude() {
	busy := b.busy()
	for _, d := range b.doubts {
		if !b.forGood(&d, busy) {
			b.Pending[d.key.lock] = d.why
		} else {
			b.Unclear[d.key.lock] = d.why
		}
	}
	dropped, disordered := b.leftOut()
	if len(dropped) == 0 {
		return
	}
	for i := range b.Holds {
		if h := &b.Holds[i]; dropped[Owner{h.Lock, h.Owner}] && !disordered[Owner{h.Lock, h.Owner}] {
			b.LeftOut = append(b.LeftOut, *h)
		}
	}
	b.Holds = slices.DeleteFunc(b.Holds, func(h Hold) bool { return dropped[Owner{h.Lock, h.Owner}] })
	b.Uncovered = slices.DeleteFunc(b.Uncovered, func(o Operation) bool {
		return dropped[Owner{o.Invoke.Lock, ownerOf(o.Invoke)}]
	})
	b.Denied = slices.DeleteFunc(b.Denied, func(d Denial) bool {
		return dropped[Owner{d.Hold.Lock, d.Hold.Owner}]
	})
}

func ownerOf(e *Event) string {
	if e.Owner != "" {
		return e.Owner
	}
	return defaultOwner(e.Process)
}

// place orders the account of one owner: by invoke, because that is when a
// release may take effect; but a refusal or a grant by its completion, because
// whatever was sent until then may be its cause.
func place(op *Operation) int64 {
	if op.Failed() || op.OK() && op.Invoke.Op == Acquire {
		return op.Complete.Index
	}
	return op.Invoke.Index
}

// lend notes how long each acquire and extend of one owner is good that was
// answered ok, or may have been done.
func (b *Book) lend(entries []entry, promise Promise, crashed map[int]*Event) {
	var latest *lease
	c := crew{crashed: crashed, reentrant: promise.Reentrant}
	for _, e := range entries {
		if e.lost != nil {
			if l := latest; l != nil && l.lost < 0 && e.lost.Time < l.belief {
				l.belief, l.lost = e.lost.Time, e.lost.Index
				l.certain = min(l.certain, e.lost.Time)
			}
			continue
		}
		if len(crashed) > 0 {
			c.take(e.op)
		}
		if e.op.Failed() || e.op.Invoke.Op == Release {
			continue
		}
		l := &b.leases[e.op.at]
		*l = lease{given: true, certain: Never, belief: Never, lost: -1}
		if b.unfinished && e.op.Complete.Index < 0 { // its answer may still name any expiry
			l.certain = e.op.Invoke.Time
		} else if expires := e.op.Expires(); expires > 0 {
			l.certain, l.belief = max(expires-promise.Drift, 0), expires
		} else { // its holder is not told of a crash
			l.certain = c.crash(e.op.Invoke.Time)
		}
		if e.op.OK() {
			latest = l
		}
	}
}

// A crew are the processes that may have part in the hold of an owner: those
// that sent an acquire that belongs to it, and was not refused. Where nobody
// knows which of them renews it, the first that crashes may end it.
type crew struct {
	crashed   map[int]*Event
	reentrant bool
	granted   []int // of the acquires that were answered ok since the hold began
	perhaps   []int // of those with an unknown outcome, at any time
	count     int   // of the hold, at least
	answered  int64 // the last event that granted it
}

func (c *crew) take(op *Operation) {
	switch {
	case op.Failed():
		if op.Invoke.Op != Acquire && op.Invoke.Index > c.answered { // nothing is left of what was granted
			c.granted, c.count = c.granted[:0], 0
		}
	case op.Invoke.Op == Acquire && op.Unknown():
		c.perhaps = append(c.perhaps, op.Invoke.Process)
	case op.Unknown():
	case op.Invoke.Op == Acquire:
		if c.count == 0 || !c.reentrant {
			c.forget()
		}
		c.granted = append(c.granted, op.Invoke.Process)
		c.count++
		c.answered = op.Complete.Index
	default:
		if c.count == 0 && len(c.perhaps) == 1 { // it is what was granted
			c.granted, c.perhaps, c.count = append(c.granted, c.perhaps[0]), nil, 1
			c.answered = op.Complete.Index
		}
		if op.Invoke.Op == Release {
			if c.count = max(c.count-1, 0); c.count == 0 {
				c.forget()
			}
		}
	}
}

// forget begins the count of a hold, without those of another, unless an inner
// acquire with an unknown outcome may keep that alive.
func (c *crew) forget() {
	c.count = 0
	if !c.reentrant || len(c.perhaps) == 0 {
		c.granted = c.granted[:0]
	}
}

// crash is when the first of them crashed from an instant on.
func (c *crew) crash(from time.Duration) time.Duration {
	first := Never
	perhaps := c.perhaps
	if !c.reentrant && c.count > 0 { // another acquire of its owner has no part in it
		perhaps = nil
	}
	for _, list := range [...][]int{c.granted, perhaps} {
		for _, process := range list {
			if e := c.crashed[process]; e != nil && e.Time >= from {
				first = min(first, e.Time)
			}
		}
	}
	return first
}

// Doubts are the owners whose accounts can't be told whatever follows, and why.
func (b *Book) Doubts() map[Owner]string {
	doubts := map[Owner]string{}
	busy := b.busy()
	for _, d := range b.doubts {
		if b.forGood(&d, busy) {
			doubts[Owner{d.key.lock, d.key.owner}] = d.why
		}
	}
	return doubts
}

// forGood reports whether nothing that comes later can end a doubt.
func (b *Book) forGood(d *doubt, busy map[Owner]bool) bool {
	return !b.unfinished || d.past || !d.open && !busy[Owner{d.key.lock, d.key.owner}]
}

// Confused are the owners that are left out so far, and may still explain
// themselves.
func (b *Book) Confused() map[Owner]bool {
	confused, busy := map[Owner]bool{}, b.busy()
	for _, key := range b.disordered {
		if key := (Owner{key.lock, key.owner}); busy[key] {
			confused[key] = true
		}
	}
	return confused
}

// Disordered reports whether Unclear says of the lock that the account of an
// owner was left out.
func (b *Book) Disordered(lock string) bool {
	return slices.ContainsFunc(b.disordered, func(key owned) bool { return key.lock == lock })
}
