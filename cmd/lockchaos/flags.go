package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// changedFlags are the flags that repeat a command: those that were given, but
// for where the output goes. The seed is named in any case.
func changedFlags(cmd *cobra.Command) string {
	var b strings.Builder
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		switch f.Name {
		case "out", "json", "verbose", "help":
			return
		case "seed":
		default:
			if !f.Changed {
				return
			}
		}
		b.WriteString(" --" + f.Name)
		if f.Value.Type() != "bool" {
			b.WriteString(" " + f.Value.String())
		}
	})
	return b.String()
}
