package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// A Named result is one of several, such as those of different machines.
type Named struct {
	Name string
	Results
}

// sideBySide are the ratios of all results to their baselines, a column for each, its head first. A workload
// or lock that one of them did not measure has a dash there.
func sideBySide(all []Named) [][]string {
	head := []string{"workload", "system", "compared", "baseline"}
	type key struct {
		Workload
		system string
	}
	var order []key
	cells := map[key][]string{}
	for column, r := range all {
		head = append(head, r.Name)
		for _, w := range r.Workloads {
			for _, s := range w.Systems {
				if s.Name == w.Baseline || s.Unfit != "" {
					continue
				}
				k := key{w.Workload, s.Name}
				if cells[k] == nil {
					order = append(order, k)
					cells[k] = strings.Split(strings.Repeat("–,", len(all)-1)+"–", ",")
				}
				cells[k][column] = s.Ratio.text()
				if s.Ratio.Difference == NoneShown {
					cells[k][column] += " =" // marked in the legend
				}
				if s.Broken() {
					cells[k][column] += " ✗"
				}
			}
		}
	}
	rows := [][]string{head}
	for _, k := range order {
		rows = append(rows, append([]string{k.Name, k.system, string(k.Metric), k.Baseline}, cells[k]...))
	}
	return rows
}

// sideLegend says what the marks mean.
const sideLegend = "ratio to the baseline [95 % interval]; = no difference shown, ✗ violated mutual exclusion, – not measured"

// WriteSideText writes the ratios of several results for a terminal, and what each holds for.
func WriteSideText(out io.Writer, all []Named) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range sideBySide(all) {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%s\n", sideLegend)
	for _, r := range all {
		fmt.Fprintf(out, "%s: %s\n", r.Name, r.describe())
		for _, warning := range r.Warnings {
			fmt.Fprintln(out, "  warning:", warning)
		}
	}
	return nil
}

// WriteSideMarkdown writes the same as Markdown.
func WriteSideMarkdown(out io.Writer, all []Named) error {
	writeRows(out, sideBySide(all), 4)
	fmt.Fprintf(out, "\n%s.\n\n", sentence(sideLegend))
	for _, r := range all {
		fmt.Fprintf(out, "- %s: %s\n", r.Name, r.describe())
		for _, warning := range r.Warnings {
			fmt.Fprintf(out, "  **Warning:** %s.\n", warning)
		}
	}
	return nil
}
