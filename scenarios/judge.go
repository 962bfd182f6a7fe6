package scenarios

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/workload/history"
)

// Judge judges a recorded run. One that was not played to its end, or in which
// none of the faults that were asked for took effect, has not shown what it was
// to show: its report says so, and is never valid.
func Judge(ctx context.Context, run history.Run, h *history.History) checker.Report {
	report := checker.Check(ctx, h)
	for _, doubt := range doubts(run, h) {
		report.Results = append(report.Results, checker.Result{
			Name: "run", Engine: "the record of the run", Verdict: checker.Unknown, Summary: doubt,
		})
		report.Verdict = checker.Worst(report.Verdict, checker.Unknown)
	}
	return report
}

// doubts are why a run has not shown what it was to show.
func doubts(run history.Run, h *history.History) []string {
	var why []string
	switch {
	case run.Unmet != "":
		why = append(why, "the scenario could not be played to its end: "+run.Unmet)
	case run.Interrupted:
		why = append(why, fmt.Sprintf("the run was interrupted, and is partial: the record ends at %.1f s", h.End().Seconds()))
	case run.Duration == 0:
		why = append(why, fmt.Sprintf("the run did not end in order: the record stops at %.1f s", h.End().Seconds()))
	}
	landed := slices.ContainsFunc(h.Events, func(e history.Event) bool {
		return e.Op == history.Inject && e.Type == history.OK
	})
	if run.Scenario == "" && run.Faults != "" && run.Faults != MixNone && !landed {
		why = append(why, "faults were asked for ("+run.Faults+"), and none took effect: the run was too short for one, or the plan is empty")
	}
	return why
}

// Met says in what a run differs from what the scenario expects; nil if in
// nothing. A script that was not played to its end meets nothing.
func (e Expectation) Met(run history.Run, report checker.Report) error {
	if run.Unmet != "" {
		return fmt.Errorf("the script was not played to its end: %s", run.Unmet)
	}
	if string(report.Verdict) != e.Verdict {
		return fmt.Errorf("expected %s, got %s", e.Verdict, report.Verdict)
	}
	if e.Violation == "" {
		return nil
	}
	for _, r := range report.Results {
		for _, v := range r.Violations {
			if v.Kind == e.Violation {
				return nil
			}
		}
	}
	return fmt.Errorf("expected a violation of kind %s, and none was found", e.Violation)
}
