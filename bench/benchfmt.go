package bench

import (
	"fmt"
	"io"
	"strings"
)

// WriteBenchfmt writes the rounds as Go's benchmarks are written (golang.org/design/14313-benchmark-format),
// for benchstat and other programs that compare results: a line for each round of each system, with the
// workload's metric and its ratio to the baseline of the same round. Systems that did not keep others out
// are left out.
func (r Results) WriteBenchfmt(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "goos: %s\ngoarch: %s\ncpu: %s\nredis: %s\ntopology: %s\n",
		r.Machine.OS, r.Machine.Arch, r.Machine.CPU, r.Machine.Redis, r.Settings.Topology)
	for _, unit := range []Metric{OpsPerSecond, HandoversPerSecond, "ratio"} {
		fmt.Fprintf(&b, "Unit %s better=higher\n", unit)
	}
	b.WriteString("Unit latency-us better=lower\nUnit latency-ratio better=lower\n")
	for _, w := range r.Workloads {
		unit, ratio := string(w.Metric), "ratio"
		if w.Metric.less() {
			unit, ratio = "latency-us", "latency-ratio"
		}
		base := w.baselineRounds()
		for _, s := range w.Systems {
			if s.Unfit != "" || s.Broken() {
				continue
			}
			name := strings.Join(strings.Fields(s.Name), "_") // a space ends a name in that format
			for i, round := range s.Rounds {
				if round.metric(w.Metric) == 0 {
					continue
				}
				fmt.Fprintf(&b, "BenchmarkLock/workload=%s/lock=%s %d %g %s", w.Name, name, max(round.Cycles, 1), round.metric(w.Metric), unit)
				if i < len(base) && base[i].metric(w.Metric) > 0 {
					fmt.Fprintf(&b, " %g %s", round.metric(w.Metric)/base[i].metric(w.Metric), ratio)
				}
				b.WriteByte('\n')
			}
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}
