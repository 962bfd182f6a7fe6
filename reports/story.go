package reports

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/chart"
)

// A Story is what happened in plain words, generated from the events alone.
type Story struct {
	// Headline says it in one line, without a full stop.
	Headline string `json:"headline"`
	// Notice is what a reader must know beside it: an error that most operations
	// met. Empty: nothing.
	Notice string `json:"notice,omitempty"`
	// Events are what led to it, in order of time.
	Events []StoryEvent `json:"moments,omitempty"`
	// Outcome are the sentences that follow from the events.
	Outcome []string `json:"outcome,omitempty"`
	// Weight is what a reader has to know of the lock to weigh the verdict: what it
	// does not promise, and what came of the control.
	Weight []string `json:"weight,omitempty"`
	// Cures are what would have prevented it, or if they are Untried what fits the events.
	Cures   []string `json:"cures,omitempty"`
	Untried bool     `json:"untried,omitempty"`
}

// A StoryEvent is one thing that happened, as a clause that follows its time.
type StoryEvent struct {
	At   time.Duration `json:"at"`
	Kind string        `json:"kind"`
	Text string        `json:"text"`
}

// The kinds of event.
const (
	EventFault     = "fault"     // a fault began or ended
	EventServer    = "server"    // a server changed its role, or was looked at
	EventGrant     = "grant"     // a client was granted the lock
	EventLock      = "lock"      // a lock was extended, released or lost
	EventAccess    = "access"    // the protected resource was used
	EventViolation = "violation" // the instant at which the promise was broken
)

// String is the whole story as one paragraph.
func (s Story) String() string {
	parts := s.lines()
	if len(parts) == 0 {
		return stop(s.Headline)
	}
	return strings.Join(parts, " ")
}

// lines are the story without its headline, a sentence or more each.
func (s Story) lines() []string {
	var parts []string
	if s.Notice != "" {
		parts = append(parts, stop(s.Notice))
	}
	for _, m := range s.Events {
		parts = append(parts, "At "+say.Instant(m.At)+" "+stop(m.Text))
	}
	parts = append(append(parts, s.Outcome...), s.Weight...)
	if cure := s.cure(); cure != "" {
		parts = append(parts, cure)
	}
	return parts
}

// cure is the sentence that says what would have helped.
func (s Story) cure() string {
	if len(s.Cures) == 0 {
		return ""
	}
	cures := make([]string, len(s.Cures))
	for i, c := range s.Cures {
		cures[i] = strings.TrimRight(c, ". ")
		if !s.Untried && !shown(c) {
			cures[i] += " (which no variant shows)"
		}
	}
	return s.helps() + ": " + strings.Join(cures, "; or ") + "."
}

// helps says what is known of the cures: the variants of a scenario show that its cures
// prevent it; what fits the events of a random run was not tried.
func (s Story) helps() string {
	if s.Untried {
		return "What may prevent it"
	}
	return "What would have prevented it"
}

// story tells the violation that explains most, or why there is none. Of a
// script that was cut short it tells where, and of servers that another run took
// over that, whatever was found.
func (m *model) story() Story {
	if m.told != nil {
		return *m.told
	}
	var s Story
	v := m.violation()
	switch problem := m.dominantError(); {
	case m.Run.AbortReason != "" && m.Report.Verdict != checker.Invalid, m.Run.ClaimLostTo != "":
		s = m.unknownStory()
		s.Notice = problem
	case v != nil:
		s = m.violationStory(v)
		s.Notice = problem
	case m.Report.Verdict == checker.Valid:
		s = m.validStory()
		s.Notice = problem
	case m.Report.Verdict == checker.Invalid:
		s = m.unprovenStory()
		s.Notice = problem
	default:
		s = m.unknownStory()
		if problem != "" && len(m.Missing) == 0 && m.Run.DriverFault == "" { // which says what is behind it
			s.Headline = "Not decided: " + problem
		}
	}
	s.Weight = m.aboutLock()
	m.told = &s
	return s
}

// violationStory tells a violation, once.
func (m *model) violationStory(v *checker.Violation) Story {
	s, known := m.stories[v]
	if !known {
		s = m.tell(v)
		if m.stories == nil {
			m.stories = map[*checker.Violation]Story{}
		}
		m.stories[v] = s
	}
	return s
}

