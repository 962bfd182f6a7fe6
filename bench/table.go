package bench

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/internal/say"
)

// A column is one figure of every system.
type column struct {
	head string
	of   func(r SystemResult) string
}

// columns are those that tell most about a workload.
func (w WorkloadResult) columns() []column {
	score := column{string(w.Metric), func(r SystemResult) string { return spread(r.Score, rate) }}
	if w.Metric.less() {
		score.of = func(r SystemResult) string { return spread(r.Score, took) }
	}
	cs := []column{
		{"system", func(r SystemResult) string { return r.Name }},
		score,
		{"× " + w.Baseline, func(r SystemResult) string { return r.Ratio.text() }},
		{"than it", func(r SystemResult) string {
			if r.Name == w.Baseline {
				return "–"
			}
			return cmp.Or(string(r.Ratio.Difference), "–")
		}},
	}
	acquire := func(r SystemResult) Latency { return r.Acquire }
	cycle := func(r SystemResult) Latency { return r.Cycle }
	handed := func(r SystemResult) Latency { return r.Handover }
	switch {
	case w.Metric == HandoverMedian:
		cs = append(cs, latencies("", handed)...)
		cs = append(cs, column{"samples", func(r SystemResult) string { return fmt.Sprint(r.Handover.Count) }})
	case w.Metric == HandoversPerSecond:
		cs = append(cs, perSecond())
		cs = append(cs, latencies("wait ", acquire)...)
		cs = append(cs, fairness()...)
	case w.Contended():
		cs = append(cs, perSecond())
		cs = append(cs, latencies("", cycle)...)
		cs = append(cs, fairness()...)
	default:
		if w.Metric != OpsPerSecond {
			cs = append(cs, perSecond())
		}
		cs = append(cs,
			column{"acquire p50", func(r SystemResult) string { return took(r.Acquire.P50) }},
			column{"release p50", func(r SystemResult) string { return took(r.Release.P50) }})
		cs = append(cs, latencies("cycle ", cycle)...)
	}
	if w.Rate > 0 {
		cs = append(cs, column{"backlog", func(r SystemResult) string {
			return rate(median(r, func(s Slice) float64 { return float64(s.Backlog) }))
		}})
	}
	return append(cs, costs()...)
}

func perSecond() column {
	return column{"ops/s", func(r SystemResult) string {
		return rate(median(r, func(s Slice) float64 { return s.metric(OpsPerSecond) }))
	}}
}

func latencies(what string, of func(SystemResult) Latency) []column {
	figure := func(head string, pick func(Latency) float64) column {
		return column{what + head, func(r SystemResult) string {
			l := of(r)
			if l.Count == 0 {
				return "–"
			}
			return took(pick(l))
		}}
	}
	return []column{
		figure("avg", func(l Latency) float64 { return l.Avg }),
		figure("min", func(l Latency) float64 { return l.Min }),
		figure("p50", func(l Latency) float64 { return l.P50 }),
		figure("p95", func(l Latency) float64 { return l.P95 }),
		figure("p99", func(l Latency) float64 { return l.P99 }),
		figure("p99.9", func(l Latency) float64 { return l.P999 }),
		figure("max", func(l Latency) float64 { return l.Max }),
	}
}

func fairness() []column {
	return []column{
		{"longest wait", func(r SystemResult) string {
			var most time.Duration
			for _, s := range r.Rounds {
				most = max(most, s.LongestWait)
			}
			return took(float64(most) / micro)
		}},
		{"least–most", func(r SystemResult) string {
			return fmt.Sprintf("%.0f–%.0f",
				median(r, func(s Slice) float64 { return float64(s.Least) }), median(r, func(s Slice) float64 { return float64(s.Most) }))
		}},
		{"Jain", func(r SystemResult) string {
			return fmt.Sprintf("%.2f", median(r, func(s Slice) float64 { return s.Jain }))
		}},
		{"starved", func(r SystemResult) string {
			return fmt.Sprintf("%.0f", median(r, func(s Slice) float64 { return float64(s.Starved) }))
		}},
	}
}

