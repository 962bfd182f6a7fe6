package checker

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockchaos/lockchaos/history"
)

// RunOptions say how a run is judged. The zero value judges every property, and
// expects nothing of what the run covers.
type RunOptions struct {
	// Meets is what the workload of the run has to meet for the run to show
	// anything, by the names in package history.
	Meets []string
	// Properties are the names of those to judge; none: all of [Standard].
	Properties []string
}

// CheckRun judges a recorded run: its history, and what the record says of how the
// run went. A run that was not played to its end, or in which none of the faults
// that were asked for took effect, has not shown what it was to show: its report
// says so, and is never valid. See [RunVerdict] for a run that shows nothing.
func CheckRun(ctx context.Context, run history.Run, h *history.History, o RunOptions) Report {
	all := slices.DeleteFunc(standard(Assumptions(o.Meets...), Progress(run.Progress)), func(c Checker) bool {
		return len(o.Properties) > 0 && !slices.Contains(o.Properties, c.Name())
	})
	report := Check(ctx, h, all...)
	for _, doubt := range append(doubts(run, h), unproven(run, report)...) {
		report.Results = append(report.Results, Result{
			Name: "run", Engine: "the record of the run", Verdict: Unknown, Summary: doubt,
		})
		report.Verdict = Worst(report.Verdict, Unknown)
	}
	report.Verdict = RunVerdict(run, report.Verdict, true)
	return report
}

// RunVerdict is the verdict on a run in whose history found was found. A run whose
// servers another run took over is unknown, whatever was found. Where a script was cut
// short, or the record is not whole, what is left may show a violation, and can't show
// that there is none.
func RunVerdict(run history.Run, found Verdict, whole bool) Verdict {
	switch {
	case run.ClaimLostTo != "":
		return Unknown
	case !whole || run.AbortReason != "":
		return Worst(found, Unknown)
	default:
		return found
	}
}

// NoAnswer says why nothing that is found in a run is an answer; empty if it is one.
func NoAnswer(run history.Run) string {
	switch {
	case run.AbortReason != "":
		return "the script was not played to its end: " + run.AbortReason
	case run.ClaimLostTo != "":
		return unclaimed(run)
	default:
		return ""
	}
}

func unclaimed(run history.Run) string {
	return "what was seen may be the work of another run: " + run.ClaimLostTo
}

// doubts are why a run has not shown what it was to show.
func doubts(run history.Run, h *history.History) []string {
	var why []string
	switch {
	case run.AbortReason != "":
		why = append(why, "the scenario could not be played to its end: "+run.AbortReason)
	case run.Unsuited != "":
		why = append(why, "the scenario can't be asked of this lock: "+run.Unsuited)
	case run.Interrupted:
		why = append(why, fmt.Sprintf("the run was interrupted, and is partial: the record ends at %.1f s", h.End().Seconds()))
	case run.Duration == 0:
		why = append(why, fmt.Sprintf("the run did not end in order: the record stops at %.1f s", h.End().Seconds()))
	}
	if events := int64(len(h.Events)); run.Events > 0 && run.Events != events {
		why = append(why, fmt.Sprintf("the history is not whole: it has %d events, and the run recorded %d", events, run.Events))
	}
	if run.ClaimLostTo != "" {
		why = append(why, unclaimed(run))
	}
	if run.DriverFault != "" {
		why = append(why, run.DriverFault)
	}
	if run.Failed != "" {
		why = append(why, "the harness failed: "+run.Failed)
	}
	tried, landed, _ := faultsOf(h.Events)
	if run.Scenario == "" && run.Faults != "" && run.Faults != history.NoFaults && landed == 0 {
		because := "the run was too short for one, or the plan is empty"
		if tried > 0 {
			because = "give the run another seed, more time, or faults that wait for none of its commands"
		}
		why = append(why, "faults were asked for ("+run.Faults+"), and none took effect on a request: "+because)
	}
	return why
}

// unproven says what the ledger of a run shows and its accesses do not: one with
// an unknown outcome may have been written, and proves nothing.
func unproven(run history.Run, report Report) []string {
	l := run.Ledger
	if l == nil || l.Forks+l.Stale == 0 {
		return nil
	}
	for _, r := range report.Results {
		if r.Name == ProtectedResource().Name() && r.Verdict == Invalid {
			return nil
		}
	}
	return []string{fmt.Sprintf(
		"the ledger has a version twice %d times and a stale token %d times, and no access that was confirmed shows it", l.Forks, l.Stale)}
}
