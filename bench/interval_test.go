package bench

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// distributions are ratios as they occur, with their medians.
func distributions() map[string]struct {
	median float64
	draw   func(*rand.Rand) float64
} {
	return map[string]struct {
		median float64
		draw   func(*rand.Rand) float64
	}{
		"log-normal":  {1, func(rng *rand.Rand) float64 { return math.Exp(0.3 * rng.NormFloat64()) }},
		"exponential": {math.Ln2, func(rng *rand.Rand) float64 { return rng.ExpFloat64() }},
		"with rare outliers": {1, func(rng *rand.Rand) float64 {
			if rng.IntN(10) == 0 {
				return math.Exp(2 * rng.NormFloat64())
			}
			return math.Exp(0.05 * rng.NormFloat64())
		}},
	}
}

// An interval contains the median of the distribution about as often as it says, however few the rounds.
func TestCoverageOfIntervals(t *testing.T) {
	t.Parallel()
	const trials = 200
	for name, d := range distributions() {
		for _, rounds := range []int{leastRounds, 15} {
			rng := rand.New(rand.NewPCG(1, uint64(rounds)))
			within := 0
			for trial := range trials {
				ratios := make([]float64, rounds)
				for i := range ratios {
					ratios[i] = d.draw(rng)
				}
				if i := ratioOf(ratios, false, uint64(trial)).Interval; i.Low <= d.median && d.median <= i.High {
					within++
				}
			}
			share := float64(within) / trials
			require.InDelta(t, confidence+0.01, share, 0.039, "%d rounds, %s", rounds, name) // 92.1 to 99.9 %
		}
	}
}

// Adding rounds until the interval is narrow costs little of the coverage.
func TestCoverageWhereRoundsAreAdded(t *testing.T) {
	t.Parallel()
	const trials = 100
	rng := rand.New(rand.NewPCG(3, 0))
	within, stopped := 0, 0
	for trial := range trials {
		var ratios []float64
		for len(ratios) < 40 {
			ratios = append(ratios, math.Exp(0.06*rng.NormFloat64()))
			r := ratioOf(ratios, false, uint64(trial))
			if !r.narrow() {
				continue
			}
			stopped++
			if r.Interval.Low <= 1 && 1 <= r.Interval.High {
				within++
			}
			break
		}
	}
	require.Greater(t, stopped, trials*8/10)
	require.GreaterOrEqual(t, float64(within)/float64(stopped), 0.9)
}

func TestIntervalProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ratios := rapid.SliceOfN(rapid.Float64Range(0.001, 1000), leastRounds, 30).Draw(t, "ratios")
		seed := rapid.Uint64().Draw(t, "seed")
		r := ratioOf(ratios, false, seed)
		require.LessOrEqual(t, r.Min, r.Interval.Low)
		require.LessOrEqual(t, r.Interval.Low, r.Median)
		require.LessOrEqual(t, r.Median, r.Interval.High)
		require.LessOrEqual(t, r.Interval.High, r.Max)
		require.Equal(t, r, ratioOf(ratios, false, seed), "the seed decides")
		doubled := make([]float64, len(ratios))
		for i := range ratios {
			doubled[i] = 2 * ratios[i]
		}
		twice := ratioOf(doubled, false, seed)
		require.InDelta(t, 2*r.Interval.Low, twice.Interval.Low, 1e-9)
		require.InDelta(t, 2*r.Interval.High, twice.Interval.High, 1e-9)
	})
}

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
		require.Equal(t, tt.want, ratioOf(tt.ratios, tt.less, 1).Difference, "%v", tt.ratios)
	}
	five := ratioOf([]float64{1, 2, 3, 4, 5}, false, 1)
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

// The intervals of a result follow from the rounds and the seed in its JSON.
func TestIntervalsFollowFromTheFile(t *testing.T) {
	w := WorkloadResult{Workload: Workload{Metric: OpsPerSecond, Baseline: BaselineSetNX}}
	baseline := SystemResult{Name: BaselineSetNX, Baseline: true, Rounds: slicesOf(100, 110, 90, 95, 105, 120, 80)}
	lock := SystemResult{Name: "lock", Rounds: slicesOf(150, 120, 130, 90, 100, 170, 110)}
	for _, s := range []*SystemResult{&baseline, &lock} {
		s.summarize(w.Metric, baseline.Rounds, 7)
		w.Systems = append(w.Systems, *s)
	}
	b, err := json.Marshal(Results{Settings: Settings{Seed: 7}, Workloads: []WorkloadResult{w}})
	require.NoError(t, err)
	var read Results
	require.NoError(t, json.Unmarshal(b, &read))
	again := read.Workloads[0]
	got := again.Systems[1]
	require.NotNil(t, got.Ratio.Interval)
	require.Equal(t, got.Ratio, ratioOf(got.ratios(again.Metric, again.baselineRounds()), again.Metric.less(), read.Settings.Seed))
}
