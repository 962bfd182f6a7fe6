package reports

import (
	"fmt"
	"io"
	"strings"

	"github.com/lockchaos/lockchaos/checker"
)

// maxRows bounds the rows of a table in the Markdown summary.
const maxRows = 30

// WriteMarkdown writes the summary for the page of a CI job (GitHub shows what
// is appended to $GITHUB_STEP_SUMMARY): the verdict and its story, what was
// checked, the figures, the faults, and the command that repeats the run.
func WriteMarkdown(w io.Writer, r Results) error {
	m := markdown{Results: r}
	for _, part := range []func(){m.head, m.story, m.properties, m.figures, m.faults, m.again} {
		part()
	}
	if _, err := io.WriteString(w, m.String()); err != nil {
		return fmt.Errorf("write markdown: %w", err)
	}
	return nil
}

// A markdown makes the summary part by part.
type markdown struct {
	Results
	strings.Builder
}

func (m *markdown) printf(format string, args ...any) { fmt.Fprintf(&m.Builder, format, args...) }

func (m *markdown) head() {
	m.printf("## %s %s: %s\n\n", sign(m.Verdict), strings.ToUpper(string(m.Verdict)), md(m.Story.Headline))
	if m.Story.Notice != "" {
		m.printf("**%s**\n\n", md(stop(m.Story.Notice)))
	}
	var parts []string
	for _, s := range []string{m.Scenario, m.Topology, m.Lock, m.Workload} {
		if s != "" {
			parts = append(parts, md(s))
		}
	}
	if m.recorded() {
		parts = append(parts, fmt.Sprintf("seed %d", m.Seed))
	}
	switch {
	case m.Expect == "":
	case m.Expect == string(m.Verdict):
		parts = append(parts, "as this scenario expects")
	default:
		parts = append(parts, "expected: "+md(m.Expect))
	}
	if len(parts) > 0 {
		m.printf("%s\n\n", strings.Join(parts, " · "))
	}
	for _, missing := range m.Missing {
		m.printf("**Incomplete:** %s\n\n", md(missing))
	}
	if m.Interrupted {
		m.printf("The run was interrupted before its end.\n\n")
	}
	if m.Truncated > 0 {
		m.printf("Line %d of the history was cut short and dropped.\n\n", m.Truncated)
	}
}

func (m *markdown) story() {
	for _, moment := range m.Story.Moments {
		text := md(moment.Text)
		if moment.Kind == MomentViolation {
			text = "**" + sign(checker.Invalid) + " " + text + "**"
		}
		m.printf("- `%s` %s\n", instant(moment.At), text)
	}
	if len(m.Story.Moments) > 0 {
		m.printf("\n")
	}
	for _, s := range m.Story.Outcome {
		m.printf("%s\n\n", md(s))
	}
	if cure := m.Story.cure(); cure != "" {
		m.printf("> %s\n\n", md(cure))
	}
}

func (m *markdown) properties() {
	if len(m.Properties) == 0 {
		m.printf("Nothing was checked.\n\n")
		return
	}
	m.printf("| property | verdict | |\n|---|---|---|\n")
	for _, p := range m.Properties {
		m.printf("| %s | %s %s | %s |\n", md(p.Name), sign(p.Verdict), p.Verdict, md(shorten(p.Summary, 300)))
	}
	if met := coverage(m.Properties); met != "" {
		m.printf("\nCovered: %s\n", md(met))
	}
	m.printf("\n")
}

func (m *markdown) figures() {
	if len(m.Operations) == 0 {
		return
	}
	m.printf("| operation | ok | fail | unknown | %s |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n", strings.Join(latencyNames(), " | "))
	for _, op := range opNames() {
		o, ok := m.Operations[op]
		if !ok {
			continue
		}
		m.printf("| %s | %s | %s | %s |", op, thousands(int64(o.OK)), thousands(int64(o.Fail)), thousands(int64(o.Info)))
		l := m.Latency[op]
		m.printf(" %s |\n", strings.Join(l.cells(), " | "))
	}
	m.printf("\n")
}

func (m *markdown) faults() {
	if len(m.Faults) == 0 {
		return
	}
	m.printf("| fault | from | to | observed effect | first grant after it | after its heal |\n|---|--:|--:|---|--:|--:|\n")
	for i := range m.Faults {
		if i == maxRows {
			m.printf("\nand %s more, in report.html\n", count(len(m.Faults)-maxRows, "fault"))
			break
		}
		f := &m.Faults[i]
		effect := f.Effect
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
		m.printf("| %s | %s | %s | %s | %s | %s |\n", md(f.detail()), instant(f.Start), instant(f.End), md(shorten(effect, 300)),
			recoveryCell(f.Interrupts, f.Recovery), recoveryCell(f.Interrupts && f.Healed, f.HealRecovery))
	}
	m.printf("\n")
}

func (m *markdown) again() {
	if m.Command == "" {
		return
	}
	// Indented code has no end that a command could write itself.
	m.printf("Again, with seed %d:\n\n    %s\n", m.Seed, OneLine(m.Command))
}

// md makes a text safe for Markdown: nothing in it is a mark, a tag or the end
// of a table's cell.
func md(text string) string {
	var b strings.Builder
	for _, r := range OneLine(text) {
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
