// Package facts derives from the record of a run, once, what all of its reports read: who held what, what the
// servers were, which faults were in effect, and how long everything took.
package facts

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/topologies"
)

// Facts are what a run's record shows.
type Facts struct {
	Run     history.Run
	History *history.History
	Results []checker.Result
	Verdict checker.Verdict
	End     time.Duration // of the record
	Record  *holding.Record
	Ops     []*holding.Op    // in order of their requests
	Holds   []*holding.Grant // in order of their start
	// Operations count how operations ended and Latency is how long those took that were answered ok, by their names.
	Operations map[string]Outcomes
	Latency    map[string]Latency
	Faults     []Fault
	Roles      []Role
	// Violations are those that are listed, in order of time. What two engines found in the same events, or of
	// one lock in the very same time, is one of them: the gravest.
	Violations []*checker.Violation
	// Told is that of them which the story tells; nil if there is none.
	Told *checker.Violation

	topology topologies.Topology         // of the run
	granters map[*holding.Grant][]string // inferred
	looks    map[string][]Look           // by lock
	evidence map[int64]*holding.Op       // by the index of an event that a violation names
	proofs   map[int64][]*holding.Grant  // the same
	lanes    []*Lane
	laneOf   map[[2]string]*Lane // by lock and client
	accesses map[string][]*holding.Op
}

// Of derives the facts of a run, as far as it was read.
func Of(run history.Run, h *history.History, report checker.Report, whole bool) *Facts {
	if h == nil {
		h = &history.History{}
	}
	r := &Facts{
		Run: run, History: h, Results: report.Results, Verdict: checker.RunVerdict(run, report.Verdict, whole),
		End: cmp.Or(h.End(), report.Until), Record: report.Record, // a history that was streamed by is not kept
		Operations: map[string]Outcomes{}, Latency: map[string]Latency{},
		topology: planned(run.Topology), granters: map[*holding.Grant][]string{}, looks: map[string][]Look{},
	}
	if r.Record == nil || r.Record.Events != int64(len(h.Events)) { // the verdicts were read, or are of another history
		r.Record = holding.RecordOf(h)
		r.Record.Derive()
	}
	r.Ops, r.Holds = slices.Collect(r.Record.Ops()), r.Record.Holds()
	r.count()
	for _, e := range r.Record.Faults {
		if e.Op == history.Observe && e.What == history.ObserveKey {
			name, owner, _ := strings.Cut(e.Value, " ")
			r.looks[name] = append(r.looks[name], Look{e.Time, e.Node, owner})
		}
	}
	r.Faults = faultsOf(r.Record.Faults, r.End)
	r.Roles = rolesOf(run.Topology, r.Record.Faults)
	r.Violations = r.distinct()
	r.findEvidence()
	r.Told = r.firstWithDamage()
	r.measureRecovery()
	return r
}

// A Window is a part of the time.
type Window struct{ From, To time.Duration }

// Length is how long it is.
func (w Window) Length() time.Duration { return w.To - w.From }

// Meets reports whether something that lasted so long shows in the window.
func (w Window) Meets(from, to time.Duration) bool { return from <= w.To && to >= w.From }

// Whole is the window of the entire record.
func (r *Facts) Whole() Window { return Window{To: max(r.End, time.Millisecond)} }

func (r *Facts) distinct() []*checker.Violation {
	type place struct {
		lock        string
		from, until time.Duration
	}
	var all []*checker.Violation
	for i := range r.Results {
		for j := range r.Results[i].Violations {
			if v := &r.Results[i].Violations[j]; r.Results[i].Verdict == checker.Invalid && !r.repeats(v) {
				all = append(all, v)
			}
		}
	}
	// The order of the results, and of violations of one time, is none.
	graver := func(a, b *checker.Violation) int {
		return cmp.Or(cmp.Compare(Severity(a.Kind), Severity(b.Kind)), say.Natural(a.Lock, b.Lock), slices.Compare(a.Events, b.Events))
	}
	slices.SortStableFunc(all, graver)
	seen := map[place]bool{}
	all = slices.DeleteFunc(all, func(v *checker.Violation) bool {
		at := place{v.Lock, v.From, v.Until}
		again := seen[at]
		seen[at] = true
		return again
	})
	slices.SortStableFunc(all, func(a, b *checker.Violation) int {
		return cmp.Or(cmp.Compare(r.Since(a), r.Since(b)), cmp.Compare(a.Until, b.Until), graver(a, b))
	})
	return all
}

