package causes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports"
)

// arm finds an arm; false if it was not played.
func arm(c *history.Cause, kind string, suspect int) (history.Arm, bool) {
	i := slices.IndexFunc(c.Arms, func(a history.Arm) bool { return a.Arm == kind && a.Fault == suspect })
	if i < 0 {
		return history.Arm{Interval: [2]float64{0, 1}}, false
	}
	return c.Arms[i], true
}

// rarer reports whether one arm shows the violation more rarely than another: their intervals have
// nothing in common.
func rarer(a, b history.Arm) bool { return a.Interval[1] < b.Interval[0] }

// leastShare is the share of the control's runs that has to show the violation for certain. A single run may be an
// accident of the machine, or an error of the judge.
const leastShare = 0.05

// limited reports whether the control lock shows the violation: in more than leastShare of all runs in 95 of 100 cases,
// or, where that takes many runs, more often than it is shown without any fault. What it shows says nothing of a lock
// that shows it more rarely, unless the faults are what makes it do so: that may be another violation of the same kind.
func limited(all, control, none history.Arm) bool {
	return (control.Interval[0] > leastShare || rarer(none, control)) && (rarer(none, all) || !rarer(all, control))
}

// decide says what the counts show. Where the control lock shows the violation it is a limit of these servers: it is
// correct, so that no lock prevents it. That it shows none says something against the lock under test only after so
// many runs, and where the clients do the same: it may come into the same state more rarely. Behind a fault that a correct
// lock need not survive it says something only where most runs of the lock under test show the violation.
func (e Experiment) decide(c history.Cause) history.Cause {
	all, _ := arm(&c, history.ArmAll, 0)
	none, _ := arm(&c, history.ArmNone, 0)
	control, controlled := arm(&c, history.ArmControl, 0)
	c.Verdict = history.CauseUndecided
	switch {
	case none.Seen > e.Accidents: // which no correct lock shows
		c.Verdict = history.CauseLock
	case all.Seen == 0 || none.Seen > 0 || !controlled:
	case limited(all, control, none):
		c.Verdict = history.CauseDeployment
	case c.ControlWorkload == "" && control.Seen == 0 && control.N >= e.LeastControl && rarer(control, all) && (!e.excused(&c) || all.Interval[0] > 0.5):
		c.Verdict = history.CauseLock
	}
	c.Faults = slices.Clone(c.Faults)
	for i := range c.Faults {
		c.Faults[i].Role = role(&c, i)
	}
	c.Text = words(&c)
	var open []string
	for _, i := range e.Unmeasured {
		f := e.Faults[i]
		open = append(open, f.Label()+" at "+say.Instant(f.Start))
	}
	if len(open) > 0 {
		c.Text += " (not measured alone: " + say.List(open) + ")"
	}
	return c
}

// excused reports whether the violation was shown only beside a fault of which something stays: a server that forgets what it
// granted, another master, another clock. One that was not measured may be such a fault. A master that is promoted has each grant that a replica acknowledged; one beside
// which the old one goes on may not.
func (e Experiment) excused(c *history.Cause) bool {
	excuses := func(name string) bool {
		spec, _ := faults.ByName(name)
		acknowledged := e.Acks > 0 && spec.Has(history.Promotes) && !spec.Has(history.Isolates)
		return spec.Stays() && !acknowledged
	}
	for i, f := range c.Faults {
		if without, _ := arm(c, history.ArmWithout, i); without.Seen == 0 && excuses(f.Fault) {
			return true
		}
	}
	return slices.ContainsFunc(e.Unmeasured, func(i int) bool { return excuses(e.Faults[i].Name) })
}

// role is what the counts show of a suspect.
func role(c *history.Cause, suspect int) string {
	all, _ := arm(c, history.ArmAll, 0)
	none, _ := arm(c, history.ArmNone, 0)
	without, _ := arm(c, history.ArmWithout, suspect)
	only, _ := arm(c, history.ArmOnly, suspect)
	switch {
	case none.Seen > 0:
		return history.RoleNotNeeded
	case rarer(without, all) && rarer(only, all):
		return history.RoleWithOthers
	case rarer(without, all):
		return history.RoleNeeded
	case rarer(none, only):
		return history.RoleOneOf
	default:
		return history.RoleUndecided
	}
}

// decided reports whether the verdict is decided, and that the faults are what makes the lock show the violation, and what
// each suspect does, unless that is given up.
func decided(c history.Cause, giveUp bool) bool {
	all, _ := arm(&c, history.ArmAll, 0)
	none, _ := arm(&c, history.ArmNone, 0)
	return c.Verdict != history.CauseUndecided && (none.Seen > 0 || rarer(none, all)) &&
		(giveUp || !slices.ContainsFunc(c.Faults, func(s history.Suspect) bool { return s.Role == history.RoleUndecided }))
}

// words are the verdict, and the counts that it rests on.
func words(c *history.Cause) string {
	kind, _ := checker.KindOf(c.Kind)
	noun := a(kind.Noun)
	of := func(a history.Arm) string { return fmt.Sprintf("%d of %d", a.Seen, a.N) }
	all, _ := arm(c, history.ArmAll, 0)
	none, _ := arm(c, history.ArmNone, 0)
	control, controlled := arm(c, history.ArmControl, 0)
	if n := len(all.Dirs); all.N == 0 && n > 0 {
		return fmt.Sprintf("%s: the run was played %s again, and each time a fault took no effect, or it could not be judged", meaning(c), say.Count(n, "time"))
	}
	if none.Seen > 0 || len(c.Faults) == 0 && !controlled {
		return fmt.Sprintf("%s: without any fault %s runs show %s", meaning(c), of(none), noun)
	}
	var parts []string
	if len(c.Faults) == 1 {
		without, _ := arm(c, history.ArmWithout, 0)
		parts = append(parts, fmt.Sprintf("with %s %s runs show %s", c.Faults[0].Fault, of(all), noun), "without it "+of(without))
		if c.Faults[0].Role == history.RoleWithOthers {
			only, _ := arm(c, history.ArmOnly, 0)
			parts = append(parts, "with it alone "+of(only)+" (needed with others)")
		}
	} else {
		parts = append(parts, fmt.Sprintf("with all faults %s runs show %s", of(all), noun))
		for i, s := range c.Faults {
			without, _ := arm(c, history.ArmWithout, i)
			name := s.Fault
			for j, other := range c.Faults {
				if j != i && other.Fault == name {
					name = reports.SuspectLabel(*c, i)
					break
				}
			}
			parts = append(parts, fmt.Sprintf("without %s %s (%s)", name, of(without), s.Role))
		}
		parts = append(parts, "without any "+of(none))
	}
	if controlled {
		name := "with a correct lock "
		if c.ControlWorkload != "" {
			name += "(workload " + c.ControlWorkload + ") "
		}
		parts = append(parts, name+of(control))
	}
	return meaning(c) + ": " + strings.Join(parts, ", ")
}

// meaning is a verdict in words, at the start of a sentence.
func meaning(c *history.Cause) string {
	blame := cmp.Or(reports.Blame(*c), "not decided")
	return strings.ToUpper(blame[:1]) + blame[1:]
}

// a is a noun with its article.
func a(noun string) string {
	if strings.ContainsAny(noun[:min(1, len(noun))], "aeio") || strings.HasPrefix(noun, "un") {
		return "an " + noun
	}
	return "a " + noun
}
