package scenarios

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
)

// Judge judges a recorded run by [checker.CheckRun], with what its workload has to
// meet. Where properties are named, these alone are judged.
func Judge(ctx context.Context, run history.Run, h *history.History, properties ...string) checker.Report {
	return checker.CheckRun(ctx, run, h, checker.RunOptions{Meets: meets(run), Properties: properties})
}

// meets is what a run of these workloads has to meet to show anything; of several
// workloads, each.
func meets(run history.Run) []string {
	if run.Scenario != "" {
		return nil
	}
	kinds, _ := parseWorkload(run.Workload) // one that another version knew asks for nothing here
	var all []string
	for _, k := range kinds {
		for _, m := range k.Meets {
			// A lock that never says that it is not held can't meet a refused release.
			if m != history.MetNotHeld || !slices.Contains(run.Unpromised, history.UnpromisedRelease) {
				all = append(all, m)
			}
		}
	}
	return all
}

// Met says in what a run differs from what the scenario expects; nil if in
// nothing. A script that was not played to its end meets nothing.
func (e Expectation) Met(run history.Run, report checker.Report) error {
	if why := checker.NoAnswer(run); why != "" {
		return errors.New(why)
	}
	if string(report.Verdict) != e.Verdict {
		return fmt.Errorf("expected %s, got %s", e.Verdict, report.Verdict)
	}
	for _, r := range report.Results {
		if slices.Contains(e.Holds, r.Name) && r.Verdict != checker.Valid {
			return fmt.Errorf("expected %s to hold, and it is %s: %s", r.Name, r.Verdict, r.Summary)
		}
	}
	for _, name := range e.Holds {
		if !slices.ContainsFunc(report.Results, func(r checker.Result) bool { return r.Name == name }) {
			return fmt.Errorf("expected %s to hold, and it was not judged", name)
		}
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

// properties are the names of what is judged.
func properties() []string {
	var all []string
	for _, c := range checker.Standard() {
		all = append(all, c.Name())
	}
	return all
}
