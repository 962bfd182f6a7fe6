package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/container"
)

func (a *app) cleanCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "clean",
		Short: "Remove the containers, networks and folders that killed runs left behind",
		Long: `Remove the containers, networks and folders of runs whose harness is dead. It does
not touch those of a run that is under way, and not those that make up started.
Local processes need no cleaning: they never outlive their run.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			removed, err := container.Clean(cmd.Context())
			for _, what := range removed {
				a.printf("removed %s\n", what)
			}
			switch {
			case errors.Is(err, topologies.ErrMissing):
				a.printf("nothing to remove: %v\n", err)
				return nil
			case err != nil:
				return harnessError{err}
			case len(removed) == 0:
				a.printf("nothing to remove\n")
			}
			return nil
		},
	}
}
