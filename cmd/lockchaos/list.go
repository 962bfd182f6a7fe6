package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/scenarios"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/workload"
)

// A listing is what `list` prints of one kind of thing: as a table, as JSON or as
// Markdown, with the same columns.
type listing struct {
	columns []string
	rows    [][]string
}

func (a *app) listCommand() *cobra.Command {
	kinds := map[string]func() (listing, error){
		"topologies": listTopologies,
		"locks":      a.listLocks,
		"workloads":  a.listWorkloads,
		"faults":     listFaults,
		"mixes":      listMixes,
		"scenarios":  a.listScenarios,
	}
	kindNames := []string{"topologies", "locks", "workloads", "faults", "mixes", "scenarios"}
	var asJSON, asMarkdown bool
	cmd := &cobra.Command{
		Use:       "list " + strings.Join(kindNames, "|"),
		Short:     "List topologies, locks, workloads, faults, mixes of faults or scenarios",
		ValidArgs: kindNames,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("say what to list: topologies, locks, workloads, faults, mixes or scenarios")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			list, ok := kinds[args[0]]
			if !ok {
				return names.Unknown("kind of list", args[0], kindNames)
			}
			if asJSON && asMarkdown {
				return errors.New("--json and --markdown exclude each other")
			}
			switch {
			case asJSON && args[0] == "topologies":
				return a.topologiesJSON()
			case asMarkdown && args[0] == "faults":
				a.printf("%s", faults.Markdown())
				return nil
			}
			l, err := list()
			if err != nil {
				return harnessError{err}
			}
			if asJSON {
				return a.rowsJSON(l)
			}
			if asMarkdown {
				a.printf("%s", l.markdown())
				return nil
			}
			width, _ := onTerminal(a.stdout) // 0: a line for each row, so that it can be searched
			a.printf("%s", l.text(width))
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&asMarkdown, "markdown", false, "print a Markdown table")
	return cmd
}

// leastText is how wide a column of sentences must be, so that they are read with ease.
const leastText = 40

// text is the table. Where a row is wider than the terminal, cells of the widest columns go on
// in lines below, after a word, a slash or a comma; where too little is left for the last
// column, it stands below its row; and where that is not enough, each row is a paragraph. 0 is
// as wide as it takes.
func (l listing) text(width int) string {
	rows := [][]string{strings.Split(strings.ToUpper(strings.Join(l.columns, "\t")), "\t")}
	rows = append(rows, l.rows...)
	last := len(l.columns) - 1
	widest, least := make([]int, len(l.columns)), make([]int, len(l.columns))
	for _, row := range rows {
		for i, cell := range row {
			widest[i] = max(widest[i], utf8.RuneCountInString(cell))
			for _, part := range syllables(cell) {
				least[i] = max(least[i], utf8.RuneCountInString(strings.TrimSuffix(part, " ")))
			}
		}
	}
	total := 2 * last
	for _, w := range widest {
		total += w
	}
	below := width > 0 && total > width && widest[last] > leastText && total-widest[last]+leastText > width
	if below {
		total -= widest[last] + 2
		widest[last], least[last] = 0, 0
	}
	for ; width > 0 && total > width; total-- {
		at := -1
		for i := range widest {
			if widest[i] > least[i] && (at < 0 || widest[i] > widest[at]) {
				at = i
			}
		}
		if at < 0 {
			return l.paragraphs(width)
		}
		widest[at]--
	}
	var b strings.Builder
	for _, row := range rows {
		if below {
			writeCells(&b, row[:last], widest)
			for _, line := range wrapWords(row[last], width-4) {
				b.WriteString(strings.TrimRight("    "+line, " ") + "\n")
			}
			continue
		}
		writeCells(&b, row, widest)
	}
	return b.String()
}

// paragraphs are the rows one below the other, each cell after the name of its column.
func (l listing) paragraphs(width int) string {
	var b strings.Builder
	for _, row := range l.rows {
		for _, line := range wrapWords(row[0], width) {
			b.WriteString(line + "\n")
		}
		var cells []string
		for i, cell := range row[1:] {
			cells = append(cells, l.columns[i+1]+": "+cell)
		}
		for _, line := range wrapWords(strings.Join(cells, "; "), width-4) {
			b.WriteString("    " + line + "\n")
		}
	}
	return b.String()
}

// writeCells writes a row of cells side by side, in as many lines as the highest has.
func writeCells(b *strings.Builder, cells []string, widths []int) {
	parts, high := make([][]string, len(cells)), 1
	for i, cell := range cells {
		parts[i] = wrapWords(cell, widths[i])
		high = max(high, len(parts[i]))
	}
	for n := range high {
		var line strings.Builder
		for i := range cells {
			cell := ""
			if n < len(parts[i]) {
				cell = parts[i][n]
			}
			fmt.Fprintf(&line, "%-*s  ", widths[i], cell)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// syllables are the parts of a text that a line may end after, with the space that follows.
func syllables(text string) []string {
	var parts []string
	for word := range strings.FieldsSeq(text) {
		for part := range strings.SplitAfterSeq(word, "/") {
			for part := range strings.SplitAfterSeq(part, ",") {
				if part != "" {
					parts = append(parts, part)
				}
			}
		}
		parts[len(parts)-1] += " "
	}
	return parts
}

// wrapWords breaks a text into lines of at most width characters, where its parts allow it.
func wrapWords(text string, width int) []string {
	lines := []string{""}
	for _, part := range syllables(text) {
		last := &lines[len(lines)-1]
		if *last != "" && utf8.RuneCountInString(strings.TrimSuffix(*last+part, " ")) > width {
			lines = append(lines, "")
			last = &lines[len(lines)-1]
		}
		*last += part
	}
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], " ")
	}
	return lines
}

