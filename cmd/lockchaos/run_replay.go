package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
)

// besideReplay are the flags that mean something beside --replay: where the
// servers are, and where the output goes.
var besideReplay = append([]string{ //nolint:gochecknoglobals // a constant
	"replay", "allow-exec", "backend", "image", "out", "json", "verbose", "help",
}, attachFlags...)

// onlyBesideReplay refuses flags other than those that mean something beside --replay.
func onlyBesideReplay(cmd *cobra.Command, allowed ...string) error {
	var others []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !slices.Contains(allowed, f.Name) {
			others = append(others, "--"+f.Name)
		}
	})
	if slices.Sort(others); len(others) > 0 {
		return fmt.Errorf("--replay runs what is in the record: leave out %s", strings.Join(others, ", "))
	}
	return nil
}

// readReplay takes the run from a record, all but the backend if the user named
// one.
func (o *runOptions) readReplay(cmd *cobra.Command, locks harness.Locks) error {
	if err := onlyBesideReplay(cmd, besideReplay...); err != nil {
		return err
	}
	run, err := readRunFile(o.replay)
	if err != nil {
		return fmt.Errorf("--replay: %w", err)
	}
	if o.RandomRun, err = harness.Replay(run, locks, o.allowExec); err != nil {
		return fmt.Errorf("--replay %s: %w", o.replay, err)
	}
	o.seed = run.Seed
	named := slices.ContainsFunc(attachFlags, func(name string) bool { return cmd.Flag(name).Changed })
	switch {
	case o.servers.backend != autoBackend, named, !slices.Contains(backendNames(), run.Backend):
	case run.Backend == attachBackend:
		return fmt.Errorf("--replay %s: its servers were attached to: say which ones now, by --endpoints or --compose, or --backend process", o.replay)
	default:
		o.servers.backend = run.Backend
	}
	return nil
}

// readRunFile reads the record of a run, of which the folder or the file is named.
func readRunFile(path string) (history.Run, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return history.Dir(path).Run()
	}
	return history.ReadRunFile(path)
}
