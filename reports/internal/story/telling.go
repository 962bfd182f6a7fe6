package story

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/facts"
	"github.com/lockchaos/lockchaos/topologies"
)

// A telling is a violation with what of the record it is about.
type telling struct {
	r         *facts.Facts
	v         *checker.Violation
	row       kindRow
	holds     []*holding.Grant // that the evidence is about, in order of their start
	ops       []*holding.Op    // of the evidence, other than requests for the lock
	op        history.Op       // of the last of ops; empty without any
	from, to  time.Duration    // from the first request of the evidence on
	effective []*facts.Fault   // in effect in that time
	last      *history.Event   // of the evidence; nil if there is none
	left      *history.Event   // of the evidence, that a server has the lock for a request that was refused; nil for none
	acted     *holding.Grant   // the hold that the last event acted under; nil if there is none
	late      *holding.Op      // the extension that began an overlap; nil if there is none
	unsure    *holding.Op      // an extension of an outcome that is unknown before it; nil for none
	wrong     *telling         // the last wrong release or extension in the time of a double grant; nil for none
	cause     history.Cause    // what was measured of its kind; the zero Cause for nothing
	freeing   *holding.Op      // a release that may have freed the lock between two grants, see freed; nil for none
}

func tellingOf(r *facts.Facts, v *checker.Violation) *telling {
	t := &telling{r: r, v: v, row: rowOf(v.Kind), holds: r.Evidence(v), from: v.From, to: r.Since(v)}
	if len(v.Events) > 0 {
		t.last, _ = r.Event(slices.Max(v.Events))
	}
	if before := r.LastGrant(v.Lock, v.From); v.Kind == checker.Stuck && before != nil {
		t.holds = append(t.holds, before)
	}
	slices.SortStableFunc(t.holds, func(a, b *holding.Grant) int { return cmp.Compare(a.Start, b.Start) })
	for _, h := range t.holds {
		t.from = min(t.from, facts.SentAt(h))
	}
	for _, index := range v.Events {
		if op, ok := r.Operation(index); ok && op.Verb != holding.Acquire && !slices.Contains(t.ops, op) {
			t.ops, t.op = append(t.ops, op), r.Asked(op).Op
			t.from = min(t.from, op.Invoke.Time)
		}
	}
	if t.last != nil && t.last.What == history.ObserveLeft {
		t.left, t.last = t.last, nil
		for _, index := range v.Events {
			if op, ok := r.Operation(index); ok {
				t.last = r.Answer(op)
			}
		}
	}
	if t.last != nil {
		t.acted = r.HoldFor(v, t.last)
	}
	if all := r.CausesFrom(v); len(all) > 0 && r.Measures(all[0], v) {
		t.cause = all[0]
	}
	t.effective, t.late, t.unsure = r.InEffectIn(t.from, t.to), t.lateExtension(), t.unsureExtension()
	return t
}

// Violation tells a violation.
func Violation(r *facts.Facts, v *checker.Violation) Story {
	t := tellingOf(r, v)
	for _, u := range r.Violations {
		if v.Kind == checker.DoubleGrant && u.Kind == checker.ForeignRelease && u.Lock == v.Lock && r.Since(u) >= t.from && u.From <= t.to && len(t.holds) > 0 {
			t.wrong = tellingOf(r, u)
		}
	}
	t.freeing = t.freed()
	s := Story{Headline: t.headline(), InEffect: joined(" ", t.inEffect(), t.outlasted()), Events: shortened(t.events()), Cures: t.cures(), Look: t.row.Look}
	switch kind, _ := r.KindOf(v.Lock); {
	case kind != "" && kind != history.KindMutex: // several may hold it at the same time
		s.Look = t.row.SharedLook
	case t.unextended():
		s.Look = cmp.Or(t.row.WatchedLook, s.Look)
	}
	if r.Met(history.MetReentries) {
		s.Look = joined(", ", t.row.ReentryLook, s.Look)
	}
	if topologies.ShapeOf(r.Run.Topology.Name).Apart() {
		s.Look = joined(", ", t.row.MajorityLook, s.Look)
	}
	if t.cause.Verdict == history.CauseDeployment && len(s.Cures) > 0 {
		s.Look = "" // a correct lock has it too
	}
	said := cmp.Or(t.row.Outcome, sentence(v.Explanation))
	if t.row.Plain && len(t.holds) > 0 {
		said = ""
	}
	s.Outcome = slices.DeleteFunc([]string{said, t.damage(), fencingWords(r, v), t.followed()}, func(s string) bool { return s == "" })
	return s
}

