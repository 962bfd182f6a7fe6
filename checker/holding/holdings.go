package holding

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// Holdings are the account of every lock: who held it when, and the answers of
// the service that no such account can explain.
type Holdings struct {
	// Holds are all holds in order of their Start.
	Holds []Hold
	// Excluded are what seem to be the holds of owners whose accounts can't be
	// told, but in what order they acted. They prove nothing.
	Excluded []Hold
	// Uncovered are the releases and extends that were answered ok although
	// the owner had no grant left that could explain it.
	Uncovered []history.Operation
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
	// Guarantees are what each lock promises.
	Guarantees map[string]history.Guarantees
	// Operations are those of the history, in order of their invokes.
	Operations []history.Operation
	// Locks are the names of the locks that operations or a lost are about. An
	// account names its lock by its place there, see also [Holdings.Place].
	Locks []string

	held       []Hold                  // the holds while they are derived
	leases     []lease                 // of each acquire and extend that was not refused
	accountOf  []int32                 // the account of each operation; -1 for none
	placeOf    []int32                 // the place of its lock among Locks; -1 for none
	also       map[int][]int32         // and more of them
	beliefs    []Span                  // where those of the holds begin their life
	doubts     []doubt                 // what Unclear is made of
	disordered []owned                 // owners whose account cannot be told
	unfinished bool                    // see History
	joined     map[history.Asker]int64 // see History
	grouper    grouper
}

// A Denial is the answer "not held" to an owner that must have held.
type Denial struct {
	Operation history.Operation
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
	Place       int32 // of the lock among [Holdings.Locks]
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
	// Joined is the index of the event since which an acquire with an unknown
	// outcome may have been a part of a hold that is over, so that it is no grant
	// after it; -1 if there is none, or while an operation is under way.
	Joined int64
	// Settled says that the owner holds nothing and that nothing it did can
	// have any effect later, as if it had never been.
	Settled bool
	// Busy says that an operation is under way.
	Busy bool
	// Open says that an operation is under way, or that the owner holds the
	// lock for certain at the end of the history, since Since.
	Open bool
	// Since is the Start of the hold that is open, or of one that is over and whose
	// End an operation that is under way may still move, if that began before;
	// [history.Never] if there is neither.
	Since time.Duration
}

// lease is how long an acquire or extend that was not refused is good.
type lease struct {
	given    bool
	certain  time.Duration // less drift
	validity time.Duration // as the holder was told
	lost     int64         // index of the lost that cut it, else -1
}

// doubt is why the account of a lock is incomplete.
type doubt struct {
	key  owned
	open bool // the history ends before what makes it; what the owner does next may end it
	past bool // it was there before the first event
	why  string
}

// Lease is how long the lock was promised by op, an acquire or extend that was
// not refused: its expiry less the declared drift, and no later than a lost
// that followed, or, without a lease, than the crash of a process of the hold;
// else [[history.Never]].
func (b *Holdings) Lease(op *history.Operation) time.Duration {
	if op.Ordinal() < len(b.leases) && b.leases[op.Ordinal()].given {
		return b.leases[op.Ordinal()].certain
	}
	return history.Never
}

// AccountsOf are the indices of the accounts that the operation belongs to: one
// for an acquire, a release or an extend; several for a release that gives back
// several grants of a semaphore; none if it cannot be told, or for other
// operations.
func (b *Holdings) AccountsOf(op *history.Operation) (one int, more []int32) {
	return int(b.accountOf[op.Ordinal()]), b.also[op.Ordinal()]
}

// Place is where among Locks the lock of an acquire, release or extend is; -1 for
// other operations.
func (b *Holdings) Place(op *history.Operation) int32 { return b.placeOf[op.Ordinal()] }

// PlaceOf is where among Locks the lock of a hold is.
func (b *Holdings) PlaceOf(h *Hold) int32 { return b.Accounts[h.Account].Place }

// Doubtful are the owners of the lock whose accounts make it Unclear, or
// Pending, and why.
func (b *Holdings) Doubtful(lock string) map[string]string {
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
	op      *history.Operation
	lost    *history.Event
	at      int64 // its place in the order of the account
	next    int64 // the least index of the first events from here on
	account int32
}

// Derive finds who held what when. It takes O(n log n) time.
//
// The acquires and releases of one owner are expected to follow one another;
// its extends may come from a watchdog at the same time. Unclear says where
// they do not, and the account leaves that owner out. Where an owner was used
// again after an unknown outcome, Unclear says so and the account claims less
// than it might.
//
// A reader of a read-write lock may acquire it again, as if it were
// re-entrant.
//
// An owner of a semaphore may be granted permits while it has some. Which of
// them a release gives back is not told: the account takes those that last
// longest, which claims the least if they are of one size. Where they are not,
// Unclear says so.
func Derive(h *history.History) *Holdings { return DeriveIn(&Holdings{}, h) }

