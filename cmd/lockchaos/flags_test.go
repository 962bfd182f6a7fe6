package main

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// A command that is shown to be repeated doesn't say where its output went, which is a path of
// the machine on which it ran.
func TestChangedFlagsLeaveFilesOfOutputOut(t *testing.T) {
	cmd := (&app{}).benchCommand()
	require.NoError(t, cmd.ParseFlags([]string{
		"--rounds", "7", "--lock", "mutex", "--out", "dir", "--format", "json",
	}))
	require.Equal(t, " --lock mutex --rounds 7 --seed 1", changedFlags(cmd))
	require.Equal(t, " --lock mutex --rounds 7", flagsWithSeed(cmd, ""))
}

// The seed is that of lockchaos, and not one that a driver is started with: campaigns of two drivers are two.
func TestFlagsWithASeedOfADriver(t *testing.T) {
	var o runOptions
	cmd := &cobra.Command{}
	o.register(cmd)
	require.NoError(t, cmd.ParseFlags([]string{"--lock", "exec:driver --seed 1 -x", "--seeds", "1-2"}))
	o.seeds = "1-2"
	require.Equal(t, " --lock 'exec:driver --seed 1 -x' --seed 2", o.again(cmd, 2))
	require.Equal(t, " --lock 'exec:driver --seed 1 -x'", flagsWithSeed(cmd, ""))
}
