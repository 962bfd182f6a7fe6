package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/bench"
	"github.com/lockchaos/lockchaos/lock"
	"github.com/lockchaos/lockchaos/lock/memory"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/process"
)

func system(name string, locker func([]redis.UniversalClient) (lock.Locker, func(), error)) bench.System {
	return bench.System{Name: name, Open: func(_ context.Context, servers []redis.UniversalClient) (bench.Acquire, func(), error) {
		l, closeLocker, err := locker(servers)
		if err != nil {
			return nil, nil, err
		}
		return bench.Locker(l), closeLocker, nil
	}}
}

func mutex(servers []redis.UniversalClient) (lock.Locker, func(), error) {
	if len(servers) > 1 {
		r, err := lock.NewRedlock(servers, lock.RedlockConfig{NodeTimeout: time.Second})
		if err != nil {
			return nil, nil, err
		}
		return r, r.Close, nil
	}
	c, err := lock.New(servers[0], lock.Config{})
	if err != nil {
		return nil, nil, err
	}
	return c, c.Close, nil
}

// selfish grants whatever it is asked for.
type selfish struct{}

func (s selfish) Acquire(_ context.Context, name string, _ lock.Options) (*lock.Hold, error) {
	return lock.NewHold(lock.Lease{Name: name}, s), nil
}

func (selfish) Extend(context.Context, lock.Lease, time.Duration) (time.Time, error) {
	return time.Time{}, nil
}

func (selfish) Release(context.Context, lock.Lease) error { return nil }

var errSick = errors.New("sick")