// headline fills the words of the row in.
func (t *telling) headline() string {
	var owners, processes []string
	for _, h := range t.holds {
		owners, processes = append(owners, t.r.Holder(h)), append(processes, fmt.Sprintf("p%d", h.Process()))
	}
	for _, index := range t.v.Events {
		if e, ok := t.r.Event(index); ok {
			processes = append(processes, fmt.Sprintf("p%d", e.Process))
		}
	}
	owners, processes = facts.Distinct(owners), facts.Distinct(processes)
	slices.SortFunc(processes, say.Natural)
	by, words := "", t.row.Headline
	if len(processes) > 1 {
		by = ", by the processes " + say.List(processes)
	}
	switch {
	case t.row.OneOwner != "" && len(owners) == 1 && (t.v.Kind == checker.DoubleGrant || len(processes) > 1):
		words = t.row.OneOwner
	case t.row.NoHold != "" && t.neverHeld():
		words = t.row.NoHold
	case t.row.Left != "" && t.left != nil:
		words = t.row.Left
	}
	return strings.TrimSuffix(sentence(t.fill(words, by)), ".")
}

// fill fills the words of a row in.
func (t *telling) fill(words, processes string) string {
	v, r := t.v, t.r
	first, second, actor, early, late := "", "", "", "", ""
	var token1, token2 int64
	if n := len(t.holds); n > 0 {
		first, second, token1, token2 = r.Holder(t.holds[0]), r.Holder(t.holds[n-1]), t.holds[0].Token(), t.holds[n-1].Token()
		actor = second
	}
	if e := t.last; e != nil {
		actor = cmp.Or(r.ClientOf(e), fmt.Sprintf("p%d", e.Process))
		if h := t.acted; h != nil {
			if due := facts.Due(h, e.Time); due > e.Time && due < history.Never {
				early = ", " + say.Span(due-e.Time) + " before its lease was over"
			}
			if op, ok := r.Operation(e.Index); ok {
				late = say.Span(max(0, cmp.Or(max(0, op.Invoke.Time-facts.Entitled(h)), op.Complete.Time-facts.Entitled(h))))
			}
		}
	}
	op, capacity, lock := string(t.op), "there are", v.Lock
	if t.op == history.Extend {
		op = "extension"
	}
	if _, n := r.KindOf(v.Lock); n > 0 {
		capacity = fmt.Sprintf("its capacity of %d", n)
	}
	if !strings.HasPrefix(strings.ToLower(lock), "lock") { // whose name says it
		lock = "the lock " + lock
	}
	long := forHowLong(r, v.From, r.Together(v, t.holds))
	if v.Least > 0 {
		long = " for " + say.Span(v.Least) + " at the least"
	}
	return strings.NewReplacer(
		"{lock}", lock, "{name}", v.Lock, "{resource}", cmp.Or(v.Resource, "what "+v.Lock+" protects"), "{what}", cmp.Or(v.Lock, v.Resource, "the lock"),
		"{first}", first, "{second}", second, "{actor}", actor, "{op}", op, "{processes}", processes, "{early}", early, "{late}", late,
		"{for}", long, "{length}", say.Span(min(v.Until, r.End)-v.From),
		"{capacity}", capacity, "{token1}", fmt.Sprint(token1), "{token2}", fmt.Sprint(token2),
	).Replace(words)
}