// DeriveIn is Derive in the place of holdings that are not used any more.
func DeriveIn(b *Holdings, h *history.History) *Holdings {
	old := *b
	ops := h.OperationsIn(old.Operations)
	*b = Holdings{
		Unclear: map[string]string{}, Pending: map[string]string{}, Guarantees: h.Guarantees(), Operations: ops, Locks: old.Locks[:0],
		leases: cleared(old.leases, len(ops)), unfinished: h.Unfinished, joined: h.Before.Joined, placeOf: cleared(old.placeOf, len(ops)),
		grouper: old.grouper.again(),
	}
	r := &b.grouper
	r.holdings, r.before = b, h.Before
	r.read(h)
	entries := r.grouped()
	grants := 0
	for i := range ops {
		if ops[i].Invoke.Op == history.Acquire && ops[i].OK() {
			grants++
		}
	}
	b.held, b.beliefs = slices.Grow(old.Holds[:0], grants), slices.Grow(old.beliefs[:0], grants)
	b.Accounts = slices.Grow(old.Accounts[:0], len(r.accounts))
	b.accountOf, b.also = r.of, r.also
	var a ownerState // in its place for each: it is large
	for id, first := 0, 0; id < len(r.accounts); id++ {
		last := first + int(r.sizes[id])
		b.account(&a, r.accounts[id], entries[first:last], r.crashed, h.End())
		b.Accounts[id].Place = r.places[id]
		first = last
	}
	b.order()
	b.remember(h.Before, r.accounts)
	b.conclude()
	slices.SortFunc(b.Uncovered, func(x, y history.Operation) int { return cmp.Compare(x.Complete.Index, y.Complete.Index) })
	slices.SortFunc(b.Denied, func(x, y Denial) int {
		return cmp.Compare(x.Operation.Complete.Index, y.Operation.Complete.Index)
	})
	return b
}

// cleared is a list of so many zero values, in the place of one that is not used any
// more.
func cleared[T any](old []T, n int) []T {
	list := slices.Grow(old[:0], n)[:n]
	clear(list)
	return list
}

