package holding

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// A Lock is what was done with one lock, and who held it when: see [Lock.Derive].
type Lock struct {
	Name string
	history.Guarantees
	Used     bool  // it was declared, or an event says something of who holds it
	Ops      []*Op // acquires, releases and extends, in order of their invokes
	Accesses []*Op // that name it, in order of their invokes
	Losts    []*Op // in order

	// Holds are all holds in order of their Start.
	Holds []*Grant
	// Excluded are what seem to be the holds of owners whose accounts can't be
	// told, but in what order they acted. They prove nothing.
	Excluded []*Grant
	// Uncovered are the releases and extends that were answered ok although
	// the owner had no grant left that could explain it.
	Uncovered []*Op
	// Denied are the releases and extends that were answered "not held" before
	// the hold can have ended.
	Denied []Denial
	// Unclear says why the account of an owner can't be told; empty if all can.
	Unclear string
	// Doubtful are the owners whose accounts can't be told, and why.
	Doubtful map[int32]string

	record     *Record
	number     int32
	declared   *history.Event
	acts, uses int
	accounts   []account
	also       map[*Op][]int32 // more accounts of an operation
	disordered map[int32]bool  // owners of which not even the order of what they did is known
}

// An account is how matters stand between one owner and the lock. Of a read-write lock the reads
// of an owner have an account of their own, and of a semaphore each of the grants that it has
// at a time.
type account struct {
	owner int32
	reads bool
}

// A Denial is the answer "not held" to an owner that must have held.
type Denial struct {
	Operation *Op
	// Hold is the hold that was denied; its End and Belief end with the denial.
	Hold *Grant
	// Good is the earliest instant at which the hold can have ended otherwise.
	Good time.Duration
}

// A Late is a part of a hold in which its lease had run out (or its holder had been told that
// it was lost), and of which only a later confirmation shows that the lock was still held.
type Late struct {
	Span
	By *Op // the release or extend that was confirmed
}

// A Grant is a hold, as the judge has it: see [Hold] for what its fields mean.
type Grant struct {
	Acquire, Proof *Op
	Extensions     []*Op
	Release        *Op
	Start, End     time.Duration
	EndEvent       int64
	Late           []Late
	Belief         []Span
	// Cuts is the token of the hold that its owner had before, whose lease this one
	// may have cut, if the two are one hold; 0 if it did not, or there was none.
	Cuts    int64
	Account int32
	Ended   End
	// Again says that the hold may be the one that its owner had before, of which
	// nothing shows that it ended.
	Again bool
	// Kept says that the release that ended the hold may have left it there,
	// because an acquire with an unknown outcome may have raised its count.
	Kept bool
}

// An End is why a hold ended.
type End uint8

// The reasons.
const (
	NotEnded End = iota
	Released
	Expired
	ToldLost
	MayHaveEnded
)

// Owner is the number of its owner's name.
func (g *Grant) Owner() int32 { return g.Acquire.Owner }

// Process is the one that asked.
func (g *Grant) Process() int { return g.Acquire.Process }

// Permits are how many it was granted: at least 1.
func (g *Grant) Permits() int { return g.Acquire.Amount() }

// Token is that of the grant; 0 if it is not known.
func (g *Grant) Token() int64 { return g.Acquire.Token }

// Mode is how the lock was granted, never NoMode.
func (g *Grant) Mode() Mode {
	if g.Acquire.Mode == NoMode {
		return Exclusive
	}
	return g.Acquire.Mode
}

// Reads reports whether it is a grant for reading.
func (g *Grant) Reads() bool { return g.Acquire.Mode == Read }

// Span is from its Start to its End.
func (g *Grant) Span() Span { return Span{From: g.Start, Until: g.End} }

// Certain reports whether it was held for certain for some time.
func (g *Grant) Certain() bool { return g.End > g.Start }

