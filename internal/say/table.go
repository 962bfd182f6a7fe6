package say

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// Aligned is a table as text, whose columns are as wide as their widest cells.
func Aligned(rows [][]string) string {
	var out bytes.Buffer
	t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	_ = t.Flush() // into memory
	var text strings.Builder
	for line := range strings.Lines(out.String()) {
		text.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return text.String()
}

// Markdown is a table in Markdown, of which the first row is the head.
func Markdown(rows [][]string) string {
	var b strings.Builder
	for i, row := range rows {
		b.WriteString(Row(row...))
		if i == 0 {
			b.WriteString(Row(slices.Repeat([]string{"---"}, len(row))...))
		}
	}
	return b.String()
}

// Row is a row of a table in Markdown. What ends a cell is escaped.
func Row(cells ...string) string {
	var b strings.Builder
	for _, cell := range cells {
		b.WriteString("| " + strings.ReplaceAll(cell, "|", `\|`) + " ")
	}
	return b.String() + "|\n"
}
