package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/causes"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/judge"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/simulation"
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
			in, err := judge.Read(cmd.Context(), args[0])
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

// control chooses the control lock of a measurement.
func (a *app) control(topology string, unsuited func(harness.LockSpec) error) (harness.LockSpec, error) {
	return locks.ControlFor(a.locks, topology, unsuited)
}

// measureCauses plays a run on real servers again, and notes in its record what that shows.
func (a *app) measureCauses(ctx context.Context, dir string, in *reports.Input, r harness.RandomRun, s *serverFlags) error {
	return asHarness(causes.NoteRecorded(ctx, dir, in, r, a.control, a.player(s)))
}

// simulatedCauses plays the case of a simulated run again, and notes in its record what that shows.
func (a *app) simulatedCauses(ctx context.Context, dir string, run history.Run) error {
	record, err := simulation.RecordOf(run)
	if err != nil {
		return err
	}
	pool, err := newSimulationPool(1)
	if err != nil {
		return err
	}
	defer pool.Close()
	return asHarness(causes.NoteSimulated(ctx, dir, record, a.control, pool, a.stderr))
}
