package main

import (
	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/harness"
)

// workerCommand is for lockchaos itself: it runs a client of a scenario as a
// process of its own.
func (a *app) workerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    harness.WorkerCommand,
		Short:  "Be a client of a scenario (lockchaos starts it itself)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return asHarness(harness.ServeWorker(cmd.Context(), cmd.InOrStdin(), a.stdout, a.locks))
		},
	}
}