func find(t *testing.T, w bench.WorkloadResult, name string) bench.SystemResult {
	t.Helper()
	for _, s := range w.Systems {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("%s has no %s", w.Name, name)
	return bench.SystemResult{}
}

func plan(t *testing.T, systems []bench.System, workloads ...string) bench.Plan {
	t.Helper()
	ws, err := bench.WorkloadsByName(workloads...)
	require.NoError(t, err)
	return bench.Plan{
		Backend: process.Backend{}, Workloads: ws, Systems: systems,
		Rounds: 1, Length: 100 * time.Millisecond, WarmUp: 20 * time.Millisecond, Seed: 1,
	}
}

// measured runs a plan, with longer turns where a busy machine has nothing come of one of a system that works.
func measured(t *testing.T, p bench.Plan, works ...string) bench.Results {
	t.Helper()
	for {
		r, err := p.Run(t.Context())
		require.NoError(t, err)
		idle := func(w bench.WorkloadResult) bool {
			return slices.ContainsFunc(w.Systems, func(s bench.SystemResult) bool {
				return (s.Baseline || slices.Contains(works, s.Name)) && s.Score.Median == 0
			})
		}
		if p.Length *= 4; p.Length > time.Minute || !slices.ContainsFunc(r.Workloads, idle) {
			return r
		}
	}
}

// A run measures every system at every workload, by the same yardstick, and says
// what did not work: a lock that grants twice, and one that fails, are not ranked.
func TestRun(t *testing.T) {
	bench.NeedsRedis(t)
	systems := []bench.System{
		system("mutex", mutex),
		system("selfish", func([]redis.UniversalClient) (lock.Locker, func(), error) { return selfish{}, func() {}, nil }),
		{Name: "sick", Open: func(context.Context, []redis.UniversalClient) (bench.Acquire, func(), error) {
			return func(context.Context, string) (func(context.Context) error, error) { return nil, errSick }, func() {}, nil
		}},
		{Name: "absent", Unfit: func(bench.Workload) string { return "has the day off" }},
	}
	p := plan(t, systems, "uncontended-1", "contended-16", "handover", "open-uncontended", "redlock-3-dead")
	r := measured(t, p, "mutex")
	require.False(t, r.Interrupted)
	require.Len(t, r.Workloads, 5)
	for _, w := range r.Workloads {
		baseline, ours := find(t, w, w.Baseline), find(t, w, "mutex")
		require.True(t, baseline.Baseline)
		require.True(t, w.Systems[0].Baseline, "baselines come first")
		require.InDelta(t, 1, baseline.Ratio.Median, 1e-9, w.Name)
		for _, s := range []bench.SystemResult{baseline, ours} {
			require.Empty(t, s.Errors, "%s at %s", s.Name, w.Name)
			require.False(t, s.Broken(), "%s at %s", s.Name, w.Name)
			require.Len(t, s.Rounds, p.Rounds)
			require.Positive(t, s.Score.Median, "%s at %s", s.Name, w.Name)
			require.Positive(t, s.Cycle.P50)
			require.LessOrEqual(t, s.Cycle.P50, s.Cycle.P999)
			require.LessOrEqual(t, s.Acquire.P50, s.Cycle.Max)
			require.Positive(t, s.Rounds[0].Requests)
			require.Positive(t, s.Rounds[0].BytesIn)
			require.Positive(t, s.Rounds[0].ClientMicros)
		}
		require.Positive(t, ours.Ratio.Median)
		sick := find(t, w, "sick")
		require.Zero(t, sick.Cycle.Count)
		require.Positive(t, sick.Errors["acquire: sick"])
		require.Equal(t, "has the day off", find(t, w, "absent").Unfit)
		require.Equal(t, "absent", w.Systems[len(w.Systems)-1].Name)
	}
	contended := r.Workloads[1]
	require.Positive(t, find(t, contended, "selfish").Violations)
	require.True(t, find(t, contended, "selfish").Broken())
	require.Greater(t, index(contended, "selfish"), index(contended, "mutex"), "it is not ranked")
	require.Positive(t, find(t, r.Workloads[2], "mutex").Handover.Count)

	b, err := json.Marshal(r)
	require.NoError(t, err)
	var again bench.Results
	require.NoError(t, json.Unmarshal(b, &again))
	require.Equal(t, bench.Version, again.Version)
	require.Len(t, again.Workloads, 5)
	for _, write := range []func(*bytes.Buffer) error{
		func(b *bytes.Buffer) error { return again.WriteText(b, 0) },
		func(b *bytes.Buffer) error { return again.WriteMarkdown(b) },
		func(b *bytes.Buffer) error { return again.WritePage(b) },
	} {
		var out bytes.Buffer
		require.NoError(t, write(&out))
		for _, want := range []string{
			"contended-16", "violated mutual exclusion", "sick", "has the day off", "open loop, 1000/s", "closed loop", "1 round of ", "1 round, as asked", "too few rounds",
		} {
			require.Contains(t, out.String(), want)
		}
	}
}

func index(w bench.WorkloadResult, name string) int {
	for i, s := range w.Systems {
		if s.Name == name {
			return i
		}
	}
	return -1
}

// Every workload can be run on some topology, and every lock of ours at it.
func TestTopologies(t *testing.T) {
	bench.NeedsRedis(t)
	for _, topology := range []string{topologies.Sentinels, topologies.Cluster} {
		p := plan(t, []bench.System{system("mutex", mutex)}, "uncontended-1", "handover-1ms")
		p.Topology = topology
		r := measured(t, p, "mutex")
		for _, w := range r.Workloads {
			for _, s := range w.Systems {
				require.Empty(t, s.Errors, "%s at %s", s.Name, w.Name)
				require.Positive(t, s.Score.Median, "%s at %s", s.Name, w.Name)
			}
		}
		delayed := find(t, r.Workloads[1], "mutex")
		require.GreaterOrEqual(t, delayed.Acquire.Min, 1000.0, "a round trip takes a millisecond more")
	}
}

// Whole workloads are kept when a run is cut short.
func TestInterruption(t *testing.T) {
	bench.NeedsRedis(t)
	ctx, cancel := context.WithCancel(t.Context())
	p := plan(t, []bench.System{system("memory", func([]redis.UniversalClient) (lock.Locker, func(), error) {
		return memory.New(), func() {}, nil
	})}, "uncontended-1", "uncontended-16")
	p.Progress = func(workload, _ string, _ int) {
		if workload == "uncontended-16" {
			cancel()
		}
	}
	r, err := p.Run(ctx)
	require.NoError(t, err)
	require.True(t, r.Interrupted)
	require.Len(t, r.Workloads, 1)
}

func TestPlan(t *testing.T) {
	_, err := bench.WorkloadsByName("contended-63")
	require.ErrorContains(t, err, "contended-64")
	all, err := bench.WorkloadsByName("all")
	require.NoError(t, err)
	require.Equal(t, bench.Workloads(), all)
	_, err = bench.WorkloadsByName(bench.DefaultWorkloads()...)
	require.NoError(t, err)
	require.ErrorContains(t, bench.Plan{Topology: "ring"}.Validate(), "ring")
	require.ErrorContains(t, bench.Plan{}.Validate(), "no workload")
	baselines := 0
	for _, w := range all {
		for _, f := range bench.Baselines() {
			if f.Name == w.Baseline {
				require.Empty(t, f.Unfit(w), w.Name)
				baselines++
			}
		}
	}
	require.Equal(t, len(all), baselines, "each workload has its baseline")
}
