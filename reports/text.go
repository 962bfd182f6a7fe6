package reports

import (
	"cmp"
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
	// columns, and nothing is left out.
	Width int
	Dir   string // the run directory to name; empty names none
}

// maxTextLines is what a terminal shows without scrolling, where the story leaves that much.
const maxTextLines = 25

// The widths of a summary.
const (
	textWidth    = 100 // without a terminal
	minTextWidth = 40
)

// A textPart are lines of the summary. Those with a rank may be left out on a terminal
// that is too small, the highest first.
type textPart struct {
	rank  int
	lines []string
}

// WriteText writes the summary for a terminal: the verdict and its story first, the
// command that repeats the run last. The verdict, the story, what is violated and how to
// repeat it are always there; the figures are if there is room.
func WriteText(w io.Writer, r Results, o TextOptions) error {
	t := textReport{Results: r, TextOptions: o, whole: o.Width <= 0}
	t.Width = max(o.Width, minTextWidth)
	if t.whole {
		t.Width = textWidth
	}
	impact := 1
	if several(t.Causes) != "" {
		impact = 0 // it tells which of them is worse
	}
	parts := []textPart{
		{lines: t.head()},
		{lines: t.proof(&t.Story)},
		{impact, t.impact(&t.Story)},
		{lines: t.cures(&t.Story)},
		{lines: t.otherCauses()},
		{lines: t.violated()},
		{2, t.held()},
		{8, t.covered()},
		{6, t.operations()},
		{5, t.latency()},
		{4, t.faults()},
		{3, t.leftOut()},
		{7, t.recovery()},
		{1, t.try()},
		{lines: t.again()},
	}
	for rank := len(parts); rank > 0 && !t.whole; rank-- {
		total := 0
		for _, p := range parts {
			total += len(p.lines)
		}
		if total <= maxTextLines {
			break
		}
		parts = slices.DeleteFunc(parts, func(p textPart) bool { return p.rank == rank })
	}
	var lines []string
	for _, p := range parts {
		lines = append(lines, p.lines...)
	}
	if _, err := io.WriteString(w, strings.Join(lines, "\n")+"\n"); err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}

// maxCureLines bounds the lines of the cures on a terminal.
const maxCureLines = 4

// A textReport makes the lines of the summary, part by part.
type textReport struct {
	Results
	TextOptions

	whole bool // nothing is left out
}

// labelWidth is the column in which the text begins.
const labelWidth = 13

func (t *textReport) head() []string {
	verdict := strings.ToUpper(string(t.Verdict))
	line := t.paint(t.Verdict, sign(t.Verdict)+" "+verdict) + "  " + say.OneLine(t.Story.Headline)
	lines := []string{line}
	if t.Story.Notice != "" {
		lines = append(lines, t.property(checker.Unknown, "note", t.Story.Notice)...)
	}
	names := []string{}
	for _, s := range []string{t.Scenario, t.Topology, t.Lock, t.Workload} {
		if s != "" {
			names = append(names, say.OneLine(s))
		}
	}
	if t.recorded() {
		names = append(names, fmt.Sprintf("seed %d", t.Seed))
	}
	if t.Simulated {
		names = append(names, t.Simulation)
	}
	about := strings.Join(names, " · ")
	incomplete := []string{}
	if len(t.Missing) > 0 {
		incomplete = t.property(checker.Unknown, "incomplete", strings.Join(t.Missing, "; "))
	}
	if t.Expect != "" {
		if t.AbortReason == "" && t.Expect == string(t.Verdict) {
			about += " · as expected"
		} else {
			about += " · expected " + say.OneLine(t.Expect)
		}
	}
	if about != "" {
		lines = append(lines, "  "+t.dim(about))
	}
	return append(append(lines, incomplete...), t.causes()...)
}

// maxTextCauses bounds the causes that the summary names.
const maxTextCauses = 4

// causes names them, if there are more than one.
func (t *textReport) causes() []string {
	if several(t.Causes) == "" {
		return nil
	}
	var lines []string
	for i := range t.Causes {
		if i == maxTextCauses && !t.whole {
			lines = append(lines, pad("")+t.clip(fmt.Sprintf("and %s more: see the report", say.Count(len(t.Causes)-i, "cause"))))
			break
		}
		lines = append(lines, t.property(checker.Invalid, fmt.Sprintf("cause %d", i+1), t.Causes[i].Title)...)
	}
	return lines
}