func (m *model) tell(v *checker.Violation) Story {
	var s Story
	m.cause = m.causeOf(v)
	switch v.Kind {
	case checker.DoubleGrant:
		s = m.doubleGrant(v)
	case checker.UseAfterLease:
		s = m.useAfterLease(v)
	case checker.LostUpdate:
		s = m.lostUpdate(v)
	case checker.ForeignRelease:
		s = m.foreignRelease(v)
	case checker.PrematureLoss:
		s = m.prematureLoss(v)
	case checker.OverCapacity:
		s = m.overCapacity(v)
	case checker.Reentrancy:
		s = m.reentrancy(v)
	case checker.FenceRegress, checker.FenceDuplicate:
		s = m.tokens(v)
	case checker.StaleAccess:
		s = m.staleAccess(v)
	case checker.Stuck:
		s = m.stuck(v)
	case checker.Overtaken:
		s = m.overtaken(v)
	default:
		s = m.otherViolation(v)
	}
	s.Events = append(s.Events, m.crashes(v, s.Events)...)
	slices.SortStableFunc(s.Events, func(a, b StoryEvent) int { return cmp.Compare(a.At, b.At) })
	if words := m.fencingWords(v); words != "" {
		s.Outcome = append(s.Outcome, words)
	}
	if m.cause < 0 && m.Run.Scenario == "" {
		s.Outcome = append(s.Outcome, m.unexplained(v)...)
	}
	if m.kindOf(v.Lock) == history.KindSemaphore { // holders of permits have several tokens at a time
		s.Cures = slices.DeleteFunc(s.Cures, func(cure string) bool { return cure == fenceCure })
	}
	if s.Cures = m.cures(s.Cures); len(s.Cures) == 0 {
		s.Outcome = append(s.Outcome, m.advice(v)...)
	}
	if more := m.moreViolations(v); more != "" {
		s.Outcome = append(s.Outcome, more)
	}
	s.Untried = len(s.Cures) > 0 && !slices.ContainsFunc(s.Cures, shown)
	return s
}

// unexplained says that the faults of a run do not explain a violation, which has no cause;
// nothing where there were none.
func (m *model) unexplained(v *checker.Violation) []string {
	n := effective(m.faults)
	if n == 0 {
		return nil
	}
	first := history.Never
	for i := range m.faults {
		if f := &m.faults[i]; f.counts() {
			first = min(first, f.Start)
		}
	}
	words, it := fmt.Sprintf("None of the %s explains it", say.Count(n, "fault")), "the first of them"
	if n == 1 {
		words, it = "The fault does not explain it", "the fault"
	}
	if since := m.provenAt(v); since < first && say.Instant(since) != say.Instant(first) {
		return []string{fmt.Sprintf("%s: it happened at %s, and %s began at %s.", words, say.Instant(since), it, say.Instant(first))}
	}
	return []string{words + ", as far as the record shows."}
}

// shown reports whether a variant of the scenario shows that a cure helps.
func shown(cure string) bool { return shownBy(cure) != nil }

// moreViolations says how many there are beside the one that is told.
func (m *model) moreViolations(told *checker.Violation) string {
	if causes := m.causesOf(); len(causes) > 1 {
		for _, c := range causes {
			if slices.Contains(c.found, told) && len(c.found) > 1 {
				return "In all it is the cause of " + kindCounts(c.Violations) + "."
			}
		}
		return ""
	}
	alike, kinds, others := 0, []string{}, 0
	var seen [][]int64
	for _, r := range m.Report.Results {
		if r.Verdict != checker.Invalid {
			continue
		}
		n := max(r.Total, len(r.Violations))
		for i := range r.Violations {
			// Another engine's finding in the same events is the same finding.
			events := r.Violations[i].Events
			if slices.Equal(events, told.Events) || r.Violations[i].Kind == checker.NotLinearizable &&
				slices.ContainsFunc(seen, func(s []int64) bool { return slices.Equal(s, events) }) {
				n--
			}
			seen = append(seen, events)
		}
		switch {
		case n <= 0:
		case len(r.Violations) > 0 && r.Violations[0].Kind == told.Kind:
			alike += n
		default:
			others += n
			kinds = append(kinds, r.Name)
		}
	}
	var parts []string
	if alike > 0 {
		parts = append(parts, "And "+say.Thousands(int64(alike))+" more like it.")
	}
	if others > 0 {
		parts = append(parts, fmt.Sprintf("Also violated: %s (%s).", say.List(kinds), say.Count(others, "violation")))
	}
	return strings.Join(parts, " ")
}

