package scenarios

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
)

// Met says in what a run differs from what the scenario expects; nil if in
// nothing. A script that was not played to its end meets nothing.
func (e Expectation) Met(run history.Run, report checker.Report) error {
	if why := checker.NoAnswer(run); why != "" {
		return errors.New(why)
	}
	if run.Unsuited != "" && report.Verdict == checker.Unknown {
		return errors.New("the scenario can't be asked of this lock: " + run.Unsuited)
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