// events are what led to a violation: the grants and operations of its evidence, how its holds ended, wrong
// answers of the same lock before it, promotions, and what was seen of the lock's key.
func (t *telling) events() []Event {
	r := t.r
	var events []Event
	for _, h := range t.holds {
		ev := grantEvent(r, h)
		if place := cmp.Or(r.Answer(h.Acquire).Queued, r.Asked(h.Acquire).Queued); place != nil && t.v.Kind == checker.Overtaken {
			ev.Detail = joined(", ", fmt.Sprintf("place %d of the queue", *place), ev.Detail)
		}
		events = append(events, ev)
	}
	for _, op := range t.ops {
		events = append(events, operationEvent(r, op))
	}
	for _, index := range t.v.Events {
		e, ok := r.Event(index)
		op, answered := r.Operation(index)
		ok = ok && e != t.left
		if ok && (!answered || e.Op == history.Acquire && !slices.ContainsFunc(t.holds, func(h *holding.Grant) bool { return h.Acquire == op })) {
			events = append(events, eventOf(r, e))
		}
	}
	if t.late != nil && !slices.Contains(t.ops, t.late) {
		ev := operationEvent(r, t.late)
		ev.Detail = "after its lease had ended"
		events = append(events, ev)
	}
	if t.left != nil {
		events = append(events, Event{At: t.left.Time, Kind: EventViolation, Actor: t.left.Node, Verb: "has the lock for that request, which was refused"})
	} else if t.v.Kind == checker.Stuck {
		events = append(events, Event{
			At: t.v.From, Kind: EventViolation, Actor: t.v.Lock, Verb: "was free from here on, and no client had been granted it by " + say.Instant(min(t.v.Until, r.End)),
		})
	} else {
		t.mark(events)
	}
	last := t.to
	for _, e := range events {
		last = max(last, e.At)
	}
	for _, h := range t.holds {
		events = append(events, t.endOf(h, last)...)
	}
	if t.unsure != nil {
		ev := eventOf(r, r.Asked(t.unsure))
		ev.Detail, ev.rank = "its outcome is unknown", 1
		events = append(events, ev)
	}
	if t.wrong != nil && len(t.wrong.ops) > 0 {
		op := t.wrong.ops[len(t.wrong.ops)-1]
		if !slices.Contains(t.ops, op) && op != t.late {
			ev := operationEvent(r, op)
			ev.Detail, ev.rank = "though it did not hold it", 1
			events = append(events, ev)
		}
	}
	if op := t.freeing; op != nil {
		ev := eventOf(r, r.Asked(op))
		ev.rank, ev.Detail = 1, "though it did not hold it; the service confirmed that, at "+say.Instant(op.Complete.Time)
		if op.Unknown() {
			ev.Detail = "its outcome is unknown: the service may have done that later"
		}
		events = append(events, ev)
	}
	from := t.from
	for _, f := range t.effective {
		if f.Has(history.Promotes) {
			from = min(from, f.Start) // what it made of the servers is what it did
		}
		if f.Params["data"] == "lost" {
			events = append(events, Event{At: f.At(), Kind: EventFault, Actor: f.Target, Verb: "was killed and lost its data", rank: 2})
		}
	}
	events = append(events, roleEvents(r, from, t.to)...)
	if !t.row.Looks {
		return append(events, keyEvents(r, t.v.Lock, t.from, t.to+facts.OneLook, 3, nil)...)
	}
	until := min(t.v.Until, r.End)
	for _, l := range r.Looks(t.v.Lock) { // else the first after it
		if l.At >= t.v.From {
			until = max(until, l.At+facts.OneLook)
			break
		}
	}
	return append(events, keyEvents(r, t.v.Lock, t.v.From, until, 2, t.overFor)...)
}

// mark marks the event at which a violation was there: that of its evidence which is nearest to its time.
func (t *telling) mark(events []Event) {
	at, since := -1, t.r.Since(t.v)
	for i := range events {
		if at < 0 || (events[i].At-since).Abs() <= (events[at].At-since).Abs() {
			at = i
		}
	}
	if at >= 0 {
		events[at].Kind = EventViolation
	}
}

