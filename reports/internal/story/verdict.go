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
	"github.com/lockchaos/lockchaos/promises"
	"github.com/lockchaos/lockchaos/reports/internal/facts"
	"github.com/lockchaos/lockchaos/topologies"
)

// Of tells the first violation with damage, or why there is none. Of a script that was cut short it tells where, and of
// servers that another run took over that, whatever was found. A violation before a script was cut short stands. Of a
// stored run the parts that could not be read are missing, and pending says that it is the verdicts alone.
func Of(r *facts.Facts, missing []string, pending bool) Story {
	var s Story
	v, problem := r.Told, r.DominantError()
	switch {
	case r.Run.AbortReason != "" && r.Verdict != checker.Invalid, r.Run.ClaimLostTo != "":
		s = undecided(r, missing, pending)
	case v != nil:
		s = Violation(r, v)
		if r.Run.AbortReason != "" {
			problem = "The script was cut short after it, at " + r.Run.AbortReason
		}
	case r.Verdict == checker.Valid:
		s = valid(r)
	case r.Verdict == checker.Invalid: // it shows no violation
		s.Headline = "A property does not hold"
		for _, p := range r.Results {
			if p.Verdict == checker.Invalid {
				s.Outcome = append(s.Outcome, fmt.Sprintf("%s does not hold: %s", p.Name, Stop(p.Summary)))
				s.Headline = strings.TrimSuffix(s.Outcome[0], ".")
			}
		}
	default:
		s = undecided(r, missing, pending)
		if problem != "" && len(missing) == 0 && r.Run.DriverFault == "" { // which says what is behind it
			s.Headline, problem = "Not decided: "+problem, ""
		}
	}
	s.Notice, s.Weight = problem, append(blame(r, v), weight(r)...)
	return s
}

// blame says of a violation whether it is known to be one of the lock or of the deployment, where neither a measurement
// nor a control says so. A script is a known failure, and its variants show what prevents it.
func blame(r *facts.Facts, v *checker.Violation) []string {
	if v == nil || len(r.Run.Causes) > 0 || r.Run.Control != nil || r.Run.Scenario != "" {
		return nil
	}
	kind, _ := checker.KindOf(v.Kind)
	who, where := "the lock", "for a defect of the lock, or of its driver"
	if kind.ByAccess {
		who, where = "the client, the lock", "at how the clients use the resource, and then at the lock"
	}
	open := "What happened is certain; whether " + who + " or the deployment is to blame was not measured"
	switch {
	case recorded(r) && len(r.Faults) == 0:
		return []string{"What happened is certain, and the run had no fault: look " + where + "."}
	case With(r.Run, "--causes") == "":
		return []string{open + ", and can't be: the run can't be played again."}
	default:
		return []string{open + ": --causes plays the run again without each fault, and with a correct lock."}
	}
}

// weight is what a reader has to know of the lock to weigh the verdict.
func weight(r *facts.Facts) []string {
	var all, not []string
	if c := r.Run.Control; c != nil {
		all = append(all, controlWords(r, c))
	}
	for _, name := range r.Run.Unpromised {
		if words := promises.TextOf(name); words != "" {
			not = append(not, words)
		}
	}
	if len(not) > 0 {
		all = append(all, "The lock does not promise "+strings.Join(not, ", ")+".")
	}
	if r.Run.Spared != "" {
		all = append(all, "The lock did not show the bug that the scenario is about, and the script ended there: "+Stop(r.Run.Spared))
	}
	return all
}

// controlWords say what came of the run of the control lock.
func controlWords(r *facts.Facts, c *history.Control) string {
	words := "was " + c.Verdict + "."
	switch found := r.Verdict; {
	case c.Verdict == string(checker.Unknown) || found == checker.Unknown || found == "":
		words = "was " + c.Verdict + ", which decides nothing."
	case c.Verdict == string(found) && found == checker.Invalid:
		words = "was invalid too: a limit of these servers under these faults explains it, though not that your lock has no defect of its own."
	case found == checker.Invalid && slices.ContainsFunc(r.Faults, func(f facts.Fault) bool { return f.OK && f.Stays() }):
		words = "was valid, which may be luck under a fault that a correct lock need not survive: lockchaos causes plays both more often."
	case found == checker.Invalid:
		words = "was valid: these servers do not explain it, so look for the cause in your lock."
	}
	return fmt.Sprintf("Control: with the same seed and faults, the lock %s %s", c.Lock, words)
}

