package reports

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"time"
	"unicode"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/workload/history"
)

// A page is what the template of report.html draws.
type page struct {
	Input
	Results
	CSS        template.CSS
	JS         template.JS
	Hatch      template.HTML
	Focus      template.HTML // empty without a violation
	FocusRange string
	FocusOnly  bool // it is the whole run already
	Whole      template.HTML
	Latency    template.HTML
	Throughput template.HTML
	Rows       []latencyRow
	Proof      []property
	Pictures   []picture
}

type latencyRow struct {
	Op string
	Outcomes
	Latency
}

// A property is a result with its evidence.
type property struct {
	checker.Result
	Shown []shownViolation
	More  int
}

type shownViolation struct {
	checker.Violation
	Lines []string // the events, as they stand in the history
}

// maxEvidence is how many violations of a property the page shows in full;
// results.json has more.
const maxEvidence = 5

// WriteHTML writes the report as one HTML file that needs no network and can
// be read without JavaScript.
func WriteHTML(w io.Writer, in Input) error { return newDigest(in).writeHTML(w) }

func (d *digest) writeHTML(w io.Writer) error {
	p := page{
		Input: d.Input, Results: d.results(),
		CSS: template.CSS(paletteCSS + drawingCSS + pageCSS), JS: template.JS(pageJS),
		Hatch: template.HTML(`<svg width="0" height="0" aria-hidden="true" style="position:absolute">` + hatchPattern + `</svg>`),
		Proof: d.proof(),
	}
	var err error
	if p.Pictures, err = d.drawPictures(); err != nil {
		return fmt.Errorf("write html: %w", err)
	}
	zoom := window{}
	if v := d.violation(); v != nil {
		f := d.focusFigure(v)
		p.FocusOnly = f.win == d.whole()
		p.Focus = f.html()
		p.FocusRange = fmt.Sprintf("%s to %s", instant(f.win.from), instant(f.win.to))
		zoom = f.win
	}
	whole := d.wholeFigure(zoom)
	p.Whole = whole.html()
	latency, err := d.latencyFigure()
	if err != nil {
		return fmt.Errorf("write html: %w", err)
	}
	throughput, err := d.throughputFigure()
	if err != nil {
		return fmt.Errorf("write html: %w", err)
	}
	p.Latency, p.Throughput = latency.html(), throughput.html()
	for _, op := range opNames() {
		if o, ok := p.Operations[op]; ok {
			p.Rows = append(p.Rows, latencyRow{op, o, p.Results.Latency[op]})
		}
	}
	t, err := template.New("report").Funcs(template.FuncMap{
		"instant": instant, "length": runLength, "span": span, "sign": sign, "thousands": func(n int) string { return thousands(int64(n)) },
		"detail": func(f Fault) string { return f.detail() }, "cap": kindWords, "indices": indices,
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
	if _, err := w.Write(printable(b.Bytes())); err != nil {
		return fmt.Errorf("write html: %w", err)
	}
	return nil
}

// printable drops what must not stand in a page, or in a terminal that shows
// its source: control characters and broken UTF-8.
func printable(b []byte) []byte {
	return bytes.Map(func(r rune) rune {
		if r != '\n' && unicode.IsControl(r) {
			return -1
		}
		return r
	}, bytes.ToValidUTF8(b, []byte("\uFFFD")))
}

// html marks the figure as safe: [drawing] has escaped every text in it.
func (f *figure) html() template.HTML {
	return template.HTML(f.inline())
}

// proof are the properties with the events that prove their violations.
func (d *digest) proof() []property {
	properties := make([]property, 0, len(d.Report.Results))
	for _, r := range d.Report.Results {
		p := property{Result: r}
		for i, v := range r.Violations {
			if i == maxEvidence {
				break
			}
			shown := shownViolation{Violation: v}
			for _, index := range v.Events {
				if e, ok := d.event(index); ok {
					shown.Lines = append(shown.Lines, line(e))
				}
			}
			p.Shown = append(p.Shown, shown)
		}
		p.More = max(r.Total, len(r.Violations)) - len(p.Shown)
		properties = append(properties, p)
	}
	return properties
}

// line is an event as a history has it.
func line(e history.Event) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return fmt.Sprintf("event %d: %v", e.Index, err)
	}
	return string(bytes.TrimSpace(b.Bytes()))
}

// Servers are the versions of the servers as "redis 7.0.15".
func (p *page) Servers() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(p.Run.Servers)) {
		names = append(names, name+" "+p.Run.Servers[name])
	}
	return names
}

// FaultsEffective says how many faults took effect.
func (p *page) FaultsEffective() string {
	return fmt.Sprintf("%d of %s took effect", effective(p.Faults), count(len(p.Faults), "fault"))
}
