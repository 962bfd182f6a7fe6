package reports

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
)

// A telling is a violation with what of the record it is about.
type telling struct {
	m         *model
	v         *checker.Violation
	row       kindRow
	holds     []*holding.Hold      // that the evidence is about, in order of their start
	ops       []*history.Operation // of the evidence, other than requests for the lock
	op        history.Op           // of the last of ops; empty without any
	from, to  time.Duration        // from the first request of the evidence on
	effective []*Fault             // in effect in that time
	wrong     *telling             // the last violation of the same lock before it that is no consequence; nil for none
}

// telling finds what a violation is about.
func (m *model) telling(v *checker.Violation) *telling {
	t := &telling{m: m, v: v, row: rowOf(v.Kind), holds: m.evidence(v), from: v.From, to: m.since(v)}
	if before := m.lastGrant(v.Lock, v.From); v.Kind == checker.Stuck && before != nil {
		t.holds = append(t.holds, before)
	}
	slices.SortStableFunc(t.holds, func(a, b *holding.Hold) int { return cmp.Compare(a.Start, b.Start) })
	for _, h := range t.holds {
		t.from = min(t.from, sentAt(h))
	}
	for _, index := range v.Events {
		if op, ok := m.operation(index); ok && op.Invoke.Op != history.Acquire && !slices.Contains(t.ops, op) {
			t.ops, t.op = append(t.ops, op), op.Invoke.Op
			t.from = min(t.from, op.Invoke.Time)
		}
	}
	t.effective = m.inEffect(t.from, t.to)
	return t
}

// violationStory tells a violation, once.
func (m *model) violationStory(v *checker.Violation) Story {
	s, known := m.stories[v]
	if !known {
		s = m.telling(v).story()
		if m.stories == nil {
			m.stories = map[*checker.Violation]Story{}
		}
		m.stories[v] = s
	}
	return s
}

func (t *telling) story() Story {
	s := Story{Headline: t.headline(), InEffect: t.m.inEffectIn(t.from, t.to)}
	t.wrong = t.wrongBefore()
	s.Events = t.events()
	switch {
	case t.row.Outcome != "":
		s.Outcome = append(s.Outcome, t.row.Outcome)
	case t.row.Overlap:
		s.Outcome = append(s.Outcome, t.m.overlapWords(t.v.From, t.m.together(t.v, t.holds)))
	default:
		s.Outcome = append(s.Outcome, sentence(t.v.Explanation))
	}
	words := []string{t.damage(), t.m.fencingWords(t.v)}
	if t.row.Followed {
		words = append(words, t.followed())
	}
	if t.row.Looks {
		words = append(words, t.m.blockers(t.v.Lock, t.v.From, min(t.v.Until, t.m.end)+oneLook))
	}
	for _, w := range words {
		if w != "" {
			s.Outcome = append(s.Outcome, w)
		}
	}
	s.Cures, s.Look = t.cures(), t.row.Look
	if t.m.shared(t.v.Lock) {
		s.Look = t.row.SharedLook
	}
	return s
}

// headline fills the words of the row in.
func (t *telling) headline() string {
	owners, processes := map[string]bool{}, map[int]bool{}
	for _, h := range t.holds {
		owners[client(h.Owner)], processes[h.Process] = true, true
	}
	for _, index := range t.v.Events {
		if e, ok := t.m.event(index); ok {
			processes[e.Process] = true
		}
	}
	words := t.row.Headline
	if t.row.OneOwner != "" && len(owners) == 1 && (t.row.Overlap || len(processes) > 1) {
		words = t.row.OneOwner
	}
	if t.row.NoHold != "" && t.neverHeld() {
		words = t.row.NoHold
	}
	var names []string
	for p := range processes {
		names = append(names, fmt.Sprintf("p%d", p))
	}
	slices.SortFunc(names, say.Natural)
	by := ""
	if len(names) > 1 {
		by = ", by the processes " + say.List(names)
	}
	return t.fill(words, by)
}