// valid says what was thrown at the lock.
func valid(r *facts.Facts) Story {
	s := Story{Headline: fmt.Sprintf("No violation: %s in %s", say.Count(r.Operations[string(history.Acquire)].OK, "grant"), say.Length(r.End))}
	if n := facts.Effective(r.Faults); n > 0 {
		s.Headline += " under " + say.Count(n, "fault")
	}
	s.Events = clientEvents(r)
	s.Outcome = slices.DeleteFunc([]string{halted(r), workloadWords(r), fencingWords(r, nil)}, func(words string) bool { return words == "" })
	return s
}

// workloadWords says who asked how often for what, and what that met.
func workloadWords(r *facts.Facts) string {
	clients, locks := make(map[string]bool, len(r.Lanes())), map[string]bool{}
	for _, l := range r.Lanes() {
		if len(l.Waits) > 0 {
			clients[l.Client], locks[l.Lock] = true, true
		}
	}
	grants := r.Operations[string(history.Acquire)]
	s := fmt.Sprintf("In %s, %s asked %s for %s: %s, %s, %d without a known outcome.",
		say.Length(r.End), say.Count(len(clients), "client"), say.Count(grants.Total(), "time"), say.Count(len(locks), "lock"),
		say.Count(grants.OK, "grant"), say.Count(grants.Fail, "refusal"), grants.Info)
	if covered := facts.Coverage(r.Results); covered != "" {
		s += " Covered: " + covered + "."
	}
	return s
}

// clientEvents are what clients were answered in a script, if that were so few that all can be told: they show why
// nothing was violated.
func clientEvents(r *facts.Facts) []Event {
	events := roleEvents(r, 1, r.End)
	told := 0
	for _, op := range r.Ops {
		if op.Verb == holding.Access && op.Unknown() {
			continue
		}
		if told++; told > 4*maxEvents {
			return nil
		}
		ev := operationEvent(r, op)
		if why := r.Answer(op).Error; why != "" && op.Verb != holding.Access {
			ev.Detail = say.Shorten(why, 80)
		}
		if ev.rank = 1; ev.Kind != EventGrant {
			ev.rank = 2
		}
		events = append(events, ev)
	}
	return shortened(events)
}

// undecided says what was missing for a verdict.
func undecided(r *facts.Facts, missing []string, pending bool) Story {
	const longest = 200
	s := Story{Headline: "Not decided"}
	var open []checker.Result
	for _, p := range r.Results {
		if p.Verdict == checker.Unknown && p.Summary != "" && (r.Run.AbortReason == "" || p.Name != "run") { // which the headline has
			open = append(open, p)
		}
	}
	reason := ""
	switch {
	case r.Run.AbortReason != "":
		reason = "the script was cut short at " + say.Shorten(say.OneLine(r.Run.AbortReason), longest)
	case r.Run.ClaimLostTo != "":
		reason = "another run took the servers over"
	case pending:
		s.Headline, reason = "Not decided yet", "there are no results, as of a run that is under way or was stopped"
	case len(missing) > 0:
		reason = "parts of the run are missing"
	case r.Run.DriverFault != "":
		reason = say.OneLine(r.Run.DriverFault)
	case len(r.History.Events) == 0:
		reason = "nothing was recorded"
	case len(open) > 0:
		reason, open = open[0].Summary, open[1:]
	case len(r.Results) == 0:
		reason = "nothing was checked"
	}
	if reason = strings.TrimRight(reason, ". "); reason != "" {
		s.Headline += ": " + reason
	}
	if whole := say.OneLine(r.Run.AbortReason); len([]rune(whole)) > longest {
		s.Outcome = append(s.Outcome, "In full: "+Stop(whole))
	}
	if violated := r.Counts().String(); violated != "" && r.Run.ClaimLostTo != "" {
		s.Outcome = append(s.Outcome, fmt.Sprintf("What was recorded has %s, which may be the work of the other run.", violated))
	}
	if r.Run.DriverFault != "" {
		s.Outcome = append(s.Outcome, unanswered(r)...)
	}
	for _, p := range open {
		if say.OneLine(p.Summary) == reason { // which the headline has
			continue
		}
		s.Outcome = append(s.Outcome, fmt.Sprintf("The property %s could not be decided: %s", p.Name, Stop(p.Summary)))
	}
	for i := range r.Faults {
		if f := &r.Faults[i]; !f.OK {
			s.Events = append(s.Events, Event{At: f.Start, Kind: EventFault, Actor: "the fault " + f.Detail(), Verb: "did not take effect", Detail: f.Error})
		}
	}
	s.Events = shortened(s.Events)
	if len(r.History.Events) > 0 {
		s.Outcome = append(s.Outcome, workloadWords(r))
	}
	if r.Run.Interrupted {
		s.Outcome = append(s.Outcome, "The run was interrupted before its end.")
	}
	if r.History.Truncated > 0 {
		s.Outcome = append(s.Outcome, fmt.Sprintf("The last line of the history, %d, was cut short and dropped.", r.History.Truncated))
	}
	s.Outcome = append(s.Outcome, "This is not a pass: a verdict that could not be reached says nothing for the lock.")
	return s
}

