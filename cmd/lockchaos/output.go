package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/internal/names"
	"github.com/lockchaos/lockchaos/internal/say"
)

// An output passes on what is written, and tells once that fails.
type output struct {
	to     io.Writer
	failed func(error)
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.to.Write(b)
	if err != nil {
		err = outputError{err}
		o.failed(err)
	}
	return n, err
}

// An outputError says that a result could not be written.
type outputError struct{ error }

func (e outputError) Error() string { return fmt.Sprintf("write output: %v", e.error) }
func (e outputError) Unwrap() error { return e.error }

// json prints a value as indented JSON.
func (a *app) json(v any) error { return asHarness(say.JSON(a.stdout, v)) }

// sayEvery is how often progress is printed where no line can be rewritten.
const sayEvery = 5 * time.Second

// A progress shows how work goes: one line that is rewritten on a terminal, else a line now and then, and one at each
// change of what is done.
type progress struct {
	w     io.Writer
	live  bool
	width int
	said  time.Time
	doing string
}

func newProgress(w io.Writer) *progress {
	width, live := onTerminal(w)
	return &progress{w: w, live: live, width: width, said: time.Now()}
}

func (p *progress) show(doing, line string) {
	switch {
	case p.live:
		r := []rune(line)
		fmt.Fprintf(p.w, "\r\x1b[K%s", strings.TrimSpace(string(r[:min(len(r), max(p.width-1, 0))])))
	case doing != p.doing || time.Since(p.said) >= sayEvery:
		p.said, p.doing = time.Now(), doing
		fmt.Fprintln(p.w, time.Now().UTC().Format("15:04:05"), line)
	}
}

// run shows how a run goes, which is told by that title.
func (p *progress) run(title string) func(harness.Progress) {
	return func(now harness.Progress) {
		fault := now.Fault
		if fault == "" {
			fault = "none"
		}
		// What changes comes first: a small terminal has no room for all.
		p.show(now.Fault, fmt.Sprintf("%4.0fs of %.0fs · fault: %s · %d grants, %.0f/s · %s",
			now.Elapsed.Seconds(), now.Length.Seconds(), fault, now.Grants, float64(now.Grants)/max(now.Elapsed.Seconds(), 1), title))
	}
}

// end clears the live line.
func (p *progress) end() {
	if p.live {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// A table is printed as text, as JSON or as Markdown, with the same columns.
type table struct {
	columns []string
	rows    [][]string
}

// add adds a row.
func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// text writes the table with a line for each row, so that it can be searched.
func (t table) text(w io.Writer) error {
	rows := [][]string{names.Of(t.columns, strings.ToUpper)}
	for _, row := range t.rows {
		rows = append(rows, names.Of(row, say.Plain))
	}
	_, err := io.WriteString(w, say.Aligned(rows))
	return asHarness(err)
}

// objects are the rows by the names of the columns.
func (t table) objects() []map[string]string {
	rows := []map[string]string{}
	for _, row := range t.rows {
		m := map[string]string{}
		for i, column := range t.columns {
			m[column] = row[i]
		}
		rows = append(rows, m)
	}
	return rows
}

// markdown is the table in Markdown, with the names in the first column as code.
func (t table) markdown() string {
	rows := [][]string{t.columns}
	for _, r := range t.rows {
		named := "`" + strings.ReplaceAll(r[0], ", ", "`, `") + "`"
		rows = append(rows, append([]string{named}, r[1:]...))
	}
	return say.Markdown(rows)
}
