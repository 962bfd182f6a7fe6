// Package holding infers from a history who held which lock when.
//
// A [Record] is a whole history in little memory. [Record.Derive] reads the answers that each
// owner of each [Lock] was given, and makes of them the holds, each with the time for which it
// is certain; the answers that no hold explains; and the owners of whom the history does not
// say enough, with the reason. The checkers judge these, and reports draw them.
package holding

import (
	"cmp"
	"hash/maphash"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// A Record is a whole history in little memory: some 150 bytes for each operation.
type Record struct {
	// Faults are the events that no client made, but for declarations.
	Faults []history.Event
	// Crashes are those of each process, in order.
	Crashes map[int][]Crash
	// Events is how many there were, and End the time of the last.
	Events int64
	End    time.Duration
	// Truncated is the number of the last line if it was cut short, else 0.
	Truncated int

	pages [][]Op      // in order of their invokes
	open  map[int]*Op // by process
	losts []*Op

	grants [][]Grant // of all locks

	names   [][]string // in pages, of which only the last has room; the first name is empty
	seed    maphash.Seed
	numbers map[uint64]int32 // by the hashes of names; where another name has that, by the next one that is free
	last    [256]int32       // the numbers that were asked for last, by hints
	locks   []*Lock
	lockOf  map[int32]*Lock
	lock    *Lock // of the last event

	began map[int]int64 // the first event of each process; nil until it is asked for
}

const page = 1 << 12

// NewRecord returns an empty record.
func NewRecord() *Record {
	r := &Record{Crashes: map[int][]Crash{}, open: map[int]*Op{}, seed: maphash.MakeSeed(), names: [][]string{{""}}, numbers: map[uint64]int32{}, lockOf: map[int32]*Lock{}}
	r.numbers[maphash.String(r.seed, "")] = 0
	return r
}

// RecordOf is the record of a history.
func RecordOf(h *history.History) *Record {
	r := NewRecord()
	for i := range h.Events {
		r.Add(&h.Events[i])
	}
	r.Close(h.Truncated)
	return r
}

// kept is x behind what the pages have, none of which moves. Of holds it saves an allocation each.
func kept[T any](pages *[][]T, x T) *T {
	n := len(*pages)
	if n == 0 || len((*pages)[n-1]) == cap((*pages)[n-1]) {
		*pages = append(*pages, make([]T, 0, min(page, 16<<(2*min(n, 8))))) // the first ones are small, for short histories
		n++
	}
	p := &(*pages)[n-1]
	*p = append(*p, x)
	return &(*p)[len(*p)-1]
}

// more is a list with x, and room for as many again where it had none: append makes a long list longer by a quarter, so that
// most of what the judge of a long history allocates would be lists that were too short.
func more[T any](list []T, x T) []T {
	if len(list) == cap(list) {
		list = slices.Grow(list, len(list))
	}
	return append(list, x)
}

// Ops are the operations in order of their invokes.
func (r *Record) Ops() iter.Seq[*Op] {
	return func(yield func(*Op) bool) {
		for _, p := range r.pages {
			for i := range p {
				if !yield(&p[i]) {
					return
				}
			}
		}
	}
}

// Locks are those that the history names, in order of their names.
func (r *Record) Locks() []*Lock { return r.locks }

// Lock is the lock of that name; nil if the history does not name it.
func (r *Record) Lock(name string) *Lock {
	at, found := slices.BinarySearchFunc(r.locks, name, func(l *Lock, name string) int { return strings.Compare(l.Name, name) })
	if !found {
		return nil
	}
	return r.locks[at]
}

// Names is how many names there are, the empty one included: their numbers are smaller.
func (r *Record) Names() int { return (len(r.names)-1)*page + len(r.names[len(r.names)-1]) }

// Name is the name that has a number.
func (r *Record) Name(number int32) string { return r.names[number/page][number%page] }

// number is the number of a name. Names with the same hint are most often the same: to look for one
// among all takes half the time of a record. A map by hashes moves no names when it grows, nor does the collector look
// into it: with one by names, the judge of a million owners takes a tenth more processor time.
func (r *Record) number(name string, hint int) int32 {
	last := &r.last[hint&(len(r.last)-1)]
	if r.Name(*last) == name {
		return *last
	}
	hash := maphash.String(r.seed, name)
	n, known := r.numbers[hash]
	for ; known && r.Name(n) != name; n, known = r.numbers[hash] {
		hash++
	}
	if !known {
		if n = int32(r.Names()); n%page == 0 { //nolint:gosec // fewer than fit into memory
			r.names = append(r.names, nil)
		}
		r.names[n/page] = append(r.names[n/page], name)
		r.numbers[hash] = n
	}
	*last = n
	return n
}

// Add adds the next event, of which it keeps nothing.
func (r *Record) Add(e *history.Event) {
	r.Events, r.End = r.Events+1, e.Time
	if e.Lock != "" {
		r.promise(e)
	}
	switch {
	case e.Op == history.Crash:
		r.Crashes[e.Process] = append(r.Crashes[e.Process], Crash{Stamp{e.Time, e.Index}, cmp.Or(e.From, e.Time)})
	case e.Op == history.Declare:
	case e.Op == history.Lost:
		op := r.newOp(e, Lost)
		op.Complete = op.Invoke
		op.outcome = ok
		r.losts = append(r.losts, &op)
	case e.Process < 0:
		r.Faults = append(r.Faults, *e)
	case e.Type == history.Invoke:
		r.invoke(e)
	default:
		r.complete(e)
	}
}

func (r *Record) newOp(e *history.Event, verb Verb) Op {
	op := Op{
		Invoke: Stamp{e.Time, e.Index}, Process: e.Process, Verb: verb, Permits: int32(min(max(e.Permits, 0), history.MaxAmount)), //nolint:gosec // no more than that
		Mode:     Mode(max(slices.Index(modeNames(), e.Mode), 0)), //nolint:gosec // of the few
		Complete: Stamp{Index: -1}, Lease: e.Lease, Queued: -1, Account: -1, Ends: history.Never,
	}
	if e.Lock != "" {
		op.Lock = r.lock.number
	}
	if verb == Access {
		op.Resource, op.Token = r.number(e.Resource, -1), e.Token
	}
	op.Owner = r.number(e.LockOwner(), e.Process)
	if e.Owner == "" || verb != Access && e.Owner[0] == 'p' && e.Owner[1:] == strconv.Itoa(e.Process) {
		op.flags = unnamed
	}
	return op
}

func (r *Record) invoke(e *history.Event) {
	verb := Verb(slices.Index([]history.Op{history.Acquire, history.Release, history.Extend, history.Access}, e.Op)) //nolint:gosec // of the four
	if verb >= verbs {
		return
	}
	if e.Lock != "" && verb != Access {
		r.lock.acted++
	}
	r.open[e.Process] = kept(&r.pages, r.newOp(e, verb))
}

func (r *Record) complete(e *history.Event) {
	op := r.open[e.Process]
	if op == nil {
		return
	}
	r.open[e.Process] = nil
	op.Complete, op.Expiry, op.outcome = Stamp{e.Time, e.Index}, e.Expires, outcome(slices.Index(outcomes(), e.Type)) //nolint:gosec // of the three
	switch op.Verb {
	case Access:
		if e.Token != 0 {
			op.Token = e.Token
		}
		if e.Error == history.Abandoned {
			op.flags |= abandoned
		}
		if read, written, is := strings.Cut(e.Value, ">"); is && read != "" && written != "" && read != written {
			op.Read, op.Written = r.number(read, -2), r.number(written, -3)
		}
	case Acquire:
		op.Token = e.Token
		if e.Queued != nil {
			op.Queued = *e.Queued
		}
		l := r.lockOf[op.Lock]
		l.Requests = more(l.Requests, op)
	default:
	}
}

// promise takes note of what an event tells of the lock that it names.
func (r *Record) promise(e *history.Event) {
	if r.lock == nil || r.lock.Name != e.Lock {
		number := r.number(e.Lock, -4)
		if r.lock = r.lockOf[number]; r.lock == nil {
			r.lock = &Lock{record: r, number: number, Name: r.Name(number), Doubtful: map[int32]string{}, Disordered: map[int32]bool{}, Also: map[*Op][]int32{}}
			r.lockOf[number] = r.lock
			r.locks = append(r.locks, r.lock)
		}
	}
	l := r.lock
	switch {
	case e.Op == history.Declare:
		if l.Declared = append(l.Declared, *e); len(l.Declared) == 1 {
			l.Guarantees = history.Guarantees{Kind: e.Kind, Reentrant: e.Reentrant, Fair: e.Fair, Drift: e.Drift, Fenced: e.Fenced != nil && *e.Fenced}
		}
		l.Capacity = max(l.Capacity, e.Capacity)
	case e.Op == history.Acquire && e.Token != 0 && (len(l.Declared) == 0 || l.Declared[0].Fenced == nil):
		l.Fenced = true
	default:
	}
	if l.Kind == "" {
		switch e.Mode {
		case history.Read, history.Write:
			l.Kind = history.KindRW
		case history.Permit:
			l.Kind = history.KindSemaphore
		default:
		}
	}
}

// Close ends the record: what is open has an unknown outcome.
func (r *Record) Close(truncated int) {
	r.Truncated = truncated
	r.open, r.numbers = nil, nil
	for _, l := range r.locks {
		l.Kind, l.Ops = cmp.Or(l.Kind, history.KindMutex), make([]*Op, 0, l.acted)
	}
	for op := range r.Ops() {
		l := r.lockOf[op.Lock]
		if op.Open() {
			op.Complete.Time = r.End
			if op.Verb == Acquire {
				l.Requests = more(l.Requests, op)
			}
		}
		if expires := op.Expires(); expires > 0 && !op.Failed() && (op.Verb == Acquire || op.Verb == Extend) {
			op.Ends = max(expires-l.Drift, 0)
		}
		switch {
		case op.Lock == 0:
		case op.Verb == Access:
			l.Accesses = more(l.Accesses, op)
		default:
			l.Ops = append(l.Ops, op)
		}
	}
	for _, op := range r.losts {
		if l := r.lockOf[op.Lock]; l != nil {
			l.Losts = append(l.Losts, op)
		}
	}
	slices.SortFunc(r.locks, func(a, b *Lock) int { return strings.Compare(a.Name, b.Name) })
}

// firstOf is the first event of each process.
func (r *Record) firstOf(process int) int64 {
	if r.began == nil {
		r.began = map[int]int64{}
		for op := range r.Ops() {
			if _, more := r.began[op.Process]; !more {
				r.began[op.Process] = op.Invoke.Index
			}
		}
	}
	return r.began[process]
}

// crash is from when on a process may have been gone that was first seen to be so from an
// instant on.
func (r *Record) crash(process int, from time.Duration) (at time.Duration, did bool) {
	for _, c := range r.Crashes[process] {
		if c.Time >= from {
			return max(c.From, from), true
		}
	}
	return 0, false
}

// Parts are the events of each of the operations that are kept, and of each notice of loss, as far as a record has them: without
// errors, nodes and hold counts.
func (r *Record) Parts(keep func(*Op) bool) (parts [][]history.Event) {
	for _, op := range append(slices.Collect(r.Ops()), r.losts...) {
		if keep(op) {
			parts = append(parts, r.events(op))
		}
	}
	return parts
}

// events are the events of an operation.
func (r *Record) events(op *Op) []history.Event {
	e := history.Event{
		Index: op.Invoke.Index, Time: op.Invoke.Time, Process: op.Process, Type: history.Invoke, Op: history.Op(op.Verb.String()),
		Lock: r.Name(op.Lock), Owner: r.Name(op.Owner), Mode: modeNames()[op.Mode], Permits: int(op.Permits), Lease: op.Lease, Resource: r.Name(op.Resource),
	}
	if op.Verb == Access && op.Unnamed() {
		e.Owner = ""
	}
	if op.Verb == Lost {
		e.Type = history.OK
		return []history.Event{e}
	}
	if op.Open() {
		return []history.Event{e}
	}
	answer := e
	answer.Index, answer.Time, answer.Type = op.Complete.Index, op.Complete.Time, op.Outcome()
	answer.Expires, answer.Token = op.Expiry, op.Token
	if op.Queued >= 0 {
		answer.Queued = &op.Queued
	}
	if op.Written != 0 {
		answer.Value = r.Name(op.Read) + ">" + r.Name(op.Written)
	}
	return []history.Event{e, answer}
}

// A Stamp is when an event was, and where it is in its history.
type Stamp struct {
	Time  time.Duration
	Index int64
}

// A Span is the closed stretch of time between two instants; it has no length
// where Until <= From.
type Span struct {
	From, Until time.Duration
}

// Overlap is the stretch that two spans share. It reports false for spans that
// are apart or only touch.
func (s Span) Overlap(other Span) (Span, bool) {
	both := Span{From: max(s.From, other.From), Until: min(s.Until, other.Until)}
	return both, both.From < both.Until
}

// A Crash is when the process was seen to be gone, and from when on it may have been.
type Crash struct {
	Stamp

	From time.Duration
}

// A Verb is what an [Op] did.
type Verb uint8

// The verbs.
const (
	Acquire Verb = iota
	Release
	Extend
	Access
	Lost // a single event: its Invoke is its Complete
	verbs
)

// String is the name of the op in a history.
func (v Verb) String() string {
	return string([verbs]history.Op{history.Acquire, history.Release, history.Extend, history.Access, history.Lost}[v])
}

// A Mode is how a lock was asked for.
type Mode uint8

// The modes; none is Exclusive.
const (
	NoMode Mode = iota
	Exclusive
	Read
	Write
	Permit
)

// modeNames are the modes in a history.
func modeNames() []history.Mode {
	return []history.Mode{"", history.Exclusive, history.Read, history.Write, history.Permit}
}

// outcome is how an operation ended.
type outcome uint8

const (
	info outcome = iota
	ok
	fail
)

func outcomes() []history.Type { return []history.Type{history.Info, history.OK, history.Fail} }

// An Op is one operation of a client, both of its events, as far as they matter to the judge:
// in a sixth of their memory, without a pointer. Names are numbers, see [Record.Name].
type Op struct {
	// Invoke is its first event and Complete its answer. Of one that is still open at the end
	// of the history that is the end, with an index of -1.
	Invoke, Complete Stamp
	Lease            time.Duration // asked for; 0 for none
	Expiry           time.Duration // as answered; 0 if it does not say
	// Ends is the first end of the lease that an acquire or extend gave which was not refused:
	// its expiry less the declared drift, and no later than a lost that followed, or, without a
	// lease, than the crash of a process of the hold; else [history.Never].
	Ends    time.Duration
	Token   int64 // of the answer to an acquire; of an access
	Queued  int64 // of the answer to an acquire; -1 if it does not say
	Process int
	Lock    int32
	Owner   int32 // if it names none, that which has the name of its process
	Permits int32 // as the event says; 0 if it does not
	// Account is the account of its owner that an acquire, release or extend belongs to; -1
	// for none. A release that gives back several grants has more: see [Lock.Also].
	Account int32

	Resource      int32 // of an access
	Read, Written int32 // of an access that read one version and wrote another; else 0

	Verb    Verb
	Mode    Mode
	outcome outcome
	flags   flags
}

// flags are what few operations have.
type flags uint8

const (
	unnamed   flags = 1 << iota // its owner has the name of its process
	abandoned                   // its error says that it was given up
	givesUp                     // a release that was refused, and which tells what its owner has given up
)

// GivesUp reports whether the operation is a release that was refused, and it is known what its owner gave up by it: of
// permits, if there was one request for them alone.
func (o *Op) GivesUp() bool { return o.flags&givesUp != 0 }

// OK reports whether the operation happened for certain.
func (o *Op) OK() bool { return o.outcome == ok }

// Failed reports whether the operation did not happen for certain.
func (o *Op) Failed() bool { return o.outcome == fail }

// Unknown reports whether the operation may have happened.
func (o *Op) Unknown() bool { return o.outcome == info }

// Open reports whether it had no answer when the history ended.
func (o *Op) Open() bool { return o.Complete.Index < 0 }

// Answered is the index of its answer; of one that is open, behind all others.
func (o *Op) Answered() int64 {
	if o.Open() {
		return math.MaxInt64
	}
	return o.Complete.Index
}

// Abandoned reports whether the client had given it up: see [history.Abandoned].
func (o *Op) Abandoned() bool { return o.flags&abandoned != 0 }

// Unnamed reports whether it names no owner.
func (o *Op) Unnamed() bool { return o.flags&unnamed != 0 }

// Outcome is the type of its second event.
func (o *Op) Outcome() history.Type { return outcomes()[o.outcome] }

// Span is from its invoke to its answer.
func (o *Op) Span() Span { return Span{From: o.Invoke.Time, Until: o.Complete.Time} }

// Amount is how many permits it is about: at least 1.
func (o *Op) Amount() int { return max(int(o.Permits), 1) }

// Expires is the end of the belief that a completed acquire or extend gives:
// the recorded expiry if it was answered ok, else invoke plus lease, else 0 for no end.
func (o *Op) Expires() time.Duration {
	switch {
	case o.OK() && o.Expiry > 0:
		return o.Expiry
	case o.Lease > 0 && o.Lease <= history.Never-o.Invoke.Time:
		return o.Invoke.Time + o.Lease
	default:
		return 0
	}
}

// Latest is the latest end of the lease that it gives, if it took effect when it was answered.
func (o *Op) Latest(drift time.Duration) time.Duration {
	end := After(o.Complete.Time, o.Lease)
	if o.OK() && o.Expiry > 0 {
		end = max(o.Expiry, end)
	} else if o.Lease == 0 {
		return history.Never
	}
	return After(end, drift)
}

// After is t and some time more, which may be [history.Never].
func After(t, more time.Duration) time.Duration {
	if more > math.MaxInt64-t {
		return history.Never
	}
	return t + more
}
