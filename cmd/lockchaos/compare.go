package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/campaign"
	"github.com/lockchaos/lockchaos/fleet"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/judge"
	"github.com/lockchaos/lockchaos/reports"
)

func (a *app) compareCommand() *cobra.Command {
	var failOn string
	cmd := &cobra.Command{
		Use:   "compare RUNDIR RUNDIR",
		Short: "Show the differences between two stored runs, or two folders of runs",
		Long: `Show the differences between two stored runs: the settings, the violations, the
latencies, and how long the locks took to recover. With --fail-on worse, the exit
code is 1 if the verdict or a property of the second is worse than that of the first:
valid before unknown before invalid.

Of two folders of runs, such as those of two nights, it shows in how many runs of each
kind a verdict was not as it must be, and which runs with the same seed were judged
otherwise.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if failOn != "" && failOn != failOnWorse {
				return fmt.Errorf("--fail-on: %q is not known (want %s)", failOn, failOnWorse)
			}
			err := judge.Bounded(cmd.Context(), func(context.Context) error { return a.compare(args, failOn) })
			if errors.As(err, new(judge.MemoryError)) {
				return harnessError{fmt.Errorf("compare: %w", err)}
			}
			return err
		},
	}
	cmd.Flags().StringVar(&failOn, "fail-on", "", "worse: exit code 1 if the second run was judged worse than the first")
	return cmd
}

// failOnWorse is the value of --fail-on.
const failOnWorse = "worse"

// compare prints in what two runs differ.
func (a *app) compare(dirs []string, failOn string) error {
	if !history.Dir(dirs[0]).Exists() && !history.Dir(dirs[1]).Exists() {
		for _, dir := range dirs {
			ended := campaign.Exists(filepath.Join(dir, reports.ResultsFile)) || campaign.Exists(filepath.Join(dir, campaign.SearchFile))
			if !ended && campaign.Exists(filepath.Join(dir, fleet.JournalFile)) {
				return fmt.Errorf("%s has a campaign that has not ended: go on with it (--resume), or join what was played (lockchaos merge)", dir)
			}
		}
		c, err := reports.CompareFolders(filepath.Clean(dirs[0]), filepath.Clean(dirs[1]))
		if err != nil {
			return err
		}
		return a.compared(c, failOn)
	}
	var runs [2]reports.Named
	for i, dir := range dirs {
		in, err := reports.ReadDir(dir)
		if err != nil {
			return err
		}
		runs[i] = reports.Named{Name: filepath.Clean(dir), Input: in}
	}
	return a.compared(reports.Compare(runs[0], runs[1]), failOn)
}

// compared prints a comparison, and says whether the second is worse where that is to fail.
func (a *app) compared(c reports.Comparison, failOn string) error {
	if err := reports.WriteComparisonText(a.stdout, c); err != nil {
		return harnessError{err}
	}
	if failOn == "" || len(c.Worse) == 0 {
		return nil
	}
	a.printf("\nB is worse than A:\n")
	for _, words := range c.Worse {
		a.printf("- %s\n", words)
	}
	return verdictError(exitInvalid)
}