// fill fills the words of a row in.
func (t *telling) fill(words, processes string) string {
	v, m := t.v, t.m
	first, second, actor := "", "", ""
	var token1, token2 int64
	if n := len(t.holds); n > 0 {
		first, second, token1, token2 = client(t.holds[0].Owner), client(t.holds[n-1].Owner), t.holds[0].Token, t.holds[n-1].Token
		actor = second
	}
	early, late := "", ""
	if e := m.lastEvent(v); e != nil {
		actor = strings.TrimPrefix(m.whoOf(e), "client ")
		if h := m.holdFor(v, e); h != nil {
			if due := dueAt(h, e.Time); due > e.Time && due < history.Never {
				early = ", " + say.Span(due-e.Time) + " before its lease was over"
			}
			if op, ok := m.operation(e.Index); ok {
				late = say.Span(max(0, cmp.Or(max(0, op.Invoke.Time-believes(h)), op.Complete.Time-believes(h))))
			}
		}
	}
	op := string(t.op)
	if t.op == history.Extend {
		op = "extension"
	}
	capacity := "there are"
	if n := m.capacityOf(v.Lock); n > 0 {
		capacity = fmt.Sprintf("its capacity of %d", n)
	}
	resource := v.Resource
	if resource == "" {
		resource = "what " + v.Lock + " protects"
	}
	s := strings.NewReplacer(
		"{lock}", theLock(v.Lock), "{name}", v.Lock, "{resource}", resource, "{what}", cmp.Or(v.Lock, v.Resource, "the lock"),
		"{first}", first, "{second}", second, "{actor}", actor, "{op}", op, "{processes}", processes, "{early}", early, "{late}", late,
		"{for}", m.forHowLong(v.From, m.together(v, t.holds)), "{length}", say.Span(min(v.Until, m.end)-v.From),
		"{capacity}", capacity, "{token1}", fmt.Sprint(token1), "{token2}", fmt.Sprint(token2),
	).Replace(words)
	return strings.TrimSuffix(sentence(s), ".")
}

// events are what led to a violation: the grants and operations of its evidence, how its holds ended, wrong
// answers of the same lock before it, promotions, and what was seen of the lock's key.
func (t *telling) events() []StoryEvent {
	m := t.m
	var events []StoryEvent
	for _, h := range t.holds {
		events = append(events, m.grantEvent(h))
		if h.Acquire.Complete.Node == "" && t.v.Kind == checker.Overtaken {
			events[len(events)-1].Detail = strings.TrimPrefix(placeOf(h)+", ", ", ") + events[len(events)-1].Detail
		}
	}
	for _, op := range t.ops {
		events = append(events, m.operationEvent(op))
	}
	for _, index := range t.v.Events {
		e, ok := m.event(index)
		if !ok {
			continue
		}
		op, answered := m.operation(index)
		if !answered || e.Op == history.Acquire && !slices.ContainsFunc(t.holds, func(h *holding.Hold) bool { return h.Acquire.Ordinal() == op.Ordinal() }) {
			events = append(events, m.eventOf(e))
		}
	}
	if t.extendedLate() {
		op := t.lateExtension()
		if ev := m.operationEvent(op); !slices.Contains(t.ops, op) {
			ev.Detail = "after its lease had ended"
			events = append(events, ev)
		}
	}
	if t.v.Kind == checker.Stuck {
		events = append(events, StoryEvent{
			At: t.v.From, Kind: EventViolation, Actor: t.v.Lock, Verb: "was free from here on, and no client had been granted it by " + say.Instant(min(t.v.Until, m.end)),
		})
		for _, op := range m.givenUp(t.v.Lock, t.from, t.v.From) {
			ev := m.operationEvent(op)
			ev.rank = 3
			events = append(events, ev)
		}
	} else {
		t.mark(events)
	}
	last := slices.MaxFunc(append(events, StoryEvent{At: t.to}), func(a, b StoryEvent) int { return cmp.Compare(a.At, b.At) }).At
	for _, h := range t.holds {
		events = append(events, t.endOf(h, last)...)
	}
	if t.wrong != nil {
		if op := t.wrong.lastOp(); op != nil && !slices.Contains(t.ops, op) && (!t.extendedLate() || op.Ordinal() != t.lateExtension().Ordinal()) {
			ev := m.operationEvent(op)
			ev.Detail, ev.rank = "though it did not hold it", 1
			events = append(events, ev)
		}
	}
	if t.row.Others {
		events = append(events, t.others()...)
	}
	events = append(events, m.roleEvents(t.from, t.to)...)
	looks := m.keyEvents(t.v.Lock, t.from, t.to+oneLook)
	if t.row.Looks {
		looks = m.keyEvents(t.v.Lock, t.v.From, min(t.v.Until, m.end))
		for i := range looks {
			looks[i].rank = 2
		}
	}
	events = append(events, looks...)
	for i := range events {
		events[i] = events[i].said()
	}
	slices.SortStableFunc(events, func(a, b StoryEvent) int { return cmp.Compare(a.At, b.At) })
	events = slices.CompactFunc(events, func(a, b StoryEvent) bool { return a.At == b.At && a.Text == b.Text })
	return shortened(events)
}

