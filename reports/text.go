package reports

import (
	"bytes"
	"cmp"
	_ "embed" // the templates
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"unicode/utf8"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/facts"
	"github.com/lockchaos/lockchaos/reports/internal/story"
)

//go:embed assets/summary.md.tmpl
var summaryMarkdown string

//go:embed assets/summary.txt.tmpl
var summaryText string

// TextOptions say how the terminal summary is written. The zero value is
// plain text for a file or a log.
type TextOptions struct {
	Color bool // use ANSI colours
	// Width is that of the terminal in columns, at least 40. 0 is none: lines have 100
	// columns, and are broken instead of cut.
	Width int
	Dir   string // the run directory to name; empty names none
}

// The measures of a summary for a terminal.
const (
	maxTextLines = 14
	textWidth    = 100 // without a terminal
	minTextWidth = 40
	labelWidth   = 13 // the column in which the text begins
	indent       = "  "
)

// functions are those of all templates, also of pages.
func functions() map[string]any {
	return map[string]any{
		"md": md, "line": say.OneLine, "sign": func(v any) string { return sign(checker.Verdict(fmt.Sprint(v))) },
		"upper": func(v any) string { return strings.ToUpper(fmt.Sprint(v)) }, "instant": say.Instant, "stop": story.Stop, "short": say.Shorten,
		"length": say.Length, "span": say.Span, "count": say.Count, "join": strings.Join,
		"about": func(r Results) []string { return r.about() }, "rows": func(r Results) []operationRow { return r.rows() },
		"looks": Story.Looks, "brief": brief, "blamed": func(r Results) string { return r.blamed() },
		"coverage": facts.Coverage, "covered": facts.Covered, "latencyNames": facts.LatencyNames,
		"runName": JointRun.name, "armLabel": armLabel, "share": share, "recovery": recoveryCell, "recorded": func(r Results) bool { return r.recorded() },
		"thousands": func(n int) string { return say.Thousands(int64(n)) }, "effective": facts.Effective,
		"first": func(all any, n int) any { v := reflect.ValueOf(all); return v.Slice(0, min(v.Len(), n)).Interface() }, "sub": func(a, b int) int { return a - b },
	}
}

// brief is a list of what to look at with its first two entries.
func brief(look string) string {
	const next = ", whether "
	if parts := strings.SplitN(look, next, 3); len(parts) > 2 {
		return parts[0] + next + parts[1] + " …"
	}
	return look
}

// templated is what a template of text makes of data.
func templated(text, part string, data any, more template.FuncMap) (string, error) {
	t, err := template.New("").Funcs(functions()).Funcs(more).Parse(text)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	err = t.ExecuteTemplate(&b, part, data)
	return b.String(), err
}

// WriteMarkdown writes the summary for the page of a CI job (GitHub shows what
// is appended to $GITHUB_STEP_SUMMARY): the verdict and its story, what was
// checked, the figures, the faults, and the command that repeats the run.
func WriteMarkdown(w io.Writer, r Results) error { return writeMarkdown(w, "summary", r) }

// writeMarkdown writes what a part of the template makes of data.
func writeMarkdown(w io.Writer, part string, data any) error {
	text, err := templated(summaryMarkdown, part, data, nil)
	return write(w, "markdown", text, err)
}

// A terminal has the entries of a summary as lines.
type terminal struct {
	TextOptions

	cut bool // an entry has one line
}

// WriteText writes the summary for a terminal: the verdict and its story, how many violations there
// are, and the commands that go on from there. Everything else is in report.html.
func WriteText(w io.Writer, r Results, o TextOptions) error {
	t := terminal{TextOptions: o, cut: o.Width > 0}
	if t.Width = max(o.Width, minTextWidth); !t.cut {
		t.Width = textWidth
	}
	by := map[checker.Verdict][]string{}
	for _, p := range r.Properties {
		name := p.Name
		if p.Verdict == checker.Unknown {
			name += ": " + p.Summary
		}
		by[p.Verdict] = append(by[p.Verdict], name)
	}
	var named []string
	for i := range r.Faults {
		if f := &r.Faults[i]; f.Counts() {
			named = append(named, f.Label())
		}
	}
	data := map[string]any{
		"R": r, "Dir": strings.TrimSuffix(o.Dir, "/"), "Cut": t.cut, "Held": by[checker.Valid], "Open": by[checker.Unknown], "Faults": named,
		"Events": r.Story.Events, "Outcome": r.Story.Outcome,
	}
	more := template.FuncMap{"add": t.add, "wrap": t.wrap, "pad": pad, "paint": t.paint}
	parts, names := [3]string{}, [3]string{"head", "story", "foot"}
	for _, i := range []int{0, 2, 1} {
		var err error
		if i == 1 && t.cut { // in the lines that are left: without the oldest events, and some sentences
			room := maxTextLines - strings.Count(parts[0], "\n") - strings.Count(parts[2], "\n")
			events := r.Story.Events
			for len(events) > max(room-1, 2) {
				at := slices.IndexFunc(events, func(e StoryEvent) bool { return e.Kind != EventViolation })
				events = slices.Delete(slices.Clone(events), at, at+1)
			}
			data["Events"], data["Outcome"] = events, r.Story.Outcome[:min(len(r.Story.Outcome), max(0, room-len(events)))]
		}
		if parts[i], err = templated(summaryText, names[i], data, more); err != nil {
			return fmt.Errorf("write summary: %w", err)
		}
	}
	if _, err := io.WriteString(w, strings.Join(parts[:], "")); err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}

// add is an entry: on a terminal one line, else as many as it takes.
func (t terminal) add(label, text string) string {
	if text = say.OneLine(text); t.cut {
		return pad(label) + say.Shorten(text, t.Width-labelWidth) + "\n"
	}
	return t.wrap(label, text)
}

// wrap is an entry in as many lines as it takes.
func (t terminal) wrap(label, text string) string {
	lines, width := pad(label), 0
	for word := range strings.FieldsSeq(say.OneLine(text)) {
		n := utf8.RuneCountInString(word)
		switch {
		case width > 0 && labelWidth+width+1+n > t.Width:
			lines, width = lines+"\n"+pad(""), 0
		case width > 0:
			lines, width = lines+" ", width+1
		}
		lines, width = lines+word, width+n
	}
	return lines + "\n"
}

// pad makes a label as wide as the column of labels.
func pad(label string) string {
	return indent + label + strings.Repeat(" ", max(1, labelWidth-len(indent)-utf8.RuneCountInString(label)))
}

func (t terminal) paint(v checker.Verdict, s string) string {
	if !t.Color {
		return s
	}
	return "\x1b[1;" + cmp.Or(map[checker.Verdict]string{checker.Valid: "32", checker.Invalid: "31"}[v], "33") + "m" + s + "\x1b[0m"
}

// md makes a text safe for Markdown: nothing in it is a mark, a tag or the end
// of a table's cell, and no mention of a user.
func md(text string) string {
	marks := []string{"<", "&lt;", ">", "&gt;", "&", "&amp;", "@", "&#64;"}
	for _, mark := range []string{"\\", "`", "*", "_", "[", "]", "|", "~", "#", "!"} {
		marks = append(marks, mark, "\\"+mark)
	}
	return strings.NewReplacer(marks...).Replace(say.OneLine(text))
}
