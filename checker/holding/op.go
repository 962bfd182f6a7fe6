package holding

import (
	"math"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

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
func (v Verb) String() string { return string(v.op()) }

func (v Verb) op() history.Op {
	return [verbs]history.Op{history.Acquire, history.Release, history.Extend, history.Access, history.Lost}[v]
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
	modes
)

// modeNames are the modes in a history.
func modeNames() [modes]history.Mode {
	return [modes]history.Mode{"", history.Exclusive, history.Read, history.Write, history.Permit}
}

func (m Mode) mode() history.Mode { return modeNames()[m] }

func modeOf(m history.Mode) Mode {
	names := modeNames()
	return Mode(max(slices.Index(names[:], m), 0)) //nolint:gosec // of the few
}

// outcome is how an operation ended.
type outcome uint8

const (
	info outcome = iota
	ok
	fail
)

func outcomes() [3]history.Type { return [...]history.Type{history.Info, history.OK, history.Fail} }

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
