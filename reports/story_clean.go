package reports

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// validStory says what was thrown at the lock, and why the verdict is valid.
func (m *model) validStory() Story {
	grants := outcomes(m.ops)[string(history.Acquire)]
	s := Story{Headline: fmt.Sprintf("No violation: %s in %s", say.Count(grants.OK, "grant"), say.Length(m.end))}
	if n := effective(m.faults); n > 0 {
		s.Headline += " under " + say.Count(n, "fault")
	}
	s.Events = m.clientEvents()
	s.Outcome = append(s.Outcome, m.workloadWords(grants))
	s.Outcome = append(s.Outcome, m.faultWords())
	if words := m.exposureWords(); words != "" {
		s.Outcome = append(s.Outcome, words)
	}
	for _, words := range []string{m.orderWords(), m.fencingWords(nil)} {
		if words != "" {
			s.Outcome = append(s.Outcome, words)
		}
	}
	var held []string
	for _, r := range m.Report.Results {
		if r.Verdict == checker.Valid {
			held = append(held, r.Name)
		}
	}
	if len(held) > 0 {
		s.Outcome = append(s.Outcome, fmt.Sprintf("%s checked and held: %s.", wasWere(len(held), "property"), say.List(held)))
	}
	return s
}

func wasWere(n int, noun string) string {
	if n == 1 {
		return "1 " + noun + " was"
	}
	return say.Count(n, noun) + " were"
}

// workloadWords says who asked how often for what, and how much they met.
func (m *model) workloadWords(grants Outcomes) string {
	clients, locks := map[string]bool{}, map[string]bool{}
	for i := range m.ops {
		if e := m.ops[i].Invoke; e.Op == history.Acquire {
			clients[client(e.Owner)], locks[e.Lock] = true, true
		}
	}
	s := fmt.Sprintf("In %s, %s asked %s for %s: %s, %s, %d without a known outcome.",
		say.Length(m.end), say.Count(len(clients), "client"), say.Count(grants.Total(), "time"), say.Count(len(locks), "lock"),
		say.Count(grants.OK, "grant"), say.Count(grants.Fail, "refusal"), grants.Info)
	switch n, counted := m.met(history.MetContention); {
	case !counted:
		return s
	case n == 0:
		return s + " No request met a hold of another client."
	default:
		s += fmt.Sprintf(" %s met a hold of another client", say.Count(n, "request"))
	}
	if n, _ := m.met(history.MetHandOvers); n > 0 {
		s += fmt.Sprintf(", and %s once such a hold was over", wereMade(n))
	}
	return s + "."
}

// exposureWords say what a lock that held withstood: how often its holder changed
// and how close two holders came, and what happened while faults were in effect.
func (m *model) exposureWords() string {
	over := map[string]*holding.Hold{} // the hold of each lock that ends last so far
	shared := map[string]bool{}
	for _, e := range m.notes {
		if e.Op == history.Declare && m.shared(e.Lock) {
			shared[e.Lock] = true
		}
	}
	passed, least := 0, time.Duration(math.MaxInt64)
	under, certain := 0, true
	for i := range m.holds {
		h := &m.holds[i]
		under += b2i(slices.ContainsFunc(m.faults, func(f Fault) bool { return f.counts() && f.during(h.Start, h.Start) }))
		if shared[h.Lock] {
			certain = false
			continue
		}
		before := over[h.Lock]
		if before != nil && client(before.Owner) != client(h.Owner) && before.End <= h.Start {
			passed++
			least = min(least, h.Start-before.End)
		}
		if before == nil || h.End > before.End {
			over[h.Lock] = h
		}
	}
	var parts []string
	switch {
	case passed > 0:
		parts = append(parts, fmt.Sprintf("The holder of a lock changed %s; the closest grant to another client came %s after the hold before it was over.", say.Count(passed, "time"), say.Span(least)))
	case certain && len(m.holds) > 0:
		parts = append(parts, "No lock was granted to one client after another, so this record says little about what keeps two clients apart.")
	}
	if n := effective(m.faults); n > 0 {
		met := 0
		for i := range m.faults {
			f := &m.faults[i]
			met += b2i(f.counts() && slices.ContainsFunc(m.holds, func(h holding.Hold) bool { return h.Start <= f.Start && f.Start < h.End }))
		}
		parts = append(parts, sentence(fmt.Sprintf("%s while a fault was in effect, and %d of %s began while a lock was held", wereMade(under), met, say.Count(n, "fault"))))
	}
	return strings.Join(parts, " ")
}

// wereMade is "2 grants were made", also of one and of none.
func wereMade(grants int) string {
	switch grants {
	case 0:
		return "no grant was made"
	case 1:
		return "1 grant was made"
	}
	return say.Count(grants, "grant") + " were made"
}

