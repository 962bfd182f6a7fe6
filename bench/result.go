package bench

import (
	"cmp"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Version is that of the form of [Results] as JSON.
const Version = 1

// Results are what a run measured, as it is written to JSON.
type Results struct {
	Version int       `json:"version"`
	Program string    `json:"program"`
	Command string    `json:"command"`
	Started time.Time `json:"started"`
	// Seconds is how long the run took.
	Seconds float64 `json:"seconds"`
	// Interrupted says that workloads are missing, because it was cut short.
	Interrupted bool             `json:"interrupted,omitempty"`
	Machine     Machine          `json:"machine"`
	Settings    Settings         `json:"settings"`
	Workloads   []WorkloadResult `json:"workloads"`
}

// Settings are how it was measured.
type Settings struct {
	Topology string `json:"topology"`
	// Rounds is how many were asked for; 0 means that rounds were added until all intervals
	// were narrow, or a workload's share of the budget was spent.
	Rounds   int           `json:"rounds"`
	Budget   time.Duration `json:"budget_ns,omitempty"`
	Length   time.Duration `json:"slice_ns"`
	WarmUp   time.Duration `json:"warm_up_ns"`
	Seed     uint64        `json:"seed"`
	PoolSize int           `json:"pool_size"`
}

// A WorkloadResult is what all systems did with one workload, the best one first:
// baselines, then locks by the workload's metric, then those that are not ranked.
type WorkloadResult struct {
	Workload
	// Rounds is how many rounds there were, and Wide names the systems whose interval was not
	// narrow when the budget was spent.
	Rounds  int            `json:"rounds"`
	Wide    []string       `json:"wide,omitempty"`
	Systems []SystemResult `json:"systems"`
}

// A SystemResult is what one system did with one workload.
type SystemResult struct {
	Name string `json:"name"`
	// Baseline says that it is one of [Baselines].
	Baseline bool `json:"baseline,omitempty"`
	// Unfit says why it did not take part; all else is zero then.
	Unfit string `json:"unfit,omitempty"`
	// Caveat says what of its figures can't be compared with those of others.
	Caveat string `json:"caveat,omitempty"`
	// Score is the workload's metric over the rounds, and Ratio the same divided
	// by that of the baseline in the same round.
	Score Spread `json:"score"`
	Ratio Ratio  `json:"ratio"`
	// Violations is how often a worker was granted a lock that another one held,
	// in all rounds, the time to warm up included.
	Violations int64 `json:"violations"`
	// Lost is how often a release found that the lock was not held any more,
	// though its lease had not ended: another worker ended it.
	Lost int64 `json:"lost"`
	// Errors counts what went wrong by its text, in all rounds.
	Errors map[string]int64 `json:"errors,omitempty"`
	// The latencies of all rounds together. Of a cycle the time for which the
	// lock was held is left out.
	Acquire  Latency `json:"acquire"`
	Release  Latency `json:"release"`
	Cycle    Latency `json:"cycle"`
	Handover Latency `json:"handover"`
	// Rounds is what each slice measured.
	Rounds []Slice `json:"rounds"`
}

// Broken says that the lock did not keep others out, so that it is not ranked.
func (r SystemResult) Broken() bool { return r.Violations > 0 || r.Lost > 0 }

// A Spread is the median of some rounds, and the least and the greatest.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// A Slice is what one system did in one round.
type Slice struct {
	Seconds   float64 `json:"seconds"`
	Cycles    int64   `json:"cycles"`
	Handovers int64   `json:"handovers"`
	// Refused is how many acquires ended without the lock, Unfinished how many
	// were still waiting at the end.
	Refused    int64 `json:"refused,omitempty"`
	Unfinished int64 `json:"unfinished"`
	// Backlog is how many operations of an open loop should have been served in
	// the slice, and were not.
	Backlog int64 `json:"backlog,omitempty"`
	// LongestWait is that of an acquire, ended or not.
	LongestWait time.Duration `json:"longest_wait_ns"`
	// Least and Most are the grants of the worker with the fewest and with the
	// most; Starved counts those without any. Jain is Jain's index of fairness: 1
	// if all got the same, 1/n if one of n got all.
	Least   int64   `json:"least"`
	Most    int64   `json:"most"`
	Starved int     `json:"starved"`
	Jain    float64 `json:"jain"`
	// What an operation cost: commands on the servers, those of scripts included;
	// requests, which are times that a server read from a client; bytes into and
	// out of the servers; and processor time of this process, the benchmark
	// itself included, and of the servers.
	Commands     float64 `json:"commands_per_op"`
	Requests     float64 `json:"requests_per_op"`
	BytesIn      float64 `json:"bytes_in_per_op"`
	BytesOut     float64 `json:"bytes_out_per_op"`
	ClientMicros float64 `json:"client_cpu_us_per_op"`
	ServerMicros float64 `json:"server_cpu_us_per_op"`
	CycleP50     float64 `json:"cycle_p50_us"`
	HandoverP50  float64 `json:"handover_p50_us"`

	violations, lost                  int64
	errors                            map[string]int64
	acquire, release, cycle, handover *hdrhistogram.Histogram
}

func newSlice() Slice {
	h := func() *hdrhistogram.Histogram { return hdrhistogram.New(shortest, longest, digits) }
	return Slice{errors: map[string]int64{}, acquire: h(), release: h(), cycle: h(), handover: h()}
}

// add adds what was counted and how long it took.
func (s *Slice) add(o *Slice) {
	s.Cycles += o.Cycles
	s.Handovers += o.Handovers
	s.Refused += o.Refused
	s.Unfinished += o.Unfinished
	s.violations += o.violations
	s.lost += o.lost
	s.LongestWait = max(s.LongestWait, o.LongestWait)
	for text, n := range o.errors {
		s.errors[text] += n
	}
	s.acquire.Merge(o.acquire)
	s.release.Merge(o.release)
	s.cycle.Merge(o.cycle)
	s.handover.Merge(o.handover)
}

// A Latency is a distribution in microseconds. Its values are exact to three
// digits.
type Latency struct {
	Count int64   `json:"count"`
	Avg   float64 `json:"avg_us"`
	Min   float64 `json:"min_us"`
	P50   float64 `json:"p50_us"`
	P95   float64 `json:"p95_us"`
	P99   float64 `json:"p99_us"`
	P999  float64 `json:"p999_us"`
	Max   float64 `json:"max_us"`
	// Curve is the whole of it, to be drawn.
	Curve []Quantile `json:"curve,omitempty"`
}

// A Quantile says that a share of all took no longer than this many microseconds.
type Quantile struct {
	Share  float64 `json:"share"`
	Micros float64 `json:"us"`
}

const micro = float64(time.Microsecond)

func latencyOf(h *hdrhistogram.Histogram) Latency {
	if h.TotalCount() == 0 {
		return Latency{}
	}
	at := func(percent float64) float64 { return float64(h.ValueAtPercentile(percent)) / micro }
	l := Latency{
		Count: h.TotalCount(), Avg: h.Mean() / micro, Min: float64(h.Min()) / micro,
		P50: at(50), P95: at(95), P99: at(99), P999: at(99.9), Max: float64(h.Max()) / micro,
	}
	for _, b := range h.CumulativeDistributionWithTicks(2) {
		l.Curve = append(l.Curve, Quantile{b.Quantile / 100, float64(b.ValueAt) / micro})
	}
	return l
}

// slice is what the workers of a driver recorded, with what follows from it.
func (d *driver) slice(spent cost, seconds float64) Slice {
	d.record.mu.Lock()
	defer d.record.mu.Unlock()
	s := d.record.Slice
	s.Seconds = seconds
	s.share(d.grants)
	per := func(n float64) float64 { return n / float64(max(s.Cycles, 1)) }
	s.Commands, s.Requests = per(float64(spent.commands)), per(float64(spent.requests))
	s.BytesIn, s.BytesOut = per(float64(spent.in)), per(float64(spent.out))
	s.ClientMicros, s.ServerMicros = per(float64(spent.client)/micro), per(float64(spent.server)/micro)
	s.CycleP50, s.HandoverP50 = latencyOf(s.cycle).P50, latencyOf(s.handover).P50
	return s
}

// metric is the figure of a slice by which it is compared; 0 where there is none.
func (s Slice) metric(m Metric) float64 {
	switch m {
	case HandoversPerSecond:
		return float64(s.Handovers) / s.Seconds
	case HandoverMedian:
		return s.HandoverP50
	case CycleMedian:
		return s.CycleP50
	default:
		return float64(s.Cycles) / s.Seconds
	}
}

// ratios are those of a metric to the baseline, of each round in which both have it. The
// baseline's rounds have the same indices.
func (r *SystemResult) ratios(m Metric, baseline []Slice) []float64 {
	var ratios []float64
	for i, s := range r.Rounds {
		score := s.metric(m)
		if m.less() && score == 0 {
			continue // nothing was measured
		}
		if i < len(baseline) && baseline[i].metric(m) > 0 {
			ratios = append(ratios, score/baseline[i].metric(m))
		}
	}
	return ratios
}

// summarize fills in what follows from the rounds. The baseline's have the same
// indices.
func (r *SystemResult) summarize(m Metric, baseline []Slice) {
	var scores []float64
	all := newSlice()
	for i := range r.Rounds {
		if score := r.Rounds[i].metric(m); score > 0 || !m.less() {
			scores = append(scores, score)
		}
		all.add(&r.Rounds[i])
	}
	r.Violations, r.Lost, r.Errors = all.violations, all.lost, all.errors
	r.Score, r.Ratio = spreadOf(scores), ratioOf(r.ratios(m, baseline), m.less())
	r.Acquire, r.Release, r.Cycle, r.Handover = latencyOf(all.acquire), latencyOf(all.release), latencyOf(all.cycle), latencyOf(all.handover)
}

func spreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	slices.Sort(values)
	mid := len(values) / 2
	median := values[mid]
	if len(values)%2 == 0 {
		median = (values[mid-1] + values[mid]) / 2
	}
	return Spread{median, values[0], values[len(values)-1]}
}