// grant is the moment at which a hold began.
func (m *model) grant(h *holding.Hold, violates bool) StoryEvent {
	ev := StoryEvent{At: h.Start, Kind: EventGrant}
	if violates {
		ev.Kind = EventViolation
	}
	ev.Text = m.who(h) + " was granted " + h.Lock + inMode(h.Mode, h.Permits)
	if voters := m.voters(h); len(voters) > 0 {
		ev.Text += " by " + say.List(voters)
	}
	if h.Token != 0 {
		ev.Text += fmt.Sprintf(" with token %d", h.Token)
	}
	ev.Text += " and " + m.entitled(h)
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

// entitled says until when a holder may believe.
func (m *model) entitled(h *holding.Hold) string {
	until := believes(h)
	switch {
	case until == history.Never:
		return "was entitled to hold it until told otherwise, which the record does not show"
	case until <= h.Start:
		return "learned it when its lease had run out, at " + say.Instant(until)
	case until < h.End:
		return "was entitled to hold it until " + say.Instant(until)
	case h.Ended == holding.EndReleased:
		return "held it until it gave it back at " + say.Instant(until)
	case h.Ended == holding.EndLost:
		return "held it until it was told at " + say.Instant(until) + " that it is lost"
	default:
		return "was entitled to hold it until " + say.Instant(until)
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

// crashes are those of the clients that a violation is about, while they held and before the
// last event that is told.
func (m *model) crashes(v *checker.Violation, told []StoryEvent) []StoryEvent {
	if len(m.crash) == 0 || len(told) == 0 {
		return nil
	}
	until := slices.MaxFunc(told, func(a, b StoryEvent) int { return cmp.Compare(a.At, b.At) }).At
	var events []StoryEvent
	for _, h := range m.evidence(v) {
		for _, e := range m.crash {
			if e.Process != h.Process || e.Time < h.Acquire.Invoke.Time || e.Time >= h.End || e.Time > until {
				continue
			}
			text := m.who(h) + " crashed"
			if h.Release == nil {
				text += ": only its lease ends its hold"
			}
			events = append(events, StoryEvent{At: e.Time, Kind: EventLock, Text: text})
		}
	}
	return events
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

// maxBackground bounds the events of the background, so that a run with many
// faults at once still reads in a minute.
const maxBackground = 6

// background are the faults and the servers' changes that were in effect at
// some time of a window, and began before its end.
func (m *model) background(from, to time.Duration, holders ...*holding.Hold) []StoryEvent {
	begin := from
	var events, cause []StoryEvent
	lesser := map[StoryEvent]bool{}
	restarted := map[StoryEvent]int{} // by what shows it, the place of the heal in events
	var before *Fault                 // the one that was told last, if another may join it
	for i := range m.faults {
		f := &m.faults[i]
		if !f.OK || f.Start > to || m.settled(f) < from {
			continue
		}
		if n := len(events); before != nil && before.joins(f) && (len(holders) == 0 || !m.isolated(f, holders[0])) && (!f.Healed || m.back(f) > to) {
			both := *before
			both.Target, both.Effect = before.Target+" "+f.Target, ""
			events[n-1].Text = both.happened(m.Run.Topology)
			before = &both
			if i == m.cause || len(cause) > 0 && cause[0].At == events[n-1].At {
				cause = slices.Clone(events[n-1 : n]) // events is sorted later
			}
			continue
		}
		before = nil
		begin = min(begin, f.Start)
		if f.at() > to {
			events = append(events, StoryEvent{
				At: f.Start, Kind: EventFault,
				Text: fmt.Sprintf("the fault %s was asked for; its effect was observed at %s", f.label(), say.Instant(f.InEffect)),
			})
			if i == m.cause {
				cause = slices.Clone(events[len(events)-1:])
			}
			continue
		}
		text := f.happened(m.Run.Topology)
		if len(holders) > 0 && m.isolated(f, holders[0]) {
			text += ", so that nothing " + m.granter(holders[0]) + " granted from then on could reach another server"
		}
		events = append(events, StoryEvent{At: f.at(), Kind: EventFault, Text: text})
		if i == m.cause {
			cause = slices.Clone(events[len(events)-1:])
		}
		if (len(holders) == 0 || !m.isolated(f, holders[0])) && (!f.Healed || m.back(f) > to) {
			before = f
		}
		if back := m.back(f); f.Healed && back <= to {
			healed := StoryEvent{At: back, Kind: EventFault, Text: f.healed(m.Run.Topology)}
			if f.has(history.Stops) {
				restarted[StoryEvent{At: back, Kind: EventServer, Text: f.Target + " " + became(roleReplica)}] = len(events)
			}
			events = append(events, healed)
			lesser[healed] = !f.keeps() && !f.has(history.Stops)
		} else if asked := m.healAsked(f); f.Healed && f.keeps() && asked >= f.at() && asked <= to {
			events = append(events, StoryEvent{At: asked, Kind: EventFault, Text: "the heal of " + f.label() + " began"})
		}
	}
	for _, ev := range m.serverEvents(begin, to, holders) {
		if i, ok := restarted[ev]; ok {
			events[i].Text = strings.Replace(ev.Text, "became", "had been started again and became", 1)
			lesser[events[i]] = true
			continue
		}
		events = append(events, ev)
		lesser[ev] = strings.HasSuffix(ev.Text, became(roleReplica))
	}
	slices.SortStableFunc(events, func(a, b StoryEvent) int { return cmp.Compare(a.At, b.At) })
	return shortened(events, cause, lesser)
}

// shortened leaves out what is too much for the background: what explains less first, which
// is what was mended and which server became a replica, then what is oldest. What is told as the
// cause stays.
func shortened(events, cause []StoryEvent, lesser map[StoryEvent]bool) []StoryEvent {
	extra := len(events) - maxBackground
	if extra <= 0 {
		return events
	}
	kept := slices.Clone(events)
	for _, fits := range []func(StoryEvent) bool{
		func(ev StoryEvent) bool { return lesser[ev] },
		func(StoryEvent) bool { return true },
	} {
		for i := 0; i < len(kept) && len(kept) > maxBackground; {
			if slices.Contains(cause, kept[i]) || !fits(kept[i]) {
				i++
				continue
			}
			kept = slices.Delete(kept, i, i+1)
		}
	}
	kept[0].Text += fmt.Sprintf(" (%s not told here)", say.Count(extra, "event"))
	return kept
}

// keeps reports whether a fault keeps something back that its heal lets go, at once and so before
// the heal is answered.
func (f *Fault) keeps() bool {
	return slices.ContainsFunc([]history.Effect{history.Delays, history.Stalls, history.Withholds, history.StopsClient}, f.has)
}

// joins reports whether two faults are told as one: the same was done to two links at
// about the same time.
func (f *Fault) joins(g *Fault) bool {
	return f.Name == g.Name && strings.Contains(f.Target, ">") && strings.Contains(g.Target, ">") && maps.Equal(f.Params, g.Params) && f.at() <= g.at() && g.at()-f.at() <= chart.OneLook
}

// isolated reports whether a fault kept a grant from every other server: it was
// in effect before the grant was asked for, and on all replication links of
// the server that granted. The links are those at the start of the run.
func (m *model) isolated(f *Fault, h *holding.Hold) bool {
	return f.severs(m.granter(h), m.Run.Topology) && f.at() <= h.Acquire.Invoke.Time && f.End >= h.Start
}

// serverEvents are the promotions and demotions of a window, and what was
// seen of the lock's key in it.
func (m *model) serverEvents(from, to time.Duration, holders []*holding.Hold) []StoryEvent {
	var events []StoryEvent
	for _, c := range m.roles {
		if c.at == 0 || c.at < from || c.at > to {
			continue
		}
		text := c.node + " " + became(c.role)
		if c.role == "master" {
			text = c.node + " was promoted to master"
			if m.forgotten(c, holders) {
				text += " and knew nothing of that grant"
			}
		}
		events = append(events, StoryEvent{At: c.at, Kind: EventServer, Text: text})
	}
	if len(holders) > 0 {
		events = append(events, m.keyEvents(holders[0].Lock, from, to)...)
	}
	return events
}

// keyEvents are the looks at a lock's key: which servers had it, and whose.
func (m *model) keyEvents(lock string, from, to time.Duration) []StoryEvent {
	var events []StoryEvent
	var look StoryEvent
	var owners, without []string
	with := map[string][]string{}
	end := func() {
		if len(owners) > 0 || len(without) > 0 {
			look.Text = keyWords(lock, owners, with, without)
			events = append(events, look)
		}
		owners, without = nil, nil
		clear(with)
	}
	for _, l := range m.looksAt(lock) {
		if l.at < from || l.at > to {
			continue
		}
		again := slices.Contains(without, l.server) || slices.ContainsFunc(owners, func(owner string) bool { return slices.Contains(with[owner], l.server) })
		if len(owners)+len(without) == 0 || again || l.at-look.At > chart.OneLook {
			end()
			look = StoryEvent{At: l.at, Kind: EventServer}
		}
		if l.owner == "" {
			without = append(without, l.server)
			continue
		}
		if with[l.owner] == nil {
			owners = append(owners, l.owner)
		}
		with[l.owner] = append(with[l.owner], l.server)
	}
	end()
	return events
}

// keyWords say what one look at several servers found.
func keyWords(lock string, owners []string, with map[string][]string, without []string) string {
	if len(owners) == 0 {
		return say.List(without) + " had no holder of " + lock
	}
	var parts []string
	for _, owner := range owners {
		parts = append(parts, say.List(with[owner])+" had client "+client(owner)+" as the holder of "+lock)
	}
	s := strings.Join(parts, ", ")
	if len(without) > 0 {
		s += "; " + say.List(without) + " had none"
	}
	return s
}

// forgotten reports whether a promoted server granted the lock again although
// another server had granted it before the promotion.
func (m *model) forgotten(c roleChange, holders []*holding.Hold) bool {
	if len(holders) < 2 {
		return false
	}
	first, second := m.granter(holders[0]), m.granter(holders[1])
	return first != "" && first != c.node && second == c.node &&
		holders[0].Start <= c.at && c.at <= holders[1].Start
}
