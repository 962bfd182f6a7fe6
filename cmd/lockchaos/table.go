package main

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

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
