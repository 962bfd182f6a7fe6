package reports

import (
	"bytes"
	_ "embed" // the template
	"fmt"
	"io"
	"strings"
	"text/template"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/internal/say"
)

//go:embed assets/summary.md.tmpl
var summaryMarkdown string

// maxRows bounds the faults in the table of the Markdown summary.
const maxRows = 30

// WriteMarkdown writes the summary for the page of a CI job (GitHub shows what
// is appended to $GITHUB_STEP_SUMMARY): the verdict and its story, what was
// checked, the figures, the faults, and the command that repeats the run.
func WriteMarkdown(w io.Writer, r Results) error {
	b, err := r.markdown("summary")
	if err == nil {
		_, err = w.Write(b)
	}
	if err != nil {
		return fmt.Errorf("write markdown: %w", err)
	}
	return nil
}

// markdown is a part of the summary: all of it, or what is copied into an issue.
func (r Results) markdown(part string) ([]byte, error) {
	t, err := template.New("markdown").Funcs(template.FuncMap{
		"md": md, "line": say.OneLine, "sign": func(v any) string { return sign(checker.Verdict(fmt.Sprint(v))) },
		"upper": func(v any) string { return strings.ToUpper(fmt.Sprint(v)) }, "instant": say.Instant, "stop": stop, "short": say.Shorten,
		"about": aboutMarkdown, "coverage": coverage, "rows": func(r Results) []latencyRow { return r.rows() }, "latencyNames": latencyNames,
		"armLabel": armLabel, "share": share,
		"thousands": func(n int) string { return say.Thousands(int64(n)) }, "recovery": recoveryCell,
		"most": func(all []Fault) []Fault { return all[:min(len(all), maxRows)] },
		"more": func(all []Fault) string {
			if len(all) <= maxRows {
				return ""
			}
			return say.Count(len(all)-maxRows, "fault")
		},
	}).Parse(summaryMarkdown)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.ExecuteTemplate(&b, part, r)
	return b.Bytes(), err
}

// aboutMarkdown names what was run.
func aboutMarkdown(r Results) string {
	var parts []string
	for _, s := range []string{r.Scenario, r.Topology, r.Lock, r.Workload} {
		if s != "" {
			parts = append(parts, md(s))
		}
	}
	if r.recorded() {
		parts = append(parts, fmt.Sprintf("seed %d", r.Seed))
	}
	if r.Simulated {
		parts = append(parts, "**"+r.Simulation+"**")
	}
	switch {
	case r.Expect == "", r.Expect == string(r.Verdict) && r.AbortReason != "":
	case r.Expect == string(r.Verdict):
		parts = append(parts, "as this scenario expects")
	default:
		parts = append(parts, "expected: "+md(r.Expect))
	}
	return strings.Join(parts, " · ")
}

// A latencyRow is a row of the table of operations.
type latencyRow struct {
	Op string
	Outcomes
	Latency
}

// Cells are the figures of the latency as the table shows them.
func (r latencyRow) Cells() []string { return r.cells() }

// rows are the operations in the order in which reports list them.
func (r *Results) rows() []latencyRow {
	var rows []latencyRow
	for _, op := range opNames() {
		if o, ok := r.Operations[op]; ok {
			rows = append(rows, latencyRow{op, o, r.Latency[op]})
		}
	}
	return rows
}

// Detail is the fault with its target and parameters: "latency zone-a>redis-1 (delay 50ms)".
func (f Fault) Detail() string { return f.detail() }

// Observed says what was seen of the fault: its effect, or why there was none, and how many requests
// met it.
func (f Fault) Observed() string {
	effect := adapt(f.Effect)
	if effect == "" {
		effect = "observed"
	}
	if !f.OK {
		effect = strings.TrimSuffix("? no effect: "+f.Error, ": ")
	}
	if met := f.metWords(); met != "" {
		effect += "; " + met
	}
	if f.HealError != "" {
		effect += "; not healed: " + f.HealError
	}
	return effect
}

// md makes a text safe for Markdown: nothing in it is a mark, a tag or the end
// of a table's cell.
func md(text string) string {
	var b strings.Builder
	for _, r := range say.OneLine(text) {
		switch r {
		case '<':
			b.WriteString("&lt;")
		case '>':
			b.WriteString("&gt;")
		case '&':
			b.WriteString("&amp;")
		case '@': // a mention would notify a user
			b.WriteString("&#64;")
		case '\\', '`', '*', '_', '[', ']', '|', '~', '#', '!':
			b.WriteRune('\\')
			b.WriteRune(r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// mdTable is a table of cells that are Markdown. A column whose name begins with ">" has
// its cells on the right.
func mdTable(columns []string, rows [][]string) string {
	names, rule := make([]string, len(columns)), make([]string, len(columns))
	for i, column := range columns {
		names[i], rule[i] = column, "---"
		if name, right := strings.CutPrefix(column, ">"); right {
			names[i], rule[i] = name, "--:"
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |\n|%s|\n", strings.Join(names, " | "), strings.Join(rule, "|"))
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	return b.String()
}
