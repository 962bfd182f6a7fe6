package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/campaign"
	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/fleet"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/judge"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/scenarios"
)

// What could not be undone is told of, whichever of several runs ended first.
func TestWorst(t *testing.T) {
	t.Parallel()
	broken := harnessError{errors.New("heal cut: it is still cut")}
	ended := harnessError{fmt.Errorf("boot: %w", context.Canceled)}
	require.Equal(t, broken, worst(ended, broken))
	require.Equal(t, broken, worst(broken, ended))
	require.Equal(t, broken, worst(verdictError(exitInvalid), broken))
	require.Equal(t, ended, worst(ended, nil))
	require.Equal(t, ended, worst(nil, ended))
	require.NoError(t, worst(nil, nil))
}

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

// What a scenario comes to depends on how often it gave its verdict, on what it
// gave instead, and on whether the harness did its part.
func TestTheExitOfSeveralRuns(t *testing.T) {
	t.Parallel()
	judged := func(v checker.Verdict, unexpected error) scriptRun {
		return scriptRun{Played: campaign.Played{Input: reports.Input{Report: checker.Report{Verdict: v}}}, unexpected: unexpected}
	}
	other := errors.New("it gave another verdict")
	invalid, valid := judged(checker.Invalid, nil), judged(checker.Valid, nil)
	missed, unknown := judged(checker.Valid, other), judged(checker.Unknown, other)
	broken, unsuited := unknown, unknown
	unsuited.Run.Unsuited = "step 2: it was refused"
	broken.Failed = harnessError{errors.New("heal cut: it is still cut")}
	times := func(n int, p scriptRun, and ...scriptRun) []scriptRun {
		for range n {
			and = append(and, p)
		}
		return and
	}
	tests := []struct {
		name      string
		expect    string
		everyTime bool
		runs      []scriptRun
		want      int
	}{
		{"all gave it", "invalid", false, times(3, invalid), exitValid},
		{"nine of ten", "invalid", false, times(9, invalid, missed), exitValid},
		{"nine of ten of one that must each time", "invalid", true, times(9, invalid, missed), exitInvalid},
		{"eight of ten", "invalid", false, times(8, invalid, missed, unknown), exitInvalid},
		{"nothing is known", "invalid", false, times(2, unknown), exitUnknown},
		{"a cure that failed once", "valid", false, times(9, valid, judged(checker.Invalid, other)), exitInvalid},
		{"one that can't be asked of the lock", "valid", true, times(2, unsuited), exitValid},
		{"one that could be asked once", "valid", true, times(1, unsuited, judged(checker.Valid, nil)), exitInvalid},
		{"a heal that failed once", "valid", false, times(9, valid, broken), exitHarness},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := scenarios.Scenario{Name: "x", Expect: scenarios.Expectation{Verdict: tt.expect}, EveryTime: tt.everyTime}
			got := (&scenarioResult{choice: choice{Scenario: s}, runs: tt.runs}).exit(len(tt.runs))
			require.Equal(t, tt.want, exitCode(got), "%v", got)
		})
	}
}

// settingsOf are the settings of a run that its record keeps, by their names in JSON.
func settingsOf(r reflect.Value) map[string]any {
	all := map[string]any{}
	for field, value := range r.Fields() {
		switch name, _, _ := strings.Cut(field.Tag.Get("json"), ","); {
		case name == "-", field.Name == "Lock":
		case name != "":
			all[name] = value.Interface()
		case value.Kind() == reflect.Struct:
			maps.Copy(all, settingsOf(value))
		}
	}
	return all
}

// Each setting that run.json keeps has one flag of the same name, which changes nothing
// else, and is in the description of the file.
func TestRunFlags_reachEverySetting(t *testing.T) {
	t.Parallel()
	values := map[string]string{"int": "7", "duration": "7s", "float64": "7.5", "bool": "true", "string": "seven"}
	names := slices.Sorted(maps.Keys(settingsOf(reflect.ValueOf(harness.RandomRun{}))))
	require.NotEmpty(t, names)
	format, err := os.ReadFile("../../docs/history-format.md")
	require.NoError(t, err)
	_, row, found := strings.Cut(string(format), "\n| `settings` |")
	require.True(t, found)
	row, _, _ = strings.Cut(row, "\n")
	for _, name := range names {
		require.Contains(t, row, "`"+name+"`")
		var o runOptions
		cmd := &cobra.Command{}
		o.register(cmd)
		want := settingsOf(reflect.ValueOf(o.RandomRun))
		f := cmd.Flag(strings.ReplaceAll(name, "_", "-"))
		require.NotNil(t, f, "setting %s has no flag", name)
		require.NoError(t, f.Value.Set(values[f.Value.Type()]))
		got := settingsOf(reflect.ValueOf(o.RandomRun))
		require.NotEqual(t, want[name], got[name], "--%s sets %s", f.Name, name)
		want[name] = got[name]
		require.Equal(t, want, got, "--%s sets nothing but %s", f.Name, name)
	}
}

// What a build says of its commit.
func TestCommit(t *testing.T) {
	t.Parallel()
	require.Empty(t, commit(nil))
	info := &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-11-28T20:00:00Z"}, {Key: "vcs.modified", Value: "false"}}}
	require.Equal(t, " (commit abc of 2026-11-28T20:00:00Z)", commit(info))
	info.Settings[2].Value = "true"
	require.Equal(t, " (commit abc of 2026-11-28T20:00:00Z, changed since)", commit(info))
}

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
	result, err := json.Marshal(campaign.Note{Results: reports.Results{Seed: 1, Verdict: checker.Invalid}})
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

