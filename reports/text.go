package reports

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lockchaos/lockchaos/checker"
)

// TextOptions say how the terminal summary is written. The zero value is
// plain text, 100 columns wide.
type TextOptions struct {
	Color bool   // use ANSI colours
	Width int    // columns; 0 is 100
	Dir   string // the run directory to name; empty names none
}

// maxTextLines is what a terminal shows without scrolling.
const maxTextLines = 25

// WriteText writes the summary for a terminal: the verdict and its story
// first, the command that repeats the run last, at most 25 lines in all.
func WriteText(w io.Writer, r Results, o TextOptions) error {
	if o.Width <= 0 {
		o.Width = 100
	}
	t := textReport{Results: r, TextOptions: o}
	head := t.head()
	rest := append(t.properties(), t.figures()...)
	rest = append(rest, t.faults()...)
	rest = append(rest, t.recovery()...)
	rest = append(rest, t.again()...)
	if try := t.try(); len(head)+len(t.story(math.MaxInt))+len(try)+len(rest) <= maxTextLines {
		rest = slices.Insert(rest, len(rest)-len(t.again()), try...)
	}
	lines := append(head, t.story(maxTextLines-len(head)-len(rest))...)
	lines = append(lines, rest...)
	if _, err := io.WriteString(w, strings.Join(lines, "\n")+"\n"); err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}

// maxCureLines bounds the lines of the cures.
const maxCureLines = 4

// A textReport makes the lines of the summary, part by part.
type textReport struct {
	Results
	TextOptions
}

// labelWidth is the column in which the text begins.
const labelWidth = 13