// Reads reports whether an account is of the reads of an owner.
func (l *Lock) Reads(account int32) bool { return l.accounts[account].reads }

// Accounts is how many accounts there are.
func (l *Lock) Accounts() int { return len(l.accounts) }

// Also are the accounts of an operation beside its first.
func (l *Lock) Also(op *Op) []int32 { return l.also[op] }

// Record is what the lock is part of.
func (l *Lock) Record() *Record { return l.record }

// Semaphore reports whether the lock has permits.
func (l *Lock) Semaphore() bool { return l.Kind == history.KindSemaphore }

// CapacityIn are the least and the most permits that a semaphore has between two instants. At that of a change it
// may have either number.
func (l *Lock) CapacityIn(from, until time.Duration) (least, most int) {
	if l.Capacities == nil {
		return l.Capacity, l.Capacity
	}
	for i, c := range l.Capacities {
		over := i+1 < len(l.Capacities) && l.Capacities[i+1].From < from
		switch {
		case c.From > until || over:
		case most == 0:
			least, most = c.Permits, c.Permits
		default:
			least, most = min(least, c.Permits), max(most, c.Permits)
		}
	}
	return least, most
}

// Clear reports whether the account of every owner can be told.
func (l *Lock) Clear() bool { return l.Unclear == "" }

// Disordered reports whether not even the order of what an owner did is known.
func (l *Lock) Disordered(owner int32) bool { return l.disordered[owner] }

// Derive finds who held what when, of each lock. It takes O(n log n) time.
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
func (r *Record) Derive() {
	places := make([]int32, len(r.names))
	for _, l := range r.locks {
		l.derive(places)
	}
}

// derive makes the accounts of the lock. Places has room for the place of each owner, and is
// all zero before and after.
func (l *Lock) derive(places []int32) {
	g := grouper{Lock: l, places: places}
	g.read()
	slices.SortFunc(g.entries, func(x, y entry) int {
		if x.account != y.account {
			return int(x.account - y.account)
		}
		return byPlace(x, y)
	})
	for i := range l.accounts {
		places[l.accounts[i].owner] = 0
	}
	for i := range g.owners {
		places[g.owners[i].number] = 0
	}
	g.owners = nil
	grants := 0
	for _, op := range l.Ops {
		if op.Verb == Acquire && op.OK() {
			grants++
		}
	}
	l.Holds = make([]*Grant, 0, grants)
	var a ownerState // in its place for each: it is large
	for id, rest := 0, g.entries; id < len(l.accounts); id++ {
		n := sort.Search(len(rest), func(i int) bool { return int(rest[i].account) > id })
		a.follow(l, int32(id), rest[:n]) //nolint:gosec // fewer than operations
		rest = rest[n:]
	}
	byStart := func(x, y *Grant) int {
		if x.Start != y.Start {
			return cmp.Compare(x.Start, y.Start)
		}
		return cmp.Compare(x.Proof.Complete.Index, y.Proof.Complete.Index)
	}
	if !slices.IsSortedFunc(l.Holds, byStart) {
		slices.SortFunc(l.Holds, byStart)
	}
	l.leaveOut()
	byAnswer := func(x, y *Op) int { return cmp.Compare(x.Complete.Index, y.Complete.Index) }
	slices.SortFunc(l.Uncovered, byAnswer)
	slices.SortFunc(l.Denied, func(x, y Denial) int { return byAnswer(x.Operation, y.Operation) })
}

// doubt says why the account of an owner can't be told.
func (l *Lock) doubt(owner int32, why string) {
	if l.Doubtful == nil {
		l.Doubtful = map[int32]string{}
	}
	l.Doubtful[owner], l.Unclear = why, why
}

// confused leaves an owner out of the account, of whom not even the order of what it did is known.
func (l *Lock) confused(owner int32, why string) {
	l.doubt(owner, why)
	if l.disordered == nil {
		l.disordered = map[int32]bool{}
	}
	l.disordered[owner] = true
}

