package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/reports"
)

func (a *app) compareCommand() *cobra.Command {
	var page, failOn string
	cmd := &cobra.Command{
		Use:   "compare RUNDIR RUNDIR",
		Short: "Show the differences between two stored runs",
		Long: `Show the differences between two stored runs: the settings, the violations, the
latencies, and how long the locks took to recover. With --html, also write a page
with the plots of both runs on the same axes. With --fail-on worse, the exit code is
1 if the verdict or a property of the second is worse than that of the first: valid
before unknown before invalid.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if failOn != "" && failOn != failOnWorse {
				return fmt.Errorf("--fail-on: %q is not known (want %s)", failOn, failOnWorse)
			}
			err := bounded(cmd.Context(), func(context.Context) error { return a.compare(args, page, failOn) })
			if errors.As(err, new(memoryError)) {
				return harnessError{fmt.Errorf("compare: %w", err)}
			}
			return err
		},
	}
	cmd.Flags().StringVar(&page, "html", "", "also write the comparison to this HTML file")
	cmd.Flags().StringVar(&failOn, "fail-on", "", "worse: exit code 1 if the second run was judged worse than the first")
	return cmd
}

// failOnWorse is the value of --fail-on.
const failOnWorse = "worse"

// compare prints in what two runs differ.
func (a *app) compare(dirs []string, page, failOn string) error {
	var runs [2]reports.Named
	for i, dir := range dirs {
		in, err := reports.ReadDir(dir)
		if err != nil {
			return err
		}
		runs[i] = reports.Named{Name: filepath.Clean(dir), Input: in}
	}
	c := reports.Compare(runs[0], runs[1])
	if err := reports.WriteComparisonText(a.stdout, c); err != nil {
		return harnessError{err}
	}
	if page != "" {
		if err := writeComparison(page, runs); err != nil {
			return harnessError{err}
		}
		a.printf("\n%s\n", page)
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

func writeComparison(path string, runs [2]reports.Named) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write comparison: %w", err)
	}
	defer func() {
		if closeErr := f.Close(); err == nil && closeErr != nil {
			err = fmt.Errorf("write comparison: %w", closeErr)
		}
	}()
	return reports.WriteComparison(f, runs[0], runs[1])
}