// maxOthers bounds the grants to other clients that a story tells.
const maxOthers = 2

// others are the first grants to other clients after the first hold began.
func (t *telling) others() []StoryEvent {
	var events []StoryEvent
	for i := range t.m.holds {
		h := &t.m.holds[i]
		same := slices.ContainsFunc(t.holds, func(own *holding.Hold) bool { return own.Owner == h.Owner })
		if h.Lock == t.v.Lock && !same && h.Start >= t.from && h.Start <= t.to && len(events) < maxOthers {
			ev := t.m.grantEvent(h)
			ev.rank = 2
			events = append(events, ev)
		}
	}
	return events
}

// mark marks the event at which a violation was there: that of its evidence which is nearest to its time.
func (t *telling) mark(events []StoryEvent) {
	at := -1
	since := t.m.since(t.v)
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
func (t *telling) endOf(h *holding.Hold, last time.Duration) []StoryEvent {
	var events []StoryEvent
	for _, e := range t.m.crash {
		if e.Process == h.Process && e.Time >= h.Acquire.Invoke.Time && e.Time < h.End && e.Time <= last {
			ev := t.m.eventOf(e)
			ev.rank = 1
			events = append(events, ev)
		}
	}
	end := believes(h)
	if end <= h.Start || end >= last || h.Release != nil && slices.ContainsFunc(t.ops, func(op *history.Operation) bool { return op.Ordinal() == h.Release.Ordinal() }) {
		return events
	}
	ev := StoryEvent{At: end, Kind: EventLock, Actor: t.m.who(h), Object: h.Lock, rank: 1}
	switch {
	case end < h.End || h.Ended == holding.EndExpired:
		ev.Actor, ev.Verb, ev.Object = "the lease of "+t.m.who(h)+" on "+h.Lock, "ran out", ""
	case h.Ended == holding.EndReleased:
		ev.Verb = "released"
	case h.Ended == holding.EndLost:
		return events // the notice is an event of its own
	default:
		ev.Actor, ev.Verb = "the hold of "+t.m.who(h), "may have ended, by an operation with an unknown outcome, on"
	}
	return append(events, ev)
}

// wrongBefore is the last violation of the same lock, other than a double grant, that was there when the second
// hold of a double grant began, and is no consequence of another: a release or extension of an owner that held
// nothing.
func (t *telling) wrongBefore() *telling {
	if t.v.Kind != checker.DoubleGrant || len(t.holds) == 0 {
		return nil
	}
	var found *checker.Violation
	for _, v := range t.m.distinct() {
		if v.Kind == checker.ForeignRelease && v.Lock == t.v.Lock && t.m.since(v) >= t.from && v.From <= t.to {
			found = v
		}
	}
	if found == nil {
		return nil
	}
	return t.m.telling(found)
}

func (t *telling) lastOp() *history.Operation {
	if len(t.ops) == 0 {
		return nil
	}
	return t.ops[len(t.ops)-1]
}

// lateExtension is an extension that was confirmed when the lease of its hold had ended, and so began an
// overlap; nil if there is none.
func (t *telling) lateExtension() *history.Operation {
	for _, h := range t.holds {
		due := h.Acquire.Expires()
		for i := range h.Extensions {
			e := &h.Extensions[i]
			if !e.OK() || e.Invoke.Op != history.Extend {
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

func (t *telling) extendedLate() bool { return t.lateExtension() != nil }

// replicated reports whether the servers have replicas, or it is not known.
func (t *telling) replicated() bool {
	nodes := t.m.Run.Topology.Nodes
	return len(nodes) == 0 || slices.ContainsFunc(nodes, func(n history.Node) bool { return n.Role == roleReplica })
}

// singleToken reports whether a holder has one token: holders of permits have several at a time.
func (t *telling) singleToken() bool { return t.m.kindOf(t.v.Lock) != history.KindSemaphore }

// learntLate reports whether a client learnt of its grant when the lease was over.
func (t *telling) learntLate() bool {
	return slices.ContainsFunc(t.holds, func(h *holding.Hold) bool { return believes(h) <= h.Start })
}

// neverHeld reports whether the client that the violation is about had no hold before it.
func (t *telling) neverHeld() bool {
	e := t.m.lastEvent(t.v)
	return e != nil && t.m.holdFor(t.v, e) == nil
}

// releasedEarly reports whether an access of the evidence was under way when its client released the lock.
func (t *telling) releasedEarly() bool {
	return slices.ContainsFunc(t.ops, func(op *history.Operation) bool {
		h := t.m.holdFor(t.v, op.Invoke)
		return op.Invoke.Op == history.Access && h != nil && h.Ended == holding.EndReleased && op.Invoke.Time < h.End && op.Complete.Time > h.End
	})
}

// damage counts what was done to resources by the clients of a violation: findings of their own.
func (t *telling) damage() string {
	if k, _ := checker.KindOf(t.v.Kind); k.ByAccess {
		return ""
	}
	counts := map[string]int{}
	first := history.Never
	for _, v := range t.m.distinct() {
		if isDamage(v.Kind) && t.shares(t.m.evidence(v)) {
			counts[v.Kind]++
			first = min(first, t.m.since(v))
		}
	}
	if len(counts) == 0 {
		return ""
	}
	return fmt.Sprintf("Damage by these clients: %s, the first at %s.", kindCounts(counts), say.Instant(first))
}

// shares reports whether a violation is about one of some holds.
func (t *telling) shares(holds []*holding.Hold) bool {
	return slices.ContainsFunc(holds, func(h *holding.Hold) bool { return slices.Contains(t.holds, h) })
}

// isDamage reports whether a kind of violation is damage to a resource.
func isDamage(kind string) bool { return kind == checker.LostUpdate || kind == checker.StaleAccess }

// followed says what other clients were answered next: it shows whether the lock stayed taken.
func (t *telling) followed() string {
	owners := map[string]bool{}
	op := t.m.lastEvent(t.v)
	if op == nil {
		return ""
	}
	owners[op.LockOwner()] = true
	refused, last := 0, time.Duration(0)
	for i := range t.m.ops {
		o := &t.m.ops[i]
		if o.Invoke.Op != history.Acquire || o.Invoke.Lock != t.v.Lock || o.Invoke.Time < op.Time || owners[o.Invoke.Owner] {
			continue
		}
		if o.Failed() {
			refused, last = refused+1, o.Complete.Time
			continue
		}
		if o.OK() {
			words := ""
			if refused > 0 {
				words = fmt.Sprintf("%s of other clients %s refused, the last at %s; ", say.Count(refused, "request"), wasWereWord(refused), say.Instant(last))
			}
			return "After that " + words + t.m.whoOf(o.Invoke) + " was granted it at " + say.Instant(o.Complete.Time) + "."
		}
	}
	if refused > 0 {
		return fmt.Sprintf("After that %s of other clients %s refused, the last at %s, and none was granted.", say.Count(refused, "request"), wasWereWord(refused), say.Instant(last))
	}
	return ""
}

func wasWereWord(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}
