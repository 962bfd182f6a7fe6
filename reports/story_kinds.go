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

// overCapacity tells of more permits out than a semaphore has.
func (m *model) overCapacity(v *checker.Violation) Story {
	holds := m.holdsOf(v)
	if len(holds) == 0 {
		return m.otherViolation(v)
	}
	s := Story{Headline: "More permits of " + v.Lock + " were out than there are"}
	if n := m.capacityOf(v.Lock); n > 0 {
		s.Headline = fmt.Sprintf("More permits of %s were out than its capacity of %d", v.Lock, n)
	}
	s.Headline += m.forHowLong(v.From, m.together(v, holds))
	last := holds[len(holds)-1]
	for _, h := range holds {
		s.Events = append(s.Events, m.grant(h, h == last))
	}
	from := holds[0].Acquire.Invoke.Time
	s.Outcome = append(s.Outcome, sentence(v.Explanation))
	if fault, forgotten := m.miscounted(v); fault >= 0 && fault == m.cause && m.faults[fault].End < from {
		from = min(forgotten.Acquire.Invoke.Time, m.faults[fault].Start)
		s.Events = append(s.Events, m.grant(forgotten, false))
		s.Outcome = append(s.Outcome, m.miscountWords(forgotten))
	}
	s.Events = append(s.Events, m.background(from, last.Start, holds...)...)
	s.Cures = m.remembering(v, from, last.Start)
	return s
}

// miscountWords say why permits that the servers forgot are missing later.
func (m *model) miscountWords(forgotten *holding.Hold) string {
	return fmt.Sprintf("A semaphore that only counts its permits has %s too many to grant from when %s gave back what the servers had forgotten, at %s.",
		say.Count(max(forgotten.Permits, 1), "permit"), m.who(forgotten), say.Instant(forgotten.Release.Complete.Time))
}

// capacityOf is how many permits a lock was declared to have; 0 if it was not.
func (m *model) capacityOf(lock string) int {
	for _, e := range m.notes {
		if e.Op == history.Declare && e.Lock == lock {
			return e.Capacity
		}
	}
	return 0
}

// reentrancy tells of a second grant to the holder itself.
func (m *model) reentrancy(v *checker.Violation) Story {
	s := m.otherViolation(v)
	s.Headline = fmt.Sprintf("%s was granted again to its holder as it must not be", strings.TrimSuffix(sentence(theLock(v.Lock)), "."))
	if last := m.lastEvent(v); last != nil && last.Owner != "" {
		s.Headline = fmt.Sprintf("%s was granted %s again while it held it, as it must not be", capitalClient(last.Owner), theLock(v.Lock))
	}
	return s
}

// tokens tells of a later grant with a fencing token that is not greater.
func (m *model) tokens(v *checker.Violation) Story {
	s := m.otherViolation(v)
	holds := m.holdsOf(v)
	if len(holds) < 2 {
		return s
	}
	first, second := holds[0], holds[len(holds)-1]
	s.Headline = fmt.Sprintf("A later grant of %s has the smaller token: %d after %d", v.Lock, second.Token, first.Token)
	if v.Kind == checker.FenceDuplicate {
		s.Headline = fmt.Sprintf("Two grants of %s have the same token, %d", v.Lock, second.Token)
	}
	s.Events = append([]StoryEvent{m.grant(first, false), m.grant(second, true)}, m.background(first.Acquire.Invoke.Time, second.Start, first, second)...)
	s.Outcome = append(s.Outcome, "A resource that refuses old tokens would refuse the rightful holder, or let the wrong one in.")
	s.Cures = append([]string{counterCure}, m.keeping(v, first.Start, second.Start, replicaCure, fileCure, aloneCure)...)
	return s
}

// staleAccess tells of a resource that accepted a token older than one that it
// had accepted before.
func (m *model) staleAccess(v *checker.Violation) Story {
	s := m.otherViolation(v)
	s.Headline = fmt.Sprintf("The resource %s accepted an access whose token was out of date", v.Resource)
	s.Cures = []string{"have the resource keep the newest token that it saw, and refuse older ones in the same step"}
	return s
}

// stuck describes a lock that was free and that no client could acquire.
func (m *model) stuck(v *checker.Violation) Story {
	until := min(v.Until, m.end)
	s := Story{Headline: fmt.Sprintf("No client could acquire %s for %s, although it was free", theLock(v.Lock), say.Span(until-v.From))}
	before := m.lastGrant(v.Lock, v.From)
	begin := v.From
	if before != nil {
		s.Events = append(s.Events, m.grant(before, false))
		begin = before.Start
		if r := before.Release; r != nil && r.Unknown() {
			s.Events = append(s.Events, StoryEvent{At: r.Complete.Time, Kind: EventLock, Text: m.eventClause(r.Complete)})
		}
	}
	for _, op := range m.givenUp(v.Lock, begin, v.From) {
		s.Events = append(s.Events, StoryEvent{
			At: op.Complete.Time, Kind: EventLock,
			Text: fmt.Sprintf("%s, asked for at %s", m.eventClause(op.Complete), say.Instant(op.Invoke.Time)),
		})
	}
	s.Events = append(s.Events, m.background(begin, v.From)...)
	if e := m.firstEvent(v); e != nil {
		s.Events = append(s.Events, StoryEvent{At: e.Time, Kind: EventLock, Text: m.eventClause(e)})
	}
	s.Events = append(s.Events, m.keyEvents(v.Lock, v.From, until)...)
	s.Events = append(s.Events, StoryEvent{At: v.From, Kind: EventViolation, Text: v.Lock + " was free from here on, and no client had been granted it by " + say.Instant(until)})
	words := m.blockers(v.Lock, v.From, until+chart.OneLook)
	if words != "" {
		s.Outcome = append(s.Outcome, words)
	}
	if words := m.releaseCutOff(before); words != "" {
		s.Outcome = append(s.Outcome, words)
	}
	// A grant that was not released for certain, and that no fault explains, is there still,
	// unless its key was looked for and was gone.
	if before != nil && (before.Release == nil || before.Release.Unknown()) && before.Ended != holding.EndLost && m.origin(v) < 0 && (words != "" || len(m.looksAt(v.Lock)) == 0) {
		s.Cures = []string{leaseCure}
	}
	s.Outcome = append(s.Outcome, sentence(v.Explanation))
	return s
}

