package reports

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/internal/say"
)

// TextOptions say how the terminal summary is written. The zero value is
// plain text for a file or a log.
type TextOptions struct {
	Color bool // use ANSI colours
	// Width is that of the terminal in columns, at least 40. 0 is none: lines have 100
	// columns, and are broken instead of cut.
	Width int
	Dir   string // the run directory to name; empty names none
}

// maxTextLines is how many lines a summary has on a terminal.
const maxTextLines = 14

// maxCauseLines is how many measurements it names there.
const maxCauseLines = 2

// The widths of a summary.
const (
	textWidth    = 100 // without a terminal
	minTextWidth = 40
	labelWidth   = 13 // the column in which the text begins
)

// A textReport makes the lines of the summary.
type textReport struct {
	Results
	TextOptions

	whole bool // nothing is cut
	lines []string
}

// WriteText writes the summary for a terminal: the verdict and its story, how many violations there
// are, and the commands that go on from there. Everything else is in report.html.
func WriteText(w io.Writer, r Results, o TextOptions) error {
	t := textReport{Results: r, TextOptions: o, whole: o.Width <= 0}
	t.Width = max(o.Width, minTextWidth)
	if t.whole {
		t.Width = textWidth
	}
	t.head()
	foot := textReport{Results: r, TextOptions: t.TextOptions, whole: t.whole}
	foot.facts()
	foot.next()
	t.story(maxTextLines - len(t.lines) - len(foot.lines))
	if _, err := io.WriteString(w, strings.Join(append(t.lines, foot.lines...), "\n")+"\n"); err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}

func (t *textReport) head() {
	t.lines = append(t.lines, t.paint(t.Verdict, sign(t.Verdict)+" "+strings.ToUpper(string(t.Verdict)))+"  "+say.OneLine(t.Story.Headline))
	var about []string
	for _, s := range []string{t.Scenario, t.Topology, t.Lock, t.Workload} {
		if s != "" {
			about = append(about, say.OneLine(s))
		}
	}
	if t.recorded() {
		about = append(about, fmt.Sprintf("seed %d", t.Seed))
	}
	if t.Simulated {
		about = append(about, t.Simulation)
	}
	switch {
	case t.Expect == "":
	case t.AbortReason == "" && t.Expect == string(t.Verdict):
		about = append(about, "as expected")
	default:
		about = append(about, "expected "+say.OneLine(t.Expect))
	}
	if len(about) > 0 {
		t.lines = append(t.lines, "  "+t.dim(strings.Join(about, " · ")))
	}
	if t.Story.Notice != "" {
		t.add(sign(checker.Unknown)+" note", t.Story.Notice)
	}
	if len(t.Missing) > 0 {
		t.add(sign(checker.Unknown)+" incomplete", strings.Join(t.Missing, "; "))
	}
}

// story are the events, and the first of what follows from them, in so many lines.
func (t *textReport) story(room int) {
	events := slices.Clone(t.Story.Events)
	for !t.whole && len(events) > max(room-1, 2) {
		at := slices.IndexFunc(events, func(e StoryEvent) bool { return e.Kind != EventViolation })
		events = slices.Delete(events, at, at+1)
	}
	for _, m := range events {
		label := say.Instant(m.At)
		if m.Kind == EventViolation {
			label = sign(checker.Invalid) + " " + label
		}
		t.add(label, m.Text)
	}
	room -= len(events)
	for _, words := range t.Story.Outcome {
		if room > 0 || t.whole {
			t.add("", words)
			room--
		}
	}
}

