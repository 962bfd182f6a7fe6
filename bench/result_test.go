package bench

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/names"
)

// slicesOf are rounds of one second with so many cycles.
func slicesOf(cycles ...int64) []Slice {
	var rounds []Slice
	for _, n := range cycles {
		s := newSlice()
		s.Seconds, s.Cycles = 1, n
		rounds = append(rounds, s)
	}
	return rounds
}

// A ratio is to the baseline of the same round, and not to the baseline at large.
func TestRatioIsOfTheSameRound(t *testing.T) {
	r := SystemResult{Rounds: slicesOf(50, 500, 100)}
	r.summarize(OpsPerSecond, slicesOf(100, 1000, 400))
	require.Equal(t, Spread{Median: 100, Min: 50, Max: 500}, r.Score)
	require.Equal(t, Spread{Median: 0.5, Min: 0.25, Max: 0.5}, r.Ratio.Spread)
	require.Equal(t, Spread{Median: 2.5, Min: 1, Max: 4}, spreadOf([]float64{4, 1, 3, 2}))
}

// What broke is not ranked, whatever its figures, and baselines come first.
func TestRank(t *testing.T) {
	w := WorkloadResult{Workload: Workload{Metric: OpsPerSecond}, Systems: []SystemResult{
		{Name: "unfit", Unfit: "why"},
		{Name: "violator", Violations: 1, Score: Spread{Median: 900}},
		{Name: "loser", Lost: 1, Score: Spread{Median: 800}},
		{Name: "idle"},
		{Name: "slow", Score: Spread{Median: 1}},
		{Name: "fast", Score: Spread{Median: 2}},
		{Name: "set-nx", Baseline: true, Score: Spread{Median: 3}},
	}}
	for metric, want := range map[Metric][]string{
		OpsPerSecond: {"set-nx", "fast", "slow", "idle", "violator", "loser", "unfit"},
		CycleMedian:  {"set-nx", "slow", "fast", "idle", "loser", "violator", "unfit"},
	} {
		w.Metric = metric
		w.rank()
		require.Equal(t, want, names.Of(w.Systems, func(s SystemResult) string { return s.Name }))
	}
}

func TestFairness(t *testing.T) {
	for _, tt := range []struct {
		give []int64
		want Slice
	}{
		{[]int64{5, 5, 5, 5}, Slice{Least: 5, Most: 5, Jain: 1}},
		{[]int64{8, 0, 0, 0}, Slice{Most: 8, Starved: 3, Jain: 0.25}},
		{[]int64{0, 0}, Slice{Starved: 2}},
	} {
		grants := make([]atomic.Int64, len(tt.give))
		for i, n := range tt.give {
			grants[i].Store(n)
		}
		var got Slice
		got.share(grants)
		require.Equal(t, tt.want, got)
	}
}

func TestCost(t *testing.T) {
	var c cost
	c.add(map[string]map[string]string{
		"Stats":        {"total_net_input_bytes": "70", "total_net_output_bytes": "9", "total_reads_processed": "4"},
		"CPU":          {"used_cpu_sys": "0.5", "used_cpu_user": "0.25", "used_cpu_sys_children": "1"},
		"Commandstats": {"cmdstat_info": "calls=7,usec=1", "cmdstat_set": "calls=3,usec=5,usec_per_call=1.67", "cmdstat_client|info": "calls=2,usec=1"},
	})
	require.Equal(t, cost{in: 70, out: 9, requests: 4, commands: 5, server: 750_000_000}, c)
}
