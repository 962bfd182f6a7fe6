package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/lockchaos/lockchaos/internal/say"
)

// A table is printed as text, as JSON or as Markdown, with the same columns.
type table struct {
	columns []string
	rows    [][]string
}

// add adds a row.
func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// text writes the table with a line for each row, so that it can be searched.
func (t table) text(w io.Writer) error {
	tabs := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tabs, strings.ToUpper(strings.Join(t.columns, "\t")))
	for _, row := range t.rows {
		fmt.Fprintln(tabs, say.Plain(strings.Join(row, "\t")))
	}
	return asHarness(tabs.Flush())
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
	var b strings.Builder
	row := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	row(t.columns)
	row(slices.Repeat([]string{"---"}, len(t.columns)))
	for _, r := range t.rows {
		cells := []string{"`" + strings.ReplaceAll(r[0], ", ", "`, `") + "`"}
		for _, cell := range r[1:] {
			cells = append(cells, strings.ReplaceAll(cell, "|", `\|`))
		}
		row(cells)
	}
	return b.String()
}
