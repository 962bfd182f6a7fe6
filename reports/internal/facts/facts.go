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
	Ops     []history.Operation
	Holds   []holding.Hold   // in order of their start
	Notes   []*history.Event // of no client: declarations, faults, observations
	Crashes []*history.Event // of clients
	Faults  []Fault
	Roles   []Role
	// Violations are those that are listed, in order of time. What two engines found in the same events, or of
	// one lock in the very same time, is one of them: the gravest.
	Violations []*checker.Violation

	topology topologies.Topology          // of the run
	granters map[int][]string             // inferred, by the ordinal of the acquire
	looks    map[string][]Look            // by lock
	declared map[string]*history.Event    // by lock
	evidence map[int64]*history.Operation // by the index of an event that a violation names
	proofs   map[int64][]*holding.Hold    // the same
	lanes    []*Lane
	laneOf   map[[2]string]*Lane // by lock and client
	accesses map[string][]*history.Operation
	told     *checker.Violation
}

// Of derives the facts of a run, as far as it was read.
func Of(run history.Run, h *history.History, report checker.Report, whole bool) *Facts {
	if h == nil {
		h = &history.History{}
	}
	r := &Facts{
		Run: run, History: h, Results: report.Results, Verdict: checker.RunVerdict(run, report.Verdict, whole),
		End: h.End(), Ops: h.Operations(), Holds: holding.Of(h),
		topology: planned(run.Topology), granters: map[int][]string{}, looks: map[string][]Look{}, declared: map[string]*history.Event{},
	}
	for i := range h.Events {
		switch e := &h.Events[i]; e.Op {
		case history.Crash:
			r.Crashes = append(r.Crashes, e)
		case history.Declare, history.Inject, history.Heal, history.Observe:
			r.note(e)
		default:
		}
	}
	r.Faults = faultsOf(r.Notes, r.End)
	r.Roles = rolesOf(run.Topology, r.Notes)
	r.Violations = r.distinct()
	r.findEvidence()
	r.told = r.firstWithDamage()
	r.measureRecovery()
	return r
}

func (r *Facts) note(e *history.Event) {
	r.Notes = append(r.Notes, e)
	switch {
	case e.Op == history.Declare && r.declared[e.Lock] == nil:
		r.declared[e.Lock] = e
	case e.Op == history.Observe && e.What == history.ObserveKey:
		name, owner, _ := strings.Cut(e.Value, " ")
		r.looks[name] = append(r.looks[name], Look{e.Time, e.Node, owner})
	}
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

// findEvidence finds in one pass the operations and holds that the evidence of all violations names.
func (r *Facts) findEvidence() {
	r.evidence, r.proofs = map[int64]*history.Operation{}, map[int64][]*holding.Hold{}
	named := map[int64]bool{}
	for _, result := range r.Results {
		for _, v := range result.Violations {
			for _, index := range v.Events {
				named[index] = true
			}
		}
	}
	if len(named) == 0 {
		return
	}
	for i := range r.Ops {
		for _, e := range []*history.Event{r.Ops[i].Invoke, r.Ops[i].Complete} {
			if named[e.Index] {
				r.evidence[e.Index] = &r.Ops[i]
			}
		}
	}
	for i := range r.Holds {
		h := &r.Holds[i]
		for _, e := range []*history.Event{h.Acquire.Invoke, h.Acquire.Complete, h.Proof.Invoke, h.Proof.Complete} {
			if named[e.Index] && !slices.Contains(r.proofs[e.Index], h) {
				r.proofs[e.Index] = append(r.proofs[e.Index], h)
			}
		}
	}
}

// Operation is the operation that an event of the evidence is one end of.
func (r *Facts) Operation(index int64) (*history.Operation, bool) {
	op := r.evidence[index]
	return op, op != nil
}

// HoldsOf are the holds that the evidence names, in order of their start.
func (r *Facts) HoldsOf(v *checker.Violation) []*holding.Hold {
	var found []*holding.Hold
	for _, index := range v.Events {
		for _, h := range r.proofs[index] {
			if !slices.Contains(found, h) {
				found = append(found, h)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b *holding.Hold) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Acquire.Ordinal(), b.Acquire.Ordinal()))
	})
	return found
}

