package main

import (
	"context"
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

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/campaign"
	"github.com/lockchaos/lockchaos/checker"
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
// the machine on which it ran. The seed is that of lockchaos, and not one that a driver is started with: campaigns of two drivers are two.
func TestChangedFlags(t *testing.T) {
	bench := (&app{}).benchCommand()
	require.NoError(t, bench.ParseFlags([]string{"--rounds", "7", "--lock", "mutex", "--out", "dir", "--format", "json"}))
	require.Equal(t, " --lock mutex --rounds 7 --seed 1", changedFlags(bench))
	require.Equal(t, " --lock mutex --rounds 7", flagsWithSeed(bench, ""))
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
}
