package scenarios

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/workload/history"
)

// Judge judges a recorded run. One that was not played to its end, or in which
// none of the faults that were asked for took effect, has not shown what it was
// to show: its report says so, and is never valid. A script that was cut short
// is unknown whatever was found until then, and so is a run whose servers another
// run took over; what was found stays in the report. Where properties are named,
// these alone are judged.
func Judge(ctx context.Context, run history.Run, h *history.History, properties ...string) checker.Report {
	all := slices.DeleteFunc(checkers(run), func(c checker.Checker) bool {
		return len(properties) > 0 && !slices.Contains(properties, c.Name())
	})
	report := checker.Check(ctx, h, all...)
	for _, doubt := range append(doubts(run, h), unproven(run, report)...) {
		Doubt(&report, doubt)
	}
	if run.Unmet != "" || run.Unclaimed != "" {
		report.Verdict = checker.Unknown // what a part of a script shows is no answer to it, nor what somebody else did
	}
	return report
}

// Doubt adds to a report why the run has not shown what it was to show, and
// keeps it from being valid.
func Doubt(report *checker.Report, why string) {
	report.Results = append(report.Results, checker.Result{
		Name: "run", Engine: "the record of the run", Verdict: checker.Unknown, Summary: why,
	})
	report.Verdict = checker.Worst(report.Verdict, checker.Unknown)
}

// checkers are the standard ones, with the run's bound of progress and with what
// its workload has to meet.
func checkers(run history.Run) []checker.Checker {
	all := checker.Standard()
	for i, c := range all {
		if met := checker.Assumptions(meets(run)...); c.Name() == met.Name() {
			all[i] = met
		}
		if bounded := checker.Progress(run.Progress); c.Name() == bounded.Name() {
			all[i] = bounded
		}
	}
	return all
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
		all = append(all, k.Meets...)
	}
	return all
}

// unproven says what the ledger of a run shows and its accesses do not: one with
// an unknown outcome may have been written, and proves nothing.
func unproven(run history.Run, report checker.Report) []string {
	l := run.Ledger
	if l == nil || l.Forks+l.Stale == 0 {
		return nil
	}
	for _, r := range report.Results {
		if r.Name == checker.ProtectedResource().Name() && r.Verdict == checker.Invalid {
			return nil
		}
	}
	return []string{fmt.Sprintf(
		"the ledger has a version twice %d times and a stale token %d times, and no access that was confirmed shows it", l.Forks, l.Stale)}
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
	if run.Unclaimed != "" {
		why = append(why, unclaimed(run))
	}
	if run.Failed != "" {
		why = append(why, "the harness failed: "+run.Failed)
	}
	landed := 0
	for i := range h.Events {
		switch e := &h.Events[i]; {
		case e.Op == history.Inject && e.Type == history.OK:
			landed++
		case e.Op == history.Observe && e.What == history.ObserveMet && e.Value == "0":
			landed--
		}
	}
	if run.Scenario == "" && run.Faults != "" && run.Faults != MixNone && landed <= 0 {
		why = append(why, "faults were asked for ("+run.Faults+"), and none took effect on a request: the run was too short for one, or the plan is empty")
	}
	return why
}

func unclaimed(run history.Run) string {
	return "what was seen may be the work of another run: " + run.Unclaimed
}

// Met says in what a run differs from what the scenario expects; nil if in
// nothing. A script that was not played to its end meets nothing.
func (e Expectation) Met(run history.Run, report checker.Report) error {
	if run.Unmet != "" {
		return fmt.Errorf("the script was not played to its end: %s", run.Unmet)
	}
	if run.Unclaimed != "" {
		return errors.New(unclaimed(run))
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
