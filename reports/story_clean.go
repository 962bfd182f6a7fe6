package reports

import (
	"fmt"
	"strings"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/workload/history"
)

// validStory says what was thrown at the lock, and why the verdict is valid.
func (d *digest) validStory() Story {
	grants := outcomes(d.ops)[string(history.Acquire)]
	s := Story{Headline: fmt.Sprintf("No violation: %s in %s", count(grants.OK, "grant"), runLength(d.end))}
	if n := effective(d.faults); n > 0 {
		s.Headline += " under " + count(n, "fault")
	}
	s.Outcome = append(s.Outcome, d.workloadWords(grants))
	s.Outcome = append(s.Outcome, d.faultWords())
	var held []string
	for _, r := range d.Report.Results {
		if r.Verdict == checker.Valid {
			held = append(held, r.Name)
		}
	}
	if len(held) > 0 {
		s.Outcome = append(s.Outcome, fmt.Sprintf("%s checked and held: %s.", wasWere(len(held), "property"), list(held)))
	}
	return s
}

func wasWere(n int, noun string) string {
	if n == 1 {
		return "1 " + noun + " was"
	}
	return count(n, noun) + " were"
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
		runLength(d.end), count(len(clients), "client"), count(grants.Total(), "time"), count(len(locks), "lock"),
		count(grants.OK, "grant"), count(grants.Fail, "refusal"), grants.Info)
	if n := contended(d.ops, d.holds); n > 0 {
		s += fmt.Sprintf(" %s met a hold of somebody else.", count(n, "request"))
	} else {
		s += " No request met a hold of somebody else."
	}
	return s
}

// maxNamedFaults bounds the faults that are named one by one.
const maxNamedFaults = 5

// faultWords says which faults took effect.
func (d *digest) faultWords() string {
	if len(d.faults) == 0 {
		return "No fault was injected."
	}
	var took, missed []string
	for i := range d.faults {
		f := &d.faults[i]
		if f.OK {
			text := f.happened(d.Run.Topology)
			took = append(took, fmt.Sprintf("%s at %s", text, instant(f.InEffect)))
		} else {
			missed = append(missed, f.label())
		}
	}
	var s string
	switch {
	case len(took) == 0:
		s = fmt.Sprintf("None of %s took effect.", count(len(d.faults), "fault"))
	case len(took) > maxNamedFaults:
		s = fmt.Sprintf("%d of %s took effect, the first: %s.", len(took), count(len(d.faults), "fault"), strings.Join(took[:maxNamedFaults], "; "))
	default:
		s = fmt.Sprintf("%d of %s took effect: %s.", len(took), count(len(d.faults), "fault"), strings.Join(took, "; "))
	}
	if len(missed) > maxNamedFaults {
		missed = append(missed[:maxNamedFaults:maxNamedFaults], count(len(missed)-maxNamedFaults, "other"))
	}
	if len(took) > 0 && len(missed) > 0 {
		s += " Without an effect: " + list(missed) + "."
	}
	return s
}

// unknownStory says what was missing for a verdict.
func (d *digest) unknownStory() Story {
	s := Story{Headline: "Not decided"}
	var open []checker.Result
	for _, r := range d.Report.Results {
		if r.Verdict == checker.Unknown {
			open = append(open, r)
		}
	}
	switch {
	case len(d.Missing) > 0:
		s.Headline = "Not decided: parts of the run are missing"
	case len(d.History.Events) == 0:
		s.Headline = "Not decided: nothing was recorded"
	case len(open) > 0 && open[0].Summary != "":
		s.Headline = "Not decided: " + strings.TrimRight(open[0].Summary, ". ")
	case len(d.Report.Results) == 0:
		s.Headline = "Not decided: nothing was checked"
	}
	for _, r := range open {
		s.Outcome = append(s.Outcome, fmt.Sprintf("%s could not be decided: %s", r.Name, stop(r.Summary)))
	}
	for i := range d.faults {
		if f := &d.faults[i]; !f.OK {
			s.Moments = append(s.Moments, Moment{At: f.Start, Kind: MomentFault, Text: f.happened(d.Run.Topology)})
			if len(s.Moments) == maxBackground {
				break
			}
		}
	}
	if len(d.History.Events) > 0 {
		s.Outcome = append(s.Outcome, d.workloadWords(outcomes(d.ops)[string(history.Acquire)]))
		if len(s.Moments) == 0 {
			s.Outcome = append(s.Outcome, d.faultWords())
		}
	}
	if d.Run.Interrupted {
		s.Outcome = append(s.Outcome, "The run was interrupted before its end.")
	}
	if d.History.Truncated > 0 {
		s.Outcome = append(s.Outcome, fmt.Sprintf("The last line of the history, %d, was cut short and dropped.", d.History.Truncated))
	}
	s.Outcome = append(s.Outcome, "This is not a pass: a verdict that could not be reached says nothing for the lock.")
	return s
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