// repeats reports whether a violation is the search's finding in the very events in which another engine found one.
func (r *Facts) repeats(v *checker.Violation) bool {
	return v.Kind == checker.NotLinearizable && slices.ContainsFunc(r.Results, func(of checker.Result) bool {
		return slices.ContainsFunc(of.Violations, func(other checker.Violation) bool {
			return other.Kind != v.Kind && slices.Equal(other.Events, v.Events)
		})
	})
}

// Severity is the place of a kind among all, the gravest first.
func Severity(kind string) int {
	_, place := checker.KindOf(kind)
	return place
}

// IsDamage reports whether a kind of violation is damage to a resource.
func IsDamage(kind string) bool { return kind == checker.LostUpdate || kind == checker.StaleAccess }

// Since is when a violation was there: one that is in an answer at that answer, any other as soon as it began.
func (r *Facts) Since(v *checker.Violation) time.Duration {
	if kind, _ := checker.KindOf(v.Kind); kind.InAnswer {
		return max(v.From, min(v.Until, r.End))
	}
	return v.From
}

// Lasted is how long a violation lasted within the record.
func (r *Facts) Lasted(v *checker.Violation) time.Duration { return min(v.Until, r.End) - v.From }

// Event is the event of that index, if the history has it.
func (r *Facts) Event(index int64) (*history.Event, bool) {
	if index < 0 || index >= int64(len(r.History.Events)) {
		return nil, false
	}
	return &r.History.Events[index], true
}

// Asked is the event with which an operation began, with its owner where it is one on a lock.
func (r *Facts) Asked(op *holding.Op) *history.Event {
	e := &r.History.Events[op.Invoke.Index]
	if e.Owner == "" && e.Op.OfHolder() {
		named := *e
		named.Owner, e = e.LockOwner(), &named
	}
	return e
}

// Answer is the event with which an operation ended. One that was still open at the end of the record has an answer
// that says so.
func (r *Facts) Answer(op *holding.Op) *history.Event {
	if !op.Open() {
		return &r.History.Events[op.Complete.Index]
	}
	e := *r.Asked(op)
	e.Index, e.Type, e.Time, e.Error = op.Complete.Index, history.Info, op.Complete.Time, "still open at the end of the history"
	return &e
}

// Lock is the name of the lock that an operation is about, and Owner that of its owner.
func (r *Facts) Lock(op *holding.Op) string { return r.Record.Name(op.Lock) }

// Owner is the owner that an operation names; empty for an access that names none.
func (r *Facts) Owner(op *holding.Op) string {
	if op.Verb == holding.Access && op.Unnamed() {
		return ""
	}
	return r.Record.Name(op.Owner)
}

// Holder is the client whose hold it is.
func (r *Facts) Holder(h *holding.Grant) string { return Client(r.Record.Name(h.Owner())) }

// findEvidence finds in one pass the operations and holds that the evidence of all violations names.
func (r *Facts) findEvidence() {
	r.evidence, r.proofs = map[int64]*holding.Op{}, map[int64][]*holding.Grant{}
	named := make([]bool, len(r.History.Events))
	for _, result := range r.Results {
		for _, v := range result.Violations {
			for _, index := range v.Events {
				if _, is := r.Event(index); is {
					named[index] = true
				}
			}
		}
	}
	of := func(op *holding.Op) (found []int64) {
		for _, index := range [...]int64{op.Invoke.Index, op.Complete.Index} {
			if index >= 0 && named[index] {
				found = append(found, index)
			}
		}
		return found
	}
	for _, op := range r.Ops {
		for _, index := range of(op) {
			r.evidence[index] = op
		}
	}
	for _, h := range r.Holds {
		for _, index := range append(of(h.Acquire), of(h.Proof)...) {
			if !slices.Contains(r.proofs[index], h) {
				r.proofs[index] = append(r.proofs[index], h)
			}
		}
	}
}

