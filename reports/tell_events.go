package reports

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/chart"
)

const oneLook = chart.OneLook

// grantEvent is the event with which a hold began.
func (m *model) grantEvent(h *holding.Hold) StoryEvent {
	ev := StoryEvent{
		At: h.Start, Kind: EventGrant, Actor: m.who(h), Verb: "was granted", Object: h.Lock + inMode(h.Mode, h.Permits),
		Server: say.List(m.voters(h)), Inferred: h.Acquire.Complete.Node == "",
	}
	var details []string
	if h.Token != 0 {
		details = append(details, fmt.Sprintf("token %d", h.Token))
	}
	if lease := h.Acquire.Invoke.Lease; lease > 0 {
		details = append(details, "lease "+say.Span(lease))
	}
	ev.Detail = strings.Join(append(details, entitled(h)), ", ")
	return ev
}

// inMode is " (read)" or " (2 permits)", or empty for the only way to hold a lock.
func inMode(mode history.Mode, permits int) string {
	switch {
	case mode == history.Exclusive || mode == "":
		return ""
	case mode == history.Permit && permits > 1:
		return fmt.Sprintf(" (%s)", say.Count(permits, "permit"))
	default:
		return " (" + string(mode) + ")"
	}
}

// entitled says until when a holder is entitled to hold.
func entitled(h *holding.Hold) string {
	until := believes(h)
	switch {
	case until == history.Never:
		return "with no end in the record"
	case until <= h.Start:
		return "its lease had ended by then, at " + say.Instant(until)
	case until == h.End && h.Ended == holding.EndReleased:
		return "released at " + say.Instant(until)
	case until == h.End && h.Ended == holding.EndLost:
		if due := dueAt(h, until); due < history.Never {
			return "until " + say.Instant(due)
		}
		return "told at " + say.Instant(until) + " that it is lost"
	default:
		return "entitled until " + say.Instant(until)
	}
}

// believes is until when a holder was entitled to hold: no later than its
// hold is certain.
func believes(h *holding.Hold) time.Duration {
	if n := len(h.Belief); n > 0 {
		return min(h.End, h.Belief[n-1].Until)
	}
	return h.End
}