// account goes through what happened between one owner and one lock.
func (b *Holdings) account(a *ownerState, key owned, entries []entry, crashed crashes, now time.Duration) {
	if !slices.IsSortedFunc(entries, byPlace) {
		slices.SortFunc(entries, byPlace)
	}
	byAnswers(entries)
	promise := b.Guarantees[key.lock]
	promise.Reentrant = promise.Reentrant || key.read // who reads may read again
	b.computeLeases(entries, promise, crashed)
	*a = ownerState{holdings: b, key: key, id: len(b.Accounts), promise: promise, renew: history.Never, endless: history.Never, movable: history.Never, crashed: crashed}
	a.joined = -1
	if at, ok := b.joined[history.Asker{Owner: history.Owner{Lock: key.lock, Name: key.owner}, Read: key.read}]; ok {
		a.joined = at
	}
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
func (b *Holdings) leftOut() (left, disordered map[history.Owner]bool) {
	left, disordered = map[history.Owner]bool{}, map[history.Owner]bool{}
	for _, key := range b.disordered {
		key := history.Owner{Lock: key.lock, Name: key.owner}
		left[key], disordered[key] = true, true
	}
	for key := range b.Doubts() {
		left[key] = true
	}
	return left, disordered
}

// busy are the owners, of a history that goes on, with an operation under way,
// where there is a doubt: the answer may still end it.
func (b *Holdings) busy() map[history.Owner]bool {
	if !b.unfinished || len(b.doubts) == 0 {
		return nil
	}
	busy := map[history.Owner]bool{}
	for i := range b.Operations {
		if op := &b.Operations[i]; op.Complete.Index < 0 && op.Invoke.Op.OfHolder() {
			busy[history.Owner{Lock: op.Invoke.Lock, Name: op.Invoke.Owner}] = true
		}
	}
	return busy
}

// remember takes note of the owners and locks that were unclear before.
func (b *Holdings) remember(before history.Before, accounts []owned) {
	if len(before.Unclear) == 0 {
		return
	}
	for lock := range b.Guarantees {
		if why := before.Unclear[lock]; why != "" {
			b.Unclear[lock] = why
		}
	}
	for _, key := range accounts {
		if why, ok := before.Owners[history.Owner{Lock: key.lock, Name: key.owner}]; ok {
			b.doubts = append(b.doubts, doubt{key: key, why: why, past: true})
		}
	}
}

func byPlace(x, y entry) int { return cmp.Compare(x.at, y.at) }

// order lists the holds by start, in their place: they are most of what [Holdings]
// takes.
func (b *Holdings) order() {
	b.Holds, b.held = slices.DeleteFunc(b.held, func(h Hold) bool { return h.perhaps }), nil
	type place struct {
		start time.Duration
		index int64
		from  int
	}
	order := make([]place, len(b.Holds)) // order[i] is which of them comes at i
	for i := range order {
		h := &b.Holds[i]
		order[i] = place{h.Start, h.Proof.Complete.Index, i}
	}
	byStart := func(x, y place) int {
		if x.start != y.start {
			return cmp.Compare(x.start, y.start)
		}
		return cmp.Compare(x.index, y.index)
	}
	if slices.IsSortedFunc(order, byStart) {
		return
	}
	slices.SortFunc(order, byStart)
	for first := range order { // each moves once, along the cycle that it is part of
		if order[first].from < 0 {
			continue
		}
		h := b.Holds[first]
		at := first
		for from := order[at].from; from != first; from = order[at].from {
			b.Holds[at], order[at].from = b.Holds[from], -1
			at = from
		}
		b.Holds[at], order[at].from = h, -1
	}
}

// conclude drops what was concluded of owners whose account cannot be told,
// and says which locks are unclear. Of a history that goes on, an owner that is
// not settled may still explain itself.
func (b *Holdings) conclude() {
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
		if h := &b.Holds[i]; dropped[history.Owner{Lock: h.Lock, Name: h.Owner}] && !disordered[history.Owner{Lock: h.Lock, Name: h.Owner}] {
			b.Excluded = append(b.Excluded, *h)
		}
	}
	b.Holds = slices.DeleteFunc(b.Holds, func(h Hold) bool { return dropped[history.Owner{Lock: h.Lock, Name: h.Owner}] })
	b.Uncovered = slices.DeleteFunc(b.Uncovered, func(o history.Operation) bool {
		return dropped[history.Owner{Lock: o.Invoke.Lock, Name: o.Invoke.LockOwner()}]
	})
	b.Denied = slices.DeleteFunc(b.Denied, func(d Denial) bool {
		return dropped[history.Owner{Lock: d.Hold.Lock, Name: d.Hold.Owner}]
	})
}

// place orders the account of one owner: by invoke, because that is when a
// release may take effect; but a refusal or a grant by its completion, because
// whatever was sent until then may be its cause. See also [byAnswers].
func place(op *history.Operation) int64 {
	if op.Failed() || op.OK() && op.Invoke.Op == history.Acquire {
		return op.Complete.Index
	}
	return op.Invoke.Index
}

// byAnswers puts an extension behind those that were sent after it and answered before
// it: the holder believes the answer that came last.
func byAnswers(entries []entry) {
	extends := func(e *entry) bool { return e.op != nil && e.op.OK() && e.op.Invoke.Op == history.Extend }
	for i := range entries {
		if !extends(&entries[i]) {
			continue
		}
		moved, to := entries[i], i
		for j := i + 1; j < len(entries) && entries[j].at < moved.op.Complete.Index; j++ {
			if e := &entries[j]; extends(e) && e.op.Complete.Index < moved.op.Complete.Index {
				to = j
			}
		}
		if to > i {
			moved.at = entries[to].at
			copy(entries[i:], entries[i+1:to+1])
			entries[to] = moved
		}
	}
}

// computeLeases notes how long each acquire and extend of one owner is good that was
// answered ok, or may have been done.
func (b *Holdings) computeLeases(entries []entry, promise history.Guarantees, crashed crashes) {
	c := crew{crashed: crashed, reentrant: promise.Reentrant}
	notices := false
	for _, e := range entries {
		if e.lost != nil {
			notices = true
			continue
		}
		if len(crashed) > 0 {
			c.take(e.op)
		}
		if e.op.Failed() || e.op.Invoke.Op == history.Release {
			continue
		}
		l := &b.leases[e.op.Ordinal()]
		*l = lease{given: true, certain: history.Never, validity: history.Never, lost: -1}
		if b.unfinished && e.op.Complete.Index < 0 { // its answer may still name any expiry
			l.certain = e.op.Invoke.Time
		} else if expires := e.op.Expires(); expires > 0 {
			l.certain, l.validity = max(expires-promise.Drift, 0), expires
		} else { // its holder is not told of a crash
			l.certain = c.crash(e.op.Invoke.Time)
		}
	}
	if !notices {
		return
	}
	for i, e := range entries {
		if e.lost == nil {
			continue
		}
		if op := b.noticed(entries, e.lost); op != nil {
			if l := &b.leases[op.Ordinal()]; l.lost < 0 && e.lost.Time < l.validity {
				l.validity, l.lost = e.lost.Time, e.lost.Index
				l.certain = min(l.certain, e.lost.Time)
			}
		}
		b.disillusion(entries[:i], e.lost)
	}
}

