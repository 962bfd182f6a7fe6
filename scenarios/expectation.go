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
	for _, name := range e.Holds {
		at := slices.IndexFunc(report.Results, func(r checker.Result) bool { return r.Name == name })
		if at < 0 {
			return fmt.Errorf("expected %s to hold, and it was not judged", name)
		}
		if r := report.Results[at]; r.Verdict != checker.Valid {
			return fmt.Errorf("expected %s to hold, and it is %s: %s", r.Name, r.Verdict, r.Summary)
		}
	}
	shown := func(r checker.Result) bool {
		return slices.ContainsFunc(r.Violations, func(v checker.Violation) bool { return v.Kind == e.Violation })
	}
	if e.Violation != "" && !slices.ContainsFunc(report.Results, shown) {
		return fmt.Errorf("expected a violation of kind %s, and none was found", e.Violation)
	}
	return nil
}
