package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/workload/history"
)

func (a *app) checkCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check HISTORY.jsonl... | RUNDIR... | -",
		Short: "Judge recorded histories, ours or anybody's",
		Long: `Judge recorded histories: files of JSON lines, run directories, or - for
standard input. A run directory is judged again, and its reports are rewritten.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var result error
			for i, arg := range args {
				if i > 0 && !asJSON {
					a.printf("\n")
				}
				err := a.checkOne(cmd.Context(), cmd.InOrStdin(), arg, asJSON)
				if exitCode(err) == exitUsage {
					fmt.Fprintf(a.stderr, "lockchaos: %v\n", err)
					err = verdictError(exitUsage)
				}
				result = worst(result, err)
			}
			return result
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print results.json instead of the summary")
	return cmd
}

func (a *app) checkOne(ctx context.Context, stdin io.Reader, arg string, asJSON bool) error {
	if info, err := os.Stat(arg); err == nil && info.IsDir() {
		return a.conclude(arg, asJSON)
	}
	var in reports.Input
	var err error
	if arg == "-" {
		arg = "standard input"
		if in.History, err = history.ReadAll(stdin); err != nil {
			return fmt.Errorf("read standard input: %w", err)
		}
	} else if in.History, err = readHistory(arg); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, checkBudget)
	defer cancel()
	in.Report = checker.Check(ctx, in.History)
	if !asJSON {
		a.printf("%s\n", filepath.Clean(arg))
	}
	if err := a.print(in, "", asJSON); err != nil {
		return err
	}
	return verdictExit(in.Report.Verdict)
}
