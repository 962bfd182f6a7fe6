package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A command that is shown to be repeated doesn't say where its output went, which is a path of
// the machine on which it ran.
func TestChangedFlagsLeaveFilesOfOutputOut(t *testing.T) {
	cmd := (&app{}).benchCommand()
	require.NoError(t, cmd.ParseFlags([]string{
		"--rounds", "7", "--lock", "mutex", "--out", "dir", "--json", "a.json", "--markdown", "a.md",
	}))
	require.Equal(t, " --lock mutex --rounds 7 --seed 1", changedFlags(cmd))
}