// leaveOut drops what was concluded of owners whose account can't be told.
func (l *Lock) leaveOut() {
	if len(l.Doubtful) == 0 {
		return
	}
	doubtful := func(owner int32) bool { return l.Doubtful[owner] != "" }
	for _, h := range l.Holds {
		if doubtful(h.Owner()) && !l.disordered[h.Owner()] {
			l.Excluded = append(l.Excluded, h)
		}
	}
	l.Holds = slices.DeleteFunc(l.Holds, func(h *Grant) bool { return doubtful(h.Owner()) })
	l.Uncovered = slices.DeleteFunc(l.Uncovered, func(op *Op) bool { return doubtful(op.Owner) })
	l.Denied = slices.DeleteFunc(l.Denied, func(d Denial) bool { return doubtful(d.Hold.Owner()) })
}

// An entry is what happened to one account: an operation, or a lost.
type entry struct {
	*Op
	at      int64 // its place in the order of the account
	account int32
}

// A grouper sorts what happened by the account that it belongs to.
type grouper struct {
	*Lock
	entries []entry
	owners  []lockOwner
	places  []int32         // of each owner, by the number of its name, among the owners, plus 1
	lostTo  map[int32][]*Op // of a semaphore, by owner
}

// A lockOwner is one owner of the lock.
type lockOwner struct {
	number   int32
	account  int32    // of a mutex, of the writes of a read-write lock; else -1
	reads    int32    // of the reads of a read-write lock; -1
	asked    [2]int64 // of a read-write lock: the first acquires, of a write and of a read, that were not refused
	*permits          // of a semaphore; else nil
}

func (g *grouper) read() {
	g.entries = make([]entry, 0, len(g.Ops)+len(g.Losts))
	switch g.Kind {
	case history.KindSemaphore:
		for _, e := range g.Losts {
			if g.lostTo == nil {
				g.lostTo = map[int32][]*Op{}
			}
			g.lostTo[e.Owner] = append(g.lostTo[e.Owner], e)
		}
		ops := slices.Clone(g.Ops)
		slices.SortFunc(ops, func(a, b *Op) int { return cmp.Compare(place(a), place(b)) })
		for _, op := range ops {
			g.permits(g.owner(op.Owner), op)
		}
	case history.KindRW:
		for _, op := range g.Ops {
			if op.Verb == Acquire && !op.Failed() {
				if first := &g.owner(op.Owner).asked[index(op.Mode == Read)]; *first < 0 {
					*first = op.Invoke.Index
				}
			}
		}
		for _, op := range g.Ops {
			g.add(g.accountOf(op), op)
		}
	default:
		for _, op := range g.Ops {
			g.add(g.accountOf(op), op)
		}
	}
	for _, e := range g.Losts {
		if !g.Semaphore() {
			g.add(g.accountOf(e), e)
			continue
		}
		for _, s := range g.owner(e.Owner).slots {
			g.add(s.account, e)
		}
	}
	g.renamed()
}

// renamed leaves out the owners that may be one client under two names. A client that
// names no owner has the name of its process, and goes on under another one after an
// unknown outcome: what the new process gives back or prolongs without having asked for
// it, or is granted again, may be what the old one holds.
func (g *grouper) renamed() {
	retired := filter(g.Ops, func(op *Op) bool { return op.Unknown() && !op.Open() && op.Unnamed() })
	if len(retired) == 0 {
		return
	}
	asked := map[int32]bool{}
	for _, op := range g.Ops {
		if op.Failed() || !op.Unnamed() {
			continue
		}
		again := op.Verb == Acquire && op.OK() && (g.Reentrant || op.Mode == Read)
		before := asked[op.Owner]
		asked[op.Owner] = true
		if op.Verb == Acquire && !again || op.Verb != Acquire && before {
			continue
		}
		for _, old := range retired {
			if old.Complete.Index < g.record.firstOf(op.Process) {
				why := "owners " + g.record.Name(old.Owner) + " and " + g.record.Name(op.Owner) + ", named after their processes, may be one client that went on after an unknown outcome"
				g.confused(op.Owner, why)
				g.confused(old.Owner, why)
			}
		}
	}
}