// A line whose result is of another run than its job's, or has what no result has, is no run that was played.
func TestMergeRefusesResultsOfOthers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		same         bool
		result, want string
	}{
		{true, `null`, "its result is of another case"},
		{true, `{"result":{"case":{"lock":"mutex","seed":2}}}`, "its result is of another case"},
		{true, `{"result":{"case":{"lock":"mutex","seed":1},"finding":["stuck"]}}`, `unknown field "finding"`},
		{false, `{}`, "its result is of another run"},
		{false, `{"results":{"seed":2,"verdict":"valid"}}`, "its result is of another run"},
		{false, `{"results":{"seed":1,"verdict":"valid"},"cells":1}`, `unknown field "cells"`},
	} {
		dir := t.TempDir()
		shard(t, dir, fleet.Header{Program: "v1", Command: "c", Seeds: "1", Same: tt.same}, fleet.Run{ID: "a", Job: "seed 1", Result: json.RawMessage(tt.result)})
		err := merge(t, "--out", filepath.Join(t.TempDir(), "out"), dir)
		require.ErrorContains(t, err, tt.want, tt.result)
		require.Equal(t, exitUsage, exitCode(err))
	}
}

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
	for ; at < judge.LongEvents+20_000; owner++ {
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
	require.Greater(t, results.Events, judge.LongEvents)
}

// A history is judged alike as a whole and, behind many blank lines, as it streams by: b, which holds nothing, is answered
// that it released what a holds.
func TestALongHistoryIsJudgedAsAShortOne(t *testing.T) {
	t.Parallel()
	const text = `{"time":1,"process":1,"type":"invoke","op":"acquire","lock":"k","owner":"a"}
{"time":2,"process":1,"type":"ok","op":"acquire","lock":"k","owner":"a"}
{"time":30,"process":2,"type":"invoke","op":"release","lock":"k","owner":"b"}
{"time":40,"process":2,"type":"ok","op":"release","lock":"k","owner":"b"}
{"time":50,"process":1,"type":"invoke","op":"release","lock":"k","owner":"a"}
{"time":60,"process":1,"type":"ok","op":"release","lock":"k","owner":"a"}
`
	var short, long reports.Results
	for blank, results := range map[int]*reports.Results{0: &short, judge.LongEvents: &long} {
		path := filepath.Join(t.TempDir(), "h.jsonl")
		require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("\n", blank)+text), 0o600))
		var stdout, stderr bytes.Buffer
		require.Equal(t, exitInvalid, run([]string{"check", "--json", path}, &stdout, &stderr), stderr.String())
		require.NoError(t, json.Unmarshal(stdout.Bytes(), results))
		for i := range results.Properties {
			results.Properties[i].Took = 0
		}
	}
	require.Equal(t, time.Duration(40), short.Counts.First)
	require.Equal(t, short.Counts, long.Counts)
	require.Equal(t, short.Properties, long.Properties)
	require.Equal(t, short.Duration, long.Duration)
	require.NotEmpty(t, short.Operations)
	require.Empty(t, long.Operations, "it was not kept")
}

// The history of a run is judged with its record, unless that would take too much
// memory.
func TestHistoryOfARunThatIsTooLongForItsRecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, reports.HistoryFile)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	is, _ := (&judging{History: judge.History{From: judge.FromLockchaos}}).ofRun(path)
	require.False(t, is, "no record")
	require.NoError(t, os.WriteFile(filepath.Join(dir, reports.RunFile), nil, 0o600))
	for size, want := range map[int64]bool{judge.LongBytes: false, judge.LongBytes + 1: true} {
		require.NoError(t, os.Truncate(path, size))
		is, long := (&judging{History: judge.History{From: judge.FromLockchaos}}).ofRun(path)
		require.True(t, is)
		require.Equal(t, want, long)
	}
}

func TestServersInAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "servers.yaml")
	require.NoError(t, os.WriteFile(file, []byte("# ours\nendpoints: [127.0.0.1:1, 127.0.0.1:2]\ncompose: ours\ntls: true\n"), 0o600))
	var s serverFlags
	cmd := &cobra.Command{}
	s.register(cmd.Flags())
	require.NoError(t, cmd.ParseFlags([]string{"--servers", file, "--compose", "typed"}))
	require.NoError(t, s.validate(cmd))
	require.Equal(t, []string{"127.0.0.1:1", "127.0.0.1:2"}, s.attach.Endpoints)
	require.Equal(t, "typed", s.attach.Compose)
	require.Equal(t, attachBackend, s.backend)
	require.NotNil(t, s.attach.TLS)
	require.Equal(t, " --compose typed --servers "+quoted(file), changedFlags(cmd), "the command that repeats it has the file")
	for content, want := range map[string]string{
		"": "it is empty", "endpoint: x": "did you mean endpoints", "yes: true": `unknown setting "yes"`, "tls: maybe": "tls: strconv.ParseBool",
		"a: &x 1": "anchors, aliases and merge keys can't be used here", "- endpoints": "was used where mapping is expected", "endpoints: [" + strings.Repeat("x", 1<<20): "longer than 1048576 bytes",
	} {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		require.ErrorContains(t, s.validate(cmd), want, content)
	}
}
