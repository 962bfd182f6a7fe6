//go:build linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/fleet"
)

// A shard that is killed at any moment goes on, and finds what one finds that nothing stops.
func TestAKilledShardGoesOn_NoRace(t *testing.T) {
	t.Parallel()
	simulate := func(out string) *exec.Cmd {
		return lockchaos(t, "simulate", "--lock", "broken-plain-delete", "--seeds", "1-12", "--parallel", "1", "--shrink", "5", "--judged-is-ok", "--resume", "--out", out)
	}
	whole := filepath.Join(t.TempDir(), "whole")
	out, err := simulate(whole).CombinedOutput()
	require.NoError(t, err, "%s", out)
	want, err := os.ReadFile(filepath.Join(whole, searchFile))
	require.NoError(t, err)

	killed := filepath.Join(t.TempDir(), "killed")
	journal := filepath.Join(killed, fleet.JournalFile)
	lines := func() int {
		b, _ := os.ReadFile(journal)
		return bytes.Count(b, []byte("\n"))
	}
	for _, after := range []int{1, 4, 9, 13} { // at the header, amid the seeds, and while what was found is made small
		cmd := simulate(killed)
		require.NoError(t, cmd.Start())
		awaits(t, "a line of the journal", func() bool { return lines() >= after })
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
	}
	before := lines()
	require.Equal(t, 13, before, "the header, and each seed once")
	out, err = simulate(killed).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, before, lines(), "no seed was played again")
	got, err := os.ReadFile(filepath.Join(killed, searchFile))
	require.NoError(t, err)
	replayed := regexp.MustCompile(`"replayed_identically": \w+`) // which only the exact build promises
	require.Equal(t, replayed.ReplaceAllString(string(want), ""), replayed.ReplaceAllString(string(got), ""))
}
