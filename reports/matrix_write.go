package reports

import (
	"bytes"
	"errors"
	"fmt"
	"html/template"
	"io"
	"path"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// WriteMatrix writes the page of a matrix, and its junit.xml, summary.md and results.json,
// into the folder of its run directories, and the index of that.
func WriteMatrix(dir string, m Matrix) error {
	var errs []error
	for name, write := range map[string]func(io.Writer) error{
		MatrixFile: m.writeHTML, JUnitFile: m.writeJUnit, MarkdownFile: m.writeMarkdown, ResultsFile: func(w io.Writer) error { return WriteJSON(w, m) },
	} {
		errs = append(errs, history.WriteFile(path.Join(dir, name), write))
	}
	return errors.Join(append(errs, UpdateIndex(dir))...)
}

// The columns of a cell in words.
var matrixColumns = []string{ //nolint:gochecknoglobals // a constant
	"lock", "topology", "faults", "granted twice (95 %)", "runs", "unavailable, median / most", "acquire p50 / p99", "acquires unanswered",
}

// words are the columns of a cell.
func (c *MatrixCell) words() []string {
	head := []string{c.Lock, c.Topology, c.Faults}
	if c.Impossible != "" {
		return append(head, "not possible: "+c.Impossible, "", "", "", "")
	}
	if len(c.Runs) == 0 {
		return append(head, "no run", "", "", "", "")
	}
	acquire := "none granted"
	if c.Acquire.Count > 0 {
		acquire = say.Span(c.Acquire.P50) + " / " + dash(c.Acquire.P99)
	}
	return append(head, c.twice(), c.verdicts(), say.Span(c.LongestMedian)+" / "+say.Span(c.Longest), acquire, say.Thousands(int64(c.NoAnswer)))
}

func dash(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return say.Span(d)
}

// twice is in how many of the decided runs a lock was granted twice.
func (c *MatrixCell) twice() string {
	if c.Twice.Of == 0 {
		return "not decided"
	}
	return c.Twice.String()
}

// verdicts are those of the runs, but for none of a kind.
func (c *MatrixCell) verdicts() string {
	var parts []string
	for _, v := range []struct {
		n    int
		word checker.Verdict
	}{{c.Valid, checker.Valid}, {c.Invalid, checker.Invalid}, {c.Unknown, checker.Unknown}} {
		if v.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", v.n, v.word))
		}
	}
	return strings.Join(parts, ", ")
}

// WriteMatrixText writes a matrix as a table for a terminal.
func WriteMatrixText(w io.Writer, m Matrix) error {
	var out bytes.Buffer
	t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.ToUpper(strings.Join(matrixColumns, "\t")))
	var impossible []string
	for i := range m.Cells {
		c := &m.Cells[i]
		words := c.words()
		if c.Impossible != "" {
			words = append(words[:3], "not possible", "", "", "", "")
			impossible = append(impossible, fmt.Sprintf("%s on %s under %s: %s", c.Lock, c.Topology, c.Faults, c.Impossible))
		}
		fmt.Fprintln(t, strings.Join(words, "\t"))
	}
	_ = t.Flush() // into memory
	var text strings.Builder
	for line := range strings.Lines(out.String()) {
		text.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	for _, why := range impossible {
		text.WriteString("not possible: " + why + "\n")
	}
	if _, err := io.WriteString(w, say.Plain(text.String())); err != nil {
		return fmt.Errorf("write matrix: %w", err)
	}
	return nil
}

func (m *Matrix) writeMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## Locks under the same faults\n\n%s\n\n", md(m.about()))
	var rows [][]string
	for i := range m.Cells {
		words := m.Cells[i].words()
		for k := range words {
			words[k] = md(words[k])
		}
		rows = append(rows, words)
	}
	b.WriteString(mdTable(matrixColumns, rows))
	fmt.Fprintf(&b, "\n%s\n\n", matrixNote)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write markdown: %w", err)
	}
	return m.Joint.writeMarkdown(w)
}

// matrixNote says how to read the columns.
const matrixNote = "Granted twice: of the runs that were decided, those in which more clients held a lock than it admits, with Wilson's interval. " +
	"Unavailable: the longest time of a run in which no client was granted any lock while clients asked. " +
	"Acquire: from the request to the grant, with the time that other clients held the lock. " +
	"A seed fixes the plan of faults and the choices of the clients, not how processes interleave; topologies differ, so that the same seed draws other targets on each."

// about says what was run.
func (m *Matrix) about() string {
	return fmt.Sprintf("Seeds %s, %s each; faults: %s.", m.Seeds, say.Length(m.Length), strings.Join(m.Faults, ", "))
}

func (m *Matrix) writeHTML(w io.Writer) error {
	t, err := template.New("matrix").Funcs(template.FuncMap{"sign": sign, "span": say.Span}).Parse(matrixHTML)
	if err != nil {
		return fmt.Errorf("parse template: %w", err)
	}
	type cell struct {
		*MatrixCell
		Words []string
	}
	p := struct {
		*Matrix
		CSS     template.CSS
		About   string
		Note    string
		Columns []string
		Rows    []cell
	}{Matrix: m, CSS: template.CSS(paletteCSS + drawingCSS + pageCSS), About: m.about(), Note: matrixNote, Columns: matrixColumns}
	for i := range m.Cells {
		p.Rows = append(p.Rows, cell{&m.Cells[i], m.Cells[i].words()})
	}
	var out bytes.Buffer
	if err := t.Execute(&out, &p); err != nil {
		return fmt.Errorf("write matrix: %w", err)
	}
	if _, err := io.WriteString(w, say.Plain(out.String())); err != nil {
		return fmt.Errorf("write matrix: %w", err)
	}
	return nil
}