// Operation is the operation that an event of the evidence is one end of.
func (r *Facts) Operation(index int64) (*holding.Op, bool) {
	op := r.evidence[index]
	return op, op != nil
}

// HoldsOf are the holds that the evidence names, in order of their start.
func (r *Facts) HoldsOf(v *checker.Violation) []*holding.Grant {
	var found []*holding.Grant
	for _, index := range v.Events {
		for _, h := range r.proofs[index] {
			if !slices.Contains(found, h) {
				found = append(found, h)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b *holding.Grant) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Acquire.Invoke.Index, b.Acquire.Invoke.Index))
	})
	return found
}

// Evidence are the holds that a violation is about: those that it names, and those under which its operations were.
func (r *Facts) Evidence(v *checker.Violation) []*holding.Grant {
	holds := r.HoldsOf(v)
	for _, index := range v.Events {
		if e, ok := r.Event(index); ok && e.Op != history.Acquire {
			if h := r.HoldFor(v, e); h != nil && !slices.Contains(holds, h) {
				holds = append(holds, h)
			}
		}
	}
	return holds
}

// lastHold is the last hold that began by an instant and fits; nil if there is none.
func (r *Facts) lastHold(at time.Duration, fits func(*holding.Grant) bool) *holding.Grant {
	for i := sort.Search(len(r.Holds), func(i int) bool { return r.Holds[i].Start > at }); i > 0; i-- {
		if h := r.Holds[i-1]; fits(h) {
			return h
		}
	}
	return nil
}

// HoldBefore is the last hold of a lock, or of any if none is named, by an owner that began by an instant; nil if
// there is none.
func (r *Facts) HoldBefore(lock, owner string, at time.Duration) *holding.Grant {
	return r.lastHold(at, func(h *holding.Grant) bool {
		return r.Owner(h.Acquire) == owner && (lock == "" || r.Lock(h.Acquire) == lock)
	})
}

// LastGrant is the last grant of a lock by an instant; nil if there is none.
func (r *Facts) LastGrant(lock string, at time.Duration) *holding.Grant {
	return r.lastHold(at, func(h *holding.Grant) bool { return r.Lock(h.Acquire) == lock })
}

// Measures reports whether a cause was measured of a violation.
func (r *Facts) Measures(c history.Cause, v *checker.Violation) bool {
	return v != nil && c.Kind == v.Kind && c.From <= r.Since(v) && r.Since(v) <= c.Until
}

// CausesFrom are the causes that were measured, that of a violation first.
func (r *Facts) CausesFrom(v *checker.Violation) []history.Cause {
	all := slices.Clone(r.Run.Causes)
	if i := slices.IndexFunc(all, func(c history.Cause) bool { return r.Measures(c, v) }); i > 0 {
		all = slices.Insert(slices.Delete(all, i, i+1), 0, r.Run.Causes[i])
	}
	return all
}

// HoldFor is the hold that an event acted under: that of its owner, of the event's mode where the owner has several,
// else the last of its process; nil if there is none.
func (r *Facts) HoldFor(v *checker.Violation, e *history.Event) *holding.Grant {
	of := func(h *holding.Grant) bool {
		return (v.Lock == "" || r.Lock(h.Acquire) == v.Lock) && (r.Owner(h.Acquire) == e.Owner || e.Owner == "" && h.Process() == e.Process)
	}
	mine := func(h *holding.Grant) bool {
		return of(h) && (e.Mode == "" || cmp.Or(r.Asked(h.Acquire).Mode, history.Exclusive) == e.Mode)
	}
	return cmp.Or(r.lastHold(e.Time, mine), r.lastHold(e.Time, of))
}

// Client is whose hold it is: the owner without the number of the attempt.
func Client(owner string) string {
	name, _, _ := strings.Cut(owner, "#")
	return cmp.Or(name, owner)
}