// releaseCutOff says which server kept the key of a hold that was released at another, of
// which it got nothing any more before it was promoted; empty if there is none.
func (m *model) releaseCutOff(h *holding.Hold) string {
	if h == nil || h.Release == nil || !h.Release.OK() {
		return ""
	}
	for _, c := range m.roles {
		cut := slices.ContainsFunc(m.faults, func(f Fault) bool {
			return f.severs(m.granter(h), m.Run.Topology) && f.at() <= h.Release.Invoke.Time && f.End >= c.at
		})
		seen := slices.ContainsFunc(m.looksAt(h.Lock), func(l look) bool { return l.server == c.node && l.owner == h.Owner && l.at >= c.at })
		if cut && seen && c.role == "master" && c.was != "" && c.at >= h.Release.Complete.Time && c.node != m.granter(h) {
			return fmt.Sprintf("The release of client %s at %s could not reach %s, which was promoted to master at %s and had the key.", client(h.Owner), say.Instant(h.Release.Complete.Time), c.node, say.Instant(c.at))
		}
	}
	return ""
}

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
	return ops[max(0, len(ops)-maxOthers):]
}

// overtaken tells of a fair lock that did not keep to its queue.
func (m *model) overtaken(v *checker.Violation) Story {
	holds := m.holdsOf(v)
	if len(holds) < 2 {
		return m.otherViolation(v)
	}
	first, second := holds[0], holds[len(holds)-1]
	s := Story{Headline: fmt.Sprintf("Client %s overtook client %s in the queue of %s, by %s", client(first.Owner), client(second.Owner), v.Lock, say.Span(second.Start-first.Start))}
	anew := m.placedAnew(v)
	if anew {
		s.Headline = fmt.Sprintf("A later request for %s got an earlier place in its queue", v.Lock)
	}
	for _, h := range []*holding.Hold{first, second} {
		s.Events = append(s.Events,
			StoryEvent{At: h.Acquire.Invoke.Time, Kind: EventLock, Text: m.who(h) + " asked for " + h.Lock + placeOf(h)},
			m.grant(h, h == first))
	}
	s.Events = append(s.Events, m.background(min(first.Acquire.Invoke.Time, second.Acquire.Invoke.Time), second.Start)...)
	s.Outcome = append(s.Outcome, sentence(v.Explanation))
	if anew {
		s.Outcome = append(s.Outcome, fmt.Sprintf("When %s asked, %s had been granted the lock already: its place is too early, which counts as overtaking.", m.who(second), m.who(first)))
	}
	from := min(first.Acquire.Invoke.Time, second.Acquire.Invoke.Time)
	if s.Cures = m.keeping(v, from, second.Start, fileCure, aloneCure, clockCure); len(s.Cures) == 0 && m.cause >= 0 && m.faults[m.cause].replacesOnly() {
		s.Outcome = append(s.Outcome, "A new master has of the queue only what had reached it: a fair lock keeps the order of those that ask one master.")
	}
	return s
}

// placedAnew reports whether the second request of an overtaken one was sent when the first was
// granted: the places are in the wrong order, and no request waited that was overtaken.
func (m *model) placedAnew(v *checker.Violation) bool {
	holds := m.holdsOf(v)
	return v.Kind == checker.Overtaken && len(holds) > 1 && holds[len(holds)-1].Acquire.Invoke.Time > holds[0].Acquire.Complete.Time
}

// placeOf is the place that a request had in the queue of a fair lock.
func placeOf(h *holding.Hold) string {
	for _, e := range []*history.Event{h.Acquire.Complete, h.Acquire.Invoke} {
		if e.Queued != nil {
			return fmt.Sprintf(" and had place %d of the queue", *e.Queued)
		}
	}
	return ""
}

func (m *model) firstEvent(v *checker.Violation) *history.Event { return m.evidenceAt(v, 0) }

func (m *model) lastEvent(v *checker.Violation) *history.Event {
	return m.evidenceAt(v, len(v.Events)-1)
}

func (m *model) evidenceAt(v *checker.Violation, i int) *history.Event {
	if i < 0 || i >= len(v.Events) {
		return nil
	}
	e, _ := m.event(v.Events[i])
	return e
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
