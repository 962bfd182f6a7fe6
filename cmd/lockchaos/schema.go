package main

import (
	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/history"
)

func (a *app) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of a line of a history",
		Long: `Print the JSON Schema (draft 2020-12) of a line of a history, for programs that
write histories. What takes several lines to see, such as a completion without
its invocation, lockchaos check says.`,
		Example: `  lockchaos schema > history.schema.json`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			a.printf("%s", history.Schema())
			return nil
		},
	}
}