// ClientOf is the client of an event: by its owner, else by the first owner that its process used; empty if neither
// is known.
func (r *Facts) ClientOf(e *history.Event) string {
	if e.Owner != "" {
		return Client(e.Owner)
	}
	for _, h := range r.Holds {
		if h.Process() == e.Process {
			return r.Holder(h)
		}
	}
	return ""
}

// Entitled is until when a holder was entitled to hold: no later than its hold is certain.
func Entitled(h *holding.Grant) time.Duration {
	if n := len(h.Belief); n > 0 {
		return min(h.End, h.Belief[n-1].Until)
	}
	return h.End
}

// Unleased reports whether a hold was granted without a lease.
func Unleased(h *holding.Grant) bool { return h.Acquire.Lease == 0 && h.Acquire.Expires() == 0 }

// Met reports whether the run met something, as the checkers count it.
func (r *Facts) Met(what string) bool {
	return slices.ContainsFunc(r.Results, func(p checker.Result) bool { return p.Met[what] > 0 })
}

// Due is when the lease of a hold is over, as granted or extended until an instant; [history.Never] for none.
func Due(h *holding.Grant, at time.Duration) time.Duration {
	due := h.Acquire.Expires()
	for _, e := range h.Extensions {
		if e.OK() && e.Complete.Time <= at {
			due = e.Expires()
		}
	}
	if due <= 0 {
		return history.Never
	}
	return due
}

// SentAt is when the request was sent that was granted, at the earliest: of a client that asked again and again its
// lease counts from then.
func SentAt(h *holding.Grant) time.Duration {
	lease, expires := h.Acquire.Lease, h.Acquire.Expires()
	if lease <= 0 || expires <= 0 || !h.Acquire.OK() {
		return h.Acquire.Invoke.Time
	}
	return max(expires-lease, h.Acquire.Invoke.Time)
}

// KindOf is the kind that a lock was declared to be, and its capacity; empty if it was not.
func (r *Facts) KindOf(lock string) (kind string, capacity int) {
	if l := r.Record.Lock(lock); l != nil && len(l.Declared) > 0 {
		return l.Declared[0].Kind, l.Declared[0].Capacity
	}
	return "", 0
}

// Together is until when holds last beside each other: beyond the record, where only its end ends the violation.
func (r *Facts) Together(v *checker.Violation, holds []*holding.Grant) time.Duration {
	until := history.Never
	if v.Until < r.End || len(holds) == 0 {
		until = v.Until
	}
	for _, h := range holds {
		until = min(until, h.End)
	}
	return until
}

// firstWithDamage is the first violation with damage, which is that of the grants by which a change of a resource was
// lost; without any damage the first of the gravest kind. In a chain of overlaps it is the first: the release of a hold
// that overlaps with one before it is rightful.
func (r *Facts) firstWithDamage() *checker.Violation {
	if len(r.Violations) == 0 {
		return nil
	}
	among := r.Violations
	if i := slices.IndexFunc(among, func(v *checker.Violation) bool { return IsDamage(v.Kind) }); i >= 0 {
		damage := among[i]
		holds := r.Evidence(damage)
		among = slices.DeleteFunc(slices.Clone(among), func(v *checker.Violation) bool { return v != damage && !Common(holds, r.Evidence(v)) })
	}
	told := slices.MinFunc(among, func(a, b *checker.Violation) int { return cmp.Compare(Severity(a.Kind), Severity(b.Kind)) })
	overlap := map[*holding.Grant]*checker.Violation{} // by its second hold
	for _, v := range slices.Backward(r.Violations) {
		if both := r.HoldsOf(v); v.Kind == checker.DoubleGrant && len(both) > 1 && both[0].Start < both[1].Start {
			overlap[both[1]] = v
		}
	}
	for told.Kind == checker.DoubleGrant {
		both := r.HoldsOf(told)
		if len(both) < 2 || overlap[both[0]] == nil {
			break
		}
		told = overlap[both[0]]
	}
	return told
}

// Common reports whether two lists have a hold in common.
func Common(a, b []*holding.Grant) bool {
	return slices.ContainsFunc(a, func(h *holding.Grant) bool { return slices.Contains(b, h) })
}