// endOf is how a hold ended, if it did before the last event that is told, and that its client crashed.
func (t *telling) endOf(h *holding.Grant, last time.Duration) []Event {
	var events []Event
	for _, c := range t.r.Record.Crashes[h.Process()] {
		if e, ok := t.r.Event(c.Index); ok && c.Time >= h.Acquire.Invoke.Time && c.Time < h.End && c.Time <= last {
			ev := eventOf(t.r, e)
			ev.rank = 1
			events = append(events, ev)
		}
	}
	end := facts.Entitled(h)
	if end <= h.Start || end >= last || h.Release != nil && slices.Contains(t.ops, h.Release) {
		return events
	}
	ev := Event{At: end, Kind: EventLock, Actor: named(t.r.Holder(h)), Object: t.r.Lock(h.Acquire), rank: 1}
	switch {
	case h.Release != nil && end < h.End && end == h.Release.Invoke.Time: // and it did not end then
		ev.Verb = "asked to release"
	case end < h.End || h.Ended == holding.EndExpired:
		ev.Verb = "reached the end of its lease on"
	case h.Ended == holding.EndReleased:
		ev.Verb = "released"
	case h.Ended == holding.EndLost:
		return events // the notice is an event of its own
	default:
		ev.Verb = "may have lost, by an operation with an unknown outcome,"
	}
	return append(events, ev)
}

// lateExtension is an extension that was confirmed when the lease of its hold had ended, and so began an
// overlap; nil if there is none.
func (t *telling) lateExtension() *holding.Op {
	for _, h := range t.holds {
		due := h.Acquire.Expires()
		for _, e := range h.Extensions {
			if !e.OK() || e.Verb != holding.Extend {
				continue
			}
			if due > 0 && e.Complete.Time > due && e.Complete.Time >= t.v.From && e.Complete.Time <= t.v.Until {
				return e
			}
			due = e.Expires()
		}
	}
	return nil
}

// unsureExtension is the last extension of one of the holds, before the violation began, of which the outcome is not known.
func (t *telling) unsureExtension() (found *holding.Op) {
	for _, h := range t.holds {
		for _, e := range h.Extensions {
			if e.Verb == holding.Extend && e.Unknown() && e.Invoke.Time <= t.v.From && !slices.Contains(t.ops, e) {
				found = e
			}
		}
	}
	return found
}

// freed is the last release by a client that did not hold which the service confirmed again between two grants, or else
// one without a certain answer that was asked for under a fault that keeps commands back. Nil without any.
func (t *telling) freed() (found *holding.Op) {
	if t.v.Kind != checker.DoubleGrant || len(t.holds) != 2 || t.wrong != nil {
		return nil
	}
	for _, op := range t.r.Ops {
		if op.Verb != holding.Release || t.r.Lock(op) != t.v.Lock || op.Invoke.Time > t.holds[1].Start ||
			slices.ContainsFunc(t.holds, func(h *holding.Grant) bool { return h.Owner() == op.Owner }) {
			continue
		}
		late := op.Unknown() && (found == nil || found.Unknown()) && slices.ContainsFunc(t.effective, func(f *facts.Fault) bool {
			return f.Params["command"] != "" && f.Has(history.Delays) && f.Start <= op.Invoke.Time && op.Invoke.Time <= f.End
		})
		if late || t.r.Answer(op).What == history.ConfirmedAgain && op.Complete.Time >= t.holds[0].Start {
			found = op
		}
	}
	return found
}

// wrongly reports whether a release, or an extension, was confirmed of a client that did not hold the lock.
func (t *telling) wrongly(op history.Op) bool {
	about := cmp.Or(t.wrong, t)
	return about.v.Kind == checker.ForeignRelease && about.op == op
}

// unextended reports whether a hold of the violation was left to a watchdog, which is to extend it until its release.
func (t *telling) unextended() bool {
	return t.r.Met(history.MetUnleased) && slices.ContainsFunc(t.holds, facts.Unleased)
}

// outlasted says which fault was longer than the lease that a watchdog renews: a lock that does not tell its holder can't survive that.
func (t *telling) outlasted() string {
	lease := t.r.Run.Watchdog
	for _, f := range t.effective {
		keeps := slices.ContainsFunc([]history.Effect{history.Isolates, history.Cuts, history.Stalls, history.Stops, history.Withholds}, f.Has)
		if lease > 0 && keeps && f.End-f.At() > lease && t.unextended() {
			return fmt.Sprintf("%s lasted longer than the lease of %s that the watchdog renews: while it keeps the renewals back, only a notice at the end of that lease helps.", f.Label(), say.Span(lease))
		}
	}
	return ""
}

// replicated reports whether the servers have replicas, or it is not known.
func (t *telling) replicated() bool {
	nodes := t.r.Run.Topology.Nodes
	return len(nodes) == 0 || slices.ContainsFunc(nodes, func(n history.Node) bool { return n.Role == topologies.Replica })
}