// unanswered says of the first request for a lock that had no answer for seconds, although no fault was in effect, whether
// a client held the lock.
func unanswered(r *facts.Facts) []string {
	const long = 2 * time.Second
	at := slices.IndexFunc(r.Ops, func(op *holding.Op) bool {
		return op.Verb == holding.Acquire && op.Unknown() && facts.Took(op) >= long && len(r.InEffectIn(op.Invoke.Time, op.Complete.Time)) == 0
	})
	if at < 0 {
		return nil
	}
	op, held := r.Ops[at], ""
	if wasFree(r, op) {
		held = ", and no client held it"
	}
	return []string{sentence(fmt.Sprintf("%s asked to acquire %s at %s and had no answer for %s. No fault was in effect then%s: look for a deadlock in the library, or in its driver",
		who(r, r.Asked(op)), r.Lock(op), say.Instant(op.Invoke.Time), say.Span(facts.Took(op)), held))}
}

// wasFree reports whether no client held the lock that was asked for while the request was under way.
func wasFree(r *facts.Facts, op *holding.Op) bool {
	h := r.LastGrant(r.Lock(op), op.Complete.Time)
	return h == nil || h.End <= op.Invoke.Time
}

// halted says of faults that stopped less than half of independent servers that no client was granted a lock meanwhile,
// though requests were for locks that no client held: a lock that takes a majority goes on then.
func halted(r *facts.Facts) string {
	const least = 5 // requests: fewer may have met the end of a hold, or of the fault
	servers, asked, under := r.Servers(), 0, []*facts.Fault(nil)
	for i := range r.Faults {
		f := &r.Faults[i]
		stopped := slices.DeleteFunc(slices.Clone(servers), func(name string) bool { return !f.Hits(name) })
		if !topologies.ShapeOf(r.Run.Topology.Name).Apart() || !f.Counts() || !f.Has(history.Stops) || 2*len(stopped) >= len(servers) || len(r.InEffectIn(f.At(), f.End)) > 1 {
			continue
		}
		failed, granted := 0, false
		for _, op := range r.Ops {
			switch {
			case op.Verb != holding.Acquire || op.Invoke.Time < f.At() || op.Complete.Time > f.End:
			case op.OK():
				granted = true
			case wasFree(r, op):
				failed++
			}
		}
		if !granted && failed >= least {
			asked, under = asked+failed, append(under, f)
		}
	}
	if len(under) == 0 {
		return ""
	}
	return fmt.Sprintf("No client was granted a lock under %s, which left a majority of the %d servers: %s for a lock that no client held failed.", faultNames(under), len(servers), say.Count(asked, "request"))
}

// fencingWords say that the resource refused tokens that were out of date: those of the owners of a violation, or,
// without one, of any.
func fencingWords(r *facts.Facts, v *checker.Violation) string {
	owners := map[string]bool{}
	if v != nil {
		for _, index := range v.Events {
			if e, ok := r.Event(index); ok {
				owners[e.Owner] = true
			}
		}
	}
	stopped := slices.DeleteFunc(r.Stopped(), func(op *holding.Op) bool { return v != nil && !owners[r.Owner(op)] })
	if len(stopped) == 0 {
		return ""
	}
	first := stopped[0]
	others := ""
	if n := len(stopped); n > 1 {
		others = fmt.Sprintf(" (and %s after it)", say.Count(n-1, "refusal"))
	}
	resource := r.Resource(first)
	damaged := slices.ContainsFunc(r.Violations, func(v *checker.Violation) bool { return facts.IsDamage(v.Kind) && v.Resource == resource })
	return fmt.Sprintf("At %s %s refused %s for its token, %d%s: the fencing token stopped %s", say.Instant(first.Complete.Time), resource,
		who(r, r.Asked(first)), first.Token, others, cmp.Or(map[bool]string{true: "that access, though not all."}[damaged], "the damage."))
}
