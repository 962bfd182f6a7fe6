package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/fleet"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/simulation"
)

// shard makes a folder with a journal of runs.
func shard(t *testing.T, dir string, h fleet.Header, lines ...fleet.Run) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	h.Format = 1
	f, err := os.Create(filepath.Join(dir, fleet.JournalFile))
	require.NoError(t, err)
	defer f.Close()
	e := json.NewEncoder(f)
	require.NoError(t, e.Encode(h))
	for _, line := range lines {
		require.NoError(t, e.Encode(line))
	}
}

func merge(t *testing.T, args ...string) error {
	t.Helper()
	cmd := (&app{stdout: io.Discard, stderr: io.Discard}).mergeCommand()
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	return cmd.Execute()
}

// A journal is of another machine: what it names is copied into the new folder, and nowhere else.
func TestMergeStaysInItsFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	result, err := json.Marshal(seedResult{Seed: 1, Verdict: checker.Invalid, Results: &reports.Results{Verdict: checker.Invalid}})
	require.NoError(t, err)
	s := filepath.Join(dir, "shards", "s")
	var lines []fleet.Run
	for _, id := range []string{"-", "a", "z/../../x"} {
		lines = append(lines, fleet.Run{ID: id, Job: "seed 1", Dir: "seed-1", Result: result})
	}
	shard(t, s, fleet.Header{Program: "v1", Command: "c", Seeds: "1"}, lines...)
	require.NoError(t, os.MkdirAll(filepath.Join(s, "seed-1"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(s, "seed-1", "a"), nil, 0o600))

	require.ErrorContains(t, merge(t, "--out", filepath.Join(s, "seed-1", "joined"), s), "is inside the shard")
	require.NoError(t, os.Symlink(filepath.Join(s, "seed-1"), filepath.Join(dir, "link")))
	require.ErrorContains(t, merge(t, "--out", filepath.Join(dir, "link", "joined"), s), "is inside the shard")
	out := filepath.Join(dir, "joined", "out")
	require.Equal(t, exitInvalid, exitCode(merge(t, "--out", out, s)))
	for _, name := range []string{"seed-1", "seed-1-2", "seed-1-3"} {
		require.FileExists(t, filepath.Join(out, name, "a"))
	}
	beside, err := filepath.Glob(filepath.Join(dir, "joined", "*"))
	require.NoError(t, err)
	require.Equal(t, []string{out}, beside)
}

// Where one try of a shard was ended before it had written what it found, the other has it, and the repetitions of an
// exact build are judged as those of one process.
func TestMergeTakesWhatAnyTryHas(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	note, err := json.Marshal(simulatedNote{2, true, simulation.Result{Findings: []string{"double-grant"}, Case: simulation.Case{Seed: 1}, Granted: 1, Same: 2}})
	require.NoError(t, err)
	var tries []string
	for _, id := range []string{"a", "b"} {
		s := filepath.Join(dir, id)
		shard(t, s, fleet.Header{Program: "v1", Command: "c", Seeds: "1", Same: true}, fleet.Run{ID: id, Job: "seed 1", Result: note})
		tries = append(tries, s)
	}
	ended := simulatedSearch{Kinds: []*simulatedKind{{Kind: "double-grant", Seed: 1, Plan: []string{"cut"}}}}
	b, err := json.Marshal(ended)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(tries[1], searchFile), b, 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(tries[1], "double-grant"), 0o755))
	out := filepath.Join(dir, "out")
	require.Equal(t, exitInvalid, exitCode(merge(t, append([]string{"--out", out}, tries...)...)))
	require.DirExists(t, filepath.Join(out, "double-grant"))
	b, err = os.ReadFile(filepath.Join(out, searchFile))
	require.NoError(t, err)
	var got simulatedSearch
	require.NoError(t, json.Unmarshal(b, &got))
	require.True(t, got.Exact)
	require.Equal(t, 1, got.Cases)
	require.Equal(t, []string{"cut"}, got.Kinds[0].Plan)
}

// Which case says how requests ended does not depend on which is done first.
func TestSimulatedDenialIsOfTheFirstCase(t *testing.T) {
	t.Parallel()
	var s simulatedSearch
	for _, order := range []int{2, 0, 1} {
		s.add(order, simulation.Result{Denied: []string{"a", "b", "c"}[order]})
	}
	require.Equal(t, "a", s.Denied)
}