// filter is a list of those that are kept.
func filter[T any](list []T, keep func(T) bool) []T {
	var kept []T
	for _, e := range list {
		if keep(e) {
			kept = append(kept, e)
		}
	}
	return kept
}

// owner is the owner, which is good until the next one is asked for.
func (g *grouper) owner(number int32) *lockOwner {
	if g.places[number] == 0 {
		o := lockOwner{number: number, account: -1, reads: -1, asked: [2]int64{-1, -1}}
		if g.Semaphore() {
			o.permits = &permits{}
		}
		g.owners = append(g.owners, o)
		g.places[number] = int32(len(g.owners)) //nolint:gosec // fewer than operations, which fit into memory
	}
	return &g.owners[g.places[number]-1]
}

// accountOf is the account of an operation, or of a lost, of a lock without permits.
func (g *grouper) accountOf(op *Op) int32 {
	if g.Kind != history.KindRW {
		if g.places[op.Owner] == 0 {
			g.places[op.Owner] = g.open(op.Owner, false) + 1
		}
		return g.places[op.Owner] - 1
	}
	o := g.owner(op.Owner)
	at, reads := &o.account, g.reads(o, op)
	if reads {
		at = &o.reads
	}
	if *at < 0 {
		*at = g.open(op.Owner, reads)
	}
	return *at
}

// reads reports whether an operation is about what its owner reads under a read-write lock.
func (g *grouper) reads(o *lockOwner, op *Op) bool {
	if op.Mode != NoMode || op.Verb == Acquire {
		return op.Mode == Read
	}
	until := op.Complete.Index
	asked := func(read bool) bool {
		first := o.asked[index(read)]
		return first >= 0 && (until < 0 || first < until)
	}
	if asked(true) && asked(false) {
		owner := g.record.Name(op.Owner)
		g.confused(op.Owner, "owner "+owner+" reads and writes, and its "+op.Verb.String()+" does not say which of the two it is about")
	}
	return asked(true)
}

func index(is bool) int {
	if is {
		return 1
	}
	return 0
}

func (g *grouper) open(owner int32, reads bool) int32 {
	g.accounts = append(g.accounts, account{owner: owner, reads: reads})
	return int32(len(g.accounts) - 1) //nolint:gosec // fewer than operations, which fit into memory
}

func (g *grouper) add(account int32, op *Op) {
	at := place(op)
	if op.Verb != Lost {
		if op.Account < 0 {
			op.Account = account
		} else {
			if g.also == nil {
				g.also = map[*Op][]int32{}
			}
			g.also[op] = append(g.also[op], account)
		}
	}
	g.entries = append(g.entries, entry{op, at, account})
}

// place orders the account of one owner: by invoke, because that is when a
// release may take effect; but a refusal or a grant by its completion, because
// whatever was sent until then may be its cause. See also [byAnswers].
func place(op *Op) int64 {
	if op.Failed() || op.OK() && op.Verb == Acquire {
		return op.Complete.Index
	}
	return op.Invoke.Index
}

func byPlace(x, y entry) int { return cmp.Compare(x.at, y.at) }

// byAnswers puts an extension behind those that were sent after it and answered before
// it: the holder believes the answer that came last.
func byAnswers(entries []entry) {
	extends := func(e *entry) bool { return e.OK() && e.Verb == Extend }
	for i := range entries {
		if !extends(&entries[i]) {
			continue
		}
		moved, to := entries[i], i
		for j := i + 1; j < len(entries) && entries[j].at < moved.Complete.Index; j++ {
			if e := &entries[j]; extends(e) && e.Complete.Index < moved.Complete.Index {
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
