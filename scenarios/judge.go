package scenarios

import (
	"context"
	"fmt"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/workload/history"
)

// Judge judges a recorded run. A script that could not be played to its end
// has shown nothing: its report says so, and is never valid.
func Judge(ctx context.Context, run history.Run, h *history.History) checker.Report {
	report := checker.Check(ctx, h)
	if run.Unmet != "" {
		report.Results = append(report.Results, checker.Result{
			Name: "script", Engine: "the steps of the scenario", Verdict: checker.Unknown,
			Summary: "the scenario could not be played to its end: " + run.Unmet,
		})
		report.Verdict = checker.Worst(report.Verdict, checker.Unknown)
	}
	return report
}

// Met says in what the report differs from what the scenario expects; nil if
// in nothing.
func (e Expectation) Met(report checker.Report) error {
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
