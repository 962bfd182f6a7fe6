package bench

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// measured is a result with one lock whose ratio to the baseline varies about a value.
func measured(metric Metric, ratio float64, rounds int, rng *rand.Rand) Results {
	r := Results{Settings: Settings{Seed: 1}}
	w := WorkloadResult{Workload: Workload{Name: "w", Metric: metric, Baseline: BaselineSetNX}}
	baseline, lock := SystemResult{Name: BaselineSetNX, Baseline: true}, SystemResult{Name: "lock"}
	for range rounds {
		machine := math.Exp(rng.NormFloat64()) // it changes from round to round, for both alike
		now := ratio * math.Exp(0.05*rng.NormFloat64())
		baseline.Rounds = append(baseline.Rounds, Slice{Seconds: 1, Cycles: int64(1e6 * machine), CycleP50: 100 * machine})
		lock.Rounds = append(lock.Rounds, Slice{Seconds: 1, Cycles: int64(1e6 * machine * now), CycleP50: 100 * machine * now})
	}
	w.Systems = []SystemResult{baseline, lock}
	r.Workloads = []WorkloadResult{w}
	return r
}

func TestCompare(t *testing.T) {
	for _, tt := range []struct {
		metric        Metric
		before, after float64
		rounds        int
		want          Difference
	}{
		{OpsPerSecond, 1, 1.3, 12, Better},
		{OpsPerSecond, 1, 0.7, 12, Worse},
		{CycleMedian, 1, 1.3, 12, Worse},
		{CycleMedian, 1, 0.7, 12, Better},
		{OpsPerSecond, 2, 1.3, 5, TooFewRounds},
		{OpsPerSecond, 0, 1, 12, TooFewRounds},
	} {
		rng := rand.New(rand.NewPCG(1, 2))
		c := Compare(measured(tt.metric, tt.before, tt.rounds, rng), measured(tt.metric, tt.after, tt.rounds, rng))
		require.Len(t, c.Rows, 1, "the baseline is not compared with itself")
		require.Equal(t, tt.want, c.Rows[0].Difference, "%+v", tt)
		require.Equal(t, tt.want == Worse, len(c.Worse()) == 1)
	}
}

// A lock that breaks exclusion is not better, however fast it became.
func TestCompareOfABrokenLock(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	slow, fast := measured(OpsPerSecond, 1, 12, rng), measured(OpsPerSecond, 2, 12, rng)
	require.Equal(t, Better, Compare(slow, fast).Rows[0].Difference)
	fast.Workloads[0].Systems[1].Violations = 1
	c := Compare(slow, fast)
	require.Equal(t, Violates, c.Rows[0].Difference)
	require.Len(t, c.Worse(), 1)
	c = Compare(fast, slow) // the earlier one is broken
	require.Equal(t, Violated, c.Rows[0].Difference)
	require.Empty(t, c.Worse())
}

// Where nothing changed, a comparison says so about as often as its confidence is.
func TestComparisonOfEquals(t *testing.T) {
	t.Parallel()
	const trials = 200
	rng := rand.New(rand.NewPCG(4, 0))
	equal := 0
	for range trials {
		c := Compare(measured(OpsPerSecond, 1.2, 8, rng), measured(OpsPerSecond, 1.2, 12, rng))
		if c.Rows[0].Difference == NoneShown {
			equal++
		}
	}
	require.GreaterOrEqual(t, equal, trials*92/100)
	require.Less(t, equal, trials)
}

// What one of the results did not measure, or measured otherwise, is not compared.
func TestComparesOnlyWhatBothMeasured(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	older, newer := measured(OpsPerSecond, 1, 6, rng), measured(OpsPerSecond, 1, 6, rng)
	newer.Workloads[0].Workers = 3
	older.Warnings = []string{"the machine was busy"}
	newer.Machine.Redis = "9.0.0"
	c := Compare(older, newer)
	require.Empty(t, c.Rows)
	require.Equal(t, []string{"w lock"}, c.Missing)
	var text, markdown bytes.Buffer
	require.NoError(t, c.WriteText(&text))
	require.NoError(t, c.WriteMarkdown(&markdown))
	for _, out := range []string{text.String(), markdown.String()} {
		require.Contains(t, out, "w lock")
		require.Contains(t, out, "9.0.0 now")
		require.Contains(t, out, "before: the machine was busy")
	}
}

func TestSideBySide(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	a, b := measured(OpsPerSecond, 1.5, 6, rng), measured(OpsPerSecond, 2, 6, rng)
	b.Workloads[0].Name = "v"
	for _, r := range []Results{a, b} {
		s := &r.Workloads[0].Systems[1]
		s.Ratio = ratioOf(s.ratios(OpsPerSecond, r.Workloads[0].baselineRounds()), false, 1)
	}
	rows := sideBySide([]Named{{"a", a}, {"b", b}})
	require.Len(t, rows, 3)
	require.Equal(t, []string{"workload", "system", "compared", "baseline", "a", "b"}, rows[0])
	require.Equal(t, "–", rows[1][5])
	require.Equal(t, "–", rows[2][4])
	require.Contains(t, rows[1][4], "[")
}
