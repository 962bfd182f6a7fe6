package causes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/campaign"
	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/judge"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/simulation"
	"github.com/lockchaos/lockchaos/topologies"
)

// A Chooser chooses the control lock of a topology: the first correct lock of which unsuited says nothing.
type Chooser func(topology string, unsuited func(harness.LockSpec) error) (harness.LockSpec, error)

// NoteRecorded plays the run of a run directory again, and notes in its record and its reports what that shows. The player tells
// of each run.
func NoteRecorded(ctx context.Context, dir string, in *reports.Input, r harness.RandomRun, control Chooser, p campaign.Player) (err error) {
	if in.Report.Verdict != checker.Invalid {
		fmt.Fprintln(p.Out, "nothing to measure: the run has no violation")
		return nil
	}
	if err := os.RemoveAll(filepath.Join(dir, Dir)); err != nil { // of an earlier measurement
		return fmt.Errorf("remove earlier runs: %w", err)
	}
	p, stop, err := p.Pooled(ctx, io.Discard, topologies.StoreOf(r.Topology))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop(), reports.WriteDir(dir, *in)) }()
	var all []Experiment
	var cost time.Duration
	for _, c := range Clusters(*in) {
		l, err := control(r.Topology, func(l harness.LockSpec) error {
			_, unsuited := r.Control(in.Run, l)
			return errors.Join(unsuited, Shows(l, c.Kind))
		})
		if err != nil {
			return err
		}
		e := Recorded(*in, dir, c, r, l, p)
		all, cost = append(all, e), cost+e.Cost()
		fmt.Fprintf(p.Out, "%s from %s to %s: %d ways to play it, %d to %d times each\n", e.Kind, say.Instant(e.From), say.Instant(e.Until), e.Ways(), e.Least, e.Most)
	}
	fmt.Fprintf(p.Out, "about %v, and up to twice as long where that does not decide it\n", cost.Round(time.Second))
	in.Run.Causes = nil
	for _, e := range all {
		e.Told = func(arm history.Arm, done, of int) {
			fmt.Fprintf(p.Out, "%s %s: run %d of %d, %s: %d of %d so far\n", time.Now().UTC().Format("15:04:05"), e.Kind, done, of, nameOf(arm), arm.Seen, arm.N)
		}
		c, failed := e.Measure(ctx)
		if slices.ContainsFunc(c.Arms, func(arm history.Arm) bool { return arm.N > 0 }) {
			in.Run.Causes = append(in.Run.Causes, c)
		}
		if err := errors.Join(failed, history.Dir(dir).WriteRun(in.Run)); err != nil || ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
	}
	return nil
}

// nameOf is an arm in a word or two.
func nameOf(arm history.Arm) string {
	if arm.Arm == history.ArmWithout || arm.Arm == history.ArmOnly {
		return fmt.Sprintf("%s fault %d", arm.Arm, arm.Fault+1)
	}
	return arm.Arm
}

// NoteCase measures what makes a case show kinds of violation, and notes it in the record of the run in a directory.
func NoteCase(ctx context.Context, dir string, c simulation.Case, control Chooser, find Finder, kinds ...string) (all []history.Cause, err error) {
	return all, judge.Amend(ctx, dir, func(run *history.Run) error {
		in, err := reports.ReadDir(dir)
		for _, kind := range kinds {
			l, unsuited := control(c.Topology, func(l harness.LockSpec) error { return errors.Join(c.Validate(l), Shows(l, kind)) })
			if err = errors.Join(err, unsuited); err != nil {
				return err
			}
			cause, err := Simulated(c, in, kind, l, find).Measure(ctx)
			if err != nil {
				return err
			}
			all = append(all, cause)
		}
		run.Causes = all
		return nil
	})
}

// sameAgain is how often a run that comes again otherwise now and then is played to see that.
const sameAgain = 5

// NoteSimulated plays the case of the simulated run in a directory again, and notes in its record what that shows, and when each
// violation became likely, which it tells out.
func NoteSimulated(ctx context.Context, dir string, record simulation.Record, control Chooser, pool *simulation.Pool, out io.Writer) error {
	in, err := reports.ReadDir(dir)
	if err != nil {
		return err
	}
	var kinds []string
	until := map[string]time.Duration{}
	for _, c := range Clusters(in) {
		if !slices.Contains(kinds, c.Kind) {
			kinds, until[c.Kind] = append(kinds, c.Kind), c.First
		}
	}
	find := InPool(pool)
	if _, err = NoteCase(ctx, dir, record.Case, control, find, kinds...); err != nil {
		return err
	}
	again, err := pool.Do(ctx, simulation.Job{Lock: record.Case.Lock, Case: &record.Case, Seed: record.Case.Seed, Again: sameAgain})
	if err != nil {
		return err
	}
	if again.Hash != record.Hash || again.Same < sameAgain { // what came before an instant would not stay
		fmt.Fprintln(out, "this build does not play the same run again, so that it can't measure when the violation became likely")
		return nil
	}
	return judge.Amend(ctx, dir, func(run *history.Run) error {
		for i := range run.Causes {
			c := &run.Causes[i]
			if err := Likelihood(ctx, c, record.Case, in.History.Events, until[c.Kind], find); err != nil {
				return err
			}
			fmt.Fprintf(out, "%s: %s\n", c.Kind, cmp.Or(c.Likelihood, "when it became likely is not measured: a search does not find it in this run"))
		}
		return nil
	})
}
