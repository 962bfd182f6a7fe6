package reports

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/internal/say"
)

// maxRows bounds the rows of a table in the Markdown summary.
const maxRows = 30

// WriteMarkdown writes the summary for the page of a CI job (GitHub shows what
// is appended to $GITHUB_STEP_SUMMARY): the verdict and its story, what was
// checked, the figures, the faults, and the command that repeats the run.
func WriteMarkdown(w io.Writer, r Results) error {
	m := markdown{Results: r}
	for _, part := range []func(){m.head, m.stories, m.properties, m.figures, m.faults, m.again} {
		part()
	}
	if _, err := io.WriteString(w, m.String()); err != nil {
		return fmt.Errorf("write markdown: %w", err)
	}
	return nil
}

// issue is the head, the stories and the command, for the text of an issue.
func issue(r Results) string {
	m := markdown{Results: r}
	for _, part := range []func(){m.head, m.stories, m.again} {
		part()
	}
	return m.String()
}

// A markdown makes the summary part by part.
type markdown struct {
	Results
	strings.Builder
}

func (m *markdown) printf(format string, args ...any) { fmt.Fprintf(&m.Builder, format, args...) }

// table writes a table of cells that are Markdown. A column whose name begins with ">" has
// its cells on the right.
func (m *markdown) table(columns []string, rows [][]string) {
	names, rule := make([]string, len(columns)), make([]string, len(columns))
	for i, column := range columns {
		names[i], rule[i] = column, "---"
		if name, right := strings.CutPrefix(column, ">"); right {
			names[i], rule[i] = name, "--:"
		}
	}
	m.printf("| %s |\n|%s|\n", strings.Join(names, " | "), strings.Join(rule, "|"))
	for _, row := range rows {
		m.printf("| %s |\n", strings.Join(row, " | "))
	}
}

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
	if m.Simulated {
		parts = append(parts, "**"+m.Simulation+"**")
	}
	switch {
	case m.Expect == "", m.Expect == string(m.Verdict) && m.AbortReason != "":
	case m.Expect == string(m.Verdict) && m.AbortReason == "":
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

// stories are those of all causes, the first as that of the run.
func (m *markdown) stories() {
	told := len(m.Causes) > 0 && m.Causes[0].Story.Headline == m.Story.Headline
	if words := several(m.Causes); told && words != "" {
		m.printf("%s\n\n", md(words))
		for i := range min(len(m.Causes), maxToldCauses) {
			m.printf("%d. %s\n", i+1, md(m.Causes[i].Title))
		}
		m.printf("\n")
	}
	if !told {
		m.story(m.Story)
		return
	}
	for i := range min(len(m.Causes), maxToldCauses) {
		c := &m.Causes[i]
		if len(m.Causes) > 1 {
			m.printf("### Cause %d: %s\n\n", i+1, md(c.Title))
			if i > 0 {
				m.printf("**%s**\n\n", md(stop(c.Story.Headline)))
			}
		}
		m.printf("Impact: %s\n\n", md(c.Impact))
		m.story(c.Story)
		m.sequence(c.Sequence)
		m.why(c.Why)
		m.cures(c.Cures)
	}
}

// sequence is a diagram that GitHub draws.
func (m *markdown) sequence(q *Sequence) {
	if q != nil {
		m.printf("```mermaid\n%s```\n\n", q.Mermaid())
	}
}

// why is what the violation followed from, as a list that is folded.
func (m *markdown) why(w *Why) {
	if w == nil {
		return
	}
	m.printf("<details><summary>Why: down to the events</summary>\n\n")
	var tell func(w *Why, depth int)
	tell = func(w *Why, depth int) {
		m.printf("%s- ", strings.Repeat("  ", depth))
		if w.At != nil {
			m.printf("`%s` ", say.Instant(*w.At))
		}
		m.printf("%s", md(w.Text))
		if w.Event != nil {
			m.printf(" (event %d)", *w.Event)
		}
		m.printf("\n")
		for _, of := range w.Because {
			tell(of, depth+1)
		}
	}
	tell(w, 0)
	m.printf("\n</details>\n\n")
}

// cures are what sets and what tries them, and what they cost, as far as it is known.
func (m *markdown) cures(cures []Cure) {
	cures = slices.DeleteFunc(slices.Clone(cures), func(c Cure) bool { return c.Config+c.Try+c.Cost == "" })
	if len(cures) == 0 {
		return
	}
	var rows [][]string
	for _, c := range cures {
		rows = append(rows, []string{md(c.Text), md(c.Config), md(c.Try), md(c.Cost)})
	}
	m.table([]string{"cure", "set", "try", "costs"}, rows)
	m.printf("\n")
}

func (m *markdown) story(s Story) {
	for _, moment := range s.Events {
		text := md(moment.Text)
		if moment.Kind == EventViolation {
			text = "**" + sign(checker.Invalid) + " " + text + "**"
		}
		m.printf("- `%s` %s\n", say.Instant(moment.At), text)
	}
	if len(s.Events) > 0 {
		m.printf("\n")
	}
	for _, words := range slices.Concat(s.Outcome, s.Weight) {
		m.printf("%s\n\n", md(words))
	}
	if cure := s.cure(); cure != "" {
		m.printf("> %s\n\n", md(cure))
	}
}

func (m *markdown) properties() {
	if len(m.Properties) == 0 {
		m.printf("Nothing was checked.\n\n")
		return
	}
	var rows [][]string
	for _, p := range m.Properties {
		rows = append(rows, []string{md(p.Name), sign(p.Verdict) + " " + string(p.Verdict), md(say.Shorten(p.Summary, 300))})
	}
	m.table([]string{"property", "verdict", "what was found"}, rows)
	if met := coverage(m.Properties); met != "" {
		m.printf("\nCovered: %s\n", md(met))
	}
	m.printf("\n")
}

func (m *markdown) figures() {
	if len(m.Operations) == 0 {
		return
	}
	columns := []string{"operation", ">ok", ">fail", ">unknown"}
	for _, name := range latencyNames() {
		columns = append(columns, ">"+name)
	}
	var rows [][]string
	for _, op := range opNames() {
		if o, ok := m.Operations[op]; ok {
			l := m.Latency[op]
			rows = append(rows, append([]string{op, say.Thousands(int64(o.OK)), say.Thousands(int64(o.Fail)), say.Thousands(int64(o.Info))}, l.cells()...))
		}
	}
	m.table(columns, rows)
	m.printf("\n")
}

func (m *markdown) faults() {
	if len(m.Faults) == 0 {
		return
	}
	var rows [][]string
	for i := range min(len(m.Faults), maxRows) {
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
		rows = append(rows, []string{
			md(f.detail()), say.Instant(f.Start), say.Instant(f.End), md(say.Shorten(effect, 300)),
			recoveryCell(f.Interrupts, f.Recovery), recoveryCell(f.Interrupts && f.Healed, f.HealRecovery),
		})
	}
	m.table([]string{"fault", ">from", ">to", "observed effect", ">first grant after it", ">after its heal"}, rows)
	if more := len(m.Faults) - len(rows); more > 0 {
		m.printf("\nand %s more, in report.html\n", say.Count(more, "fault"))
	}
	m.printf("\n")
}

func (m *markdown) again() {
	if m.Command == "" {
		return
	}
	// Indented code has no end that a command could write itself.
	m.printf("Again, with seed %d:\n\n    %s\n", m.Seed, say.OneLine(m.Command))
}

// md makes a text safe for Markdown: nothing in it is a mark, a tag or the end
// of a table's cell.
func md(text string) string {
	var b strings.Builder
	for _, r := range say.OneLine(text) {
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
