package reports_test

import (
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

func TestCompare(t *testing.T) {
	for name, pair := range map[string][2]reports.Named{
		"failover-undecided": {{Name: "runs/a", Input: failover()}, {Name: "runs/b", Input: undecided()}},
		"busy-slow":          {{Name: "runs/quick", Input: busy(4, 200, 2)}, {Name: "runs/slow", Input: busy(4, 80, 6)}},
		"same":               {{Name: "runs/a", Input: valid()}, {Name: "runs/b", Input: valid()}},
	} {
		t.Run(name, func(t *testing.T) {
			golden(t, "compare/"+name+".txt", written(t, func(w io.Writer) error {
				return reports.WriteComparisonText(w, reports.Compare(pair[0], pair[1]))
			}))
		})
	}
}

// Of two folders it is told in how many runs of each kind a verdict was not as it must be, and which run with the same
// seed was judged otherwise. A single run of several is worse; the rates differ where their intervals part.
func TestCompareFolders(t *testing.T) {
	folder := func(invalid ...uint64) string {
		dir := t.TempDir()
		var runs []reports.JointRun
		for seed := range uint64(12) {
			r := reports.JointRun{Verdict: checker.Valid, Topology: "sentinel", Lock: "mutex", Seed: seed + 1}
			if slices.Contains(invalid, seed+1) {
				r.Verdict, r.Headline = checker.Invalid, "Two clients held lock-1"
			}
			runs = append(runs, r)
		}
		require.NoError(t, reports.WriteJoint(dir, runs, len(runs)))
		return dir
	}
	a, b := folder(3), folder(3, 5)
	c, err := reports.CompareFolders(a, b)
	require.NoError(t, err)
	require.Equal(t, []string{"sentinel mutex, seed 5: valid in A, invalid in B: Two clients held lock-1"}, c.Worse)
	require.Equal(t, c.Worse, c.Differences)
	require.Equal(t, reports.ComparedRow{What: "not as it must be: sentinel mutex", Values: [2]string{"1 of 12 (1 to 36 %)", "2 of 12 (4 to 45 %)"}}, c.Rows[0])
	back, err := reports.CompareFolders(b, a)
	require.NoError(t, err)
	require.Empty(t, back.Worse)
	require.Len(t, back.Differences, 1)
	many, err := reports.CompareFolders(a, folder(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12))
	require.NoError(t, err)
	require.Contains(t, many.Worse[0], "runs are not as they must be")
	one, other := t.TempDir(), t.TempDir() // one run each, with other seeds: too few to tell their rates apart
	require.NoError(t, reports.WriteJoint(one, []reports.JointRun{{Verdict: checker.Valid, Topology: "sentinel", Lock: "mutex", Seed: 98}}, 1))
	require.NoError(t, reports.WriteJoint(other, []reports.JointRun{{Verdict: checker.Invalid, Topology: "sentinel", Lock: "mutex", Seed: 99}}, 1))
	c, err = reports.CompareFolders(one, other)
	require.NoError(t, err)
	var text strings.Builder
	require.NoError(t, reports.WriteComparisonText(&text, c))
	require.Contains(t, text.String(), "Their verdicts differ.")
	single := t.TempDir()
	writeRun(t, filepath.Join(single, "one"), failover())
	require.NoError(t, reports.WriteDir(filepath.Join(single, "one"), failover()))
	c, err = reports.CompareFolders(single, a)
	require.NoError(t, err)
	require.Contains(t, c.Rows[0].Values, "not run")
	part := t.TempDir()
	run := reports.JointRun{Verdict: checker.Valid, Topology: "sentinel", Lock: "mutex", Seed: 1}
	require.NoError(t, reports.WriteJoint(part, []reports.JointRun{run}, 12))
	c, err = reports.CompareFolders(folder(), part)
	require.NoError(t, err)
	require.Equal(t, [2]checker.Verdict{checker.Valid, checker.Unknown}, c.Verdicts)
	require.Equal(t, []string{"B was interrupted: 1 of 12 planned runs were played."}, c.Worse)
	back, err = reports.CompareFolders(part, folder())
	require.NoError(t, err)
	require.Empty(t, back.Worse)
	require.Equal(t, []string{"A was interrupted: 1 of 12 planned runs were played."}, back.Differences)
	_, err = reports.CompareFolders(t.TempDir(), a)
	require.ErrorContains(t, err, "has no run directories")
}

// What is judged worse can fail a build; figures can't.
func TestCompareWorse(t *testing.T) {
	worse := func(a, b reports.Input) []string {
		return reports.Compare(reports.Named{Name: "a", Input: a}, reports.Named{Name: "b", Input: b}).Worse
	}
	require.Equal(t, []string{"A is valid, B is invalid.", "The property mutual-exclusion: held in A, violated 1 time in B."}, worse(valid(), failover())[:2])
	require.NotContains(t, worse(failover(), valid()), "A is invalid, B is valid.")
	require.Empty(t, worse(busy(4, 200, 2), busy(4, 80, 6)), "it is slower, and as good")
	require.Empty(t, worse(failover(), failover()))

	more := failover()
	more.Report.Results[1].Total = 9
	require.Empty(t, worse(failover(), more), "it was invalid before")
}

// Of one fault against one nothing follows for how many times as slow.
func TestCompareOneFault(t *testing.T) {
	for faults, want := range map[int]string{1: `slowest recovery from kill +[0-9 ms]+\n`, 5: `slowest recovery from kill.*×`} {
		var both [2]reports.Named
		for k, slow := range []float64{10, 500} {
			s := &script{}
			for i := range faults {
				at := 1000 * float64(i)
				s.fault(history.Inject, "kill", "redis-1", at, at+1, history.OK, "", "")
				s.fault(history.Heal, "kill", "redis-1", at+700, at+701, history.OK, "", "")
				s.acquire(1, "k", "a#1", "redis-1", at+2, at+2+slow, 5)
			}
			s.observe(1000*float64(faults), "redis-1", history.ObserveEpoch, "1")
			both[k] = reports.Named{Name: "x", Input: reports.Input{Run: run(), History: s.history()}}
			both[k].Run.Scenario = ""
		}
		require.Regexp(t, want, string(written(t, func(w io.Writer) error { return reports.WriteComparisonText(w, reports.Compare(both[0], both[1])) })))
	}
}
