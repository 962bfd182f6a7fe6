package reports

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/draw"
	"github.com/lockchaos/lockchaos/reports/internal/facts"
	"github.com/lockchaos/lockchaos/reports/internal/story"
	"github.com/lockchaos/lockchaos/reports/internal/timeline"
)

//go:embed assets
var assets embed.FS

// asset is the text of some files, one after the other.
func asset(names ...string) string {
	var all []byte
	for _, name := range names {
		b, err := assets.ReadFile("assets/" + name)
		if err != nil {
			panic(err) // it is part of the program
		}
		all = append(all, b...)
	}
	return string(all)
}

// writePage writes a page of HTML from a template, with its style and its one script. Its policy allows that script and
// no other: a page has names and values of another author, which must not run whatever becomes of their escaping.
func writePage(w io.Writer, name string, data map[string]any, scripts ...string) error {
	js := asset(scripts...)
	data["CSS"], data["JS"], data["Script"] = template.CSS(asset("palette.css", "drawing.css", "page.css")), template.JS(js), scriptHash(js) //nolint:gosec // ours
	t, err := template.New(name).Funcs(functions()).Funcs(template.FuncMap{
		"cap": story.KindWords, "indices": indices, "at": at, "wall": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") },
		"link": func(name, file string) string { return "./" + url.PathEscape(name) + "/" + url.PathEscape(file) },
		"json": func(v any) (string, error) {
			b, err := json.MarshalIndent(v, "", "  ")
			return string(b), err
		},
	}).Parse(asset(name))
	var b bytes.Buffer
	if err == nil {
		err = t.Execute(&b, data)
	}
	return write(w, strings.TrimSuffix(name, ".html"), b.String(), err)
}

// scriptHash is the source in a Content-Security-Policy that allows an inline script with that text.
func scriptHash(js string) string {
	sum := sha256.Sum256([]byte(js))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// maxPaperRows bounds the violations that are listed on paper; page.css has it too.
const maxPaperRows = 40

// WriteHTML writes the report as one HTML file that needs no network and can
// be read without JavaScript.
func WriteHTML(w io.Writer, in Input) error {
	m := newModel(in)
	plots, pictures, err := m.drawn()
	if err != nil {
		return fmt.Errorf("write html: %w", err)
	}
	return m.writeHTML(w, plots, pictures, nil)
}

// drawn are the drawings that have files of their own. There are no plots where there is too little, or nothing that plots.
func (m *model) drawn() (plots []draw.Plot, pictures []picture, err error) {
	if m.enough() && draw.Plots != nil {
		plots, err = draw.Plots(m.facts)
	}
	if err == nil {
		pictures, err = m.drawPictures()
	}
	return plots, pictures, err
}

func (m *model) writeHTML(w io.Writer, plots []draw.Plot, pictures []picture, logs []string) error {
	f, v := m.facts, m.facts.Told
	issue, err := templated(summaryMarkdown, "issue", m.Results, nil)
	if err != nil {
		return fmt.Errorf("write html: %w", err)
	}
	block, err := timeline.Block(f, m.Story)
	if err != nil {
		return fmt.Errorf("write html: %w", err)
	}
	rows := m.rows()
	return writePage(w, "report.html", map[string]any{
		"R": m.Results, "Run": m.in.Run, "Issue": issue, "Logs": logs,
		"Block": template.HTML(block), //nolint:gosec // it is escaped
		"Plots": plots, "Unplotted": m.enough() && draw.Plots == nil, "Pictures": pictures, "Rows": rows, "Properties": m.shown(v), "Violations": m.violationRows(v),
		"Paper": maxPaperRows, "Servers": pairs(m.in.Run.Servers), "Machine": machine(m.in.Run.Machine),
		"Options": pairs(m.in.Run.Topology.Options), "Unhealed": slices.ContainsFunc(m.Faults, func(f Fault) bool { return f.OK && !f.Healed }),
	}, "page.js", "timeline.js")
}

// A property is a result with the evidence that the page shows: that of the violation that is told, and of the first.
type property struct {
	checker.Result

	Shown []shownViolation
}

type shownViolation struct {
	checker.Violation

	Since time.Duration
	Told  bool
	Words []string // the events in words
	Show  template.URL
}

func (m *model) shown(told *checker.Violation) []property {
	var all []property
	for i := range m.facts.Results {
		p := property{Result: m.facts.Results[i]}
		for j := range p.Violations {
			v := &m.facts.Results[i].Violations[j]
			if v != told && j > 0 {
				continue
			}
			s := shownViolation{Violation: *v, Since: m.facts.Since(v), Told: v == told, Show: m.around(v)}
			for _, index := range v.Events {
				if e, ok := m.facts.Event(index); ok {
					s.Words = append(s.Words, fmt.Sprintf("#%d  %s  %s", e.Index, say.Instant(e.Time), story.Line(m.facts, e)))
				}
			}
			p.Shown = append(p.Shown, s)
		}
		all = append(all, p)
	}
	return all
}

// A violationRow is a violation in the table of all.
type violationRow struct {
	At, Kind, What, Clients, Servers, Length string
	Told                                     bool
	Show                                     template.URL
}

// violationRows are all violations that are listed, in order of time: that of the timeline's marks.
func (m *model) violationRows(told *checker.Violation) []violationRow {
	var rows []violationRow
	for _, v := range m.facts.Violations {
		r := violationRow{
			At: say.Instant(m.facts.Since(v)), Kind: strings.ReplaceAll(v.Kind, "-", " "), What: cmp.Or(v.Resource, v.Lock), Told: v == told, Show: m.around(v),
		}
		var clients, servers []string
		for _, h := range m.facts.Evidence(v) {
			names, inferred := m.facts.Granters(h)
			clients, servers = append(clients, m.facts.Holder(h)), append(servers, facts.Inferred(strings.Join(names, ", "), inferred))
		}
		r.Clients, r.Servers = strings.Join(facts.Distinct(clients), ", "), strings.Join(facts.Distinct(servers), ", ")
		if long := m.facts.Lasted(v); long > 0 && m.facts.Since(v) == v.From {
			r.Length = say.Span(long)
		}
		rows = append(rows, r)
	}
	return rows
}

// at writes an instant as the page's address has it: in seconds.
func at(t time.Duration) string {
	return strconv.FormatFloat(float64(t.Microseconds())/1e6, 'f', -1, 64)
}

// around is the part of the page's address that shows a violation.
func (m *model) around(v *checker.Violation) template.URL {
	f := m.facts
	margin := max(f.Lasted(v)/2, 20*time.Millisecond)
	s := at(max(0, v.From-margin)) + "-" + at(min(f.Whole().To, min(v.Until, f.End)+margin)) + "&at=" + at(f.Since(v))
	if v.Lock != "" {
		s += "&lock=" + url.QueryEscape(v.Lock)
	}
	return template.URL(s) //nolint:gosec // it is escaped
}

func indices(events []int64) string {
	names := make([]string, len(events))
	for i, e := range events {
		names[i] = fmt.Sprintf("#%d", e)
	}
	return strings.Join(names, ", ")
}

// pairs are names with their values, in order.
func pairs(values map[string]string) []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		all = append(all, name+" "+values[name])
	}
	return all
}