// Evidence are the holds that a violation is about: those that it names, and those under which its operations were.
func (r *Facts) Evidence(v *checker.Violation) []*holding.Hold {
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

// LastEvent is the last event of the evidence; nil if there is none.
func (r *Facts) LastEvent(v *checker.Violation) *history.Event {
	if len(v.Events) == 0 {
		return nil
	}
	e, _ := r.Event(slices.Max(v.Events))
	return e
}

// lastHold is the last hold that began by an instant and fits; nil if there is none.
func (r *Facts) lastHold(at time.Duration, fits func(*holding.Hold) bool) *holding.Hold {
	for i := sort.Search(len(r.Holds), func(i int) bool { return r.Holds[i].Start > at }); i > 0; i-- {
		if h := &r.Holds[i-1]; fits(h) {
			return h
		}
	}
	return nil
}

// HoldBefore is the last hold of a lock, or of any if none is named, by an owner that began by an instant; nil if
// there is none.
func (r *Facts) HoldBefore(lock, owner string, at time.Duration) *holding.Hold {
	return r.lastHold(at, func(h *holding.Hold) bool { return h.Owner == owner && (lock == "" || h.Lock == lock) })
}

// LastGrant is the last grant of a lock by an instant; nil if there is none.
func (r *Facts) LastGrant(lock string, at time.Duration) *holding.Hold {
	return r.lastHold(at, func(h *holding.Hold) bool { return h.Lock == lock })
}

// HoldFor is the hold that an event acted under: that of its owner, of the event's mode where the owner has several,
// else the last of its process; nil if there is none.
func (r *Facts) HoldFor(v *checker.Violation, e *history.Event) *holding.Hold {
	of := func(h *holding.Hold) bool {
		return (v.Lock == "" || h.Lock == v.Lock) && (h.Owner == e.Owner || e.Owner == "" && h.Process == e.Process)
	}
	if h := r.lastHold(e.Time, func(h *holding.Hold) bool { return of(h) && (e.Mode == "" || h.Mode == e.Mode) }); h != nil {
		return h
	}
	return r.lastHold(e.Time, of)
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
	for i := range r.Holds {
		if r.Holds[i].Process == e.Process {
			return Client(r.Holds[i].Owner)
		}
	}
	return ""
}

// Entitled is until when a holder was entitled to hold: no later than its hold is certain.
func Entitled(h *holding.Hold) time.Duration {
	if n := len(h.Belief); n > 0 {
		return min(h.End, h.Belief[n-1].Until)
	}
	return h.End
}

// Due is when the lease of a hold is over, as granted or extended until an instant; [history.Never] for none.
func Due(h *holding.Hold, at time.Duration) time.Duration {
	due := h.Acquire.Expires()
	for i := range h.Extensions {
		if e := &h.Extensions[i]; e.OK() && e.Complete.Time <= at {
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
func SentAt(h *holding.Hold) time.Duration {
	lease, expires := h.Acquire.Invoke.Lease, h.Acquire.Expires()
	if lease <= 0 || expires <= 0 || !h.Acquire.OK() {
		return h.Acquire.Invoke.Time
	}
	return max(expires-lease, h.Acquire.Invoke.Time)
}

// KindOf is the kind that a lock was declared to be, and its capacity; empty if it was not.
func (r *Facts) KindOf(lock string) (kind string, capacity int) {
	if e := r.declared[lock]; e != nil {
		return e.Kind, e.Capacity
	}
	return "", 0
}

// Shared reports whether several may hold a lock at the same time.
func (r *Facts) Shared(lock string) bool {
	kind, _ := r.KindOf(lock)
	return kind != "" && kind != "mutex"
}

// Together is until when holds last beside each other: beyond the record, where only its end ends the violation.
func (r *Facts) Together(v *checker.Violation, holds []*holding.Hold) time.Duration {
	until := history.Never
	if v.Until < r.End || len(holds) == 0 {
		until = v.Until
	}
	for _, h := range holds {
		until = min(until, h.End)
	}
	return until
}

// Told is the violation that the story tells; nil if there is none.
func (r *Facts) Told() *checker.Violation { return r.told }

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
	for before := told; before != nil && told.Kind == checker.DoubleGrant; {
		told, before = before, r.overlapBefore(before)
	}
	return told
}

// Common reports whether two lists have a hold in common.
func Common(a, b []*holding.Hold) bool {
	return slices.ContainsFunc(a, func(h *holding.Hold) bool { return slices.Contains(b, h) })
}

// overlapBefore is the double grant whose second hold is the first of another; nil if there is none.
func (r *Facts) overlapBefore(v *checker.Violation) *checker.Violation {
	holds := r.HoldsOf(v)
	if len(holds) < 2 {
		return nil
	}
	for _, u := range r.Violations {
		if both := r.HoldsOf(u); u.Kind == checker.DoubleGrant && len(both) > 1 && both[1] == holds[0] && both[0].Start < both[1].Start {
			return u
		}
	}
	return nil
}