func costs() []column {
	pair := func(head, format string, a, b func(Slice) float64) column {
		return column{head, func(r SystemResult) string { return fmt.Sprintf(format, median(r, a), median(r, b)) }}
	}
	return []column{
		pair("requests, commands", "%.2f, %.1f",
			func(s Slice) float64 { return s.Requests }, func(s Slice) float64 { return s.Commands }),
		pair("bytes in, out", "%.0f, %.0f",
			func(s Slice) float64 { return s.BytesIn }, func(s Slice) float64 { return s.BytesOut }),
		pair("cpu client, server", "%.0f, %.0f µs",
			func(s Slice) float64 { return s.ClientMicros }, func(s Slice) float64 { return s.ServerMicros }),
		{"", SystemResult.note},
	}
}

// note is what the figures alone don't say.
func (r SystemResult) note() string {
	var notes []string
	if r.Violations > 0 {
		notes = append(notes, fmt.Sprintf("✗ violated mutual exclusion %d times: not ranked", r.Violations))
	}
	if r.Lost > 0 {
		notes = append(notes, fmt.Sprintf("✗ lost the lock %d times before its lease ended: not ranked", r.Lost))
	}
	if r.Score.Median == 0 {
		notes = append(notes, "nothing completed")
	}
	var errs, refused int64
	for _, n := range r.Errors {
		errs += n
	}
	for _, s := range r.Rounds {
		refused += s.Refused
	}
	if refused > 0 {
		notes = append(notes, fmt.Sprintf("%d refused", refused))
	}
	if errs > 0 {
		first, _, _ := strings.Cut(slices.Sorted(maps.Keys(r.Errors))[0], "\n")
		notes = append(notes, fmt.Sprintf("%d errors, such as %q", errs, say.Shorten(first, 120)))
	}
	return strings.Join(notes, "; ")
}

// median is that of a figure over the rounds.
func median(r SystemResult, of func(Slice) float64) float64 {
	var values []float64
	for _, s := range r.Rounds {
		values = append(values, of(s))
	}
	return spreadOf(values).Median
}

func spread(s Spread, format func(float64) string) string {
	if s == (Spread{}) {
		return "–"
	}
	return fmt.Sprintf("%s [%s–%s]", format(s.Median), format(s.Min), format(s.Max))
}

// text is the median with its interval, if there is one.
func (r Ratio) text() string {
	switch {
	case r.Spread == (Spread{}):
		return "–"
	case r.Interval == nil:
		return times(r.Median)
	default:
		return fmt.Sprintf("%s [%s–%s]", times(r.Median), times(r.Interval.Low), times(r.Interval.High))
	}
}

func rate(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.1f", v)
	}
	return say.Thousands(int64(math.RoundToEven(v)))
}

