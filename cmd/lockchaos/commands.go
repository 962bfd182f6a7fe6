package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/container"
)

// version is that of the module, or of the commit that it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return "devel-" + s.Value[:min(12, len(s.Value))]
		}
	}
	return "devel"
}

// commit says which commit a program was built from; nothing where that is not known, as of what a module proxy had.
func commit(info *debug.BuildInfo) string {
	settings := map[string]string{}
	if info != nil {
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
	}
	revision := settings["vcs.revision"]
	if revision == "" {
		return ""
	}
	changed := ""
	if settings["vcs.modified"] == "true" {
		changed = ", changed since"
	}
	return fmt.Sprintf(" (commit %s of %s%s)", revision, settings["vcs.time"], changed)
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, and the commit if it is known",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			info, _ := debug.ReadBuildInfo()
			a.printf("lockchaos %s%s\n", version(), commit(info))
			return nil
		},
	}
}

func (a *app) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of a line of a history",
		Long: `Print the JSON Schema (draft 2020-12) of a line of a history, for programs that
write histories. What takes several lines to see, such as a completion without
its invocation, lockchaos check says.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			a.printf("%s", history.Schema())
			return nil
		},
	}
}

// ownCommand is for lockchaos itself, which starts it: a client of a scenario that is a process of its own, or a worker that
// runs simulations. It does what it is told on its standard input.
func (a *app) ownCommand(use string, serve func(context.Context, io.Reader, io.Writer, harness.Locks) error) *cobra.Command {
	return &cobra.Command{
		Use:    use,
		Short:  "Be a process of a run (lockchaos starts it itself)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return asHarness(serve(cmd.Context(), cmd.InOrStdin(), a.stdout, a.locks))
		},
	}
}

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
