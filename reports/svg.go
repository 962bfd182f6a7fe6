package reports

import (
	"fmt"
	"io"
	"strings"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/chart"
)

// hatchPattern is for use after belief: a texture, so that no colour is needed.
const hatchPattern = `<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">` +
	`<line class="t-hatch" x1="0" y1="0" x2="0" y2="6"/></pattern></defs>`

// inline is a figure as part of a page that has the style sheets and the
// hatch. Names of lanes are a drawing of their own, which stays in sight where
// the page is too narrow for all of it.
func (f *figure) inline() string {
	left := 0.0
	var s strings.Builder
	s.WriteString(`<div class="scroll" tabindex="0"><div class="split">`)
	if f.names != "" {
		left = chart.Left
		fmt.Fprintf(&s, `<svg class="figure names" viewBox="0 0 %s %s" aria-hidden="true">%s</svg>`, chart.Num(left), chart.Num(f.height), f.names)
	}
	fmt.Fprintf(&s, `<svg class="figure" viewBox="%s 0 %s %s" role="img" aria-label="%s" data-from="%d" data-to="%d" data-left="%s" data-right="%s">%s</svg></div></div>`,
		chart.Num(left), chart.Num(chart.Width-left), chart.Num(f.height), chart.Escape(f.label), int64(f.win.from), int64(f.win.to),
		chart.Num(chart.Left), chart.Num(chart.Width-chart.Right), f.body)
	return s.String()
}

// writeTimeline writes the timeline as an SVG file that stands for itself: the violation that
// the story tells from near, else the whole run.
func (m *model) writeTimeline(w io.Writer) error {
	if v := m.violation(); v != nil {
		return m.standAlone(w, m.focusFigure(v))
	}
	return m.standAlone(w, m.wholeFigure(window{}))
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
	width, height := chart.Width+2*margin, f.height+f.keyHeight+head+2*margin-8
	class := map[checker.Verdict]string{checker.Invalid: "t-title-bad", checker.Valid: "t-title-good"}[m.Report.Verdict]
	if class == "" {
		class = "t-title-open"
	}
	var s chart.Drawing
	s.Raw(svgHead(width, height), `<style>`, paletteCSS, drawingCSS, `</style>`, hatchPattern)
	s.Rect("t-paper", 0, 0, width, height, 0, "")
	s.Raw(`<g transform="translate(`, chart.Num(margin), ` `, chart.Num(margin), `)">`)
	s.Text("t-title "+class, 4, 18, sign(m.Report.Verdict)+" "+say.Shorten(m.story().Headline, 92))
	s.Text("t-sub", 4, 40, say.Shorten(strings.Join(m.about(), " · "), 140))
	s.Raw(`</g><g transform="translate(`, chart.Num(margin), ` `, chart.Num(margin+head-8), `)">`, f.names, f.body, f.key, `</g></svg>`, "\n")
	if _, err := io.WriteString(w, s.String()); err != nil {
		return fmt.Errorf("write %s: %w", f.label, err)
	}
	return nil
}

// svgNamespace is the attribute that a file of its own needs; a page has it by itself.
const svgNamespace = ` xmlns="http://www.w3.org/2000/svg"`

func svgHead(width, height float64) string {
	return fmt.Sprintf(`<svg`+svgNamespace+` class="figure" viewBox="0 0 %s %s" width="%s" height="%s" role="img">`,
		chart.Num(width), chart.Num(height), chart.Num(width), chart.Num(height))
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
