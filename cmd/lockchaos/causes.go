package main

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

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/causes"
	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/simulation"
	"github.com/lockchaos/lockchaos/topologies"
)

func (a *app) causesCommand() *cobra.Command {
	var allowExec, asJSON bool
	cmd := &cobra.Command{
		Use:   "causes RUNDIR",
		Short: "Measure what made the violations of a run: play it again with and without its faults, and with a correct lock",
		Long: `Measure what made the violations of a run. Up to the end of the violations of each kind the run is
played again, in turns: with the faults that it had, at the times at which it had them; without each of those
that were in effect (at most three); with that alone; without any; and with a lock that is correct on these
servers. Each way has 5 to 10 runs. What they show stands in results.json and in the reports of the run, and
the runs themselves in its folder causes.

Of a simulated run it measures as well when the violation became likely: from instants along it, 20 runs each
go on otherwise.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			run, err := readRunFile(args[0])
			if err == nil {
				err = causes.Playable(run)
			}
			if err != nil {
				return fmt.Errorf("causes %s: %w", args[0], err)
			}
			if run.Backend == history.Simulated {
				measured := a.simulatedCauses(cmd.Context(), args[0], run)
				return worst(a.conclude(args[0], asJSON), measured)
			}
			r, err := harness.Replay(run, a.locks, allowExec)
			if err != nil {
				return fmt.Errorf("causes %s: %w", args[0], err)
			}
			in, err := judgeOnly(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			measured := a.measureCauses(cmd.Context(), args[0], &in, r, &serverFlags{backend: run.Backend})
			return worst(a.conclude(args[0], asJSON), measured)
		},
	}
	cmd.Flags().BoolVar(&allowExec, "allow-exec", false, "run the command that the record names as its lock (exec:COMMAND)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print results.json instead of the summary")
	return cmd
}

// measureCauses plays a run on real servers again, and notes in its record what that shows.
func (a *app) measureCauses(ctx context.Context, dir string, in *reports.Input, r harness.RandomRun, s *serverFlags) (err error) {
	if in.Report.Verdict != checker.Invalid {
		fmt.Fprintln(a.stderr, "nothing to measure: the run has no violation")
		return nil
	}
	backend, name, err := a.openServers(ctx, s, a.log(io.Discard), topologies.StoreOf(r.Topology))
	if err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(dir, causes.Dir)); err != nil { // of an earlier measurement
		return harnessError{fmt.Errorf("remove earlier runs: %w", err)}
	}
	backend, stop := harness.Pool(backend)
	defer func() { err = asHarness(errors.Join(err, stop(), reports.WriteDir(dir, *in))) }()
	var all []causes.Experiment
	var cost time.Duration
	for _, c := range causes.Clusters(*in) {
		control, err := locks.ControlFor(a.locks, r.Topology, func(l harness.LockSpec) error {
			_, unsuited := r.Control(in.Run, l)
			return errors.Join(unsuited, causes.Shows(l, c.Kind))
		})
		if err != nil {
			return err
		}
		e := causes.Recorded(*in, dir, c, r, control, causes.Servers{Backend: backend, Name: name, Program: version()})
		all, cost = append(all, e), cost+e.Cost()
		fmt.Fprintf(a.stderr, "%s from %s to %s: %d ways to play it, %d to %d times each\n", e.Kind, say.Instant(e.From), say.Instant(e.Until), e.Ways(), e.Least, e.Most)
	}
	fmt.Fprintf(a.stderr, "about %v, and up to twice as long where that does not decide it\n", cost.Round(time.Second))
	in.Run.Causes = nil
	for _, e := range all {
		e.Told = func(arm history.Arm, done, of int) {
			fmt.Fprintf(a.stderr, "%s %s: run %d of %d, %s: %d of %d so far\n", time.Now().UTC().Format("15:04:05"), e.Kind, done, of, armName(arm), arm.Seen, arm.N)
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

// armName is an arm in a word or two.
func armName(arm history.Arm) string {
	if arm.Arm == history.ArmWithout || arm.Arm == history.ArmOnly {
		return fmt.Sprintf("%s fault %d", arm.Arm, arm.Fault+1)
	}
	return arm.Arm
}

// sameAgain is how often a run that comes again otherwise now and then is played to see that.
const sameAgain = 5

// simulatedCauses plays the case of a simulated run again, and notes in its record what that shows.
func (a *app) simulatedCauses(ctx context.Context, dir string, run history.Run) error {
	record, err := simulation.RecordOf(run)
	in, unread := reports.ReadDir(dir)
	if err = errors.Join(err, unread); err != nil {
		return err
	}
	pool, err := newSimulationPool(1)
	if err != nil {
		return err
	}
	defer pool.Close()
	var kinds []string
	until := map[string]time.Duration{}
	for _, c := range causes.Clusters(in) {
		if !slices.Contains(kinds, c.Kind) {
			kinds, until[c.Kind] = append(kinds, c.Kind), c.First
		}
	}
	find := finder(pool)
	if _, err = a.noteSimulatedCauses(ctx, dir, find, record.Case, kinds...); err != nil {
		return err
	}
	again, err := pool.Do(ctx, simulation.Job{Lock: record.Case.Lock, Case: &record.Case, Seed: record.Case.Seed, Again: sameAgain})
	if err != nil {
		return err
	}
	if again.Hash != record.Hash || again.Same < sameAgain { // what came before an instant would not stay
		fmt.Fprintln(a.stderr, "this build does not play the same run again, so that it can't measure when the violation became likely")
		return nil
	}
	_, err = noteInRecord(ctx, dir, func(run *history.Run) error {
		for i := range run.Causes {
			if c := &run.Causes[i]; in.History != nil {
				if err := causes.Likelihood(ctx, c, record.Case, in.History.Events, until[c.Kind], find); err != nil {
					return err
				}
				fmt.Fprintf(a.stderr, "%s: %s\n", c.Kind, cmp.Or(c.Likelihood, "when it became likely is not measured: a search does not find it in this run"))
			}
		}
		return nil
	})
	return err
}

// finder plays cases in a pool, each once.
func finder(pool *simulation.Pool) causes.Finder {
	return causes.Once(func(ctx context.Context, c simulation.Case) ([]string, error) {
		r, err := pool.Do(ctx, simulation.Job{Lock: c.Lock, Case: &c, Seed: c.Seed})
		return r.Findings, err
	})
}

// noteSimulatedCauses measures what makes a case show kinds of violation, and notes it in the record of its run.
func (a *app) noteSimulatedCauses(ctx context.Context, dir string, find causes.Finder, c simulation.Case, kinds ...string) ([]history.Cause, error) {
	return noteInRecord(ctx, dir, func(run *history.Run) error {
		in, err := reports.ReadDir(dir)
		run.Causes = nil
		for _, kind := range kinds {
			control, unsuited := locks.ControlFor(a.locks, c.Topology, func(l harness.LockSpec) error {
				return errors.Join(c.Validate(l), causes.Shows(l, kind))
			})
			if err = errors.Join(err, unsuited); err != nil {
				return err
			}
			cause, err := causes.Simulated(c, in, kind, control, find).Measure(ctx)
			if err != nil {
				return err
			}
			run.Causes = append(run.Causes, cause)
		}
		return nil
	})
}

// noteInRecord changes the record of a run, and writes its reports again. It returns the causes that the record has.
func noteInRecord(ctx context.Context, dir string, change func(*history.Run) error) ([]history.Cause, error) {
	run, err := history.Dir(dir).Run()
	if err == nil {
		err = change(&run)
	}
	if err == nil {
		err = history.Dir(dir).WriteRun(run)
	}
	if err == nil {
		_, err = judge(ctx, dir)
	}
	return run.Causes, asHarness(err)
}
