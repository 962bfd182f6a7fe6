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
func (d *digest) validStory() Story {
	grants := outcomes(d.ops)[string(history.Acquire)]
	s := Story{Headline: fmt.Sprintf("No violation: %s in %s", say.Count(grants.OK, "grant"), say.Length(d.end))}
	if n := effective(d.faults); n > 0 {
		s.Headline += " under " + say.Count(n, "fault")
	}
	s.Moments = d.faultMoments()
	s.Moments = append(s.Moments, d.clientMoments()...)
	slices.SortStableFunc(s.Moments, func(a, b Moment) int { return cmp.Compare(a.At, b.At) })
	s.Outcome = append(s.Outcome, d.workloadWords(grants))
	s.Outcome = append(s.Outcome, d.faultWords())
	if words := d.exposureWords(); words != "" {
		s.Outcome = append(s.Outcome, words)
	}
	for _, words := range []string{d.mastersHeld(), d.orderWords(), d.fencingWords("")} {
		if words != "" {
			s.Outcome = append(s.Outcome, words)
		}
	}
	var held []string
	for _, r := range d.Report.Results {
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
func (d *digest) workloadWords(grants Outcomes) string {
	clients, locks := map[string]bool{}, map[string]bool{}
	for i := range d.ops {
		if e := d.ops[i].Invoke; e.Op == history.Acquire {
			clients[client(e.Owner)], locks[e.Lock] = true, true
		}
	}
	s := fmt.Sprintf("In %s, %s asked %s for %s: %s, %s, %d without a known outcome.",
		say.Length(d.end), say.Count(len(clients), "client"), say.Count(grants.Total(), "time"), say.Count(len(locks), "lock"),
		say.Count(grants.OK, "grant"), say.Count(grants.Fail, "refusal"), grants.Info)
	switch n, counted := d.met(history.MetContention); {
	case !counted:
		return s
	case n == 0:
		return s + " No request met a hold of another client."
	default:
		s += fmt.Sprintf(" %s met a hold of another client", say.Count(n, "request"))
	}
	if n, _ := d.met(history.MetHandOvers); n > 0 {
		s += fmt.Sprintf(", and %s once such a hold was over", wereMade(n))
	}
	return s + "."
}

// exposureWords say what a lock that held withstood: how often its holder changed
// and how close two holders came, and what happened while faults were in effect.
func (d *digest) exposureWords() string {
	over := map[string]*holding.Hold{} // the hold of each lock that ends last so far
	shared := map[string]bool{}
	for _, e := range d.notes {
		if e.Op == history.Declare && d.shared(e.Lock) {
			shared[e.Lock] = true
		}
	}
	passed, least := 0, time.Duration(math.MaxInt64)
	under, certain := 0, true
	for i := range d.holds {
		h := &d.holds[i]
		under += b2i(slices.ContainsFunc(d.faults, func(f Fault) bool { return f.counts() && f.during(h.Start, h.Start) }))
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
	case certain && len(d.holds) > 0:
		parts = append(parts, "No lock was granted to one client after another, so this record says little about what keeps two clients apart.")
	}
	if n := effective(d.faults); n > 0 {
		met := 0
		for i := range d.faults {
			f := &d.faults[i]
			met += b2i(f.counts() && slices.ContainsFunc(d.holds, func(h holding.Hold) bool { return h.Start <= f.Start && f.Start < h.End }))
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

// mastersHeld says why a partition with two masters hurt no lock: what each of them granted
// meanwhile, and what kept the one that was replaced from it.
func (d *digest) mastersHeld() string {
	for _, c := range d.roles {
		if c.role != "master" || c.was == "" || !slices.ContainsFunc(d.faults, func(f Fault) bool {
			return f.counts() && f.has(history.Isolates) && f.Start <= c.at && d.settled(&f) >= c.at
		}) {
			continue
		}
		masters := slices.DeleteFunc(d.extraMasters(c.at), func(name string) bool { return d.shardOf(name) != d.shardOf(c.node) })
		if len(masters) < 2 {
			continue
		}
		until := d.end
		for _, after := range d.roles {
			if after.at > c.at && after.role != "master" && slices.Contains(masters, after.node) {
				until = min(until, after.at)
			}
		}
		granted := map[string]int{}
		for i := range d.holds {
			if h := &d.holds[i]; h.Start >= c.at && h.Start <= until {
				granted[d.granter(h)]++
			}
		}
		if granted[""] > 0 {
			continue // it is not known by whom
		}
		made := make([]string, len(masters))
		for i, name := range masters {
			made[i] = name + " made no grant"
			if n := granted[name]; n > 0 {
				made[i] = fmt.Sprintf("%s made %s", name, say.Count(n, "grant"))
			}
		}
		if len(granted) == 0 {
			made = []string{"none of them made a grant"}
		}
		words := fmt.Sprintf("From %s to %s %s were masters at once: %s.", say.Instant(c.at), say.Instant(until), say.List(masters), say.List(made))
		if n := d.number("replica-acks"); n > 0 {
			words += fmt.Sprintf(" A grant needed the acknowledgement of %s.", say.Count(n, "replica"))
		} else if n := d.number("min-replicas"); n > 0 {
			words += fmt.Sprintf(" A master without %s refused to write.", say.Count(n, "replica"))
		}
		return words
	}
	return ""
}

// orderWords say that the effects of two clients came in another order than their grants.
func (d *digest) orderWords() string {
	type effect struct {
		op   *history.Operation
		hold *holding.Hold
	}
	var accesses []*history.Operation
	for i := range d.ops {
		if op := &d.ops[i]; op.Invoke.Op == history.Access && op.OK() && op.Invoke.Owner != "" {
			accesses = append(accesses, op)
		}
	}
	slices.SortStableFunc(accesses, func(a, b *history.Operation) int { return cmp.Compare(a.Complete.Time, b.Complete.Time) })
	latest := map[string]effect{} // of each lock: the access so far under the hold that was granted last
	for _, op := range accesses {
		hold := d.holdBefore(op.Invoke.Lock, op.Invoke.Owner, op.Invoke.Time)
		if hold == nil || d.shared(hold.Lock) {
			continue
		}
		before, seen := latest[op.Invoke.Lock]
		if seen && before.hold.Start > hold.Start && before.hold.Owner != hold.Owner && resourceOf(before.op) != resourceOf(op) {
			return fmt.Sprintf("The effects came in another order than the grants: %s was granted %s after %s, and used %s at %s, before the other used %s at %s. "+
				"A token orders what is done to one resource, and not to several.",
				d.who(before.hold), hold.Lock, d.who(hold), resourceOf(before.op), say.Instant(before.op.Complete.Time), resourceOf(op), say.Instant(op.Complete.Time))
		}
		if !seen || hold.Start >= before.hold.Start {
			latest[op.Invoke.Lock] = effect{op, hold}
		}
	}
	return ""
}

// maxNamedFaults bounds the faults that are named one by one.
const maxNamedFaults = 5

// maxFaultMoments bounds the faults that the story of a run without a violation tells.
const maxFaultMoments = 12

// faultMoments are the faults that took effect, the first of them if there are many.
func (d *digest) faultMoments() []Moment {
	var moments []Moment
	for i := range d.faults {
		if f := &d.faults[i]; f.counts() && len(moments) < maxFaultMoments {
			moments = append(moments, Moment{At: f.at(), Kind: MomentFault, Text: f.happened(d.Run.Topology)})
		}
	}
	return moments
}

// maxClientMoments bounds the operations that are told one by one: those of a script.
const maxClientMoments = 10

// clientMoments are what clients were answered, if that were so few that all can be told:
// they show why nothing was violated.
func (d *digest) clientMoments() []Moment {
	var moments, accesses []Moment
	for i := range d.ops {
		op := &d.ops[i]
		if op.Invoke.Op == history.Access {
			if len(accesses) <= maxClientMoments && !op.Unknown() {
				accesses = append(accesses, Moment{At: op.Complete.Time, Kind: MomentAccess, Text: d.accessClause(op)})
			}
			continue
		}
		if len(moments) == maxClientMoments {
			return nil
		}
		m := Moment{At: op.Complete.Time, Kind: MomentLock, Text: d.eventClause(op.Complete)}
		if op.Invoke.Op == history.Acquire && op.OK() {
			m.Kind = MomentGrant
		}
		if took := took(op); took > patience {
			m.Text += fmt.Sprintf(", after %s", say.Span(took))
		}
		if op.Complete.Error != "" {
			m.Text += " (" + say.Shorten(op.Complete.Error, 80) + ")"
		}
		moments = append(moments, m)
	}
	if len(moments)+len(accesses) <= maxClientMoments { // they show the order in which grants took effect
		moments = append(moments, accesses...)
	}
	return append(moments, d.serverMoments(1, d.end, nil)...)
}

// patience is from when on it is said how long an answer took.
const patience = 100 * time.Millisecond

// faultWords says how many faults took effect, and which did not.
func (d *digest) faultWords() string {
	if len(d.faults) == 0 {
		return "No fault was injected."
	}
	took, missed := 0, []string{}
	for i := range d.faults {
		f := &d.faults[i]
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
	case took == 0:
		s = fmt.Sprintf("None of %s took effect.", say.Count(len(d.faults), "fault"))
	case took > maxFaultMoments:
		s = fmt.Sprintf("%d of %s took effect; the first %d are told here.", took, say.Count(len(d.faults), "fault"), maxFaultMoments)
	default:
		s = fmt.Sprintf("%d of %s took effect.", took, say.Count(len(d.faults), "fault"))
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
func (d *digest) unknownStory() Story {
	s := Story{Headline: "Not decided"}
	var open []checker.Result
	for _, r := range d.Report.Results {
		if r.Verdict == checker.Unknown && (d.Run.AbortReason == "" || !strings.Contains(r.Summary, d.Run.AbortReason)) {
			open = append(open, r)
		}
	}
	switch {
	case d.Run.AbortReason != "":
		s.Headline = "Not decided: the script was cut short at " + say.Shorten(strings.TrimRight(say.OneLine(d.Run.AbortReason), ". "), maxAbortReason)
	case d.Run.ClaimLostTo != "":
		s.Headline = "Not decided: another run took the servers over"
	case len(d.Missing) == 1 && d.Missing[0] == ResultsFile+" is missing":
		s.Headline = "Not decided yet: there are no results, as of a run that is under way or was stopped"
	case len(d.Missing) > 0:
		s.Headline = "Not decided: parts of the run are missing"
	case d.Run.DriverFault != "":
		s.Headline = "Not decided: " + strings.TrimRight(say.OneLine(d.Run.DriverFault), ". ")
	case len(d.History.Events) == 0:
		s.Headline = "Not decided: nothing was recorded"
	case len(open) > 0 && open[0].Summary != "":
		s.Headline = "Not decided: " + strings.TrimRight(open[0].Summary, ". ")
	case len(d.Report.Results) == 0:
		s.Headline = "Not decided: nothing was checked"
	}
	if d.Run.AbortReason != "" || d.Run.ClaimLostTo != "" {
		s.Outcome = append(s.Outcome, d.allTheSame()...)
	}
	said := map[string]bool{strings.TrimPrefix(s.Headline, "Not decided: "): true}
	for _, r := range open {
		if summary := strings.TrimRight(r.Summary, ". "); !said[summary] {
			said[summary] = true
			s.Outcome = append(s.Outcome, fmt.Sprintf("The property %s could not be decided: %s", r.Name, stop(summary)))
		}
	}
	for i := range d.faults {
		if f := &d.faults[i]; !f.OK {
			s.Moments = append(s.Moments, Moment{At: f.Start, Kind: MomentFault, Text: f.happened(d.Run.Topology)})
			if len(s.Moments) == maxBackground {
				break
			}
		}
	}
	s.Moments = append(s.Moments, d.faultMoments()...)
	slices.SortStableFunc(s.Moments, func(a, b Moment) int { return cmp.Compare(a.At, b.At) })
	if len(d.History.Events) > 0 {
		s.Outcome = append(s.Outcome, d.workloadWords(outcomes(d.ops)[string(history.Acquire)]))
		s.Outcome = append(s.Outcome, d.faultWords())
	}
	if d.Run.Interrupted && !strings.Contains(strings.Join(append(s.Outcome, s.Headline), " "), "interrupted") {
		s.Outcome = append(s.Outcome, "The run was interrupted before its end.")
	}
	if d.History.Truncated > 0 {
		s.Outcome = append(s.Outcome, fmt.Sprintf("The last line of the history, %d, was cut short and dropped.", d.History.Truncated))
	}
	s.Outcome = append(s.Outcome, "This is not a pass: a verdict that could not be reached says nothing for the lock.")
	return s
}

// maxAbortReason bounds what the headline says of the step that could not be done.
const maxAbortReason = 200

// allTheSame says of a run that is no answer what it shows all the same.
func (d *digest) allTheSame() []string {
	var words []string
	if len([]rune(say.OneLine(d.Run.AbortReason))) > maxAbortReason {
		words = append(words, "In full: "+stop(say.OneLine(d.Run.AbortReason)))
	}
	var found []string
	for _, r := range d.Report.Results {
		if r.Verdict == checker.Invalid {
			found = append(found, fmt.Sprintf("%s (%s)", r.Name, say.Count(max(r.Total, len(r.Violations)), "violation")))
		}
	}
	switch {
	case len(found) == 0:
	case d.Run.AbortReason != "":
		words = append(words, fmt.Sprintf("What was recorded until then violates %s all the same. It is no answer to what the script asks.", say.List(found)))
	default:
		words = append(words, fmt.Sprintf("What was recorded violates %s, which may be the work of the other run.", say.List(found)))
	}
	return words
}

// fencingWords say that the resource refused tokens that were out of date,
// under a lock or, if it is empty, under any.
func (d *digest) fencingWords(lock string) string {
	var first *history.Operation
	n := 0
	for _, op := range d.stopped() {
		if lock != "" && op.Invoke.Lock != "" && op.Invoke.Lock != lock {
			continue
		}
		if n++; first == nil {
			first = op
		}
	}
	if first == nil {
		return ""
	}
	s := fmt.Sprintf("At %s %s refused %s", say.Instant(first.Complete.Time), resourceOf(first), d.whoOf(first.Invoke))
	if newest := d.newestToken(first); newest > tokenOf(first) {
		s += fmt.Sprintf(", whose token %d was older than the %d that it had seen", tokenOf(first), newest)
	} else {
		s += fmt.Sprintf(" for its token, %d", tokenOf(first))
	}
	if n > 1 {
		s += fmt.Sprintf(" (and %s after it)", say.Count(n-1, "refusal"))
	}
	if d.damaged(resourceOf(first)) {
		return s + ": the fencing token stopped that access, though not all."
	}
	return s + ": the fencing token stopped the damage."
}

// newestToken is the newest that the resource had accepted before it answered.
func (d *digest) newestToken(op *history.Operation) int64 {
	newest := int64(0)
	for _, other := range d.accessesOf()[resourceOf(op)] {
		if other.OK() && other.Complete.Time <= op.Complete.Time {
			newest = max(newest, tokenOf(other))
		}
	}
	return newest
}

// damaged reports whether the record shows damage to a resource.
func (d *digest) damaged(resource string) bool {
	for _, r := range d.Report.Results {
		for _, v := range r.Violations {
			if v.Resource == resource && (v.Kind == checker.LostUpdate || v.Kind == checker.StaleAccess) {
				return true
			}
		}
	}
	return false
}

// unprovenStory is for a report that is invalid but shows no violation.
func (d *digest) unprovenStory() Story {
	s := Story{Headline: "A property does not hold"}
	for _, r := range d.Report.Results {
		if r.Verdict == checker.Invalid {
			s.Outcome = append(s.Outcome, fmt.Sprintf("%s does not hold: %s", r.Name, stop(r.Summary)))
		}
	}
	if len(s.Outcome) > 0 {
		s.Headline = strings.TrimSuffix(s.Outcome[0], ".")
	}
	return s
}
