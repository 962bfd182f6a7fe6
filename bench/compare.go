package bench

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"text/tabwriter"
)

// A Comparison is what became of the ratios of an earlier result in a later one.
type Comparison struct {
	// Old and New say what was compared.
	Old string `json:"old"`
	New string `json:"new"`
	// Rows are the pairs of workload and lock that both measured, in the order of the later one.
	Rows []Change `json:"rows"`
	// Missing are those of the earlier result that the later one did not measure.
	Missing []string `json:"missing,omitempty"`
	// Notes say what else differs between the two.
	Notes []string `json:"notes,omitempty"`
}

// A Change is the ratio of one lock to its baseline, earlier and later.
type Change struct {
	Workload string  `json:"workload"`
	System   string  `json:"system"`
	Metric   Metric  `json:"metric"`
	Old      float64 `json:"old"`
	New      float64 `json:"new"`
	// Times is the later ratio divided by the earlier one, by their medians. Interval is
	// nil where one of them has too few rounds, or the earlier one is 0.
	Times      float64    `json:"times"`
	Interval   *Interval  `json:"interval,omitempty"`
	Difference Difference `json:"difference"`
}

// Compare compares the ratios to the baseline, so that a machine which is faster at all makes no difference.
func Compare(older, newer Results) Comparison {
	c := Comparison{Old: older.name(), New: newer.name(), Notes: differences(older, newer)}
	found := map[string]bool{}
	for _, w := range newer.Workloads {
		before, ok := older.workload(w)
		if !ok {
			continue
		}
		for _, s := range w.Systems {
			for _, b := range before.Systems {
				if s.Name != b.Name || s.Name == w.Baseline || s.Unfit != "" || b.Unfit != "" {
					continue
				}
				found[w.Name+" "+s.Name] = true
				c.Rows = append(c.Rows, change(w, s, before, b, newer.Settings.Seed))
			}
		}
	}
	for _, w := range older.Workloads {
		for _, s := range w.Systems {
			if s.Name != w.Baseline && s.Unfit == "" && !found[w.Name+" "+s.Name] {
				c.Missing = append(c.Missing, w.Name+" "+s.Name)
			}
		}
	}
	return c
}

// workload is the same workload in an earlier result: of the same metric and baseline, with as many workers.
func (r Results) workload(like WorkloadResult) (WorkloadResult, bool) {
	for _, w := range r.Workloads {
		if w.Workload == like.Workload {
			return w, true
		}
	}
	return WorkloadResult{}, false
}

func change(w WorkloadResult, s SystemResult, before WorkloadResult, b SystemResult, seed uint64) Change {
	older, newer := b.ratios(w.Metric, before.baselineRounds()), s.ratios(w.Metric, w.baselineRounds())
	c := Change{Workload: w.Name, System: s.Name, Metric: w.Metric, Old: spreadOf(older).Median, New: spreadOf(newer).Median}
	if c.Old > 0 {
		c.Times = c.New / c.Old
	}
	c.Interval = intervalOfChange(older, newer, seed)
	switch {
	case s.Broken():
		c.Difference = Violates
	case b.Broken():
		c.Difference = Violated
	default:
		c.Difference = difference(c.Interval, w.Metric.less())
	}
	return c
}

// intervalOfChange is that of the quotient of two medians; nil if it can't be told.
func intervalOfChange(older, newer []float64, seed uint64) *Interval {
	rounds := min(len(older), len(newer))
	if rounds < leastRounds || spreadOf(older).Min == 0 {
		return nil
	}
	before, after := redraw(older), redraw(newer)
	i := interval(func(rng *rand.Rand) float64 { return after(rng) / before(rng) }, rounds, seed)
	return &i
}

// differences says in what two results differ besides their figures.
func differences(older, newer Results) []string {
	var notes []string
	differ := func(what, a, b string) {
		if a != b {
			notes = append(notes, fmt.Sprintf("%s: %s before, %s now", what, a, b))
		}
	}
	differ("machine", older.Machine.describe(), newer.Machine.describe())
	differ("Go", older.Machine.Go, newer.Machine.Go)
	differ("Redis", older.Machine.Redis, newer.Machine.Redis)
	differ("topology", older.Settings.Topology, newer.Settings.Topology)
	for _, warning := range older.Warnings {
		notes = append(notes, "before: "+warning)
	}
	for _, warning := range newer.Warnings {
		notes = append(notes, "now: "+warning)
	}
	return notes
}

// name says which result it is.
func (r Results) name() string {
	return fmt.Sprintf("%s of %s", r.Program, r.Started.UTC().Format("2006-01-02 15:04"))
}

// Worse lists the locks that got worse, or violate exclusion.
func (c Comparison) Worse() []string {
	var all []string
	for _, r := range c.Rows {
		if r.Difference == Worse || r.Difference == Violates {
			all = append(all, fmt.Sprintf("%s at %s", r.System, r.Workload))
		}
	}
	return all
}

func (c Comparison) rows() [][]string {
	rows := [][]string{{"workload", "system", "compared", "× baseline before", "now", "now / before", "difference"}}
	for _, r := range c.Rows {
		quotient := "–"
		switch {
		case r.Interval != nil:
			quotient = fmt.Sprintf("%s [%s–%s]", times(r.Times), times(r.Interval.Low), times(r.Interval.High))
		case r.Times > 0:
			quotient = times(r.Times)
		}
		rows = append(rows, []string{r.Workload, r.System, string(r.Metric), times(r.Old), times(r.New), quotient, string(r.Difference)})
	}
	return rows
}

// WriteText writes the comparison for a terminal.
func (c Comparison) WriteText(out io.Writer) error {
	fmt.Fprintf(out, "Compared with %s:\n", c.Old)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range c.rows() {
		fmt.Fprintln(table, "  "+strings.Join(row, "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(c.Missing) > 0 {
		fmt.Fprintln(out, "  not measured now:", strings.Join(c.Missing, ", "))
	}
	for _, note := range c.Notes {
		fmt.Fprintln(out, "  note:", note)
	}
	return nil
}

// WriteMarkdown writes the comparison as Markdown.
func (c Comparison) WriteMarkdown(out io.Writer) error {
	fmt.Fprintf(out, "\n## Compared with %s\n\n", c.Old)
	writeRows(out, c.rows(), 3)
	if len(c.Missing) > 0 {
		fmt.Fprintf(out, "\nNot measured now: %s.\n", strings.Join(c.Missing, ", "))
	}
	for _, note := range c.Notes {
		fmt.Fprintf(out, "\nNote: %s.\n", note)
	}
	return nil
}

// writeRows writes a table of Markdown, its head first, whose first columns are words.
func writeRows(out io.Writer, rows [][]string, words int) {
	for i, row := range rows {
		cells := make([]string, len(row))
		for j := range row {
			cells[j] = strings.ReplaceAll(row[j], "|", `\|`)
		}
		fmt.Fprintln(out, "| "+strings.Join(cells, " | ")+" |")
		if i == 0 {
			fmt.Fprintln(out, "|"+strings.Repeat("---|", words)+strings.Repeat("---:|", len(row)-words))
		}
	}
}