// machine is what a run ran on, in words; empty where that was not recorded.
func machine(m *history.Machine) string {
	if m == nil {
		return ""
	}
	words := []string{strings.TrimSpace(m.OS + " " + m.Kernel), m.Arch}
	if m.CPUs > 0 {
		words = append(words, say.Count(m.CPUs, "CPU"))
	}
	return strings.Join(append(words, "built with "+m.Go), ", ")
}

// enough reports whether there is enough to plot.
func (m *model) enough() bool {
	return m.Operations[string(history.Acquire)].Total() >= draw.LeastPlotted
}

// A picture is porcupine's own page of the window in which a lock fails.
type picture struct {
	Lock, File string
	page       string
}

// drawPictures draws the first violation of each lock, where it can be drawn.
func (m *model) drawPictures() ([]picture, error) {
	var pictures []picture
	drawn := map[string]bool{"": true}
	for _, r := range m.facts.Results {
		for _, v := range r.Violations {
			if drawn[v.Lock] {
				continue
			}
			var b bytes.Buffer
			switch err := checker.Picture(&b, m.facts.Record, v); {
			case errors.Is(err, checker.ErrNoPicture):
				continue
			case err != nil:
				return nil, fmt.Errorf("draw violation: %w", err)
			}
			page, err := allowScript(say.Plain(b.String()))
			if err != nil {
				return nil, fmt.Errorf("draw violation: %w", err)
			}
			drawn[v.Lock] = true
			pictures = append(pictures, picture{v.Lock, "porcupine-" + fileName(v.Lock) + ".html", page})
		}
	}
	return pictures, nil
}

// allowScript puts a policy into a page of porcupine's, which has one script and none of its own: its data has
// no "<" that is not escaped.
func allowScript(page string) (string, error) {
	const head = "<head>"
	_, rest, _ := strings.Cut(page, "<script>")
	script, rest, found := strings.Cut(rest, "</script>")
	if !found || strings.Contains(rest, "<script") || !strings.Contains(page, head) {
		return "", errors.New("want a page with one <script>")
	}
	policy := fmt.Sprintf(`%s
    <meta http-equiv="Content-Security-Policy" content="default-src 'none';style-src 'unsafe-inline';script-src %s">`, head, scriptHash(script))
	return strings.Replace(page, head, policy, 1), nil
}

// foreign is what has no place in the name of a file, so that a link to it needs no escapes.
var foreign = regexp.MustCompile(`[^A-Za-z0-9.-]`)

// fileName makes a lock's name part of a file's. Of one that is long, or loses something, a hash tells it from others.
func fileName(lock string) string {
	const longest = 100
	name := foreign.ReplaceAllString(lock, "_")
	if name == lock && len(name) <= longest {
		return name
	}
	sum := sha256.Sum256([]byte(lock))
	return fmt.Sprintf("%s-%x", name[:min(len(name), longest)], sum[:6])
}
