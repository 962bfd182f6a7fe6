package reports

import (
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/chart"
)

// Outcomes counts how the operations of one kind ended.
type Outcomes struct {
	OK   int `json:"ok"`   // happened
	Fail int `json:"fail"` // definitely did not happen
	Info int `json:"info"` // may have happened
}

// Total is the number of operations.
func (o Outcomes) Total() int { return o.OK + o.Fail + o.Info }

// A Latency is the distribution of the time from the invocation to the ok, of
// the operations of one kind that were answered ok. The percentiles are exact:
// the nearest rank, not interpolated. One that lies above all but a single sample, so that
// it would be no more than the maximum, is 0: p95 of fewer than 20, p99 of fewer than 100,
// p99.9 of fewer than 1,000; and so is the median of fewer than 5.
type Latency struct {
	Count int           `json:"count"`
	Mean  time.Duration `json:"mean_ns"`
	Min   time.Duration `json:"min_ns"`
	P50   time.Duration `json:"p50_ns,omitempty"`
	P95   time.Duration `json:"p95_ns,omitempty"`
	P99   time.Duration `json:"p99_ns,omitempty"`
	P999  time.Duration `json:"p99_9_ns,omitempty"`
	Max   time.Duration `json:"max_ns"`
}

func outcomes(ops []history.Operation) map[string]Outcomes {
	counts := map[string]Outcomes{}
	for i := range ops {
		name := string(ops[i].Invoke.Op)
		c := counts[name]
		switch {
		case ops[i].OK():
			c.OK++
		case ops[i].Failed():
			c.Fail++
		default:
			c.Info++
		}
		counts[name] = c
	}
	return counts
}

func latencies(ops []history.Operation) map[string]Latency {
	samples := map[string][]time.Duration{}
	for i := range ops {
		if ops[i].OK() {
			name := string(ops[i].Invoke.Op)
			samples[name] = append(samples[name], took(&ops[i]))
		}
	}
	all := map[string]Latency{}
	for name, s := range samples {
		all[name] = latencyOf(s)
	}
	return all
}

// latencyOf sorts the sample, which is not empty, and takes its figures.
func latencyOf(sample []time.Duration) Latency {
	slices.Sort(sample)
	var sum time.Duration
	for _, s := range sample {
		sum += s
	}
	return Latency{
		Count: len(sample), Mean: sum / time.Duration(len(sample)),
		Min: sample[0], Max: sample[len(sample)-1],
		P50: rank(sample, 500), P95: rank(sample, 950), P99: rank(sample, 990), P999: rank(sample, 999),
	}
}

// none stands in a table where there is no figure.
const none = "–"

// latencyNames are the names of the figures of a latency, in the order of its cells.
func latencyNames() []string { return []string{"avg", "min", "p50", "p95", "p99", "p99.9", "max"} }

// figures are in the order of their names.
func (l Latency) figures() []time.Duration {
	return []time.Duration{l.Mean, l.Min, l.P50, l.P95, l.P99, l.P999, l.Max}
}

// cells are the figures of a latency as they are shown: of a single sample there is only
// that one.
func (l Latency) cells() []string {
	cells := make([]string, len(latencyNames()))
	for i, figure := range l.figures() {
		carried := l.Count > 1 || l.Count == 1 && i == len(cells)-1
		if i >= 2 && i <= 5 {
			carried = figure > 0
		}
		cells[i] = none
		if carried {
			cells[i] = say.Span(figure)
		}
	}
	return cells
}

// rank is the nearest-rank percentile of a sorted sample, in permille; 0 if the sample is
// too small for it.
func rank(sorted []time.Duration, permille int) time.Duration {
	if !chart.Carries(len(sorted), permille) {
		return 0
	}
	return sorted[max(0, (len(sorted)*permille+999)/1000-1)]
}

func took(op *history.Operation) time.Duration { return op.Complete.Time - op.Invoke.Time }
