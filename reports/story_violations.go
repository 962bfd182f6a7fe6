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

// doubleGrant tells of two owners that hold at the same time.
func (m *model) doubleGrant(v *checker.Violation) Story {
	holds := m.holdsOf(v)
	if len(holds) < 2 {
		return m.otherViolation(v)
	}
	first, second := holds[0], holds[1]
	until := m.together(v, holds[:2])
	s := Story{Headline: fmt.Sprintf("Two clients held %s at the same time%s", theLock(v.Lock), m.forHowLong(v.From, until))}
	if client(first.Owner) == client(second.Owner) {
		s.Headline = fmt.Sprintf("Client %s was granted %s twice at the same time%s", client(first.Owner), theLock(v.Lock), m.forHowLong(v.From, until))
	}
	s.Events = append(s.Events, m.grant(first, false))
	s.Events = append(s.Events, m.background(first.Acquire.Invoke.Time, second.Start, first, second)...)
	causes := m.wrongAnswers(first, second.Start)
	s.Events = append(s.Events, causes...)
	confirmed := func(op history.Op) bool {
		return !m.unprompted(v.Lock) && slices.ContainsFunc(causes, func(ev StoryEvent) bool {
			return strings.HasPrefix(ev.Text, "the "+string(op)) && strings.Contains(ev.Text, "confirmed")
		})
	}
	if confirmed(history.Release) {
		s.Cures = []string{ownerCure}
	} else if confirmed(history.Extend) {
		s.Cures = []string{prolongCure}
	} else if words := m.twoSteps(); words != "" && m.origin(v) < 0 && !m.shared(v.Lock) {
		s.Outcome, s.Cures = append(s.Outcome, words), []string{stepCure}
	} else if _, ended := m.follows(v); ended != nil && !m.vote() {
		s.Events = append(s.Events, StoryEvent{At: ended.Complete.Time, Kind: EventLock, Text: fmt.Sprintf(
			"%s gave back %s, which %s held at the same time: without a look at the owner that ends the hold of the other", m.whoOf(ended.Invoke), v.Lock, m.who(first))})
		s.Cures = []string{ownerCure}
	} else if s.Cures = m.remembering(v, first.Start, second.Start); len(s.Cures) == 0 && m.delayed(v) > 0 && len(causes) == 0 {
		if late, ok := m.lateRelease(first, second, m.delayed(v)); ok {
			s.Events, s.Cures = append(s.Events, late), []string{ownerCure}
		}
	} else if m.causeOf(v) < 0 && len(causes) == 0 && !m.shared(v.Lock) {
		late, ok := m.lateRelease(first, second, 0)
		if words := m.cutLease(); words != "" {
			s.Outcome, s.Cures = append(s.Outcome, words), []string{wholeCure}
		} else if ok {
			s.Events = append(s.Events, late)
			s.Cures = []string{ownerCure}
		}
	}
	s.Events = append(s.Events, m.grant(second, true))
	if words := m.mastersWords(first, second); words != "" {
		s.Outcome = append(s.Outcome, words)
	} else if n := len(m.servers()); n > 1 && m.granter(first) == "" && m.granter(second) == "" {
		s.Outcome = append(s.Outcome, fmt.Sprintf("Which of the %d servers granted it is not recorded.", n))
	}
	if words := m.voteWords(first, second); words != "" {
		s.Outcome = append(s.Outcome, words)
	}
	s.Outcome = append(s.Outcome, m.overlapWords(v.From, until))
	s.Outcome = append(s.Outcome, m.damage(first, second, v.From, until)...)
	return s
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

// mastersWords say that there were several masters while two holds were granted, and that
// each of two grants was made by another of them, or that it is not known which made what.
func (m *model) mastersWords(first, second *holding.Hold) string {
	a, b := m.granter(first), m.granter(second)
	masters := m.extraMasters(second.Start)
	switch {
	case len(masters) < 2:
		return ""
	case a != "" && a == b:
		return ""
	case a != "" && b != "":
		if at := min(first.Start, second.Start); slices.Contains(masters, a) && slices.Contains(masters, b) && m.roleAt(a, at) == "master" && m.roleAt(b, at) == "master" {
			return fmt.Sprintf("%s were masters at once: neither got from the other what it had granted.", say.List([]string{a, b}))
		}
		return ""
	}
	return fmt.Sprintf("At that time %s were masters at once, as far as it was seen; which of them granted what is not recorded.", say.List(m.ofOneShard(masters)))
}

// ofOneShard are of several masters those that have another one beside them for the same keys; all,
// where that is not known.
func (m *model) ofOneShard(masters []string) []string {
	shards := map[string]int{}
	for _, name := range masters {
		shards[m.shardOf(name)]++
	}
	if of := slices.DeleteFunc(slices.Clone(masters), func(name string) bool { return shards[m.shardOf(name)] < 2 }); len(of) > 0 {
		return of
	}
	return masters
}

// maxCauses bounds the wrong answers that a story lists.
const maxCauses = 2

// wrongAnswers are the answers of the service that tell how a second grant became possible
// beside a hold: releases and extensions of owners that held nothing. An owner that is told too
// early that its hold is over is no cause of another grant.
func (m *model) wrongAnswers(first *holding.Hold, to time.Duration) []StoryEvent {
	var events []StoryEvent
	lock, from := first.Lock, first.Acquire.Invoke.Time
	if asked, ok := lastTry(first); ok {
		from = asked
	}
	told := map[int]bool{} // operations, which two properties may find
	for _, r := range m.Report.Results {
		for i := range r.Violations {
			v := &r.Violations[i]
			if v.Lock != lock || v.Until < from || v.From > to || len(v.Events) == 0 || len(events) == maxCauses {
				continue
			}
			op, ok := m.answered(v)
			if !ok || told[op.Ordinal()] || v.Kind != checker.ForeignRelease {
				continue
			}
			told[op.Ordinal()] = true
			ev := StoryEvent{At: op.Complete.Time, Kind: EventLock}
			ev.Text = fmt.Sprintf("the %s of %s by client %s was confirmed, although it did not hold it", op.Invoke.Op, lock, client(op.Invoke.Owner))
			if own := m.holdOf(lock, op.Invoke); own != nil && believes(own) < op.Invoke.Time {
				ev.Text += ": its time had ended at " + say.Instant(believes(own))
			}
			events = append(events, ev)
		}
	}
	return events
}

// delayed is when the cause of a violation took effect, if that is a fault that delays one
// message and does nothing else; else 0.
func (m *model) delayed(v *checker.Violation) time.Duration {
	cause := m.causeOf(v)
	if cause < 0 || m.faults[cause].Life != history.Triggered || !slices.Equal(m.faults[cause].Effects, []history.Effect{history.Delays}) {
		return 0
	}
	return m.faults[cause].InEffect
}

// lateRelease is the last release that can have ended the first of two holds, since it may
// have reached the servers after the lease of the client that sent it. It proves nothing: a
// release whose outcome is unknown, that was answered late, or that was confirmed for a second
// time, convicts no lock by itself.
// Where a message was delayed at an instant, the release was under way then.
func (m *model) lateRelease(first, second *holding.Hold, delayed time.Duration) (late StoryEvent, ok bool) {
	lock := first.Lock
	if m.shared(lock) { // to give one grant back ends no other
		return late, false
	}
	sent := map[string]time.Duration{} // the last release of each owner
	for i := range m.ops {
		op := &m.ops[i]
		if op.Invoke.Op != history.Release || op.Invoke.Lock != lock {
			continue
		}
		before, repeated := sent[op.Invoke.Owner]
		sent[op.Invoke.Owner] = op.Invoke.Time
		again := op.Failed() && op.Complete.What == history.ConfirmedAgain
		if op.Invoke.Owner == first.Owner || op.Failed() && !again {
			continue
		}
		own := m.holdBefore(lock, op.Invoke.Owner, op.Invoke.Time)
		if op.Invoke.Time > second.Start || own == nil || own == second {
			continue
		}
		ended := believes(own)
		if ended == op.Invoke.Time { // it was sent in time, and ended its own hold
			ended = max(ended, own.Acquire.Expires())
		}
		if again && repeated {
			ended = min(ended, before)
		}
		done := op.Complete.Time
		switch underWay := op.Invoke.Time <= delayed && delayed <= done; {
		case delayed > 0 && !underWay:
			continue
		case delayed > 0 && op.Unknown(): // its client has given up on it, and the links have not
			done = history.Never
		}
		if done <= max(ended, first.Acquire.Invoke.Time) || ended > second.Start {
			continue
		}
		came := "may have reached the servers after its time had ended at "
		switch {
		case again && repeated:
			came = "was sent after another one at "
		case op.Invoke.Time > ended:
			came = "was sent after its time had ended at "
		}
		answer := fmt.Sprintf("answered at %s", say.Instant(op.Complete.Time))
		switch {
		case op.Unknown():
			answer = "whose outcome is unknown"
		case op.Failed():
			answer = "which was confirmed although it was the second one of its hold"
		}
		late, ok = StoryEvent{At: op.Invoke.Time, Kind: EventLock, Text: fmt.Sprintf("the release of %s by client %s, %s, %s%s: without a look at the owner it ends the hold of client %s",
			lock, client(op.Invoke.Owner), answer, came, say.Instant(ended), client(first.Owner))}, true
	}
	return late, ok
}

// fewestCut is how many double grants without a fault tell a lease that the servers end too
// early from releases, which end a lease at any time: five of those that all come in the
// second half are one case of 32.
const fewestCut = 5

// cutLease says that the servers seem to end leases before their time: of many double grants
// without a fault, all came when a good part of the first lease had passed.
func (m *model) cutLease() string {
	found, earliest := 0, history.Never
	for _, r := range m.Report.Results {
		for i := range r.Violations {
			v := &r.Violations[i]
			holds := m.holdsOf(v)
			if v.Kind != checker.DoubleGrant || m.causeOf(v) >= 0 || len(holds) < 2 {
				continue
			}
			first, second := holds[0], holds[1]
			began := first.Acquire.Invoke.Time
			lease, passed := first.Acquire.Expires()-began, second.Start-began
			if first.Acquire.Expires() <= 0 || len(first.Extensions) > 0 || passed < lease/2 {
				return ""
			}
			found, earliest = found+1, min(earliest, passed)
		}
	}
	if found < fewestCut {
		return ""
	}
	return fmt.Sprintf("Each of the %d double grants without a fault came when at least %s of the first client's lease had passed: the servers seem to end leases before the clients do.", found, say.Span(earliest))
}

// fewestAtOnce is how many double grants by requests that were under way at once tell of a
// lock that is acquired in two steps, and which part of all they must be: one comes from a
// release in between, now and then.
const fewestAtOnce, leastAtOnce = 3, 0.25

// twoSteps says that the lock seems to be acquired in two steps, of which the first looks
// whether it is free: without a fault, requests were granted that were under way at once.
func (m *model) twoSteps() string {
	found, atOnce := 0, 0
	for _, r := range m.Report.Results {
		for i := range r.Violations {
			v := &r.Violations[i]
			holds := m.holdsOf(v)
			if v.Kind != checker.DoubleGrant || m.origin(v) >= 0 || len(holds) < 2 {
				continue
			}
			found++
			if asked, ok := lastTry(holds[1]); ok && asked < holds[0].Acquire.Complete.Time {
				atOnce++
			}
		}
	}
	if atOnce < fewestAtOnce || float64(atOnce) < leastAtOnce*float64(found) {
		return ""
	}
	return fmt.Sprintf("Of %s without a fault, %d gave the lock to two clients whose requests were under way at once: to look whether it is free and to acquire it seem to be two steps.", say.Count(found, "double grant"), atOnce)
}

// lastTry is when the request was sent that was granted, of a client that asked again and
// again: its lease counts from then.
func lastTry(h *holding.Hold) (time.Duration, bool) {
	lease, expires := h.Acquire.Invoke.Lease, h.Acquire.Expires()
	if lease <= 0 || expires <= 0 || !h.Acquire.OK() {
		return 0, false
	}
	return max(expires-lease, h.Acquire.Invoke.Time), true
}

// answered is the release or extension that a violation is about.
func (m *model) answered(v *checker.Violation) (history.Operation, bool) {
	if op, ok := m.lastOf(v, history.Release); ok {
		return op, true
	}
	return m.lastOf(v, history.Extend)
}

// forHowLong is " for 350 ms", or what of it the record covers.
func (m *model) forHowLong(from, until time.Duration) string {
	if until > m.end {
		if m.end <= from {
			return ""
		}
		return fmt.Sprintf(" (%s of it observed)", say.Span(m.end-from))
	}
	if until <= from {
		return ""
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

// damage says what the two did to the protected resource inside the overlap. It is damage of
// this overlap only if both made it, each under its hold that overlaps, inside the overlap or
// one of them after it: what another client changed is the damage of another overlap, or of a
// client without a hold.
func (m *model) damage(first, second *holding.Hold, from, until time.Duration) []string {
	var done, after []history.Operation
	accessed := false
	for i := range m.ops {
		op := &m.ops[i]
		if op.Invoke.Op != history.Access {
			continue
		}
		accessed = true
		switch {
		case op.Complete.Time < from || !m.under(op, first) && !m.under(op, second):
		case op.Invoke.Time <= until:
			done = append(done, *op)
		default:
			after = append(after, *op)
		}
	}
	if !accessed {
		return nil
	}
	if len(done) == 0 {
		return []string{"Neither of them used the protected resource in that time."}
	}
	const inTime, underWay = "In that time ", "With accesses that were under way in that time, "
	answered := slices.DeleteFunc(slices.Clone(done), func(op history.Operation) bool { return op.Complete.Time > until })
	if lost := m.lostWithin(answered); lost != "" {
		return []string{inTime + lost}
	}
	if lost := m.lostWithin(done); lost != "" {
		return []string{underWay + lost}
	}
	if lost := m.lostAfter(done, after); lost != "" {
		return []string{lost}
	}
	lead := inTime
	if len(answered) < len(done) {
		lead = underWay
	}
	clauses := make([]string, 0, len(done))
	for i := range done {
		if i == 3 {
			clauses = append(clauses, say.Count(len(done)-i, "access")+" more")
			break
		}
		clauses = append(clauses, m.accessClause(&done[i])+" at "+say.Instant(done[i].Complete.Time))
	}
	return []string{lead + say.List(clauses) + "."}
}

// accessClause says what an access did: "client a wrote 42 to ledger after
// reading 41".
func (m *model) accessClause(op *history.Operation) string {
	e := op.Complete
	resource := e.Resource
	if resource == "" {
		resource = op.Invoke.Resource
	}
	if resource == "" {
		resource = "the resource"
	}
	who := m.whoOf(op.Invoke)
	read, written, rmw := strings.Cut(e.Value, ">")
	switch {
	case gaveUp(op):
		return who + " gave up its access to " + resource + " by itself, since its lease was over or about to end"
	case op.Failed():
		s := who + " was refused by " + resource
		if e.Error != "" {
			s += " (" + e.Error + ")"
		}
		return s
	case op.Unknown():
		return who + " may have used " + resource
	case rmw:
		return fmt.Sprintf("%s read %s from %s and wrote %s", who, read, resource, written)
	case e.Value != "":
		return fmt.Sprintf("%s used %s (value %s)", who, resource, e.Value) // read or written: it is not said
	default:
		return who + " used " + resource
	}
}

// under reports whether an access was made under a hold: by its owner, or its process if the
// access names none, and not under a later hold of the same.
func (m *model) under(op *history.Operation, h *holding.Hold) bool {
	e := op.Invoke
	if e.Lock != "" && e.Lock != h.Lock || e.Owner != h.Owner && (e.Owner != "" || e.Process != h.Process) || e.Time < h.Acquire.Invoke.Time {
		return false
	}
	of := m.holdIndex().owner[h.Owner]
	if e.Owner == "" {
		of = m.holdIndex().process[e.Process]
	}
	latest := last(of, h.Lock, e.Time)
	return latest == nil || latest == h || latest.Start < h.End // part of the same: a downgrade
}

// lostWithin says which update was lost among accesses of several clients that read the same.
func (m *model) lostWithin(ops []history.Operation) string {
	for i := range ops {
		if lost := lostTo(&ops[i], ops[i+1:]); lost != nil {
			return fmt.Sprintf("%s (at %s) and %s (at %s) changed %s, which both had read as %s: one of the two updates is lost.",
				m.whoOf(ops[i].Invoke), say.Instant(ops[i].Complete.Time), m.whoOf(lost.Invoke), say.Instant(lost.Complete.Time),
				resourceOf(&ops[i]), version(&ops[i]))
		}
	}
	return ""
}

// lostAfter says which update inside an overlap was lost to one that came after it.
func (m *model) lostAfter(inside, after []history.Operation) string {
	for i := range inside {
		if lost := lostTo(&inside[i], after); lost != nil {
			return fmt.Sprintf("In that time %s, which %s changed too (at %s): one of the two updates is lost.",
				m.accessClause(&inside[i])+" at "+say.Instant(inside[i].Complete.Time), m.whoOf(lost.Invoke), say.Instant(lost.Complete.Time))
		}
	}
	return ""
}

// lostTo is of some accesses the first with which another client changed what an access had
// read; nil if there is none.
func lostTo(op *history.Operation, others []history.Operation) *history.Operation {
	for i := range others {
		if other := &others[i]; version(op) != "" && version(op) == version(other) && resourceOf(op) == resourceOf(other) && (op.Invoke.Owner != other.Invoke.Owner || op.Invoke.Process != other.Invoke.Process) {
			return other
		}
	}
	return nil
}

// version is what an access read before it wrote; empty if it did not, or if it is not known.
func version(op *history.Operation) string {
	read, _, both := strings.Cut(op.Complete.Value, ">")
	if !both || !op.OK() {
		return ""
	}
	return read
}

// useWithoutLock tells of a client that used a resource although it was never granted
// the lock, which another one held.
func (m *model) useWithoutLock(v *checker.Violation, op *history.Operation) Story {
	user := client(op.Invoke.LockOwner())
	other := m.holderAt(v.Lock, op.Invoke.LockOwner(), op.Invoke.Time, op.Complete.Time)
	if other == nil {
		return m.otherViolation(v)
	}
	return Story{
		Headline: fmt.Sprintf("Client %s worked without the lock %s, which %s held", user, v.Lock, m.who(other)),
		Cures:    []string{fenceCure},
		Events: []StoryEvent{
			m.grant(other, false),
			{At: op.Complete.Time, Kind: EventViolation, Text: m.accessClause(op)},
		},
		Outcome: []string{fmt.Sprintf("The lock did its job: client %s was not granted it, and did not heed that.", user)},
	}
}

// useAfterLease tells of a holder that did not notice that its time was over.
func (m *model) useAfterLease(v *checker.Violation) Story {
	op, ok := m.lastOf(v, history.Access)
	if !ok {
		return m.otherViolation(v)
	}
	hold := m.holdFor(v, op.Invoke)
	if hold == nil {
		return m.useWithoutLock(v, &op)
	}
	if believes(hold) >= op.Complete.Time {
		return m.otherViolation(v)
	}
	ended := believes(hold)
	late := op.Complete.Time - ended
	if op.Invoke.Time >= ended {
		late = op.Invoke.Time - ended
	}
	resource := op.Complete.Resource
	if resource == "" {
		resource = "what " + hold.Lock + " protects"
	}
	s := Story{
		Headline: fmt.Sprintf("%s used %s %s after its time on %s was over", capitalClient(hold.Owner), resource, say.Span(late), hold.Lock),
		Cures:    []string{stopCure, fenceCure},
	}
	s.Events = append(s.Events, m.grant(hold, false))
	if n := len(hold.Extensions); n > 0 {
		last := &hold.Extensions[n-1]
		s.Events = append(s.Events, StoryEvent{
			At: last.Complete.Time, Kind: EventLock,
			Text: fmt.Sprintf("its last extension ended %s (%s in all)", last.Complete.Type, say.Count(n, "extension")),
		})
	}
	s.Events = append(s.Events, m.background(hold.Acquire.Invoke.Time, op.Complete.Time, hold)...)
	s.Events = append(s.Events, StoryEvent{At: ended, Kind: EventLock, Text: m.endWords(hold)})
	others := m.grantsBetween(hold.Lock, hold.Owner, ended, op.Complete.Time)
	s.Events = append(s.Events, others...)
	if op.Invoke.Time >= ended {
		s.Events = append(s.Events,
			StoryEvent{
				At: op.Invoke.Time, Kind: EventViolation,
				Text: fmt.Sprintf("%s began to use %s, %s after its time was over", m.who(hold), resource, say.Span(late)),
			},
			StoryEvent{At: op.Complete.Time, Kind: EventAccess, Text: m.accessClause(&op)})
	} else {
		s.Events = append(s.Events, StoryEvent{
			At: op.Complete.Time, Kind: EventViolation,
			Text: fmt.Sprintf("%s, %s after its time was over", m.accessClause(&op), say.Span(late)),
		})
	}
	if ended <= hold.Start {
		s.Cures[0] = lateCure
		s.Outcome = append(s.Outcome, fmt.Sprintf("When %s learned of the grant, at %s, its lease was over: a lock must check that before it answers.", m.who(hold), say.Instant(hold.Start)))
	} else {
		s.Outcome = append(s.Outcome, "The lock did its job: the hold had ended. Its holder did not notice.")
	}
	if len(others) > 0 {
		s.Outcome = append(s.Outcome, "By then another client had been granted the lock.")
	}
	var since []history.Operation
	for i := range m.ops {
		if o := &m.ops[i]; o.Invoke.Op == history.Access && o.Complete.Resource == op.Complete.Resource && o.Complete.Time > ended && o.Complete.Time <= op.Complete.Time {
			since = append(since, *o)
		}
	}
	if lost := m.lostWithin(since); lost != "" {
		s.Outcome = append(s.Outcome, "After its time was over, "+lost)
	}
	return s
}

// endWords says why a hold ended.
func (m *model) endWords(h *holding.Hold) string {
	if believes(h) < h.End {
		return "the lease of " + m.who(h) + " on " + h.Lock + " ran out"
	}
	switch h.Ended {
	case holding.EndReleased:
		return m.who(h) + " gave " + h.Lock + " back"
	case holding.EndLost:
		return m.who(h) + " was told that " + h.Lock + " is lost"
	case holding.EndUnknown:
		return "an operation with an unknown outcome may have ended the hold of " + m.who(h)
	default:
		return "the lease of " + m.who(h) + " on " + h.Lock + " ran out"
	}
}

// maxOthers bounds the grants to others that a story lists.
const maxOthers = 3

// grantsBetween are the grants to others in a window.
func (m *model) grantsBetween(lock, owner string, from, to time.Duration) []StoryEvent {
	var events []StoryEvent
	more := 0
	for i := range m.holds {
		h := &m.holds[i]
		if h.Lock != lock || h.Owner == owner || h.Start < from || h.Start > to {
			continue
		}
		if len(events) == maxOthers {
			more++
			continue
		}
		events = append(events, m.grant(h, false))
	}
	if more > 0 {
		events[len(events)-1].Text += fmt.Sprintf(" (and %s more until %s)", say.Count(more, "grant"), say.Instant(to))
	}
	return events
}

// lostUpdate tells of two accesses of which one did not last.
func (m *model) lostUpdate(v *checker.Violation) Story {
	accesses := m.operationsOf(v, history.Access)
	if len(accesses) < 2 {
		return m.otherViolation(v)
	}
	slices.SortStableFunc(accesses, func(a, b history.Operation) int { return cmp.Compare(a.Complete.Time, b.Complete.Time) })
	resource := v.Resource
	if resource == "" {
		resource = accesses[0].Complete.Resource
	}
	s := Story{
		Headline: "An update of " + resource + " was lost",
		Cures:    []string{fenceCure},
	}
	told := map[*holding.Hold]bool{}
	var holders []*holding.Hold
	for i := range accesses {
		op := &accesses[i]
		if h := m.holdFor(v, op.Invoke); h != nil && !told[h] {
			told[h] = true
			holders = append(holders, h)
			s.Events = append(s.Events, m.grant(h, false))
			if end := believes(h); end < op.Complete.Time {
				s.Events = append(s.Events, StoryEvent{At: end, Kind: EventLock, Text: m.endWords(h)})
			}
		}
		ev := StoryEvent{At: op.Complete.Time, Kind: EventAccess, Text: m.accessClause(op) + fmt.Sprintf(" (begun at %s)", say.Instant(op.Invoke.Time))}
		if i == len(accesses)-1 {
			ev.Kind = EventViolation
		}
		s.Events = append(s.Events, ev)
	}
	from := accesses[0].Invoke.Time
	for _, h := range holders {
		from = min(from, h.Acquire.Invoke.Time)
	}
	s.Events = append(s.Events, m.background(from, accesses[len(accesses)-1].Complete.Time, holders...)...)
	if read, _, rmw := strings.Cut(accesses[0].Complete.Value, ">"); rmw && m.lostWithin(accesses) != "" {
		s.Outcome = append(s.Outcome, fmt.Sprintf("Both started from %s: one of the two updates is lost.", read))
	} else {
		s.Outcome = append(s.Outcome, stop(v.Explanation))
	}
	return s
}

// foreignRelease describes a confirmation for an owner that did not hold the lock.
func (m *model) foreignRelease(v *checker.Violation) Story {
	op, ok := m.lastOf(v, history.Release)
	verb, cure := "release", ownerCure
	if !ok {
		op, ok = m.lastOf(v, history.Extend)
		verb, cure = "extension", prolongCure
	}
	if !ok {
		return m.otherViolation(v)
	}
	owner := op.Invoke.Owner
	s := Story{
		Headline: fmt.Sprintf("A %s of %s was confirmed for client %s, who did not hold it", verb, v.Lock, client(owner)),
		Cures:    []string{cure},
	}
	if verb == "extension" {
		s.Headline = "An" + strings.TrimPrefix(s.Headline, "A")
	}
	from := op.Invoke.Time
	var holders []*holding.Hold
	if own := m.holdOf(v.Lock, op.Invoke); own != nil {
		from = own.Acquire.Invoke.Time
		holders = append(holders, own)
		s.Events = append(s.Events, m.grant(own, false))
		if end := believes(own); end < op.Invoke.Time {
			s.Events = append(s.Events, StoryEvent{At: end, Kind: EventLock, Text: m.endWords(own)})
		}
	}
	victim := m.holderAt(v.Lock, owner, op.Invoke.Time, op.Complete.Time)
	if victim != nil {
		s.Events = append(s.Events, m.grant(victim, false))
	}
	s.Events = append(s.Events, m.background(from, op.Complete.Time, holders...)...)
	text := fmt.Sprintf("the %s of %s by client %s was confirmed", verb, v.Lock, client(owner))
	if op.Complete.Node != "" {
		text += " by " + op.Complete.Node
	}
	s.Events = append(s.Events, StoryEvent{At: op.Complete.Time, Kind: EventViolation, Text: text})
	if victim == nil {
		s.Outcome = append(s.Outcome, "Client "+client(owner)+" cannot have held it at any instant of that call.")
		return s
	}
	if r := victim.Release; verb == "release" && r != nil && r.OK() && r.Invoke.Time > op.Complete.Time &&
		len(m.grantsBetween(v.Lock, victim.Owner, op.Complete.Time, r.Invoke.Time)) == 0 {
		s.Outcome = append(s.Outcome, fmt.Sprintf("Client %s cannot have held it at any instant of that call. That it ended the hold of %s is not shown, who gave it back at %s.",
			client(owner), m.who(victim), say.Instant(r.Complete.Time)))
		s.Cures = []string{confirmCure, cure}
		return s
	}
	did := "ended"
	if verb == "extension" {
		did = "prolonged"
	}
	s.Outcome = append(s.Outcome, fmt.Sprintf("Client %s cannot have held it at any instant of that call; what it %s was the hold of %s.", client(owner), did, m.who(victim)))
	next := m.grantsBetween(v.Lock, victim.Owner, op.Complete.Time, victim.End)
	if len(next) > 0 {
		s.Outcome = append(s.Outcome, fmt.Sprintf("While %s was still entitled to hold it, at %s %s.", m.who(victim), say.Instant(next[0].At), next[0].Text))
	}
	return s
}

// prematureLoss tells of a service that forgot a grant.
func (m *model) prematureLoss(v *checker.Violation) Story {
	if len(v.Events) == 0 {
		return m.otherViolation(v)
	}
	last, ok := m.event(slices.Max(v.Events))
	if !ok {
		return m.otherViolation(v)
	}
	hold := m.holdFor(v, last)
	if hold == nil {
		return m.otherViolation(v)
	}
	due := hold.Acquire.Expires()
	for i := range hold.Extensions {
		if e := &hold.Extensions[i]; e.OK() && e.Complete.Time <= last.Time {
			due = e.Expires()
		}
	}
	s := Story{Headline: fmt.Sprintf("%s lost %s before its lease could run out", capitalClient(hold.Owner), hold.Lock)}
	if due > last.Time {
		s.Headline = fmt.Sprintf("%s lost %s %s before its lease could run out", capitalClient(hold.Owner), hold.Lock, say.Span(due-last.Time))
	}
	// The hold's own end is the loss itself: say what had been promised.
	grant := m.grant(hold, false)
	grant.Text = strings.TrimSuffix(grant.Text, m.entitled(hold)) + "was entitled to hold it until "
	if due > 0 {
		grant.Text += say.Instant(due)
	} else {
		grant.Text += "it gives it back, as a watchdog keeps it alive"
	}
	s.Events = append(s.Events, grant)
	s.Events = append(s.Events, m.background(hold.Acquire.Invoke.Time, last.Time, hold)...)
	s.Events = append(s.Events, m.grantsBetween(hold.Lock, hold.Owner, hold.Start, last.Time)...)
	text := fmt.Sprintf("%s was told that it does not hold %s%s", m.whoOf(last), hold.Lock, inMode(hold.Mode, hold.Permits))
	if last.Op != history.Lost {
		text += ", in answer to its " + string(last.Op)
	}
	s.Events = append(s.Events, StoryEvent{At: last.Time, Kind: EventViolation, Text: text})
	if masters := m.extraMasters(hold.Start); len(masters) > 1 && m.granter(hold) == "" {
		s.Outcome = append(s.Outcome, fmt.Sprintf("When it was granted %s were masters at once, as far as it was seen; which of them granted it is not recorded.", say.List(m.ofOneShard(masters))))
	}
	s.Outcome = append(s.Outcome, "It had not given it back: the service forgot the grant.")
	s.Cures = m.remembering(v, hold.Start, last.Time)
	return s
}

// otherViolation tells any kind, from the evidence and the explanation.
func (m *model) otherViolation(v *checker.Violation) Story {
	what := v.Lock
	if what == "" {
		what = v.Resource
	}
	s := Story{Headline: strings.TrimSpace(kindWords(v.Kind) + " " + onWhat(what))}
	if v.Kind == checker.NotLinearizable {
		s.Headline = "No order of the operations " + onWhat(cmp.Or(what, "the lock")) + " explains their answers"
	}
	for i, index := range v.Events {
		e, ok := m.event(index)
		if !ok {
			continue
		}
		ev := StoryEvent{At: e.Time, Kind: EventLock, Text: m.eventClause(e)}
		if i == len(v.Events)-1 {
			ev.Kind = EventViolation
		}
		s.Events = append(s.Events, ev)
	}
	s.Events = append(s.Events, m.background(v.From, max(v.From, min(v.Until, m.end)))...)
	s.Outcome = append(s.Outcome, sentence(v.Explanation))
	return s
}

func onWhat(name string) string {
	if name == "" {
		return ""
	}
	return "on " + name
}

// kindWords is a kind of violation as the start of a headline.
func kindWords(kind string) string {
	words := strings.ReplaceAll(kind, "-", " ")
	if words == "" {
		return "Violation"
	}
	return strings.ToUpper(words[:1]) + words[1:]
}

func capitalClient(owner string) string { return "Client " + client(owner) }

// eventClause says any event in words.
func (m *model) eventClause(e *history.Event) string {
	who := m.whoOf(e)
	if e.Op == history.Access {
		if op, ok := m.operation(e.Index); ok && e.Type != history.Invoke {
			return m.accessClause(op)
		}
		return who + " began to use " + e.Resource
	}
	switch e.Op {
	case history.Lost:
		return who + " was told that " + e.Lock + " is lost"
	case history.Crash:
		return who + " crashed"
	default:
	}
	var s string
	lock := e.Lock + inMode(e.Mode, e.Permits)
	asked := "the " + string(e.Op) + " of "
	switch e.Op {
	case history.Acquire:
		asked = ""
	case history.Extend:
		asked = "an extension of "
	default:
	}
	switch e.Type {
	case history.Invoke:
		s = fmt.Sprintf("%s asked to %s %s", who, e.Op, lock)
	case history.OK:
		s = fmt.Sprintf("%s was granted %s%s", who, asked, lock)
		if e.Op != history.Acquire {
			s = fmt.Sprintf("%s was confirmed %s%s", who, asked, lock)
		}
	case history.Fail:
		s = fmt.Sprintf("%s was refused %s%s", who, asked, lock)
	default:
		s = fmt.Sprintf("%s got no certain answer to its %s of %s", who, e.Op, lock)
	}
	if e.Node != "" {
		s += " by " + e.Node
	}
	if e.Token != 0 {
		s += fmt.Sprintf(", token %d", e.Token)
	}
	return s
}

// operationsOf are the operations of a kind that the evidence names, in order.
func (m *model) operationsOf(v *checker.Violation, kind history.Op) []history.Operation {
	var at []int
	for _, index := range v.Events {
		if i, ok := m.evidenceIndex().ops[index]; ok && m.ops[i].Invoke.Op == kind {
			at = append(at, i)
		}
	}
	slices.Sort(at)
	var found []history.Operation
	for _, i := range slices.Compact(at) {
		found = append(found, m.ops[i])
	}
	return found
}

func (m *model) lastOf(v *checker.Violation, kind history.Op) (history.Operation, bool) {
	ops := m.operationsOf(v, kind)
	if len(ops) == 0 {
		return history.Operation{}, false
	}
	return ops[len(ops)-1], true
}

// holdFor is the hold that an event acted under: that of its owner, else the
// last of its process.
func (m *model) holdFor(v *checker.Violation, e *history.Event) *holding.Hold {
	if h := m.holdOf(v.Lock, e); h != nil {
		return h
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

// holderAt is a hold of another owner that touches a window.
func (m *model) holderAt(lock, not string, from, to time.Duration) *holding.Hold {
	for i := range m.holds {
		h := &m.holds[i]
		if h.Lock == lock && h.Owner != not && h.Start <= to && h.End >= from {
			return h
		}
	}
	return nil
}