// facts are the faults in effect and the counts.
func (t *textReport) facts() {
	for i, c := range t.Causes {
		if i < maxCauseLines || t.whole {
			t.wrap(map[bool]string{true: "measured"}[i == 0], c.Text) // the verdict stands at the end
		}
	}
	switch {
	case len(t.Causes) > 0 && !t.whole: // which name the faults
	case t.Story.InEffect != nil:
		t.add("faults", t.Story.InEffectText)
	case len(t.Faults) > 0:
		var names []string
		for i := range t.Faults {
			if f := &t.Faults[i]; f.counts() {
				names = append(names, f.label())
			}
		}
		t.add("faults", strings.TrimSuffix(fmt.Sprintf("%d of %d took effect: %s", len(names), len(t.Faults), strings.Join(names, ", ")), ": "))
	case t.recorded():
		t.add("faults", "none")
	}
	if words := t.Counts.String(); words != "" {
		t.add(sign(checker.Invalid)+" violated", words)
	}
	var held, open []string
	for _, p := range t.Properties {
		switch p.Verdict {
		case checker.Invalid:
		case checker.Valid:
			held = append(held, p.Name)
		default:
			open = append(open, p.Name+": "+p.Summary)
		}
	}
	if len(open) > 0 {
		t.add(sign(checker.Unknown)+" unknown", strings.Join(open, "; "))
	}
	if len(held) > 0 {
		t.add(sign(checker.Valid)+" held", strings.Join(held, ", "))
	}
	if len(t.SkippedFaults) > 0 {
		t.add("left out", strings.Join(t.SkippedFaults, "; "))
	}
	if len(t.Story.Weight) > 0 {
		t.add("weigh", strings.Join(t.Story.Weight, " "))
	}
	if len(t.Story.Cures) > 0 {
		label := "may help"
		if t.Story.Cures[0].Prevents {
			label = "remedy"
		}
		t.add(label, t.Story.Cures[0].Text)
	}
}

// next are the commands, in one line each, so that they can be copied.
func (t *textReport) next() {
	if t.Next != "" {
		t.lines = append(t.lines, pad("next")+say.OneLine(t.Next))
	}
	switch {
	case t.Command != "":
		line := pad("again") + say.OneLine(t.Command)
		if !strings.Contains(t.Command, "--seed") {
			line += fmt.Sprintf("   (seed %d)", t.Seed)
		}
		t.lines = append(t.lines, line)
	case t.recorded():
		t.lines = append(t.lines, pad("seed")+fmt.Sprint(t.Seed))
	}
	if t.Dir != "" {
		t.lines = append(t.lines, pad("report")+strings.TrimSuffix(t.Dir, "/")+"/report.html")
	}
}

// recorded reports whether there is a record of the run beside its history.
func (r *Results) recorded() bool { return r.Command != "" || r.Seed != 0 || r.Topology != "" }

// add adds an entry: on a terminal in one line, else in as many as it takes.
func (t *textReport) add(label, text string) {
	text = say.OneLine(text)
	if !t.whole {
		t.lines = append(t.lines, pad(label)+say.Shorten(text, t.Width-labelWidth))
		return
	}
	t.wrap(label, text)
}

// wrap adds an entry in as many lines as it takes.
func (t *textReport) wrap(label, text string) {
	line, width := pad(label), 0
	for word := range strings.FieldsSeq(text) {
		n := utf8.RuneCountInString(word)
		if width > 0 && labelWidth+width+1+n > t.Width {
			t.lines = append(t.lines, line)
			line, width = pad(""), 0
		}
		if width > 0 {
			line, width = line+" ", width+1
		}
		line, width = line+word, width+n
	}
	t.lines = append(t.lines, line)
}

func (t *textReport) paint(v checker.Verdict, s string) string {
	if !t.Color {
		return s
	}
	code := map[checker.Verdict]string{checker.Valid: "32", checker.Invalid: "31"}[v]
	if code == "" {
		code = "33"
	}
	return "\x1b[1;" + code + "m" + s + "\x1b[0m"
}

func (t *textReport) dim(s string) string {
	if !t.Color {
		return s
	}
	return "\x1b[2m" + s + "\x1b[0m"
}

// pad makes a label as wide as the column of labels.
func pad(label string) string {
	const indent = "  "
	n := labelWidth - len(indent) - utf8.RuneCountInString(label)
	return indent + label + strings.Repeat(" ", max(1, n))
}
