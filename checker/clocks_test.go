package checker_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
)

// Each violation of the corpus is told where the error of the clocks is a nanosecond, or
// it is unknown; and nothing that is valid or unknown becomes invalid.
func TestWrongClocksOfTheCorpus_NoRace(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*/*.jsonl")
	require.NoError(t, err)
	stand := 0
	for _, file := range files {
		f, err := history.Open(file)
		require.NoError(t, err)
		h, err := history.ReadAll(f)
		require.NoError(t, f.Close())
		require.NoError(t, err)
		was := checker.Check(t.Context(), h)
		for _, off := range []time.Duration{1, time.Millisecond, time.Hour} {
			is := checker.CheckWithin(t.Context(), h, off)
			if was.Verdict != checker.Invalid {
				require.NotEqual(t, checker.Invalid, is.Verdict, file)
			}
			if off == 1 && is.Verdict == checker.Invalid {
				stand++
			}
		}
		require.Equal(t, was.Verdict, checker.CheckWithin(t.Context(), h, 0).Verdict, file)
	}
	require.Greater(t, stand, 40)
}

func TestViolationsBeyondTheError(t *testing.T) {
	t.Parallel()
	// b is granted the lock 100 ms before the lease of a can end.
	events := func(clockOfB string) *history.History {
		ms := time.Millisecond
		return &history.History{Events: []history.Event{
			{Index: 0, Time: 0, Process: 1, Type: history.Invoke, Op: history.Acquire, Lock: "k", Owner: "a", Lease: 3000 * ms, Clock: "one"},
			{Index: 1, Time: ms, Process: 1, Type: history.OK, Op: history.Acquire, Lock: "k", Owner: "a", Expires: 3000 * ms, Clock: "one"},
			{Index: 2, Time: 2000 * ms, Process: 2, Type: history.Invoke, Op: history.Acquire, Lock: "k", Owner: "b", Lease: 3000 * ms, Clock: clockOfB},
			{Index: 3, Time: 2900 * ms, Process: 2, Type: history.OK, Op: history.Acquire, Lock: "k", Owner: "b", Expires: 5000 * ms, Clock: clockOfB},
		}}
	}
	for _, tt := range []struct {
		clock string
		off   time.Duration
		want  checker.Verdict
	}{
		{"two", 0, checker.Invalid},
		{"two", 49 * time.Millisecond, checker.Invalid},
		{"two", 50 * time.Millisecond, checker.Unknown}, // then the holds touch
		{"", 49 * time.Millisecond, checker.Invalid},
		{"", 51 * time.Millisecond, checker.Unknown},
		{"one", time.Hour, checker.Invalid},
	} {
		report := checker.CheckWithin(t.Context(), events(tt.clock), tt.off)
		require.Equal(t, tt.want, report.Verdict, "clock %q of b, error %v: %+v", tt.clock, tt.off, report.Results)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.NotEqual(t, checker.Valid, checker.CheckWithin(ended, events("two"), 1).Verdict)
}

// Events without a clock beside some that name one are of another clock; faults are of none.
func TestSeveralClocks(t *testing.T) {
	of := func(process int, clock string) history.Event { return history.Event{Process: process, Clock: clock} }
	require.NoError(t, checker.SeveralClocks([]history.Event{of(1, ""), of(2, "")}))
	require.NoError(t, checker.SeveralClocks([]history.Event{of(history.NoProcess, ""), of(1, "a"), of(2, "a")}))
	require.ErrorContains(t, checker.SeveralClocks([]history.Event{of(1, "a"), of(2, "b")}), "of 2 clocks")
	require.ErrorContains(t, checker.SeveralClocks([]history.Event{of(1, "a"), of(2, "")}), "one without a name")
}
