package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDifference(t *testing.T) {
	for _, tt := range []struct {
		ratios []float64
		less   bool
		want   Difference
	}{
		{nil, false, ""},
		{[]float64{2, 2, 2, 2, 2}, false, TooFewRounds},
		{[]float64{2, 2, 2, 2, 2, 2}, false, Better},
		{[]float64{2, 2, 2, 2, 2, 2}, true, Worse},
		{[]float64{0, 0, 0, 0, 0, 0}, false, Worse},
		{[]float64{.9, .9, .9, .9, .9, .9}, true, Better},
		{[]float64{.9, .8, .7, 1.1, 1.2, 1.3}, false, NoneShown},
		{[]float64{1, 1, 1, 1, 1, 1}, true, NoneShown},
	} {
		require.Equal(t, tt.want, ratioOf(tt.ratios, tt.less).Difference, "%v", tt.ratios)
	}
	five := ratioOf([]float64{1, 2, 3, 4, 5}, false)
	require.Nil(t, five.Interval)
	require.False(t, five.narrow())
}

// What is far from 1 needs no exact figure.
func TestNarrow(t *testing.T) {
	for _, tt := range []struct {
		median, low, high float64
		want              bool
	}{
		{1, 0.96, 1.05, true},
		{1, 0.9, 1.1, false},
		{0.01, 0, 0.05, true},
		{0, 0, 0, true},
		{25, 22, 28, true},
		{25, 15, 35, false},
		{1.2, 1.1, 1.3, false},
	} {
		r := Ratio{Spread: Spread{Median: tt.median}, Interval: &Interval{tt.low, tt.high}}
		require.Equal(t, tt.want, r.narrow(), "%v", tt)
	}
}

// Rounds are added until all intervals are narrow, or another one would not fit into the budget.
func TestRoundsAreAdded(t *testing.T) {
	result := func(steady bool, rounds int) *WorkloadResult {
		w := &WorkloadResult{Workload: Workload{Metric: OpsPerSecond, Baseline: BaselineSetNX}, Rounds: rounds}
		baseline, lock := SystemResult{Name: BaselineSetNX, Baseline: true}, SystemResult{Name: "lock"}
		for i := range rounds {
			baseline.Rounds = append(baseline.Rounds, Slice{Seconds: 1, Cycles: 100})
			n := int64(150)
			if !steady {
				n += int64(i * 50)
			}
			lock.Rounds = append(lock.Rounds, Slice{Seconds: 1, Cycles: n})
		}
		w.Systems = []SystemResult{baseline, lock, {Name: "absent", Unfit: "why"}}
		return w
	}
	p := Plan{Seed: 1}
	for _, tt := range []struct {
		steady bool
		rounds int
		budget time.Duration
		more   bool
	}{
		{true, 0, 0, true}, // there is one round in any case
		{true, 1, 0, false},
		{true, leastRounds - 1, time.Hour, true},
		{true, leastRounds, time.Hour, false},
		{false, leastRounds, time.Hour, true},
		{false, leastRounds, 0, false},
	} {
		w := result(tt.steady, tt.rounds)
		require.Equal(t, tt.more, p.untilNarrow(w, tt.budget)(), "%+v", tt)
	}
	w := result(false, leastRounds)
	p.untilNarrow(w, 0)()
	require.Equal(t, []string{"lock"}, w.Wide)
	idle := result(true, leastRounds)
	idle.Metric, idle.Wide = CycleMedian, nil // of which no round has a figure
	require.False(t, p.untilNarrow(idle, time.Hour)())
	require.Empty(t, idle.Wide)
}