// noticed is the operation that a notice of loss is about: of the acquires that were
// answered ok before it, and of the extends that were sent before it and answered ok,
// the last.
func (b *Holdings) noticed(entries []entry, lost *history.Event) *history.Operation {
	var last *history.Operation
	latest := int64(-1)
	for _, e := range entries {
		op := e.op
		if op == nil || !op.OK() || op.Invoke.Op == history.Release {
			continue
		}
		at := op.Complete.Index
		if op.Invoke.Op == history.Extend {
			at = op.Invoke.Index
		}
		if at < lost.Index && at > latest {
			last, latest = op, at
		}
	}
	return last
}

// disillusion ends, with a notice, what the holder believed by the last answer
// before it: an extend that is under way was not heard of yet.
func (b *Holdings) disillusion(entries []entry, lost *history.Event) {
	for _, e := range slices.Backward(entries) {
		op := e.op
		if op == nil || !op.OK() || op.Invoke.Op == history.Release || op.Complete.Index > lost.Index {
			continue
		}
		l := &b.leases[op.Ordinal()]
		l.validity = min(l.validity, lost.Time)
		return
	}
}

// crashes are those of each process, in order. One that is used again may crash again.
type crashes map[int][]*history.Event

// from is the first crash of a process from an instant on; nil if there is none.
func (c crashes) from(process int, t time.Duration) *history.Event {
	for _, e := range c[process] {
		if e.Time >= t {
			return e
		}
	}
	return nil
}

// A crew are the processes that may have part in the hold of an owner: those
// that sent an acquire that belongs to it, and was not refused. Where it is
// not known which of them renews it, the first that crashes may end it.
type crew struct {
	crashed   crashes
	reentrant bool
	granted   []int // of the acquires that were answered ok since the hold began
	perhaps   []int // of those with an unknown outcome, at any time
	count     int   // of the hold, at least
	answered  int64 // the last event that granted it
}

func (c *crew) take(op *history.Operation) {
	switch {
	case op.Failed():
		if op.Invoke.Op != history.Acquire && op.Invoke.Index > c.answered { // nothing is left of what was granted
			c.granted, c.count = c.granted[:0], 0
		}
	case op.Invoke.Op == history.Acquire && op.Unknown():
		c.perhaps = append(c.perhaps, op.Invoke.Process)
	case op.Unknown():
	case op.Invoke.Op == history.Acquire:
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
		if op.Invoke.Op == history.Release {
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
	first := history.Never
	perhaps := c.perhaps
	if !c.reentrant && c.count > 0 { // another acquire of its owner has no part in it
		perhaps = nil
	}
	for _, list := range [...][]int{c.granted, perhaps} {
		for _, process := range list {
			if e := c.crashed.from(process, from); e != nil {
				first = min(first, e.Time)
			}
		}
	}
	return first
}

// Doubts are the owners whose accounts can't be told whatever follows, and why.
func (b *Holdings) Doubts() map[history.Owner]string {
	doubts := map[history.Owner]string{}
	busy := b.busy()
	for _, d := range b.doubts {
		if b.forGood(&d, busy) {
			doubts[history.Owner{Lock: d.key.lock, Name: d.key.owner}] = d.why
		}
	}
	return doubts
}

// forGood reports whether nothing that comes later can end a doubt.
func (b *Holdings) forGood(d *doubt, busy map[history.Owner]bool) bool {
	return !b.unfinished || d.past || !d.open && !busy[history.Owner{Lock: d.key.lock, Name: d.key.owner}]
}

// Confused are the owners with an operation under way whose accounts can't be told
// so far: the answer may still explain them.
func (b *Holdings) Confused() map[history.Owner]bool {
	confused, busy := map[history.Owner]bool{}, b.busy()
	for i := range b.doubts {
		if key := (history.Owner{Lock: b.doubts[i].key.lock, Name: b.doubts[i].key.owner}); busy[key] {
			confused[key] = true
		}
	}
	return confused
}