func (t *textReport) head() []string {
	verdict := strings.ToUpper(string(t.Verdict))
	line := t.paint(t.Verdict, sign(t.Verdict)+" "+verdict) + "  " + OneLine(t.Story.Headline)
	lines := []string{line}
	if t.Story.Notice != "" {
		lines = append(lines, t.property(checker.Unknown, "note", t.Story.Notice))
	}
	names := []string{}
	for _, s := range []string{t.Scenario, t.Topology, t.Lock, t.Workload} {
		if s != "" {
			names = append(names, OneLine(s))
		}
	}
	if t.recorded() {
		names = append(names, fmt.Sprintf("seed %d", t.Seed))
	}
	about := strings.Join(names, " · ")
	incomplete := []string{}
	if len(t.Missing) > 0 {
		incomplete = []string{t.property(checker.Unknown, "incomplete", strings.Join(t.Missing, "; "))}
	}
	if t.Expect != "" {
		if t.Unmet == "" && t.Expect == string(t.Verdict) {
			about += " · as expected"
		} else {
			about += " · expected " + OneLine(t.Expect)
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
		if i == maxTextCauses {
			lines = append(lines, pad("")+t.clip(fmt.Sprintf("and %s more: see the report", count(len(t.Causes)-i, "cause"))))
			break
		}
		lines = append(lines, t.property(checker.Invalid, fmt.Sprintf("cause %d", i+1), t.Causes[i].Title))
	}
	return lines
}

// recorded reports whether there is a record of the run beside its history.
func (r *Results) recorded() bool { return r.Command != "" || r.Seed != 0 || r.Topology != "" }

// story fits the moments and the outcome into this many lines; what does not
// fit is in the report.
func (t *textReport) story(room int) []string {
	var lines []string
	for _, m := range t.Story.Moments {
		label := instant(m.At)
		text := m.Text
		if m.Kind == MomentViolation {
			label = sign(checker.Invalid) + " " + label
		}
		lines = append(lines, t.wrap(label, text)...)
	}
	for _, s := range t.Story.Outcome {
		lines = append(lines, t.wrap("", s)...)
	}
	var cures []string
	if len(t.Story.Cures) > 0 {
		cures = t.wrap("cure", strings.Join(t.Story.Cures, "; or "))
		if len(cures) > maxCureLines {
			cures = append(cures[:maxCureLines-1], t.wrap("", "… and more: see the report")[0])
		}
	}
	for _, s := range t.Story.Weight {
		cures = append(cures, t.wrap("weigh", s)...)
	}
	room = max(room-len(cures), 3)
	if len(lines) > room {
		lines = append(lines[:room-1], t.wrap("", "… and more: the report tells the whole story")[0])
	}
	return append(lines, cures...)
}

// properties names those that are violated on one line, since the story is
// about them, and those that hold on another; each that could not be decided
// says why.
func (t *textReport) properties() []string {
	var violated, held, lines []string
	for _, p := range t.Properties {
		switch p.Verdict {
		case checker.Invalid:
			violated = append(violated, fmt.Sprintf("%s (%s)", p.Name, thousands(int64(max(p.Total, len(p.Violations))))))
		case checker.Valid:
			held = append(held, p.Name)
		default:
			lines = append(lines, t.property(p.Verdict, string(p.Verdict), p.Name+": "+p.Summary))
		}
	}
	if len(lines) > 5 {
		lines = append(lines[:4], pad("")+fmt.Sprintf("and %d more properties could not be decided", len(lines)-4))
	}
	if len(violated) > 0 {
		lines = append([]string{t.property(checker.Invalid, "violated", strings.Join(violated, ", "))}, lines...)
	}
	if len(held) > 0 {
		lines = append(lines, t.wrap(sign(checker.Valid)+" held", strings.Join(held, ", "))...)
	}
	if met := coverage(t.Properties); met != "" {
		lines = append(lines, pad("covered")+t.clip(met))
	}
	return lines
}

func (t *textReport) property(v checker.Verdict, label, text string) string {
	return t.paint(v, pad(sign(v)+" "+label)) + t.clip(text)
}

func (t *textReport) figures() []string {
	var parts []string
	for _, op := range opNames() {
		if o, ok := t.Operations[op]; ok {
			parts = append(parts, fmt.Sprintf("%s %d ok %d fail %d info", op, o.OK, o.Fail, o.Info))
		}
	}
	lines := t.wrap("operations", strings.Join(parts, " · "))
	switch {
	case len(parts) == 0 && t.Events > 0 && t.Operations == nil:
		lines = t.wrap("operations", "not counted, as the history was read in parts")
	case len(parts) == 0:
		lines = t.wrap("operations", "none recorded")
	}
	if l, ok := t.Latency["acquire"]; ok {
		var figures []string
		for i, figure := range l.cells() {
			if figure != none {
				figures = append(figures, latencyNames()[i]+" "+figure)
			}
		}
		lines = append(lines, pad("acquire")+t.clip(strings.Join(figures, "  ")))
	}
	return lines
}

func (t *textReport) faults() []string {
	lines := t.injected()
	if len(t.LeftOut) > 0 {
		lines = append(lines, pad("left out")+t.clip(strings.Join(t.LeftOut, "; ")))
	}
	return lines
}

func (t *textReport) injected() []string {
	switch {
	case len(t.Faults) == 0 && !t.recorded():
		return nil
	case len(t.Faults) == 0:
		return []string{pad("faults") + "none"}
	}
	var names []string
	for i := range t.Faults {
		f := &t.Faults[i]
		name := OneLine(f.label())
		switch {
		case !f.OK:
			name += " (no effect)"
		case !f.counts():
			name += " (no request met it)"
		}
		names = append(names, name)
	}
	s := fmt.Sprintf("%d of %d took effect: %s", effective(t.Faults), len(t.Faults), strings.Join(names, ", "))
	return []string{pad("faults") + t.clip(s)}
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
		parts = append(parts, OneLine(f.label())+" "+f.recoveryWords())
	}
	return []string{pad("recovery") + t.clip(strings.Join(parts, "; "))}
}

// try is the command that tries the first of the cures that has one; there may be no
// room for it.
func (t *textReport) try() []string {
	for i := range t.Causes {
		for _, c := range t.Causes[i].Cures {
			if c.Try != "" && !c.Prevents {
				return []string{pad("try") + OneLine(c.Try)}
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
		line = pad("again") + OneLine(t.Command)
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
	for word := range strings.FieldsSeq(OneLine(text)) {
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
	r := []rune(OneLine(text))
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