// orderWords say that the effects of two clients came in another order than their grants.
func (m *model) orderWords() string {
	type effect struct {
		op   *history.Operation
		hold *holding.Hold
	}
	var accesses []*history.Operation
	for i := range m.ops {
		if op := &m.ops[i]; op.Invoke.Op == history.Access && op.OK() && op.Invoke.Owner != "" {
			accesses = append(accesses, op)
		}
	}
	slices.SortStableFunc(accesses, func(a, b *history.Operation) int { return cmp.Compare(a.Complete.Time, b.Complete.Time) })
	latest := map[string]effect{} // of each lock: the access so far under the hold that was granted last
	for _, op := range accesses {
		hold := m.holdBefore(op.Invoke.Lock, op.Invoke.Owner, op.Invoke.Time)
		if hold == nil || m.shared(hold.Lock) {
			continue
		}
		before, seen := latest[op.Invoke.Lock]
		if seen && before.hold.Start > hold.Start && before.hold.Owner != hold.Owner && resourceOf(before.op) != resourceOf(op) {
			return fmt.Sprintf("The effects came in another order than the grants: %s was granted %s after %s, and used %s at %s, before the other used %s at %s. "+
				"A token orders what is done to one resource, and not to several.",
				m.who(before.hold), hold.Lock, m.who(hold), resourceOf(before.op), say.Instant(before.op.Complete.Time), resourceOf(op), say.Instant(op.Complete.Time))
		}
		if !seen || hold.Start >= before.hold.Start {
			latest[op.Invoke.Lock] = effect{op, hold}
		}
	}
	return ""
}

// maxNamedFaults bounds the faults that are named one by one.
const maxNamedFaults = 5

// clientEvents are what clients were answered in a script, if that were so few that all can be told:
// they show why nothing was violated.
func (m *model) clientEvents() []StoryEvent {
	var events []StoryEvent
	for i := range m.ops {
		op := &m.ops[i]
		if op.Invoke.Op == history.Access && op.Unknown() {
			continue
		}
		if len(events) == 4*maxStory {
			return nil
		}
		ev := m.operationEvent(op)
		if op.Complete.Error != "" && op.Invoke.Op != history.Access {
			ev.Detail = say.Shorten(op.Complete.Error, 80)
		}
		ev.rank = 1 + b2i(ev.Kind != EventGrant)
		events = append(events, ev)
	}
	events = append(events, m.roleEvents(1, m.end)...)
	for i := range events {
		events[i] = events[i].said()
	}
	slices.SortStableFunc(events, func(a, b StoryEvent) int { return cmp.Compare(a.At, b.At) })
	return shortened(events)
}

// faultWords says how many faults took effect, and which did not.
func (m *model) faultWords() string {
	if len(m.faults) == 0 {
		return "No fault was injected."
	}
	took, missed := 0, []string{}
	for i := range m.faults {
		f := &m.faults[i]
		if f.counts() {
			took++
		} else {
			label := f.label()
			if met := f.metWords(); met != "" {
				label += " (" + met + ")"
			}
			missed = append(missed, label)
		}
	}
	var s string
	switch {
	case took == 0 && len(m.faults) == 1:
		s = "The fault did not take effect."
	case took == 1 && len(m.faults) == 1:
		s = "The fault took effect."
	case took == 0:
		s = fmt.Sprintf("None of %s took effect.", say.Count(len(m.faults), "fault"))
	default:
		s = fmt.Sprintf("%d of %s took effect.", took, say.Count(len(m.faults), "fault"))
	}
	if len(missed) > maxNamedFaults {
		missed = append(missed[:maxNamedFaults:maxNamedFaults], say.Count(len(missed)-maxNamedFaults, "other"))
	}
	if took > 0 && len(missed) > 0 {
		s += " Without an effect: " + say.List(missed) + "."
	}
	return s
}

