package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/campaign"
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

// campaignShard is a folder with 20 runs of a lock on a host, of which so many found a double grant, and the others are of a verdict.
func campaignShard(t *testing.T, host, lock string, found int, rest checker.Verdict) string {
	t.Helper()
	dir := t.TempDir()
	var lines []fleet.Run
	for seed := 1; seed <= 20; seed++ {
		r := reports.Results{Verdict: rest, Lock: lock, Topology: "sentinel"}
		if seed <= found {
			r.Verdict = checker.Invalid
			r.Properties = []checker.Result{{Violations: []checker.Violation{{Kind: checker.DoubleGrant, From: time.Minute}, {Kind: checker.DoubleGrant, From: time.Duration(seed) * time.Second}}}}
		}
		r.Seed, r.Command = uint64(seed), fmt.Sprint("lockchaos run --seed ", seed)
		b, err := json.Marshal(campaign.Note{Results: r, Mix: "all"})
		require.NoError(t, err)
		lines = append(lines, fleet.Run{ID: fmt.Sprint(dir, seed), Job: fmt.Sprint("seed ", seed), Host: host, Result: b})
	}
	shard(t, dir, fleet.Header{Program: "v1", Command: "lockchaos run", Seeds: "1-20"}, lines...)
	return dir
}

// The nights of a campaign in order: what each adds, what is printed of it, and what it ends with.
func TestCampaignsOverNights(t *testing.T) {
	t.Parallel()
	store := t.TempDir()
	play := func(args ...string) (string, int) {
		var out bytes.Buffer
		code := run(append([]string{"campaign", "--store", store}, args...), &out, &out)
		return out.String(), code
	}
	clean := campaignShard(t, "a", "mutex", 0, checker.Valid)
	canary := campaignShard(t, "a", "broken-plain-delete", 1, checker.Valid)
	known := func(text string) {
		require.NoError(t, os.WriteFile(filepath.Join(store, campaign.KnownFile), []byte(text), 0o600))
	}
	for _, night := range []struct {
		args   []string
		known  string
		exit   int
		prints []string
	}{
		{args: []string{clean}, prints: []string{"lockchaos run --seeds 1-20: 20 runs judged, 0 kinds found"}},
		{args: []string{"--canary", canary, clean}},
		{args: []string{"--canary", campaignShard(t, "a", "broken-plain-delete", 0, checker.Valid), clean}, exit: exitUnknown, prints: []string{"the planted bug was not convicted on a"}},
		{args: []string{"--canary", campaignShard(t, "b", "broken-plain-delete", 1, checker.Valid), clean}, exit: exitUnknown, prints: []string{"not convicted on a"}},
		{args: []string{"--canary", clean, clean}, exit: exitUsage, prints: []string{"--canary", "mutex, which has no planted bug"}},
		{args: []string{campaignShard(t, "a", "mutex", 1, checker.Unknown)}, exit: exitInvalid, prints: []string{"double-grant of mutex on sentinel, faults all", "1 of 1", "NEW", "lockchaos run --seed 1", "19 runs could not be decided"}},
		{args: []string{campaignShard(t, "a", "mutex", 0, checker.Unknown)}, exit: exitUnknown, prints: []string{"20 runs could not be decided"}},
		{args: []string{"--undecided", "99", campaignShard(t, "a", "mutex", 1, checker.Unknown)}, exit: exitInvalid, prints: []string{"19 runs could not be decided: within the 99 % of --undecided"}},
		{args: []string{"--undecided", "99", campaignShard(t, "a", "mutex", 0, checker.Unknown)}, exit: exitUnknown, prints: []string{"unknown: 20 runs could not be decided"}},
		{args: []string{"--undecided", "100", clean}, exit: exitUsage, prints: []string{"want a percentage of the runs, 0 to 99"}},
		{args: []string{campaignShard(t, "a", "mutex", 2, checker.Valid)}, exit: exitInvalid, prints: []string{"2 of 20", "OPEN"}},
		{args: []string{campaignShard(t, "a", "mutex", 2, checker.Valid)}, known: "- {kind: double-grant, lock: mutex, why: replicas lag}", prints: []string{"known: replicas lag", "4 of 22"}},
		{args: []string{campaignShard(t, "a", "mutex", 0, checker.Valid)}, prints: []string{"not seen"}},
		{args: []string{clean}, prints: []string{"20 runs judged, 0 kinds found"}}, // the night before the first that found one
		{args: []string{campaignShard(t, "a", "mutex", 18, checker.Valid)}, exit: exitInvalid, prints: []string{"18 of 20", "WORSE"}},
		{args: []string{clean}, known: "- {kind: double-grant}", exit: exitUsage, prints: []string{"entry 1 needs a kind, and a why"}},
		{args: []string{clean}, known: "- {kind: double-grants, why: lag}", exit: exitUsage, prints: []string{"did you mean double-grant?"}},
	} {
		if night.known != "" {
			known(night.known)
		}
		out, exit := play(night.args...)
		require.Equal(t, night.exit, exit, out)
		for _, text := range night.prints {
			require.Contains(t, out, text)
		}
	}
	known("[]")
	// What was never played is not remembered, unless the user says that it will never be.
	part := t.TempDir()
	note, err := json.Marshal(campaign.Case{Result: simulation.Result{Findings: []string{checker.Stuck}, Granted: 1, Case: simulation.Case{Lock: "fair", Topology: "single", Seed: 1}}})
	require.NoError(t, err)
	shard(t, part, fleet.Header{Program: "v1", Command: "lockchaos simulate", Seeds: "1-2", Same: true}, fleet.Run{ID: "a", Job: "seed 1", Result: note})
	out, exit := play(part)
	require.Equal(t, exitUnknown, exit)
	require.Contains(t, out, "never played: seed 2")
	m, err := campaign.Remember(store)
	require.NoError(t, err)
	require.Len(t, m.Findings, 1)
	out, exit = play("--partial", part)
	require.Equal(t, exitInvalid, exit)
	require.Contains(t, out, "lockchaos simulate --seeds 1")
	_, exit = play(t.TempDir())
	require.Equal(t, exitUsage, exit)
}