// dueAt is when the lease of a hold is over, as granted or extended until an instant; [history.Never] for
// none.
func dueAt(h *holding.Hold, at time.Duration) time.Duration {
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

// sentAt is when the request was sent that was granted, at the earliest: of a client that asked again and
// again its lease counts from then.
func sentAt(h *holding.Hold) time.Duration {
	lease, expires := h.Acquire.Invoke.Lease, h.Acquire.Expires()
	if lease <= 0 || expires <= 0 || !h.Acquire.OK() {
		return h.Acquire.Invoke.Time
	}
	return max(expires-lease, h.Acquire.Invoke.Time)
}

// who names the client of a hold.
func (m *model) who(h *holding.Hold) string { return "client " + client(h.Owner) }

// whoOf names the client of an event: by its owner, else by the last owner
// that its process used.
func (m *model) whoOf(e *history.Event) string {
	if e.Owner != "" {
		return "client " + client(e.Owner)
	}
	if holds := m.holdIndex().process[e.Process]; len(holds) > 0 {
		return "client " + client(holds[0].Owner)
	}
	return fmt.Sprintf("process %d", e.Process)
}

// operationEvent is the answer to an operation.
func (m *model) operationEvent(op *history.Operation) StoryEvent {
	if op.Invoke.Op == history.Access {
		return m.accessEvent(op)
	}
	return m.eventOf(op.Complete)
}

// eventOf is any event of a client.
func (m *model) eventOf(e *history.Event) StoryEvent {
	ev := StoryEvent{At: e.Time, Kind: EventLock, Actor: m.whoOf(e), Object: e.Lock + inMode(e.Mode, e.Permits), Server: e.Node}
	if e.Op == history.Access {
		if op, ok := m.operation(e.Index); ok && e.Type != history.Invoke {
			return m.accessEvent(op)
		}
		ev.Kind, ev.Verb, ev.Object = EventAccess, "began to use", e.Resource
		return ev
	}
	asked := map[history.Op]string{history.Extend: "an extension of", history.Release: "the release of"}[e.Op]
	switch {
	case e.Op == history.Lost:
		ev.Verb, ev.Detail = "was told that it lost", ""
	case e.Op == history.Crash:
		ev.Verb, ev.Object = "crashed", ""
	case e.Type == history.Invoke:
		ev.Verb = "asked to " + string(e.Op)
	case e.Type == history.OK && e.Op == history.Acquire:
		ev.Verb, ev.Kind = "was granted", EventGrant
	case e.Type == history.OK:
		ev.Verb = "was confirmed " + asked
	case e.Type == history.Fail:
		ev.Verb = strings.TrimSpace("was refused " + asked)
	default:
		ev.Verb = "got no certain answer to its " + string(e.Op) + " of"
	}
	if e.Token != 0 {
		ev.Detail = fmt.Sprintf("token %d", e.Token)
	}
	return ev
}

// accessEvent is what an access did: "client a read 41 from ledger and wrote 42", and when it began if that
// was a while before, and that its client held nothing.
func (m *model) accessEvent(op *history.Operation) StoryEvent {
	e := op.Complete
	resource := resourceOf(op)
	if resource == "" {
		resource = "the resource"
	}
	ev := StoryEvent{At: e.Time, Kind: EventAccess, Actor: m.whoOf(op.Invoke), Object: resource}
	read, written, rmw := strings.Cut(e.Value, ">")
	switch {
	case gaveUp(op):
		ev.Verb, ev.Detail = "gave up its access to", "its lease was over, or about to end"
	case op.Failed():
		ev.Verb, ev.Server, ev.Object, ev.Detail = "was refused", resource, "", e.Error
	case op.Unknown():
		ev.Verb = "may have used"
	case rmw:
		ev.Verb, ev.Object = "read "+read+" and wrote "+written+" to", resource
	case e.Value != "":
		ev.Verb, ev.Detail = "used", "value "+e.Value // read or written: it is not said
	default:
		ev.Verb = "used"
	}
	var details []string
	if ev.Detail != "" {
		details = append(details, ev.Detail)
	}
	if begun := say.Instant(op.Invoke.Time); begun != say.Instant(e.Time) {
		details = append(details, "begun at "+begun)
	}
	if words := m.withoutHold(op); words != "" {
		details = append(details, words)
	}
	ev.Detail = strings.Join(details, ", ")
	return ev
}

// withoutHold says that an access was made by a client whose last request for the lock was refused; empty
// otherwise.
func (m *model) withoutHold(op *history.Operation) string {
	l := m.laneAt(op.Invoke.Lock, client(op.Invoke.Owner))
	if l == nil || op.Invoke.Owner == "" {
		return ""
	}
	var before *history.Operation
	for _, asked := range l.waits {
		if asked.Complete.Time <= op.Invoke.Time {
			before = asked
		}
	}
	if before == nil || !before.Failed() || l.holdAt(op.Invoke) != nil {
		return ""
	}
	return "though its request was refused at " + say.Instant(before.Complete.Time)
}

// clause says any event in words.
func (m *model) eventClause(e *history.Event) string { return m.eventOf(e).said().Text }

// roleEvents are the changes of roles in a window: those that make a master first.
func (m *model) roleEvents(from, to time.Duration) []StoryEvent {
	var events []StoryEvent
	for _, c := range m.roles {
		if c.at == 0 || c.at < from || c.at > to {
			continue
		}
		ev := StoryEvent{At: c.at, Kind: EventServer, Actor: c.node, Verb: became(c.role), rank: 4}
		if c.role == "master" || c.role == roleLeader {
			ev.rank = 2
		}
		events = append(events, ev)
	}
	return events
}

// keyEvents are the looks at a lock's key: which servers had it, and whose.
func (m *model) keyEvents(lock string, from, to time.Duration) []StoryEvent {
	var events []StoryEvent
	for _, l := range m.looksAt(lock) {
		if l.at < from || l.at > to {
			continue
		}
		verb, detail := "had no holder of", ""
		if l.owner != "" {
			verb = "had client " + client(l.owner) + " as the holder of"
		}
		if n := len(events); n > 0 && events[n-1].Verb == verb && l.at-events[n-1].At <= oneLook {
			events[n-1].Actor += " and " + l.server
			continue
		}
		events = append(events, StoryEvent{At: l.at, Kind: EventServer, Actor: l.server, Verb: verb, Object: lock, Detail: detail, rank: 3})
	}
	return events
}

// placeOf is the place that a request had in the queue of a fair lock.
func placeOf(h *holding.Hold) string {
	for _, e := range []*history.Event{h.Acquire.Complete, h.Acquire.Invoke} {
		if e.Queued != nil {
			return fmt.Sprintf("place %d of the queue", *e.Queued)
		}
	}
	return ""
}

// together is until when holds last beside each other: beyond the record, where only its end
// ends the violation.
func (m *model) together(v *checker.Violation, holds []*holding.Hold) time.Duration {
	until := history.Never
	if v.Until < m.end || len(holds) == 0 {
		until = v.Until
	}
	for _, h := range holds {
		until = min(until, h.End)
	}
	return until
}

// forHowLong is " for 350 ms", or what of it the record covers.
func (m *model) forHowLong(from, until time.Duration) string {
	switch {
	case until > m.end && m.end <= from, until <= from:
		return ""
	case until > m.end:
		return fmt.Sprintf(" (%s of it observed)", say.Span(m.end-from))
	}
	return " for " + say.Span(until-from)
}

// overlapWords keeps apart what the two were entitled to hold and what was
// observed of it.
func (m *model) overlapWords(from, until time.Duration) string {
	observed := say.Span(max(0, m.end-from))
	switch {
	case until == history.Never:
		return fmt.Sprintf("From %s on both were entitled to hold it, and nothing in the record ends that: %s until the end of the record.", say.Instant(from), observed)
	case until > m.end && m.end <= from:
		return fmt.Sprintf("From %s on, where the record ends, both were entitled to hold it, for %s.", say.Instant(from), say.Span(until-from))
	case until > m.end:
		return fmt.Sprintf("From %s on both were entitled to hold it, for %s; the record covers %s of that.", say.Instant(from), say.Span(until-from), observed)
	case until <= from:
		return "The second grant leaves no instant at which it can have been rightful."
	default:
		return fmt.Sprintf("From %s to %s, for %s, both were entitled to hold it.", say.Instant(from), say.Instant(until), say.Span(until-from))
	}
}

// capacityOf is how many permits a lock was declared to have; 0 if it was not.
func (m *model) capacityOf(lock string) int {
	if e := m.declared(lock); e != nil {
		return e.Capacity
	}
	return 0
}

// kindOf is the kind that a lock was declared to be; empty if it was not.
func (m *model) kindOf(lock string) string {
	if e := m.declared(lock); e != nil {
		return e.Kind
	}
	return ""
}

// shared reports whether several may hold a lock at the same time.
func (m *model) shared(lock string) bool {
	kind := m.kindOf(lock)
	return kind != "" && kind != "mutex"
}

func (m *model) declared(lock string) *history.Event {
	for _, e := range m.notes {
		if e.Op == history.Declare && e.Lock == lock {
			return e
		}
	}
	return nil
}

// lastGrant is the last grant of a lock before an instant; nil if there is none.
func (m *model) lastGrant(lock string, at time.Duration) *holding.Hold {
	var before *holding.Hold
	for i := range m.holds {
		if h := &m.holds[i]; h.Lock == lock && h.Start <= at && (before == nil || h.Start > before.Start) {
			before = h
		}
	}
	return before
}

// maxGivenUp bounds the requests that ended without a grant and are told.
const maxGivenUp = 3

// givenUp are the last requests for a lock that ended without a grant in a window: what
// they left behind may be what blocks it.
func (m *model) givenUp(lock string, from, to time.Duration) []*history.Operation {
	var ops []*history.Operation
	for i := range m.ops {
		op := &m.ops[i]
		if op.Invoke.Op == history.Acquire && op.Invoke.Lock == lock && !op.OK() && op.Complete.Time >= from && op.Complete.Time <= to {
			ops = append(ops, op)
		}
	}
	return ops[max(0, len(ops)-maxGivenUp):]
}

// lastEvent is the last event of the evidence; nil if there is none.
func (m *model) lastEvent(v *checker.Violation) *history.Event {
	if len(v.Events) == 0 {
		return nil
	}
	e, ok := m.event(slices.Max(v.Events))
	if !ok {
		return nil
	}
	return e
}

// holdFor is the hold that an event acted under: that of its owner, else the
// last of its process.
func (m *model) holdFor(v *checker.Violation, e *history.Event) *holding.Hold {
	if h := m.holdOf(v.Lock, e); h != nil {
		return h
	}
	if e.Owner != "" {
		return nil
	}
	return last(m.holdIndex().process[e.Process], v.Lock, e.Time)
}

// holdOf is the last hold of an event's owner that began before it: of an owner that has two,
// as a writer that goes on as a reader, that of the event's mode.
func (m *model) holdOf(lock string, e *history.Event) *holding.Hold {
	if e.Owner == "" {
		return nil
	}
	h := m.holdBefore(lock, e.Owner, e.Time)
	if h == nil || e.Mode == "" || h.Mode == e.Mode {
		return h
	}
	for _, own := range slices.Backward(m.holdIndex().owner[e.Owner]) {
		if own.Start <= e.Time && own.Lock == lock && own.Mode == e.Mode {
			return own
		}
	}
	return h
}

// sentence makes an explanation one.
func sentence(s string) string {
	first, second := byte(0), byte(0)
	if len(s) > 1 {
		first, second = s[0], s[1]
	}
	if first >= 'a' && first <= 'z' && (second < '0' || second > '9') && second != '#' { // p1 and a#1 are names
		s = strings.ToUpper(s[:1]) + s[1:]
	}
	return stop(s)
}