// markdown is the table in Markdown, with the names in the first column as code.
func (l listing) markdown() string {
	var b strings.Builder
	row := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	row(l.columns)
	row(slices.Repeat([]string{"---"}, len(l.columns)))
	for _, r := range l.rows {
		cells := []string{"`" + strings.ReplaceAll(r[0], ", ", "`, `") + "`"}
		for _, cell := range r[1:] {
			cells = append(cells, strings.ReplaceAll(cell, "|", `\|`))
		}
		row(cells)
	}
	return b.String()
}

func (a *app) rowsJSON(l listing) error {
	rows := []map[string]string{}
	for _, row := range l.rows {
		m := map[string]string{}
		for i, column := range l.columns {
			m[column] = row[i]
		}
		rows = append(rows, m)
	}
	return a.json(rows)
}

func (a *app) json(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetIndent("", "  ")
	return asHarness(enc.Encode(v))
}

// topologiesJSON prints the topologies whole: their nodes and links.
func (a *app) topologiesJSON() error {
	var all []topologies.Topology
	for _, name := range topologies.Names() {
		t, err := topologies.ByName(name)
		if err != nil {
			return harnessError{err}
		}
		all = append(all, t)
	}
	return a.json(all)
}

func listTopologies() (listing, error) {
	l := listing{columns: []string{"name", "store", "servers", "sentinels", "zones", "links", "options"}}
	for _, name := range topologies.Names() {
		t, err := topologies.ByName(name)
		if err != nil {
			return l, err
		}
		count := func(k topologies.Kind) string { return fmt.Sprint(len(t.Of(k))) }
		l.rows = append(l.rows, []string{
			name, t.Store(), fmt.Sprint(len(t.Servers())), count(topologies.Sentinel), count(topologies.Zone), fmt.Sprint(len(t.Links)),
			strings.Join(topologies.Settable(name), ", "),
		})
	}
	return l, nil
}

func (a *app) listLocks() (listing, error) {
	l := listing{columns: []string{"name", "about"}}
	for _, lock := range a.locks {
		l.rows = append(l.rows, []string{lock.Name, lock.About})
	}
	return l, nil
}

func (a *app) listWorkloads() (listing, error) {
	l := listing{columns: []string{"name", "default for", "meets", "about"}}
	defaults := map[string][]string{}
	for _, lock := range a.locks {
		if w := lock.DefaultWorkload(); w != workload.Contended && !strings.HasPrefix(lock.Name, "broken-") {
			defaults[w] = append(defaults[w], lock.Name)
		}
	}
	defaults[workload.Contended] = []string{"all others"}
	for w := range strings.SplitSeq(harness.ProgramWorkload, ",") {
		defaults[w] = append(defaults[w], "drivers")
	}
	for _, w := range harness.Workloads() {
		l.rows = append(l.rows, []string{w.Name, strings.Join(defaults[w.Name], ", "), strings.Join(w.Meets, ", "), w.About})
	}
	return l, nil
}

func listFaults() (listing, error) {
	l := listing{columns: []string{"name", "mix", "target", "params", "about"}}
	for _, f := range faults.All() {
		l.rows = append(l.rows, []string{f.Name, string(f.Family), string(f.Target), f.ParamWords(), f.Summary})
	}
	return l, nil
}

// listMixes are the faults of random runs, and for each topology whether a correct lock
// stays valid under them; "-" where they are not drawn.
func listMixes() (listing, error) {
	l := listing{columns: append([]string{"faults", "mix", "weight", "target"}, faults.DrawEnvironments()...)}
	draws, err := faults.Draws()
	if err != nil {
		return l, err
	}
	for _, d := range draws {
		row := []string{strings.Join(d.Faults, ", "), d.Mix, strconv.Itoa(d.Weight), cmp.Or(d.Target, "-")}
		for _, safe := range d.On {
			row = append(row, cmp.Or(safe, "-"))
		}
		l.rows = append(l.rows, row)
	}
	return l, nil
}

func (a *app) listScenarios() (listing, error) {
	l := listing{columns: []string{"name", "aliases", "topology", "expected", "title"}}
	catalogue, err := scenarios.Catalogue(a.locks)
	if err != nil {
		return l, err
	}
	for _, s := range catalogue {
		for _, variant := range append([]string{""}, s.VariantNames()...) {
			as := s.As(variant)
			aliases := ""
			if variant == "" {
				aliases = strings.Join(s.Aliases, ", ")
			}
			expected := as.Expect.Verdict
			if as.Expect.Violation != "" {
				expected += " (" + as.Expect.Violation + ")"
			}
			l.rows = append(l.rows, []string{as.Name, aliases, as.Topology, expected, as.Title})
		}
	}
	return l, nil
}
