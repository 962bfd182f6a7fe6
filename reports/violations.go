package reports

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// maxEvidence is how many violations of a property the page shows with their evidence,
// beside those that its stories tell.
const maxEvidence = 1

// A property is a result with its evidence.
type property struct {
	checker.Result

	Shown []shownViolation
}

type shownViolation struct {
	checker.Violation

	Since time.Duration
	Told  bool         // its story is told, so that it is open
	Words []string     // the events in words
	Lines []string     // the events, as they stand in the history
	Show  template.URL // the part of the page's address that shows it
}

// properties are those that were checked, with the events that prove their
// violations: those that the stories tell first.
func (m *model) properties() []property {
	told := map[*checker.Violation]bool{m.violation(): true}
	properties := make([]property, 0, len(m.Report.Results))
	for i := range m.Report.Results {
		r := &m.Report.Results[i]
		p := property{Result: *r}
		var shown []*checker.Violation
		rest := maxEvidence
		for j := range r.Violations {
			v := &r.Violations[j]
			if !told[v] {
				if rest == 0 {
					continue
				}
				rest--
			}
			shown = append(shown, v)
		}
		slices.SortStableFunc(shown, func(a, b *checker.Violation) int {
			return b2i(told[b]) - b2i(told[a])
		})
		for _, v := range shown {
			p.Shown = append(p.Shown, m.shownViolation(v, told[v]))
		}
		properties = append(properties, p)
	}
	return properties
}

func (m *model) shownViolation(v *checker.Violation, told bool) shownViolation {
	s := shownViolation{Violation: *v, Since: m.since(v), Told: told, Show: template.URL(m.around(v))}
	for _, index := range v.Events {
		if e, ok := m.event(index); ok {
			s.Words = append(s.Words, m.eventLine(e))
			s.Lines = append(s.Lines, line(e))
		}
	}
	return s
}

// eventLine is an event of a client in words, with its time and index.
func (m *model) eventLine(e *history.Event) string {
	s := fmt.Sprintf("#%d  %s  %s", e.Index, say.Instant(e.Time), m.eventClause(e))
	if e.Expires > 0 {
		s += ", good until " + say.Instant(e.Expires)
	}
	if e.Error != "" && !strings.Contains(s, e.Error) {
		s += " (" + e.Error + ")"
	}
	return s
}

// line is an event as a history has it.
func line(e *history.Event) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return fmt.Sprintf("event %d: %v", e.Index, err)
	}
	return string(bytes.TrimSpace(b.Bytes()))
}

// A violationRow is a violation in the table of all.
type violationRow struct {
	At      string
	Kind    string
	What    string // the resource, or else the lock
	Clients string
	Servers string
	Length  string // within the record; empty for none
	Told    bool
	Show    template.URL
}

// violationRows are all violations that are listed, in order of time: that of the
// timeline's marks.
func (m *model) violationRows() []violationRow {
	rows := []violationRow{}
	for _, v := range m.distinct() {
		r := violationRow{
			At: say.Instant(m.since(v)), Kind: strings.ReplaceAll(v.Kind, "-", " "), What: cmp.Or(v.Resource, v.Lock),
			Told: v == m.violation(), Show: template.URL(m.around(v)),
		}
		var clients, servers []string
		for _, h := range m.evidence(v) {
			if name := client(h.Owner); !slices.Contains(clients, name) {
				clients = append(clients, name)
			}
			if by := m.grantors(h); by != "" && !slices.Contains(servers, by) {
				servers = append(servers, by)
			}
		}
		r.Clients, r.Servers = strings.Join(clients, ", "), strings.Join(servers, ", ")
		if long := m.lasted(v); long > 0 && m.since(v) == v.From {
			r.Length = say.Span(long)
		}
		rows = append(rows, r)
	}
	return rows
}

// unlisted says of which properties more violations were found than are listed.
func (m *model) unlisted() string {
	var parts []string
	for i := range m.Report.Results {
		if r := &m.Report.Results[i]; r.Total > len(r.Violations) {
			parts = append(parts, fmt.Sprintf("%s of %s of %s", say.Thousands(int64(len(r.Violations))), say.Count(r.Total, "violation"), r.Name))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "Only the first are listed: " + say.List(parts) + "."
}