// recorded reports whether there is a record of the run beside its history.
func (r *Results) recorded() bool { return r.Command != "" || r.Seed != 0 || r.Topology != "" }

// otherCauses tells what the causes behind the first one led to.
func (t *textReport) otherCauses() []string {
	var lines []string
	for i := 1; i < min(len(t.Causes), maxTextCauses); i++ {
		c := &t.Causes[i]
		lines = append(lines, t.property(checker.Invalid, fmt.Sprintf("cause %d", i+1), c.Story.Headline)...)
		lines = append(append(append(lines, t.proof(&c.Story)...), t.impact(&c.Story)...), t.cures(&c.Story)...)
	}
	return lines
}

// proof are the moments of a story and what follows from them, of which nothing is cut.
func (t *textReport) proof(story *Story) []string {
	var lines []string
	for _, m := range story.Events {
		label := say.Instant(m.At)
		text := m.Text
		if m.Kind == EventViolation {
			label = sign(checker.Invalid) + " " + label
		}
		lines = append(lines, t.wrap(label, text)...)
	}
	for _, s := range story.Outcome {
		lines = append(lines, t.wrap("", s)...)
	}
	return lines
}

// impact is how bad the cause is which a story tells.
func (t *textReport) impact(story *Story) []string {
	for i := range t.Causes {
		if t.Causes[i].Story.Headline == story.Headline {
			return t.wrap("impact", t.Causes[i].Impact)
		}
	}
	return nil
}

func (t *textReport) cures(story *Story) []string {
	var lines []string
	if len(story.Cures) > 0 {
		label := "remedy"
		if story.Untried {
			label = "may help"
		}
		lines = t.wrap(label, strings.Join(story.Cures, "; or "))
		if len(lines) > maxCureLines && !t.whole {
			lines = append(lines[:maxCureLines-1], t.wrap("", "… and more: see the report")...)
		}
	}
	for _, s := range story.Weight {
		lines = append(lines, t.wrap("weigh", s)...)
	}
	return lines
}

// violated names the properties that are violated in one entry, since the story is
// about them; each that could not be decided says why.
func (t *textReport) violated() []string {
	var violated, lines []string
	open := 0
	for _, p := range t.Properties {
		switch p.Verdict {
		case checker.Invalid:
			violated = append(violated, fmt.Sprintf("%s (%s)", p.Name, say.Thousands(int64(max(p.Total, len(p.Violations))))))
		case checker.Valid:
		default:
			if open++; open <= maxTextOpen || t.whole {
				lines = append(lines, t.property(p.Verdict, string(p.Verdict), p.Name+": "+p.Summary)...)
			}
		}
	}
	if more := open - maxTextOpen; more > 0 && !t.whole {
		lines = append(lines, pad("")+fmt.Sprintf("and %d more could not be decided", more))
	}
	if len(violated) > 0 {
		lines = append(t.property(checker.Invalid, "violated", strings.Join(violated, ", ")), lines...)
	}
	return lines
}

// maxTextOpen bounds the properties that could not be decided on a terminal.
const maxTextOpen = 5

func (t *textReport) held() []string {
	var held []string
	for _, p := range t.Properties {
		if p.Verdict == checker.Valid {
			held = append(held, p.Name)
		}
	}
	if len(held) == 0 {
		return nil
	}
	return t.wrap(sign(checker.Valid)+" held", strings.Join(held, ", "))
}

func (t *textReport) covered() []string {
	met := coverage(t.Properties)
	if met == "" {
		return nil
	}
	return t.line("covered", met)
}

// property is an entry with the mark of a verdict.
func (t *textReport) property(v checker.Verdict, label, text string) []string {
	label = sign(v) + " " + label
	lines := t.wrap(label, text)
	lines[0] = t.paint(v, pad(label)) + strings.TrimPrefix(lines[0], pad(label))
	return lines
}

// line is an entry of figures: on a terminal one line, else as many as it takes.
func (t *textReport) line(label, text string) []string {
	if t.whole {
		return t.wrap(label, text)
	}
	return []string{pad(label) + t.clip(text)}
}

