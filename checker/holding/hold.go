package holding

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/history"
)

// The reasons for which a hold ends.
const (
	EndReleased = "released" // a confirmed release was sent
	EndExpired  = "expired"  // the lease ran out
	EndLost     = "lost"     // the holder was told, by a lost or by a refused release or extend
	EndUnknown  = "unknown"  // an operation with an unknown outcome may have ended it
	EndOpen     = "open"     // nothing ended it
)

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

// A LateSpan is a stretch of a hold in which its lease had run out (or its
// holder had been told that it was lost), and of which only a later
// confirmation shows that the lock was still held.
type LateSpan struct {
	Span
	By history.Operation // the release or extend that was confirmed
}

// A Hold is one grant of a lock and what followed under the same owner.
//
// Start and End bound the time in which the owner held the lock for certain,
// whatever was the order in which the service did what it was asked for: docs/what-is-checked.md has the formulas.
// Where End <= Start the grant was answered too late to be of use, and there
// is only some instant in [End, Start] at which the lock was held.
type Hold struct {
	Lock    string
	Owner   string
	Process int
	Mode    history.Mode // never empty
	Permits int          // at least 1
	Token   int64
	// Acquire is the operation that asked. Its completion may be an Info, if
	// a later confirmed release or extend proves the grant. (An access proves
	// nothing: it is not the lock service that answers it.)
	Acquire history.Operation
	// Proof is the operation whose reply proves the grant: Acquire itself if
	// it was answered ok.
	Proof history.Operation
	// Extensions are the later extends and inner acquires of this owner,
	// whatever their outcome.
	Extensions []history.Operation
	// Release is the last release, whatever its outcome; nil if there was none.
	Release *history.Operation
	// Start is the latest instant at which the grant can have begun, and End
	// the earliest at which it can have ended; [history.Never] if nothing ended it.
	Start, End time.Duration
	// Ended says why it ended at End, and EndEvent is the index of the event
	// that ended it: the release's or extend's invoke, the lost, the refusal.
	// It is -1 where a lease ran out or nothing ended it.
	Ended    string
	EndEvent int64
	// Late are the parts of [Start, End] that no lease covers, in order.
	Late []LateSpan
	// Belief is when the holder itself was entitled to believe that it held:
	// from a completion to the recorded expiry (without drift), the invoke of
	// the last matching release whatever its outcome, or the notice of loss.
	// In order; more than one where an extend was confirmed after the lease.
	Belief []Span
}

// Certain are the parts of [Start, End] that the lease covers, in order; none
// for a grant that was answered too late.
func (h *Hold) Certain() []Span {
	var spans []Span
	from := h.Start
	for _, late := range h.Late {
		if late.From > from {
			spans = append(spans, Span{From: from, Until: late.From})
		}
		from = max(from, late.Until)
	}
	if h.End > from {
		spans = append(spans, Span{From: from, Until: h.End})
	}
	return spans
}

// Of are the holds of all locks in order of their Start.
func Of(h *history.History) []Hold {
	r := RecordOf(h)
	r.Derive()
	ops := h.Operations()
	places := make(map[*Op]int, len(ops))
	for op := range r.Ops() { // in the same order
		places[op] = len(places)
	}
	operation := func(op *Op) *history.Operation { return &ops[places[op]] }
	var holds []Hold
	for _, l := range r.Locks() {
		for _, g := range l.Holds {
			holds = append(holds, g.hold(l, operation))
		}
	}
	slices.SortStableFunc(holds, func(a, b Hold) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Proof.Complete.Index, b.Proof.Complete.Index))
	})
	return holds
}

// hold is the hold with the events of a history.
func (g *Grant) hold(l *Lock, operation func(*Op) *history.Operation) Hold {
	h := Hold{
		Lock: l.Name, Owner: l.record.Name(g.Owner()), Process: g.Process(), Mode: g.Mode().mode(), Permits: g.Permits(), Token: g.Token(),
		Acquire: *operation(g.Acquire), Proof: *operation(g.Proof), Start: g.Start, End: g.End, Ended: g.Ended, EndEvent: g.EndEvent, Belief: g.Belief,
	}
	for _, op := range g.Extensions {
		h.Extensions = append(h.Extensions, *operation(op))
	}
	if g.Release != nil {
		h.Release = operation(g.Release)
	}
	for _, late := range g.Late {
		h.Late = append(h.Late, LateSpan{Span: late.Span, By: *operation(late.By)})
	}
	return h
}
