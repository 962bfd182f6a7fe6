package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/reports"
)

// longHistory writes a history that is judged as it streams by: two clients
// take turns; at the end, where it is wanted, both hold the lock.
func longHistory(t *testing.T, wrong bool) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "history.jsonl.gz")
	f, err := os.Create(path)
	require.NoError(t, err)
	w := gzip.NewWriter(f)
	at := 0
	write := func(process int, typ, op string, owner int) {
		at++
		_, err := fmt.Fprintf(w, `{"time":%d,"process":%d,"type":%q,"op":%q,"lock":"k","owner":"o%d"}`+"\n", at*1000, process, typ, op, owner)
		require.NoError(t, err)
	}
	write(0, "invoke", "acquire", 0)
	write(0, "ok", "acquire", 0)
	owner := 0
	for ; at < storyEvents+20_000; owner++ {
		write((owner+1)%2, "invoke", "acquire", owner+1)
		write(owner%2, "invoke", "release", owner)
		write(owner%2, "ok", "release", owner)
		write((owner+1)%2, "ok", "acquire", owner+1)
	}
	if wrong {
		write(2, "invoke", "acquire", owner+1)
		write(2, "ok", "acquire", owner+1)
		write(owner%2, "invoke", "release", owner)
		write(owner%2, "ok", "release", owner)
	}
	require.NoError(t, w.Close())
	require.NoError(t, f.Close())
	return path
}

func TestALongHistoryIsJudgedAsItStreamsBy_NoRace(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the history is long")
	}
	t.Parallel()
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitValid, run([]string{"check", longHistory(t, false)}, &stdout, &stderr), stderr.String())
	require.Contains(t, stdout.String(), "VALID  No violation")
	require.Contains(t, stdout.String(), "events over")

	path := longHistory(t, true)
	part := filepath.Join(t.TempDir(), "part.jsonl")
	stdout.Reset()
	require.Equal(t, exitInvalid, run([]string{"check", "--explain", "--minimal", part, path}, &stdout, &stderr), stderr.String())
	require.Contains(t, stdout.String(), "mutual-exclusion is violated")
	require.Contains(t, stdout.String(), "this part alone shows it")
	require.Equal(t, exitInvalid, run([]string{"check", part}, &stdout, &stderr), stderr.String())

	stdout.Reset()
	require.Equal(t, exitInvalid, run([]string{"check", "--json", path}, &stdout, &stderr), stderr.String())
	var results struct {
		Verdict string
		Events  int
	}
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &results))
	require.Equal(t, "invalid", results.Verdict)
	require.Greater(t, results.Events, storyEvents)
}

// The history of a run is judged with its record, unless that would take too much
// memory.
func TestHistoryOfARunThatIsTooLongForItsRecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, reports.HistoryFile)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	is, _ := (&judging{from: "lockchaos"}).ofRun(path)
	require.False(t, is, "no record")
	require.NoError(t, os.WriteFile(filepath.Join(dir, reports.RunFile), nil, 0o600))
	for size, want := range map[int64]bool{mostOfRun: false, mostOfRun + 1: true} {
		require.NoError(t, os.Truncate(path, size))
		is, long := (&judging{from: "lockchaos"}).ofRun(path)
		require.True(t, is)
		require.Equal(t, want, long)
	}
}
