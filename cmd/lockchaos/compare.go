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
	var page string
	cmd := &cobra.Command{
		Use:   "compare RUNDIR RUNDIR",
		Short: "Show the differences between two stored runs",
		Long: `Show the differences between two stored runs: the settings, the violations, the
latencies, and how long the locks took to recover. With --html, also write a page
with the plots of both runs on the same axes.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := bounded(cmd.Context(), func(context.Context) error { return a.compare(args, page) })
			if errors.As(err, new(memoryError)) {
				return harnessError{fmt.Errorf("compare: %w", err)}
			}
			return err
		},
	}
	cmd.Flags().StringVar(&page, "html", "", "also write the comparison to this HTML file")
	return cmd
}

// compare prints in what two runs differ.
func (a *app) compare(dirs []string, page string) error {
	var runs [2]reports.Named
	for i, dir := range dirs {
		in, err := reports.ReadDir(dir)
		if err != nil {
			return err
		}
		runs[i] = reports.Named{Name: filepath.Clean(dir), Input: in}
	}
	if err := reports.WriteComparisonText(a.stdout, reports.Compare(runs[0], runs[1])); err != nil {
		return harnessError{err}
	}
	if page == "" {
		return nil
	}
	if err := writeComparison(page, runs); err != nil {
		return harnessError{err}
	}
	a.printf("\n%s\n", page)
	return nil
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
