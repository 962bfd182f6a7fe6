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
	found := history.Confirmation{Violation: kind}
	in, err := judgeOnly(ctx, dir)
	if err != nil {
		return found, err
	}
	var first *checker.Violation
	for _, r := range in.Report.Results {
		for i := range r.Violations {
			if first == nil && r.Violations[i].Kind == kind {
				first = &r.Violations[i]
			}
		}
	}
	if first == nil {
		return found, fmt.Errorf("the simulated run in %s shows no %s", dir, kind)
	}
	if scripts, wrong := confirm.Scripts(r.Case, l, *r.Outcome, *first); wrong != nil {
		found.Why = "it can't be played: " + wrong.Error()
	} else if err = a.playScripts(ctx, dir, r.Case, scripts, until, &found); err != nil {
		return found, err
	}
	_, err = noteInRecord(context.Background(), dir, func(run *history.Run) error {
		run.Confirmation = &found
		return nil
	})
	return found, err
}

// playScripts writes the scripts and plays them until one shows the violation.
func (a *app) playScripts(ctx context.Context, dir string, c simulation.Case, scripts []confirm.Script, until time.Time, found *history.Confirmation) error {
	at := func(name string) string { return filepath.Join(dir, confirmation, name) }
	for _, s := range scripts {
		file := at(s.Form + ".yaml")
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, s.YAML, 0o644)); err != nil { //nolint:gosec // others may read it
			return harnessError{fmt.Errorf("write scenario: %w", err)}
		}
		found.Scenario = cmp.Or(found.Scenario, confirmation+"/"+s.Form+".yaml")
	}
	for _, s := range scripts {
		for left := attemptsOfForm; left > 0; left-- {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			if time.Now().After(until) {
				found.Why = cmp.Or(found.Why, "no attempt was made") + "; the time of --confirm-limit is over"
				return nil
			}
			found.Attempts++
			fmt.Fprintf(a.stderr, "%s: attempt %d on real servers, %s script\n", found.Violation, found.Attempts, s.Form)
			name := fmt.Sprintf("%s-%d", s.Form, found.Attempts)
			p, err := a.playScenario(ctx, choice{
				Scenario: s.Scenario, of: s.Scenario, typed: at(s.Form + ".yaml"), servers: &serverFlags{backend: processBackend},
			}, at(name))
			if err != nil {
				return err
			}
			if found.Why = doubt(c, s.Scenario, p.in, p.unexpected); found.Why == "" {
				found.Confirmed, found.Run, found.Scenario = true, confirmation+"/"+name, confirmation+"/"+s.Form+".yaml"
				return nil
			}
			if p.in.Run.AbortReason != "" && p.took > longAttempt {
				break // it waited for what does not come
			}
		}
	}
	return nil
}

// doubt says why a run on real servers does not confirm a simulated one; empty if it
// does. A script has its clients use the resource whether or not they still hold the
// lock, and so its accesses prove something only while the lease lasts, unless the
// simulated client could not notice the end either.
func doubt(c simulation.Case, s scenarios.Scenario, in reports.Input, unexpected error) string {
	if unexpected != nil {
		return unexpected.Error()
	}
	k, _ := checker.KindOf(s.Expect.Violation)
	if c.Careless || !k.ByAccess || slices.ContainsFunc(c.Plan, func(f world.Fault) bool { return f.Name == world.PauseClient }) {
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

// confirmed says in a line what came of a confirmation.
func confirmed(dir string, c *history.Confirmation) string {
	switch {
	case c.Confirmed:
		return fmt.Sprintf("confirmed on real servers in attempt %d: lockchaos reproduce %s", c.Attempts, quoted(filepath.Join(dir, c.Scenario)))
	case c.Attempts == 0:
		return "simulated only: " + c.Why
	default:
		return fmt.Sprintf("simulated only: %d attempts on real servers did not show it (the last: %s)", c.Attempts, cmp.Or(c.Why, "no violation"))
	}
}
