package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/campaign"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/judge"
	"github.com/lockchaos/lockchaos/reports"
)

func (a *app) reportCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "report RUNDIR...",
		Short: "Write the reports of stored runs again, from their stored results",
		Long: `Write the reports of stored runs again, from their stored results, and update the
index of their folder. With --format, print one report to standard output and write
nothing.

If a run directory is damaged or incomplete, the report shows what is there; the
report and the exit code (254) say that something is missing.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var errs []error
			for _, dir := range args {
				err := judge.Bounded(cmd.Context(), func(context.Context) error { return a.reportOne(dir, format) })
				if errors.As(err, new(judge.MemoryError)) {
					return errors.Join(append(errs, harnessError{fmt.Errorf("report %s: %w", dir, err)})...)
				}
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().StringVar(&format, "format", "", "print to standard output: text, markdown, json, junit or html")
	return cmd
}

// reportOne draws one run again, or prints one of its reports.
func (a *app) reportOne(dir, format string) error {
	in, missing := reports.ReadDir(dir)
	if len(in.History.Events) == 0 && in.Run.Version == 0 && len(in.Report.Results) == 0 && missing != nil {
		return missing
	}
	if format != "" {
		return errors.Join(a.printReport(in, dir, format), missing)
	}
	if err := reports.WriteDir(dir, in); err != nil {
		return harnessError{err}
	}
	a.printf("%s\n", say.OneLine(filepath.Join(dir, reports.HTMLFile)))
	if err := updateIndex(filepath.Dir(dir)); err != nil {
		return harnessError{err}
	}
	if missing != nil {
		return fmt.Errorf("drawn without what is missing: %w", missing)
	}
	return nil
}

func reportFormats() []string { return []string{"text", "markdown", "json", "junit", "html"} }

// printReport prints one report.
func (a *app) printReport(in reports.Input, dir, format string) error {
	r := reports.Summarize(in)
	switch format {
	case "text", "json":
		return a.print(r, dir, format == "json")
	case "markdown":
		return asHarness(reports.WriteMarkdown(a.stdout, r))
	case "junit":
		return asHarness(reports.WriteJUnit(a.stdout, r))
	case "html":
		return asHarness(reports.WriteHTML(a.stdout, in))
	default:
		return names.Unknown("format", format, reportFormats())
	}
}

// updateIndex brings the index of a folder of runs up to date, where there is
// one: a folder that the user chose for a single run gets none.
func updateIndex(dir string) error {
	if filepath.Clean(dir) != filepath.Clean(runsDir) && !campaign.Exists(filepath.Join(dir, reports.IndexFile)) {
		return nil
	}
	return reports.UpdateIndex(dir)
}
