package campaign

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
	"github.com/lockchaos/lockchaos/judge"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/scenarios"
	"github.com/lockchaos/lockchaos/simulation"
	"github.com/lockchaos/lockchaos/simulation/confirm"
	"github.com/lockchaos/lockchaos/simulation/world"
	"github.com/lockchaos/lockchaos/topologies"
)

// attemptsOfForm is how often each form of a script is played, until one run shows the
// violation.
const attemptsOfForm = 3

// longAttempt is a run after which a script is not played again whose step could not be
// done.
const longAttempt = 20 * time.Second

// confirmation is where the scenarios and runs of a confirmation are, in the directory of the simulated run.
const confirmation = "confirm"

// Confirm plays the simulated run of a directory on real servers, and notes in its record whether they show the same kind of
// violation. No attempt begins after until. repeat is the command that plays the scenario in a file.
func (p Player) Confirm(ctx context.Context, dir string, l harness.LockSpec, r simulation.Result, kind string, until time.Time, repeat func(file string) string) (history.Confirmation, error) {
	found := history.Confirmation{Violation: kind}
	in, err := judge.Read(ctx, dir)
	if err != nil {
		return found, err
	}
	var shows []checker.Violation
	for _, r := range in.Report.Results {
		shows = append(shows, slices.DeleteFunc(r.Violations, func(v checker.Violation) bool { return v.Kind != kind })...)
	}
	if len(shows) == 0 {
		return found, fmt.Errorf("the simulated run in %s shows no %s", dir, kind)
	}
	if scripts, wrong := confirm.Scripts(r.Case, l, *r.Outcome, shows[0]); wrong != nil {
		found.Why = "it can't be played: " + wrong.Error()
	} else if err = p.playScripts(ctx, dir, r.Case, scripts, until, repeat, &found); err != nil {
		return found, err
	}
	return found, judge.Amend(context.Background(), dir, func(run *history.Run) error {
		run.Confirmation = &found
		return nil
	})
}

// playScripts writes the scripts and plays them until one shows the violation.
func (p Player) playScripts(ctx context.Context, dir string, c simulation.Case, scripts []confirm.Script, until time.Time, repeat func(file string) string, found *history.Confirmation) error {
	file := func(s confirm.Script) string { return filepath.Join(confirmation, s.Form+".yaml") }
	for _, s := range scripts {
		path := filepath.Join(dir, file(s))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, s.YAML, 0o644)); err != nil { //nolint:gosec // others may read it
			return fmt.Errorf("write scenario: %w", err)
		}
		found.Scenario = cmp.Or(found.Scenario, file(s))
	}
	for _, s := range scripts {
		for range attemptsOfForm {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			if time.Now().After(until) {
				found.Why = cmp.Or(found.Why, "no attempt was made") + "; the time of --confirm-limit is over"
				return nil
			}
			found.Attempts++
			fmt.Fprintf(p.Out, "%s: attempt %d on real servers, %s script\n", found.Violation, found.Attempts, s.Form)
			to := filepath.Join(confirmation, fmt.Sprintf("%s-%d", s.Form, found.Attempts))
			played, err := p.Play(ctx, Run{
				Config: harness.Config{Dir: filepath.Join(dir, to), Command: repeat(filepath.Join(dir, file(s)))},
				Make:   s.Scenario.Run, Store: topologies.StoreOf(c.Topology), Title: s.Scenario.Name,
			})
			if err = errors.Join(played.Failed, err); err != nil {
				return err
			}
			if found.Why = doubt(c, s.Scenario, played.Input, s.Scenario.Expect.Met(played.Run, played.Report)); found.Why == "" {
				found.Confirmed, found.Run, found.Scenario = true, to, file(s)
				return nil
			}
			if played.Run.AbortReason != "" && played.Took > longAttempt {
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
