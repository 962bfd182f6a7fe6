package main

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/reports"
)

func (a *app) reportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "report RUNDIR...",
		Short: "Draw stored runs again, from their stored results",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			for _, dir := range args {
				in, err := reports.ReadDir(dir)
				if err != nil {
					return err
				}
				if err := reports.WriteDir(dir, in); err != nil {
					return harnessError{err}
				}
				a.printf("%s\n", filepath.Join(dir, reports.HTMLFile))
			}
			return nil
		},
	}
}