// wrongClient reports whether the clock of a client was wrong.
func (t *telling) wrongClient() bool {
	return slices.ContainsFunc(t.effective, func(f *facts.Fault) bool {
		return f.Has(history.ShiftsClock) && strings.HasPrefix(f.Name, "client-")
	})
}

// learntLate reports whether a client learnt of its grant when the lease was over.
func (t *telling) learntLate() bool {
	return slices.ContainsFunc(t.holds, func(h *holding.Grant) bool { return facts.Entitled(h) <= h.Start })
}

// neverHeld reports whether the client that the violation is about had no hold before it.
func (t *telling) neverHeld() bool { return t.last != nil && t.acted == nil }

// releasedEarly reports whether an access of the evidence was under way when its client released the lock.
func (t *telling) releasedEarly() bool {
	return slices.ContainsFunc(t.ops, func(op *holding.Op) bool {
		h := t.r.HoldFor(t.v, t.r.Asked(op))
		return op.Verb == holding.Access && h != nil && h.Ended == holding.EndReleased && op.Invoke.Time < h.End && op.Complete.Time > h.End
	})
}

// damage counts what was done to resources by the clients of a violation: findings of their own.
func (t *telling) damage() string {
	kind, _ := checker.KindOf(t.v.Kind)
	counts, first := map[string]int{}, history.Never
	for _, v := range t.r.Violations {
		if !kind.ByAccess && facts.IsDamage(v.Kind) && facts.Common(t.holds, t.r.Evidence(v)) {
			counts[v.Kind]++
			first = min(first, t.r.Since(v))
		}
	}
	if len(counts) == 0 {
		return ""
	}
	return fmt.Sprintf("Damage by these clients: %s, the first at %s.", facts.KindCounts(counts), say.Instant(first))
}

// followed says what other clients were answered next, where that shows whether the lock stayed taken.
func (t *telling) followed() string {
	if !t.row.Followed || t.last == nil {
		return ""
	}
	client, refused, at, granted := t.r.ClientOf(t.last), 0, time.Duration(0), (*holding.Op)(nil)
	others := slices.DeleteFunc(slices.Clone(t.r.Ops), func(op *holding.Op) bool {
		return op.Verb != holding.Acquire || t.r.Lock(op) != t.v.Lock || op.Complete.Time < t.last.Time || t.r.ClientOf(t.r.Asked(op)) == client
	})
	for _, op := range others { // a request may have waited since before it
		if op.OK() && (granted == nil || op.Complete.Time < granted.Complete.Time) {
			granted = op
		}
	}
	for _, op := range others {
		if op.Failed() && op.Invoke.Time >= t.last.Time && (granted == nil || op.Complete.Time <= granted.Complete.Time) {
			refused, at = refused+1, max(at, op.Complete.Time)
		}
	}
	var said []string
	if refused > 0 {
		said = append(said, fmt.Sprintf("%s of other clients %s refused, the last at %s", say.Count(refused, "request"), cmp.Or(map[bool]string{true: "was"}[refused == 1], "were"), say.Instant(at)))
	}
	switch {
	case granted != nil:
		said = append(said, who(t.r, t.r.Asked(granted))+" was granted it at "+say.Instant(granted.Complete.Time))
	case refused > 0:
		said = append(said, "no grant to another client is in the record")
	default:
		return ""
	}
	return "After that " + strings.Join(said, "; ") + "."
}

// overFor says why an owner that a look found did not hold the lock; empty if it held it, or that is not known.
func (t *telling) overFor(l facts.Look) string {
	if h := t.r.HoldBefore(t.v.Lock, l.Owner, l.At); h != nil {
		if h.End > l.At {
			return ""
		}
		return "whose hold was over at " + say.Instant(h.End)
	}
	for _, op := range slices.Backward(t.r.Ops) {
		if op.Verb != holding.Acquire || t.r.Lock(op) != t.v.Lock || t.r.Owner(op) != l.Owner {
			continue
		}
		if !op.Failed() || op.Complete.Time > l.At {
			return ""
		}
		return "whose request was refused at " + say.Instant(op.Complete.Time)
	}
	return ""
}
