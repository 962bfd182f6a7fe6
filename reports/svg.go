package reports

import (
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/chart"
)

// A figure is a finished plot with its size and time axis.
type figure struct {
	body   string
	height float64
	win    window
	label  string
}

// html is the figure as part of a page that has the style sheets. [chart.Drawing] has escaped every text in it.
func (f *figure) html() template.HTML {
	return template.HTML(fmt.Sprintf(`<div class="scroll" tabindex="0"><svg class="figure wide-plot" viewBox="0 0 %s %s" role="img" aria-label="%s">%s</svg></div>`, //nolint:gosec // it is escaped
		chart.Num(chart.Width), chart.Num(f.height), chart.Escape(f.label), f.body))
}

// plotWriter writes a plot as an SVG file that stands for itself.
func (m *model) plotWriter(name string, draw func() (figure, error)) func(io.Writer) error {
	return func(w io.Writer) error {
		f, err := m.plotOnce(name, draw)
		if err != nil {
			return err
		}
		return m.standAlone(w, f)
	}
}

// standAlone writes a figure with its style sheets, below the verdict.
func (m *model) standAlone(w io.Writer, f figure) error {
	const margin, head = 24.0, 62.0
	width, height := chart.Width+2*margin, f.height+head+2*margin-8
	class := map[checker.Verdict]string{checker.Invalid: "t-title-bad", checker.Valid: "t-title-good"}[m.Report.Verdict]
	if class == "" {
		class = "t-title-open"
	}
	var s chart.Drawing
	s.Raw(fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" class="figure" viewBox="0 0 %[1]s %[2]s" width="%[1]s" height="%[2]s" role="img">`, chart.Num(width), chart.Num(height)),
		`<style>`, paletteCSS, drawingCSS, `</style>`)
	s.Rect("t-paper", 0, 0, width, height, 0, "")
	s.Raw(`<g transform="translate(`, chart.Num(margin), ` `, chart.Num(margin), `)">`)
	s.Text("t-title "+class, 4, 18, sign(m.Report.Verdict)+" "+say.Shorten(m.story().Headline, 92))
	s.Text("t-sub", 4, 40, say.Shorten(strings.Join(m.about(), " · "), 140))
	s.Raw(`</g><g transform="translate(`, chart.Num(margin), ` `, chart.Num(margin+head-8), `)">`, f.body, `</g></svg>`, "\n")
	if _, err := io.WriteString(w, s.String()); err != nil {
		return fmt.Errorf("write %s: %w", f.label, err)
	}
	return nil
}

// about names what was run, in the order of interest.
func (m *model) about() []string {
	var parts []string
	for _, s := range []string{m.Run.Scenario, m.Run.Topology.Name, m.Run.Lock, m.Run.Workload} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return append(parts, fmt.Sprintf("seed %d", m.Run.Seed))
}

// once draws a figure that several reports show.
func (m *model) once(name string, draw func() figure) figure {
	if m.figures == nil {
		m.figures = map[string]figure{}
	}
	f, drawn := m.figures[name]
	if !drawn {
		f = draw()
		m.figures[name] = f
	}
	return f
}
