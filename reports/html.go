package reports

import (
	"bytes"
	"encoding/json"
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
)

// A page is what the template of report.html draws.
type page struct {
	Input
	Results
	CSS        template.CSS
	JS         template.JS
	Script     string          // what allows that script, and no other
	Diagram    template.HTML   // the messages until the violation; empty where no two parties are known
	Block      template.HTML   // what the script draws the timeline from
	Map        template.HTML   // the topology; empty if none was recorded
	Moment     time.Duration   // that the map shows
	Plots      []template.HTML // empty if there is too little for a plot
	PlotFiles  []string
	Rows       []latencyRow
	Proof      []property
	Violations []violationRow
	Unlisted   string
	Pictures   []picture
	Issue      string // the story as Markdown
	Logs       []string
	LogLines   []logLine // around the violation that is told
}

// maxPaperRows bounds the violations that are listed on paper; page.css has it too.
const maxPaperRows = 40

// onPaper says how many of so many violations are left out on paper; empty for none.
func onPaper(rows int) string {
	if rows <= maxPaperRows {
		return ""
	}
	return fmt.Sprintf("Paper has the first %d of %s; the page has all of them.", maxPaperRows, say.Count(rows, "violation"))
}

// WriteHTML writes the report as one HTML file that needs no network and can
// be read without JavaScript.
func WriteHTML(w io.Writer, in Input) error { return newModel(in).writeHTML(w) }