// unknownStory says what was missing for a verdict.
func (m *model) unknownStory() Story {
	s := Story{Headline: "Not decided"}
	var open []checker.Result
	for _, r := range m.Report.Results {
		if r.Verdict == checker.Unknown && (m.Run.AbortReason == "" || !strings.Contains(r.Summary, m.Run.AbortReason)) {
			open = append(open, r)
		}
	}
	switch {
	case m.Run.AbortReason != "":
		s.Headline = "Not decided: the script was cut short at " + say.Shorten(strings.TrimRight(say.OneLine(m.Run.AbortReason), ". "), maxAbortReason)
	case m.Run.ClaimLostTo != "":
		s.Headline = "Not decided: another run took the servers over"
	case len(m.Missing) == 1 && m.Missing[0] == ResultsFile+" is missing":
		s.Headline = "Not decided yet: there are no results, as of a run that is under way or was stopped"
	case len(m.Missing) > 0:
		s.Headline = "Not decided: parts of the run are missing"
	case m.Run.DriverFault != "":
		s.Headline = "Not decided: " + strings.TrimRight(say.OneLine(m.Run.DriverFault), ". ")
	case len(m.History.Events) == 0:
		s.Headline = "Not decided: nothing was recorded"
	case len(open) > 0 && open[0].Summary != "":
		s.Headline = "Not decided: " + strings.TrimRight(open[0].Summary, ". ")
	case len(m.Report.Results) == 0:
		s.Headline = "Not decided: nothing was checked"
	}
	if m.Run.AbortReason != "" || m.Run.ClaimLostTo != "" {
		s.Outcome = append(s.Outcome, m.allTheSame()...)
	}
	said := map[string]bool{strings.TrimPrefix(s.Headline, "Not decided: "): true}
	for _, r := range open {
		if summary := strings.TrimRight(r.Summary, ". "); !said[summary] {
			said[summary] = true
			s.Outcome = append(s.Outcome, fmt.Sprintf("The property %s could not be decided: %s", r.Name, stop(summary)))
		}
	}
	for i := range m.faults {
		if f := &m.faults[i]; !f.OK {
			s.Events = append(s.Events, StoryEvent{At: f.Start, Kind: EventFault, Actor: "the fault " + f.detail(), Verb: "did not take effect", Detail: f.Error}.said())
		}
	}
	s.Events = shortened(s.Events)
	if len(m.History.Events) > 0 {
		s.Outcome = append(s.Outcome, m.workloadWords(outcomes(m.ops)[string(history.Acquire)]))
		s.Outcome = append(s.Outcome, m.faultWords())
	}
	if m.Run.Interrupted && !strings.Contains(strings.Join(append(s.Outcome, s.Headline), " "), "interrupted") {
		s.Outcome = append(s.Outcome, "The run was interrupted before its end.")
	}
	if m.History.Truncated > 0 {
		s.Outcome = append(s.Outcome, fmt.Sprintf("The last line of the history, %d, was cut short and dropped.", m.History.Truncated))
	}
	s.Outcome = append(s.Outcome, "This is not a pass: a verdict that could not be reached says nothing for the lock.")
	return s
}

// maxAbortReason bounds what the headline says of the step that could not be done.
const maxAbortReason = 200

// allTheSame says of a run that is no answer what it shows all the same.
func (m *model) allTheSame() []string {
	var words []string
	if len([]rune(say.OneLine(m.Run.AbortReason))) > maxAbortReason {
		words = append(words, "In full: "+stop(say.OneLine(m.Run.AbortReason)))
	}
	var found []string
	for _, r := range m.Report.Results {
		if r.Verdict == checker.Invalid {
			found = append(found, fmt.Sprintf("%s (%s)", r.Name, say.Count(max(r.Total, len(r.Violations)), "violation")))
		}
	}
	if len(found) > 0 {
		words = append(words, fmt.Sprintf("What was recorded violates %s, which may be the work of the other run.", say.List(found)))
	}
	return words
}

// fencingWords say that the resource refused tokens that were out of date: those of the
// owners of a violation, or, without one, of any.
func (m *model) fencingWords(v *checker.Violation) string {
	owners := map[string]bool{}
	if v != nil {
		for _, index := range v.Events {
			if e, ok := m.event(index); ok {
				owners[e.Owner] = true
			}
		}
	}
	var first *history.Operation
	n := 0
	for _, op := range m.stopped() {
		if v != nil && !owners[op.Invoke.Owner] {
			continue
		}
		if n++; first == nil {
			first = op
		}
	}
	if first == nil {
		return ""
	}
	s := fmt.Sprintf("At %s %s refused %s", say.Instant(first.Complete.Time), resourceOf(first), m.whoOf(first.Invoke))
	if newest := m.newestToken(first); newest > tokenOf(first) {
		s += fmt.Sprintf(", whose token %d was older than the %d that it had seen", tokenOf(first), newest)
	} else {
		s += fmt.Sprintf(" for its token, %d", tokenOf(first))
	}
	if n > 1 {
		s += fmt.Sprintf(" (and %s after it)", say.Count(n-1, "refusal"))
	}
	if m.damaged(resourceOf(first)) {
		return s + ": the fencing token stopped that access, though not all."
	}
	return s + ": the fencing token stopped the damage."
}

// newestToken is the newest that the resource had accepted before it answered.
func (m *model) newestToken(op *history.Operation) int64 {
	newest := int64(0)
	for _, other := range m.accessesOf()[resourceOf(op)] {
		if other.OK() && other.Complete.Time <= op.Complete.Time {
			newest = max(newest, tokenOf(other))
		}
	}
	return newest
}

// damaged reports whether the record shows damage to a resource.
func (m *model) damaged(resource string) bool {
	for _, r := range m.Report.Results {
		for _, v := range r.Violations {
			if v.Resource == resource && (v.Kind == checker.LostUpdate || v.Kind == checker.StaleAccess) {
				return true
			}
		}
	}
	return false
}

// unprovenStory is for a report that is invalid but shows no violation.
func (m *model) unprovenStory() Story {
	s := Story{Headline: "A property does not hold"}
	for _, r := range m.Report.Results {
		if r.Verdict == checker.Invalid {
			s.Outcome = append(s.Outcome, fmt.Sprintf("%s does not hold: %s", r.Name, stop(r.Summary)))
		}
	}
	if len(s.Outcome) > 0 {
		s.Headline = strings.TrimSuffix(s.Outcome[0], ".")
	}
	return s
}