// baselineRounds are the rounds that all are compared with.
func (w WorkloadResult) baselineRounds() []Slice {
	for _, s := range w.Systems {
		if s.Name == w.Baseline {
			return s.Rounds
		}
	}
	return nil
}

// stillWide names the locks whose interval is not narrow yet. A lock that completed nothing
// has none; it gets as many rounds as an interval needs.
func (w WorkloadResult) stillWide() []string {
	base := w.baselineRounds()
	var wide []string
	for _, s := range w.Systems {
		if s.Baseline || s.Unfit != "" {
			continue
		}
		ratios := s.ratios(w.Metric, base)
		if len(ratios) == 0 && w.Rounds >= leastRounds {
			continue
		}
		if !ratioOf(ratios, w.Metric.less()).narrow() {
			wide = append(wide, s.Name)
		}
	}
	return wide
}

// rank orders the systems.
func (w *WorkloadResult) rank() {
	class := func(s SystemResult) int {
		switch {
		case s.Unfit != "":
			return 4
		case s.Baseline:
			return 0
		case s.Broken():
			return 3
		case s.Score.Median == 0:
			return 2
		default:
			return 1
		}
	}
	slices.SortStableFunc(w.Systems, func(a, b SystemResult) int {
		by := cmp.Compare(b.Score.Median, a.Score.Median)
		if w.Metric.less() {
			by = -by
		}
		return cmp.Or(cmp.Compare(class(a), class(b)), by)
	})
}