func (t *textReport) operations() []string {
	var parts []string
	for _, op := range opNames() {
		if o, ok := t.Operations[op]; ok {
			parts = append(parts, fmt.Sprintf("%s %s ok %s fail %s info", op, say.Thousands(int64(o.OK)), say.Thousands(int64(o.Fail)), say.Thousands(int64(o.Info))))
		}
	}
	switch {
	case len(parts) == 0 && t.Events > 0 && t.Operations == nil:
		return t.wrap("operations", "not counted, as the history was read in parts")
	case len(parts) == 0:
		return t.wrap("operations", "none recorded")
	}
	return t.wrap("operations", strings.Join(parts, " · "))
}

func (t *textReport) latency() []string {
	l, ok := t.Latency["acquire"]
	if !ok {
		return nil
	}
	var figures []string
	for i, figure := range l.cells() {
		if figure != none {
			figures = append(figures, latencyNames()[i]+" "+figure)
		}
	}
	return t.line("acquire", strings.Join(figures, " · "))
}

func (t *textReport) leftOut() []string {
	if len(t.SkippedFaults) == 0 {
		return nil
	}
	return t.line("left out", strings.Join(t.SkippedFaults, "; "))
}

func (t *textReport) faults() []string {
	switch {
	case len(t.Faults) == 0 && !t.recorded():
		return nil
	case len(t.Faults) == 0:
		return []string{pad("faults") + "none"}
	}
	var names []string
	for i := range t.Faults {
		f := &t.Faults[i]
		name := say.OneLine(f.label())
		switch {
		case !f.OK:
			name += " (no effect)"
		case !f.counts():
			name += " (no request met it)"
		}
		names = append(names, name)
	}
	return t.line("faults", fmt.Sprintf("%d of %d took effect: %s", effective(t.Faults), len(t.Faults), strings.Join(names, ", ")))
}

// recovery is how long each fault kept the locks from being granted, the worst
// first.
func (t *textReport) recovery() []string {
	var took []*Fault
	for i := range t.Faults {
		if t.Faults[i].Interrupts {
			took = append(took, &t.Faults[i])
		}
	}
	if len(took) == 0 {
		return nil
	}
	slices.SortStableFunc(took, func(a, b *Fault) int { return cmp.Compare(b.untilGranted(), a.untilGranted()) })
	var parts []string
	for _, f := range took {
		parts = append(parts, say.OneLine(f.label())+" "+f.recoveryWords())
	}
	return t.line("recovery", strings.Join(parts, "; "))
}

// try is the command that tries the first of the cures of a random run that has one.
func (t *textReport) try() []string {
	if t.Scenario != "" {
		return nil
	}
	for i := range t.Causes {
		for _, c := range t.Causes[i].Cures {
			if c.Try != "" {
				return []string{pad("try") + say.OneLine(c.Try)}
			}
		}
	}
	return nil
}

func (t *textReport) again() []string {
	var lines []string
	if t.Dir != "" {
		lines = append(lines, pad("report")+strings.TrimSuffix(t.Dir, "/")+"/report.html")
	}
	if !t.recorded() {
		return lines
	}
	line := pad("seed") + fmt.Sprint(t.Seed)
	if t.Command != "" {
		line = pad("again") + say.OneLine(t.Command)
		if !strings.Contains(t.Command, "--seed") {
			line += fmt.Sprintf("   (seed %d)", t.Seed)
		}
	}
	return append(lines, line)
}

// wrap breaks a text into lines behind a label.
func (t *textReport) wrap(label, text string) []string {
	var lines []string
	line := pad(label)
	if label == "" {
		line = pad("")
	}
	width := 0
	for word := range strings.FieldsSeq(say.OneLine(text)) {
		n := utf8.RuneCountInString(word)
		if width > 0 && labelWidth+width+1+n > t.Width {
			lines = append(lines, line)
			line, width = pad(""), 0
		}
		if width > 0 {
			line += " "
			width++
		}
		line += word
		width += n
	}
	return append(lines, line)
}

// clip shortens a line that would not fit.
func (t *textReport) clip(text string) string {
	r := []rune(say.OneLine(text))
	if room := t.Width - labelWidth; len(r) > room && room > 1 {
		return string(r[:room-1]) + "…"
	}
	return string(r)
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
