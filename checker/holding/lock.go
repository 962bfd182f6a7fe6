package holding

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// A Lock is what was done with one lock, and who held it when: see [Record.Derive].
type Lock struct {
	Name string
	history.Guarantees
	Declared []history.Event // as Guarantees say; those behind the first are of another capacity
	Ops      []*Op           // acquires, releases and extends, in order of their invokes
	Requests []*Op           // the acquires in order of their answers; those that had none are the last
	Accesses []*Op           // that name it, in order of their invokes
	Losts    []*Op           // in order

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
	// Disordered are those of which not even the order of what they did is known.
	Disordered map[int32]bool
	// Accounts are how matters stand between an owner and the lock, and whether each is of reads: of a read-write lock
	// the reads of an owner have an account of their own, and of a semaphore each of the grants that it has at a time.
	Accounts []bool
	// Also are the accounts of an operation beside its first.
	Also map[*Op][]int32

	record *Record
	number int32
	acted  int // how many Ops there will be
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

// An End is why a hold ended.
type End uint8

// The reasons for which a hold ends.
const (
	EndOpen     End = iota // nothing ended it
	EndReleased            // a confirmed release was sent
	EndExpired             // the lease ran out
	EndLost                // the holder was told, by a lost or by a refused release or extend
	EndUnknown             // an operation with an unknown outcome may have ended it
)

// A Grant is one grant of a lock and what followed under the same owner: a hold.
//
// Start and End bound the time in which the owner held the lock for certain,
// whatever was the order in which the service did what it was asked for: docs/what-is-checked.md has the formulas.
// Where End <= Start the grant was answered too late to be of use, and there
// is only some instant in [End, Start] at which the lock was held.
type Grant struct {
	// Acquire is the operation that asked. It may have an unknown outcome, if
	// a later confirmed release or extend proves the grant. (An access proves
	// nothing: it is not the lock service that answers it.)
	Acquire *Op
	// Proof is the operation whose answer proves the grant: Acquire itself if
	// it was answered ok.
	Proof *Op
	// Extensions are the later extends and inner acquires of this owner,
	// whatever their outcome.
	Extensions []*Op
	// Release is the last release, whatever its outcome; nil if there was none.
	Release *Op
	// Start is the latest instant at which the grant can have begun, and End
	// the earliest at which it can have ended; [history.Never] if nothing ended it.
	Start, End time.Duration
	// EndEvent is the index of the event that ended it: the release's or extend's
	// invoke, the lost, the refusal. It is -1 where a lease ran out or nothing ended it.
	EndEvent int64
	// Late are the parts of [Start, End] that no lease covers, in order.
	Late []Late
	// Belief is when the holder itself was entitled to believe that it held:
	// from a completion to the recorded expiry (without drift), the invoke of
	// the last matching release whatever its outcome, or the notice of loss.
	// In order; more than one where an extend was confirmed after the lease.
	Belief []Span
	// Cuts is the token of the hold that its owner had before, whose lease this one
	// may have cut, if the two are one hold; 0 if it did not, or there was none.
	Cuts    int64
	Account int32
	Ended   End // why it ended at End
	// Again says that the hold may be the one that its owner had before, of which
	// nothing shows that it ended.
	Again bool
	// Kept says that the release that ended the hold may have left it there,
	// because an acquire with an unknown outcome may have raised its count.
	Kept bool
}

// Owner is the number of its owner's name.
func (g *Grant) Owner() int32 { return g.Acquire.Owner }

// Process is the one that asked.
func (g *Grant) Process() int { return g.Acquire.Process }

// Permits are how many it was granted: at least 1.
func (g *Grant) Permits() int { return g.Acquire.Amount() }

// Token is that of the grant; 0 if it is not known.
func (g *Grant) Token() int64 { return g.Acquire.Token }

// Mode is how the lock was granted, never NoMode.
func (g *Grant) Mode() Mode { return cmp.Or(g.Acquire.Mode, Exclusive) }

// Reads reports whether it is a grant for reading.
func (g *Grant) Reads() bool { return g.Acquire.Mode == Read }

// Span is from its Start to its End.
func (g *Grant) Span() Span { return Span{From: g.Start, Until: g.End} }

// Certain reports whether it was held for certain for some time.
func (g *Grant) Certain() bool { return g.End > g.Start }

// Record is what the lock is part of.
func (l *Lock) Record() *Record { return l.record }

// Semaphore reports whether the lock has permits.
func (l *Lock) Semaphore() bool { return l.Kind == history.KindSemaphore }

// CapacityIn are the least and the most permits that a semaphore has between two instants. At that of a change it
// may have either number.
func (l *Lock) CapacityIn(from, until time.Duration) (least, most int) {
	for i := range l.Declared {
		if d := &l.Declared[i]; d.From <= until && (i+1 == len(l.Declared) || l.Declared[i+1].From >= from) {
			least, most = min(cmp.Or(least, d.Capacity), d.Capacity), max(most, d.Capacity)
		}
	}
	return least, most
}

// Holds are those of all locks in order of their Start.
func (r *Record) Holds() (all []*Grant) {
	for _, l := range r.locks {
		all = append(all, l.Holds...)
	}
	slices.SortStableFunc(all, byStart)
	return all
}

func byStart(x, y *Grant) int {
	if x.Start != y.Start {
		return cmp.Compare(x.Start, y.Start)
	}
	return cmp.Compare(x.Proof.Complete.Index, y.Proof.Complete.Index)
}

// Derive finds who held what when, of each lock. It takes O(n log n) time.
//
// An owner whose account can't be told is left out, and Unclear says so: docs/history-format.md has all reasons. Of the
// grants that an owner of a semaphore has at a time, the account takes a release for one of those that last longest,
// which claims the least if they are of one size.
func (r *Record) Derive() {
	var a ownerState               // in its place for each: it is large
	ends := make([]int, r.Names()) // of what each owner did, in the list of all; a sort by owners takes twice as long
	for _, l := range r.locks {
		l.renamed()
		ops := append(slices.Clip(l.Ops), l.Losts...)
		var owners []int32
		for _, op := range ops {
			if ends[op.Owner] == 0 {
				owners = more(owners, op.Owner)
			}
			ends[op.Owner]++
		}
		slices.Sort(owners)
		begin := 0
		for _, o := range owners {
			ends[o], begin = begin, begin+ends[o]
		}
		did := make([]*Op, len(ops))
		for _, op := range ops {
			did[ends[op.Owner]] = op
			ends[op.Owner]++
		}
		begin = 0
		for _, o := range owners {
			slices.SortFunc(did[begin:ends[o]], byPlace)
			l.divide(did[begin:ends[o]], &a)
			begin, ends[o] = ends[o], 0
		}
		slices.SortFunc(l.Holds, byStart)
		l.leaveOut()
	}
}

// divide sorts what one owner did by the account that it belongs to, and follows each.
func (l *Lock) divide(ops []*Op, a *ownerState) {
	var asked []*Op // of permits
	if l.Semaphore() {
		asked = Filter(ops, func(op *Op) bool { return op.Verb == Acquire && !op.Failed() })
	}
	for _, op := range ops {
		if op.Verb == Release && op.Failed() && (!l.Semaphore() || len(asked) == 1 && op.Amount() <= asked[0].Amount()) {
			op.flags |= givesUp
		}
	}
	switch l.Kind {
	case history.KindSemaphore:
		p := permits{Lock: l}
		for _, op := range ops {
			p.take(op)
		}
		for _, list := range p.accounts {
			slices.SortFunc(list, byPlace)
			a.follow(l, false, list)
		}
	case history.KindRW:
		asked := [2]int64{math.MaxInt64, math.MaxInt64} // the first acquires, of a write and of a read, that were not refused
		for _, op := range ops {
			if op.Verb == Acquire && !op.Failed() {
				asked[Index(op.Mode == Read)] = min(asked[Index(op.Mode == Read)], op.Invoke.Index)
			}
		}
		var accounts [2][]*Op
		for _, op := range ops {
			reads := Index(l.reads(op, asked))
			accounts[reads] = append(accounts[reads], op)
		}
		a.follow(l, false, accounts[0])
		a.follow(l, true, accounts[1])
	default:
		a.follow(l, false, ops)
	}
}

// reads reports whether an operation is about what its owner reads under a read-write lock. One that does not say so is
// about what its owner had asked for until it was answered.
func (l *Lock) reads(op *Op, asked [2]int64) bool {
	if op.Mode != NoMode || op.Verb == Acquire {
		return op.Mode == Read
	}
	read := asked[1] < op.Answered()
	if read && asked[0] < op.Answered() {
		l.confused(op.Owner, "owner %s reads and writes, and its "+op.Verb.String()+" does not say which of the two it is about")
	}
	return read
}

// Index is 1 for true and 0 for false, to index a list of two by it.
func Index(is bool) int {
	if is {
		return 1
	}
	return 0
}

// doubt says why the account of an owner can't be told, with its name.
func (l *Lock) doubt(owner int32, format string) {
	l.Unclear = strings.Replace(format, "%s", l.record.Name(owner), 1)
	l.Doubtful[owner] = l.Unclear
}

// confused leaves an owner out of the account, of whom not even the order of what it did is known.
func (l *Lock) confused(owner int32, format string) {
	l.doubt(owner, format)
	l.Disordered[owner] = true
}

// leaveOut drops what was concluded of owners whose account can't be told.
func (l *Lock) leaveOut() {
	doubtful := func(owner int32) bool { return l.Doubtful[owner] != "" }
	l.Excluded = Filter(l.Holds, func(h *Grant) bool { return doubtful(h.Owner()) && !l.Disordered[h.Owner()] })
	l.Holds = slices.DeleteFunc(l.Holds, func(h *Grant) bool { return doubtful(h.Owner()) })
	l.Uncovered = slices.DeleteFunc(l.Uncovered, func(op *Op) bool { return doubtful(op.Owner) })
	l.Denied = slices.DeleteFunc(l.Denied, func(d Denial) bool { return doubtful(d.Hold.Owner()) })
}

// renamed leaves out the owners that may be one client under two names. A client that
// names no owner has the name of its process, and goes on under another one after an
// unknown outcome: what the new process gives back or prolongs without having asked for
// it, or is granted again, may be what the old one holds.
func (l *Lock) renamed() {
	retired := Filter(l.Ops, func(op *Op) bool { return op.Unknown() && !op.Open() && op.Unnamed() })
	asked := map[int32]bool{}
	for _, op := range l.Ops {
		if len(retired) == 0 || op.Failed() || !op.Unnamed() {
			continue
		}
		again := op.Verb == Acquire && op.OK() && (l.Reentrant || op.Mode == Read)
		before := asked[op.Owner]
		asked[op.Owner] = true
		if op.Verb == Acquire && !again || op.Verb != Acquire && before {
			continue
		}
		for _, old := range retired {
			if old.Complete.Index < l.record.firstOf(op.Process) {
				why := "owners " + l.record.Name(old.Owner) + " and " + l.record.Name(op.Owner) + ", named after their processes, may be one client that went on after an unknown outcome"
				l.confused(op.Owner, why)
				l.confused(old.Owner, why)
			}
		}
	}
}

// Filter is a list of those that are kept.
func Filter[T any](list []T, keep func(T) bool) (kept []T) {
	for _, e := range list {
		if keep(e) {
			kept = append(kept, e)
		}
	}
	return kept
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

func byPlace(x, y *Op) int { return cmp.Compare(place(x), place(y)) }

// byAnswers puts an extension behind those that were sent after it and answered before
// it: the holder believes the answer that came last. It returns those that it moved.
func byAnswers(ops []*Op) (behind []*Op) {
	extends := func(op *Op) bool { return op.OK() && op.Verb == Extend }
	for i := 0; i < len(ops); {
		moved, to := ops[i], i
		for j := i + 1; extends(moved) && j < len(ops) && place(ops[j]) < moved.Complete.Index; j++ {
			if extends(ops[j]) && ops[j].Complete.Index < moved.Complete.Index {
				to = j
			}
		}
		if to == i {
			i++
			continue
		}
		copy(ops[i:], ops[i+1:to+1])
		ops[to] = moved
		behind = append(behind, moved)
	}
	return behind
}
