package causes_test

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/campaign"
	"github.com/lockchaos/lockchaos/causes"
	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

func TestMain(m *testing.M) { runtest.Main(m) }

// A run on real servers is played again up to its violation, with the fault at the time at which it had it,
// and without.
func TestARunIsPlayedAgain(t *testing.T) {
	t.Parallel()
	setup := runtest.Setup(t)
	r := harness.RandomRun{
		Topology: "single", Lock: runtest.Lock("mutex"), Length: 2 * time.Second,
		Plan:     []faults.Step{{At: 600 * time.Millisecond, Fault: "flush", Target: "redis-1"}, {At: 1500 * time.Millisecond, For: 100 * time.Millisecond, Fault: "stall", Target: "client"}},
		Workload: workload.Config{Clients: 6, Locks: 1, Hold: 400 * time.Millisecond, Think: 5 * time.Millisecond, Wait: time.Second},
	}
	run, h, report := runtest.Until(t, r, setup, checker.Invalid, nil)
	in := reports.Input{Run: run, History: h, Report: report}
	clusters := causes.Clusters(in)
	at := slices.IndexFunc(clusters, func(c causes.Cluster) bool { return c.Faults[c.Suspects[0]].Name == "flush" })
	require.GreaterOrEqual(t, at, 0, "a double grant, or else a premature loss")
	c := clusters[at]
	require.NoError(t, causes.Playable(run))
	again, err := harness.Replay(run, locks.All(), false)
	require.NoError(t, err)
	dir := t.TempDir()
	player := campaign.Player{
		Out: t.Output(), Log: func(io.Writer) *slog.Logger { return slog.New(slog.DiscardHandler) },
		Open: func(context.Context, *slog.Logger, string) (topologies.Backend, string, error) {
			return setup.Backend, setup.BackendName, nil
		},
	}
	e := causes.Recorded(in, dir, c, again, runtest.Lock("correct-key"), player)
	e.Least, e.Most = 2, 2
	told := 0
	e.Told = func(_ history.Arm, _, of int) { told++; require.Equal(t, 2*e.Ways(), of) }
	cause, err := e.Measure(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2*e.Ways(), told)
	for _, a := range cause.Arms {
		if a.Same {
			require.Empty(t, a.Dirs)
			continue
		}
		require.Len(t, a.Dirs, 2, a.Arm)
		played, had, _ := runtest.Judged(t, filepath.Join(dir, a.Dirs[0]))
		require.FileExists(t, filepath.Join(dir, a.Dirs[0], reports.HTMLFile))
		injected := slices.IndexFunc(had.Events, func(e history.Event) bool { return e.Op == history.Inject })
		if a.Arm == history.ArmNone {
			require.Zero(t, a.Seen)
			require.Empty(t, played.Plan)
			require.Negative(t, injected)
			continue
		}
		require.NotEmpty(t, played.Plan, a.Arm)
		if a.Arm == history.ArmAll {
			first := slices.IndexFunc(had.Events, func(e history.Event) bool { return e.Op == history.Acquire })
			recorded := slices.IndexFunc(h.Events, func(e history.Event) bool { return e.Op == history.Acquire })
			require.InDelta(t, c.Faults[0].Start-h.Events[recorded].Time, had.Events[injected].Time-had.Events[first].Time, float64(300*time.Millisecond))
		}
		require.Less(t, had.End(), c.Until+3*time.Second, "the run ends after the violation")
	}
	require.Equal(t, "correct-key", cause.Control)
	require.Contains(t, cause.Text, "runs show a")

	ctx, stop := context.WithCancel(t.Context())
	stop()
	cause, err = e.Measure(ctx)
	require.NoError(t, err)
	require.Zero(t, cause.Arms[0].N)
}

// What can't be played again is said to be so, and nothing is measured.
func TestWhatCannotBePlayedAgain(t *testing.T) {
	t.Parallel()
	for want, run := range map[string]history.Run{
		"lockchaos reproduce ghost-lock": {Scenario: "ghost-lock"},
		"its servers are not ours":       {Backend: "attach", Settings: []byte("{}")},
		"it is no record of a run":       {},
	} {
		require.ErrorContains(t, causes.Playable(run), want)
	}
	require.NoError(t, causes.Playable(history.Run{Backend: history.Simulated}))
}

// Violations under the same fault are one cluster, of the gravest kind; those under faults of other names are
// others; and where no fault was in effect the last one before is suspected.
func TestClusters(t *testing.T) {
	t.Parallel()
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	h := &history.History{}
	record := func(at int, e history.Event) int64 {
		e.Time, e.Index, e.Process = ms(at), int64(len(h.Events)), history.NoProcess
		h.Events = append(h.Events, e)
		return e.Index
	}
	fault := func(name string, from, until int) {
		for _, e := range []struct {
			at  int
			op  history.Op
			how history.Type
		}{{from, history.Inject, history.Invoke}, {from + 1, history.Inject, history.OK}, {until, history.Heal, history.Invoke}, {until, history.Heal, history.OK}} {
			record(e.at, history.Event{Op: e.op, Type: e.how, Fault: name, Target: "redis-1", Life: history.Lasting})
		}
	}
	violation := func(kind string, from, until int) checker.Violation {
		return checker.Violation{Kind: kind, Lock: "a", From: ms(from), Until: ms(until), Events: []int64{record(from, history.Event{Op: history.Observe}), record(until, history.Event{Op: history.Observe})}}
	}
	fault("kill", 100, 200)
	fault("pause", 1000, 1400)
	fault("kill", 2000, 2100)
	fault("flush", 3000, 3100)
	in := reports.Input{Run: history.Run{Seed: 1}, History: h, Report: checker.Report{Verdict: checker.Invalid, Results: []checker.Result{
		{Name: "mutual-exclusion", Verdict: checker.Invalid, Violations: []checker.Violation{
			violation(checker.DoubleGrant, 150, 180), violation(checker.DoubleGrant, 160, 500), violation(checker.PrematureLoss, 170, 175), violation(checker.DoubleGrant, 2050, 2060),
			violation(checker.DoubleGrant, 2900, 2950), violation(checker.PrematureLoss, 3050, 3060),
		}},
		{Name: "protected-resource", Verdict: checker.Invalid, Violations: []checker.Violation{violation(checker.LostUpdate, 190, 195)}},
		{Name: "progress", Verdict: checker.Unknown, Violations: []checker.Violation{violation(checker.Stuck, 1100, 1300)}},
	}}}
	type cluster struct {
		kind        string
		from, until time.Duration
		first       time.Duration
		suspects    []int
		faults      int
	}
	var got []cluster
	for _, c := range causes.Clusters(in) {
		got = append(got, cluster{c.Kind, c.From, c.Until, c.First, c.Suspects, len(c.Faults)})
	}
	require.Equal(t, []cluster{
		{checker.DoubleGrant, ms(150), ms(500), ms(180), []int{0}, 1},
		{checker.PrematureLoss, ms(3050), ms(3060), ms(3060), []int{3}, 4},
	}, got, "those under the second kill say the same as those under the first")
}
