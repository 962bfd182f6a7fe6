package checker_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
)

// skew is a history as clocks record it that are wrong by up to off, each by the same
// amount all the time. byOwner says that an owner's events are of one clock.
func skew(rnd *rand.Rand, truth *history.History, off time.Duration, byOwner bool) *history.History {
	wrong := map[string]time.Duration{}
	events := slices.Clone(truth.Events)
	for i := range events {
		e := &events[i]
		if e.Op == history.Declare {
			continue
		}
		clock := fmt.Sprint(e.Process)
		if byOwner && e.Process >= 0 {
			clock = e.LockOwner()
			e.Clock = clock
		}
		if _, ok := wrong[clock]; !ok {
			wrong[clock] = off + time.Duration(rnd.Int64N(int64(2*off+1))) - off // none becomes negative
		}
		e.Time += wrong[clock]
		if e.Expires > 0 {
			e.Expires += wrong[clock]
		}
	}
	slices.SortStableFunc(events, func(a, b history.Event) int { return cmp.Compare(a.Time, b.Time) })
	for i := range events {
		events[i].Index = int64(i)
	}
	return &history.History{Events: events}
}

// However wrong the clocks were, what was possible is never invalid, and what was not is
// never valid.
func TestWrongClocksChangeNoVerdict_NoRace(t *testing.T) {
	t.Parallel()
	const cases = 3000
	agreed := map[string]int{}
	for seed := range uint64(cases) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		truth := randomHistory(rnd)
		scale := time.Duration(1 + 4*rnd.IntN(3)) // of the times, beside an error of a few
		for i := range truth.Events {
			e := &truth.Events[i]
			e.Time, e.Expires, e.Lease, e.Drift = e.Time*scale, e.Expires*scale, e.Lease*scale, e.Drift*scale
		}
		off := time.Duration(1 + rnd.IntN(4))
		is := checker.Check(t.Context(), truth)
		recorded := skew(rnd, truth, off, seed%2 == 0)
		said := checker.CheckWithin(t.Context(), recorded, off)
		stamps := checker.Check(t.Context(), recorded)
		for _, r := range said.Results {
			for _, was := range is.Results {
				if r.Name == was.Name && was.Verdict != checker.Unknown && misled(stamps, was) {
					agreed["misled"]++
				}
				if r.Name == was.Name && r.Verdict != checker.Unknown && was.Verdict != checker.Unknown {
					require.Equal(t, was.Verdict, r.Verdict, "seed %d, clocks wrong by %d: %s\n%+v", seed, off, r.Name, r)
					agreed[string(r.Verdict)]++
				}
			}
		}
	}
	require.Greater(t, agreed["invalid"], 100, "what stands is to be shown, too: %v", agreed)
	require.Greater(t, agreed["valid"], 50, "%v", agreed)
	require.Greater(t, agreed["misled"], 50, "the stamps alone are to say the opposite often: %v", agreed)
	t.Logf("decided: %v", agreed)
}

// misled reports whether a property seems to be the opposite of what it was.
func misled(seems checker.Report, was checker.Result) bool {
	return slices.ContainsFunc(seems.Results, func(r checker.Result) bool {
		return r.Name == was.Name && r.Verdict != checker.Unknown && r.Verdict != was.Verdict
	})
}

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