func times(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// took is a time in the unit in which it has three digits.
func took(us float64) string {
	switch {
	case us < 10:
		return fmt.Sprintf("%.1f µs", us)
	case us < 10_000:
		return rate(us) + " µs"
	case us < 100_000:
		return fmt.Sprintf("%.1f ms", us/1000)
	case us < 10_000_000:
		return rate(us/1000) + " ms"
	default:
		return fmt.Sprintf("%.1f s", us/1e6)
	}
}

// rows are the table of a workload, its head first, and after it what did not
// take part.
func (w WorkloadResult) rows() (rows [][]string, unfit []string) {
	columns := w.columns()
	head := make([]string, len(columns))
	for i, c := range columns {
		head[i] = c.head
	}
	rows = append(rows, head)
	for _, r := range w.Systems {
		if r.Unfit != "" {
			unfit = append(unfit, r.Name+" ("+r.Unfit+")")
			continue
		}
		row := make([]string, len(columns))
		for i, c := range columns {
			row[i] = c.of(r)
		}
		rows = append(rows, row)
	}
	return rows, unfit
}

// title says what a workload is.
func (w WorkloadResult) title() string { return fmt.Sprintf("%s: %s (%s)", w.Name, w.About, w.loop()) }

// WriteText writes the tables for a terminal: of each the columns that fit its
// width; 0 is any width.
func (r Results) WriteText(out io.Writer, width int) error {
	for i, w := range r.Workloads {
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintln(out, w.title())
		fmt.Fprintln(out, " ", r.rounds(w))
		rows, unfit := w.rows()
		for line := range strings.Lines(say.Aligned(fit(rows, width))) {
			fmt.Fprint(out, "  "+line)
		}
		if len(unfit) > 0 {
			fmt.Fprintln(out, "  did not take part:", strings.Join(unfit, ", "))
		}
	}
	fmt.Fprintf(out, "\n%s\n", strings.Join(append(r.caveats(), r.describe()), "\n"))
	return nil
}

// caveats are what of the figures can't be compared: of each system the last that was
// said, since that knows most.
func (r Results) caveats() []string {
	said := map[string]string{}
	for _, w := range r.Workloads {
		for _, s := range w.Systems {
			if s.Caveat != "" {
				said[s.Name] = s.Name + ": " + s.Caveat
			}
		}
	}
	return slices.Sorted(maps.Values(said))
}

// fit leaves columns out, from the last but the notes on, until the rows fit.
func fit(rows [][]string, width int) [][]string {
	for width > 0 && len(rows[0]) > 5 && wide(rows) > width {
		for i, row := range rows {
			rows[i] = slices.Delete(row, len(row)-2, len(row)-1)
		}
	}
	return rows
}

// wide is how wide the rows are, without the notes.
func wide(rows [][]string) int {
	sum := 2
	for c := range len(rows[0]) - 1 {
		most := 0
		for _, row := range rows {
			most = max(most, len([]rune(row[c])))
		}
		sum += most + 2
	}
	return sum
}

// describe names the processors.
func (m Machine) describe() string {
	text := fmt.Sprintf("%d × %s", m.Cores, cmp.Or(m.CPU, m.Arch))
	if m.Virtual {
		text += " (virtual)"
	}
	return text
}

// describe says what the figures hold for.
func (r Results) describe() string {
	m := r.Machine
	rounds := "rounds"
	if r.Settings.Rounds > 0 {
		rounds = say.Count(r.Settings.Rounds, "round")
	}
	parts := []string{
		fmt.Sprintf("%s of %v after %v of warm-up, longer where a hand-over takes long, in random order; median [least–most] of the rounds, "+
			"of a ratio [95 %% interval], latencies of all rounds together", rounds, r.Settings.Length, r.Settings.WarmUp),
		fmt.Sprintf("%s, %s, Redis %s on topology %s, seed %d", m.describe(), m.Go, m.Redis, r.Settings.Topology, r.Settings.Seed),
		fmt.Sprintf("took %.0f s", r.Seconds),
	}
	if m.Load != "" {
		parts = append(parts, "load when it began "+m.Load)
	}
	if m.busy() {
		parts = append(parts, "the machine was busy when the run began: measure again when it is not")
	}
	if r.Interrupted {
		parts = append(parts, "interrupted: workloads are missing")
	}
	return strings.Join(parts, " · ")
}

// rounds says how many rounds a workload had, and why no more.
func (r Results) rounds(w WorkloadResult) string {
	n := say.Count(w.Rounds, "round")
	switch {
	case r.Settings.Rounds > 0:
		return n + ", as asked"
	case len(w.Wide) > 0:
		return n + ", then the budget was spent; not narrow yet: " + strings.Join(w.Wide, ", ")
	default:
		return n + ", then all intervals were narrow"
	}
}

// WriteMarkdown writes the tables as Markdown.
func (r Results) WriteMarkdown(out io.Writer) error {
	fmt.Fprintf(out, "# Benchmark of locks\n\n`%s`\n\n%s\n", r.Command, r.describe())
	for _, caveat := range r.caveats() {
		fmt.Fprintf(out, "\n%s\n", caveat)
	}
	for _, w := range r.Workloads {
		fmt.Fprintf(out, "\n## %s\n\n%s (%s). %s.\n\n", w.Name, sentence(w.About), w.loop(), sentence(r.rounds(w)))
		rows, unfit := w.rows()
		for i, row := range rows {
			fmt.Fprint(out, say.Row(row...))
			if i == 0 {
				fmt.Fprintln(out, "|---|"+strings.Repeat("---:|", len(row)-2)+"---|")
			}
		}
		if len(unfit) > 0 {
			fmt.Fprintf(out, "\nDid not take part: %s.\n", strings.Join(unfit, ", "))
		}
	}
	return nil
}

func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
