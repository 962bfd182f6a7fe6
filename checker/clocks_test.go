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

// closeTo is a history in which b is granted the lock 100 ms before the lease of a can end.
func closeTo(clockOfB string) *history.History {
	ms := time.Millisecond
	return &history.History{Events: []history.Event{
		{Index: 0, Time: 0, Process: 1, Type: history.Invoke, Op: history.Acquire, Lock: "k", Owner: "a", Lease: 3000 * ms, Clock: "one"},
		{Index: 1, Time: ms, Process: 1, Type: history.OK, Op: history.Acquire, Lock: "k", Owner: "a", Expires: 3000 * ms, Clock: "one"},
		{Index: 2, Time: 2000 * ms, Process: 2, Type: history.Invoke, Op: history.Acquire, Lock: "k", Owner: "b", Lease: 3000 * ms, Clock: clockOfB},
		{Index: 3, Time: 2900 * ms, Process: 2, Type: history.OK, Op: history.Acquire, Lock: "k", Owner: "b", Expires: 5000 * ms, Clock: clockOfB},
	}}
}

func TestViolationsBeyondTheError(t *testing.T) {
	t.Parallel()
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
		report := checker.CheckWithin(t.Context(), closeTo(tt.clock), tt.off)
		require.Equal(t, tt.want, report.Verdict, "clock %q of b, error %v: %+v", tt.clock, tt.off, report.Results)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.NotEqual(t, checker.Valid, checker.CheckWithin(ended, closeTo("two"), 1).Verdict)
}

// A violation stands by its own kind: that b is granted the lock again with another token holds up no double grant.
func TestAViolationStandsByItself(t *testing.T) {
	t.Parallel()
	h := closeTo("two")
	h.Events = append([]history.Event{{Process: history.NoProcess, Type: history.OK, Op: history.Declare, Lock: "k", Kind: history.KindMutex, Reentrant: true}}, append(h.Events, h.Events[2:]...)...)
	for i := range h.Events {
		e := &h.Events[i]
		if e.Index = int64(i); i > 3 && e.Type == history.OK {
			e.Token = int64(i)
		}
		if i > 4 {
			e.Time += time.Second
		}
	}
	require.Len(t, result(t, checker.CheckWithin(t.Context(), h, 49*time.Millisecond), "mutual-exclusion").Violations, 2)
	require.Len(t, result(t, checker.CheckWithin(t.Context(), h, 50*time.Millisecond), "mutual-exclusion").Violations, 1)
}

// Events without a clock beside some that name one are of another clock; faults are of none.
func TestSeveralClocks(t *testing.T) {
	of := func(process int, clock string) history.Event { return history.Event{Process: process, Clock: clock} }
	require.NoError(t, checker.SeveralClocks([]history.Event{of(1, ""), of(2, "")}))
	require.NoError(t, checker.SeveralClocks([]history.Event{of(history.NoProcess, ""), of(1, "a"), of(2, "a")}))
	require.ErrorContains(t, checker.SeveralClocks([]history.Event{of(1, "a"), of(2, "b")}), "of 2 clocks")
	require.ErrorContains(t, checker.SeveralClocks([]history.Event{of(1, "a"), of(2, "")}), "one without a name")
}
