package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/scenarios"
	"github.com/lockchaos/lockchaos/simulation"
	"github.com/lockchaos/lockchaos/simulation/confirm"
	"github.com/lockchaos/lockchaos/simulation/world"
)

// attemptsOfForm is how often each form of a script is played, until one run shows the
// violation.
const attemptsOfForm = 3

// longAttempt is a run after which a script is not played again whose step could not be
// done.
const longAttempt = 20 * time.Second

// confirmation is where the scenarios and runs of a confirmation are, in the directory of
// the simulated run.
const confirmation = "confirm"

// confirmSimulation plays a simulated run on real servers, and notes in its record
// whether they show the same violation. No attempt begins after until. The directory has the run and its reports.
func (a *app) confirmSimulation(ctx context.Context, dir string, l harness.LockSpec, r simulation.Result, kind string, until time.Time) (history.Confirmation, error) {
	var found history.Confirmation
	in, err := readRecord(dir)
	if err != nil {
		return found, err
	}
	in.Report = harness.Judge(ctx, in.Run, in.History)
	v, ok := firstOf(in.Report, kind)
	if !ok {
		return found, fmt.Errorf("the simulated run in %s shows no %s", dir, kind)
	}
	found.Violation = kind
	scripts, err := confirm.Scripts(r.Case, l, *r.Outcome, v)
	if err != nil {
		found.Why = "it can't be played: " + err.Error()
		return found, a.noteConfirmation(dir, found)
	}
	for _, s := range scripts {
		file := filepath.Join(dir, confirmation, s.Form+".yaml")
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, s.YAML, 0o644)); err != nil { //nolint:gosec // others may read it
			return found, harnessError{fmt.Errorf("write scenario: %w", err)}
		}
		if found.Scenario == "" {
			found.Scenario = relative(dir, file)
		}
	}
	for _, s := range scripts {
		for left := attemptsOfForm; left > 0; left-- {
			if err := ctx.Err(); err != nil {
				return found, context.Cause(ctx)
			}
			if time.Now().After(until) {
				found.Why = cmp.Or(found.Why, "no attempt was made") + "; the time of --confirm-limit is over"
				return found, a.noteConfirmation(dir, found)
			}
			found.Attempts++
			fmt.Fprintf(a.stderr, "%s: attempt %d on real servers, %s script\n", kind, found.Attempts, s.Form)
			run := filepath.Join(dir, confirmation, fmt.Sprintf("%s-%d", s.Form, found.Attempts))
			p, err := a.playScenario(ctx, choice{
				Scenario: s.Scenario, of: s.Scenario, typed: filepath.Join(dir, confirmation, s.Form+".yaml"), servers: &serverFlags{backend: processBackend},
			}, run, s.Scenario.Name)
			if err != nil {
				return found, err
			}
			if found.Why = doubt(r.Case, s.Scenario, p.in, p.unexpected); found.Why == "" {
				found.Confirmed, found.Run, found.Scenario = true, relative(dir, run), relative(dir, filepath.Join(dir, confirmation, s.Form+".yaml"))
				return found, a.noteConfirmation(dir, found)
			}
			if p.in.Run.AbortReason != "" && p.took > longAttempt {
				break // it waited for what does not come
			}
		}
	}
	return found, a.noteConfirmation(dir, found)
}

// relative is the path of a file in the directory.
func relative(dir, file string) string {
	if path, err := filepath.Rel(dir, file); err == nil {
		return filepath.ToSlash(path)
	}
	return file
}

// firstOf is the first violation of a kind.
func firstOf(report checker.Report, kind string) (checker.Violation, bool) {
	for _, r := range report.Results {
		for _, v := range r.Violations {
			if v.Kind == kind {
				return v, true
			}
		}
	}
	return checker.Violation{}, false
}

// doubt says why a run on real servers does not confirm a simulated one; empty if it
// does. A script has its clients use the resource whether or not they still hold the
// lock, and so its accesses prove something only while the lease lasts, unless the
// simulated client could not notice the end either.
func doubt(c simulation.Case, s scenarios.Scenario, in reports.Input, unexpected error) string {
	if unexpected != nil {
		return unexpected.Error()
	}
	if c.Careless || !ofAccesses(s.Expect.Violation) || slices.ContainsFunc(c.Plan, func(f world.Fault) bool { return f.Name == world.PauseClient }) {
		return ""
	}
	ends, lost := map[string]time.Duration{}, map[string]bool{}
	for _, e := range in.History.Events {
		switch {
		case e.Op == history.Acquire && e.Type == history.OK && e.Expires > 0, e.Op == history.Extend && e.Type == history.OK && e.Expires > 0:
			ends[e.Owner] = max(ends[e.Owner], e.Expires)
		case e.Op == history.Lost:
			lost[e.Owner] = true
		case e.Op == history.Access && (lost[e.Owner] || ends[e.Owner] > 0 && e.Time > ends[e.Owner]):
			return fmt.Sprintf("the script had %s use the resource after the end of its hold", e.Owner)
		}
	}
	return ""
}

// ofAccesses reports whether violations of that kind are proved by accesses of clients.
func ofAccesses(kind string) bool {
	k, _ := checker.KindOf(kind)
	return k.ByAccess
}

// noteConfirmation writes it into the record of the simulated run, and the reports again.
func (a *app) noteConfirmation(dir string, found history.Confirmation) error {
	run, err := history.Dir(dir).Run()
	if err != nil {
		return err
	}
	run.Confirmation = &found
	if err := history.Dir(dir).WriteRun(run); err != nil {
		return harnessError{err}
	}
	_, err = judge(context.Background(), dir)
	return err
}

// confirmed says in a line what came of a confirmation.
func confirmed(dir string, c *history.Confirmation) string {
	switch {
	case c == nil:
		return ""
	case c.Confirmed:
		return fmt.Sprintf("confirmed on real servers in attempt %d: lockchaos reproduce %s", c.Attempts, quoted(filepath.Join(dir, c.Scenario)))
	case c.Attempts == 0:
		return "simulated only: " + c.Why
	default:
		return fmt.Sprintf("simulated only: %d attempts on real servers did not show it (the last: %s)", c.Attempts, cmp.Or(c.Why, "no violation"))
	}
}