func (m *model) writeHTML(w io.Writer) error {
	p := page{
		Input: m.Input, Results: m.results(),
		CSS: template.CSS(paletteCSS + drawingCSS + pageCSS), JS: template.JS(pageJS + timelineJS), Script: scriptHash(pageJS + timelineJS),
		Proof: m.properties(),
	}
	issue, err := p.markdown("issue")
	if err != nil {
		return fmt.Errorf("write html: %w", err)
	}
	p.Issue = string(issue)
	p.Logs, p.LogLines = m.logs, m.logLines
	p.Violations, p.Unlisted = m.violationRows(), m.unlisted()
	if p.Sequence != nil {
		p.Diagram = template.HTML(p.Sequence.Figure())
	}
	if p.Pictures, err = m.drawPictures(); err != nil {
		return fmt.Errorf("write html: %w", err)
	}
	block, err := m.timelineBlock()
	if err != nil {
		return fmt.Errorf("write html: %w", err)
	}
	p.Block = template.HTML(block)
	p.Moment = m.moment()
	p.Map = template.HTML(m.topologyFigure(p.Moment))
	plots, err := m.plots()
	if err != nil {
		return fmt.Errorf("write html: %w", err)
	}
	for _, plot := range plots {
		if p.Plots = append(p.Plots, plot.html()); plot.file != "" {
			p.PlotFiles = append(p.PlotFiles, plot.file)
		}
	}
	p.Rows = p.rows()
	if l, ok := m.holdLatency(); ok {
		p.Rows = append(p.Rows, latencyRow{"(hold)", Outcomes{OK: l.Count}, l})
	}
	t, err := template.New("report").Funcs(template.FuncMap{
		"instant": say.Instant, "length": say.Length, "span": say.Span, "sign": sign, "thousands": func(n int) string { return say.Thousands(int64(n)) },
		"number": func(i int) int { return i + 1 }, "detail": func(f Fault) string { return f.detail() }, "met": func(f Fault) string { return f.metWords() }, "cap": kindWords, "indices": indices,
		"adapt": adapt, "at": at, "count": say.Count, "covered": covered,
		"logFile":  func(server string) string { return "./" + history.LogsDir + "/" + url.PathEscape(server) + ".log" },
		"recovery": recoveryCell, "armLabel": armLabel, "share": share, "list": say.List, "onPaper": onPaper, "unbroken": unbroken,
		"wall": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
		"json": func(v any) (string, error) {
			b, err := json.MarshalIndent(v, "", "  ")
			return string(b), err
		},
	}).Parse(pageHTML)
	if err != nil {
		return fmt.Errorf("parse template: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, &p); err != nil {
		return fmt.Errorf("write html: %w", err)
	}
	if _, err := io.WriteString(w, say.Plain(b.String())); err != nil {
		return fmt.Errorf("write html: %w", err)
	}
	return nil
}

// minPlot is how many requests for a lock it takes for a plot to say more than
// the table does.
const minPlot = 20

// at writes an instant as the page's address has it: in seconds.
func at(t time.Duration) string {
	return say.TrimZeros(strconv.FormatFloat(t.Truncate(time.Microsecond).Seconds(), 'f', 6, 64))
}

// around is the part of the page's address that shows a violation.
func (m *model) around(v *checker.Violation) string {
	margin := max(m.lasted(v)/2, 20*time.Millisecond)
	s := at(max(0, v.From-margin)) + "-" + at(min(m.whole().to, min(v.Until, m.end)+margin)) + "&at=" + at(m.since(v))
	if v.Lock != "" {
		s += "&lock=" + url.QueryEscape(v.Lock)
	}
	return s
}

// Servers are the versions of the servers as "redis 7.0.15".
func (p *page) Servers() []string {
	return versions(p.Run.Servers)
}

// Settings are what a random run was told, and how its servers were sized and tuned.
func (p *page) Settings() []string {
	var all []string
	add := func(name, value string, set bool) {
		if set {
			all = append(all, name+" "+value)
		}
	}
	var settings map[string]any // those of the harness, which may have more with each version
	if err := json.Unmarshal(p.Run.Settings, &settings); err == nil {
		for _, name := range slices.Sorted(maps.Keys(settings)) {
			value := fmt.Sprint(settings[name])
			if n, ok := settings[name].(float64); ok && slices.Contains(lengths(), name) {
				value = say.Span(time.Duration(n))
			}
			words := strings.ReplaceAll(name, "_", " ")
			add(say.Shorten(words, 40), say.Shorten(value, 60), value != "" && value != "0" && value != "false")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Run.Topology.Options)) {
		add(name, p.Run.Topology.Options[name], !slices.ContainsFunc(all, func(s string) bool { return strings.HasPrefix(s, strings.ReplaceAll(name, "-", " ")+" ") }))
	}
	add("resource", p.Run.Resource, p.Run.Resource != "")
	add("fencing", "on", p.Run.Fencing)
	return all
}

// lengths are the settings that are lengths of time.
func lengths() []string {
	return []string{"length", "node_timeout", "watchdog", "hold", "think", "lease", "wait"}
}

// Machine is what the run ran on, in words; empty where that was not recorded.
func (p *page) Machine() string {
	m := p.Run.Machine
	if m == nil {
		return ""
	}
	words := []string{m.OS}
	if m.Kernel != "" {
		words[0] += " " + m.Kernel
	}
	words = append(words, m.Arch)
	if m.CPUs > 0 {
		words = append(words, say.Count(m.CPUs, "CPU"))
	}
	return strings.Join(append(words, "built with "+m.Go), ", ")
}

// SomeUnhealed reports whether a fault took effect whose heal was not recorded.
func (p *page) SomeUnhealed() bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.OK && !f.Healed })
}

// FaultsEffective says how many faults took effect.
func (p *page) FaultsEffective() string {
	return fmt.Sprintf("%d of %s took effect", effective(p.Faults), say.Count(len(p.Faults), "fault"))
}

// inOne is what a line must not break in: a time, and a word of a command with a hyphen.
var inOne = regexp.MustCompile(`[0-9][0-9.,]* (?:h|min|s|ms|µs|ns)\b|[\w:/]*-[\w:/-]*`)

// longest is how much of a line is kept in one: more may be too wide for a narrow screen.
const longest = 36

// unbroken is a text of which no time and no word with a hyphen is broken over two lines.
func unbroken(text string) template.HTML {
	var s strings.Builder
	at := 0
	for _, w := range inOne.FindAllStringIndex(text, -1) {
		if w[1]-w[0] > longest {
			continue
		}
		s.WriteString(template.HTMLEscapeString(text[at:w[0]]) + `<span class="one">` + template.HTMLEscapeString(text[w[0]:w[1]]) + `</span>`)
		at = w[1]
	}
	return template.HTML(s.String() + template.HTMLEscapeString(text[at:])) //nolint:gosec // it is escaped
}
