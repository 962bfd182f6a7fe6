package main

import (
	"io"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// Each command that a user can find has an example in its help.
func TestEveryHelpHasAnExample(t *testing.T) {
	t.Parallel()
	var look func(*cobra.Command)
	look = func(cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		require.Contains(t, cmd.Example, "  lockchaos ", cmd.CommandPath())
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	look(newRoot(io.Discard, io.Discard))
}
