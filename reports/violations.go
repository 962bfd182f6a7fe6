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
const maxEvidence = 5

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
func (d *digest) properties() []property {
	told := map[*checker.Violation]bool{}
	for _, c := range d.causesOf() {
		told[c.told] = true
	}
	properties := make([]property, 0, len(d.Report.Results))
	for i := range d.Report.Results {
		r := &d.Report.Results[i]
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
			return cmp.Or(b2i(b == d.violation())-b2i(a == d.violation()), b2i(told[b])-b2i(told[a]))
		})
		for _, v := range shown {
			p.Shown = append(p.Shown, d.shownViolation(v, told[v]))
		}
		properties = append(properties, p)
	}
	return properties
}

func (d *digest) shownViolation(v *checker.Violation, told bool) shownViolation {
	s := shownViolation{Violation: *v, Since: d.since(v), Told: told, Show: template.URL(d.around(v))}
	for _, index := range v.Events {
		if e, ok := d.event(index); ok {
			s.Words = append(s.Words, d.eventLine(e))
			s.Lines = append(s.Lines, line(e))
		}
	}
	return s
}

// eventLine is an event of a client in words, with its time and index.
func (d *digest) eventLine(e *history.Event) string {
	s := fmt.Sprintf("#%d  %s  %s", e.Index, say.Instant(e.Time), d.eventClause(e))
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
	Cause   int    // its number, from 1
	Told    bool
	Show    template.URL
}

// violationRows are all violations that are listed, in order of time: that of the
// timeline's marks.
func (d *digest) violationRows() []violationRow {
	causes, told := map[*checker.Violation]int{}, map[*checker.Violation]bool{}
	for i, c := range d.causesOf() {
		told[c.told] = true
		for _, v := range c.found {
			causes[v] = i + 1
		}
	}
	rows := []violationRow{}
	for _, v := range d.distinct() {
		r := violationRow{
			At: say.Instant(d.since(v)), Kind: strings.ReplaceAll(v.Kind, "-", " "), What: cmp.Or(v.Resource, v.Lock),
			Cause: causes[v], Told: told[v], Show: template.URL(d.around(v)),
		}
		var clients, servers []string
		for _, h := range d.evidence(v) {
			if name := client(h.Owner); !slices.Contains(clients, name) {
				clients = append(clients, name)
			}
			for _, node := range d.voters(h) {
				if !slices.Contains(servers, node) {
					servers = append(servers, node)
				}
			}
		}
		r.Clients, r.Servers = strings.Join(clients, ", "), strings.Join(servers, ", ")
		if long := d.lasted(v); long > 0 && d.since(v) == v.From {
			r.Length = say.Span(long)
		}
		rows = append(rows, r)
	}
	return rows
}

// unlisted says of which properties more violations were found than are listed.
func (d *digest) unlisted() string {
	var parts []string
	for i := range d.Report.Results {
		if r := &d.Report.Results[i]; r.Total > len(r.Violations) {
			parts = append(parts, fmt.Sprintf("%s of %s of %s", say.Thousands(int64(len(r.Violations))), say.Count(r.Total, "violation"), r.Name))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "Only the first are listed: " + say.List(parts) + "."
}
