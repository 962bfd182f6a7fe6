package reports

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// The colours that plotters draw with stand for the variables of the palette;
// [restyle] puts the variables in, so that one SVG serves light and dark.
type tint string

const (
	tintInk  tint = "#010203"
	tintGrid tint = "#C0C1C2"
	tintOK   tint = "#81BFFC"
	tintInfo tint = "#FFA400"
	tintFail tint = "#FF1E90"
	tintBand tint = "#B58A1E"
)

// families are the faults by what they are done to, each with the colour of its bands.
func families() []family {
	return []family{
		{"fault of the network", tintBand, "band"},
		{"failover or partition", "#8A63D2", "band-failover"},
		{"fault of a server", "#5E6B7B", "band-server"},
		{"fault of a clock", "#0A9D7A", "band-clock"},
		{"fault of a client", "#C2571A", "band-client"},
	}
}

// A family are faults that are drawn alike.
type family struct {
	name     string
	tint     tint
	variable string // of the palette
}

// family is where the fault belongs, as an index into [families].
func (f *Fault) family() int {
	switch {
	case f.has(history.Promotes), f.has(history.Isolates):
		return 1
	case f.has(history.ShiftsClock):
		return 3
	case f.has(history.StopsClient):
		return 4
	case f.has(history.Stops), f.has(history.Restarts), f.has(history.Forgets), f.has(history.Moves):
		return 2
	default:
		return 0
	}
}

// rgb is the tint as a colour with so much opacity.
func (t tint) rgb(alpha uint8) color.NRGBA {
	var c color.NRGBA
	if _, err := fmt.Sscanf(string(t), "#%02X%02X%02X", &c.R, &c.G, &c.B); err != nil {
		return color.NRGBA{A: alpha} // the tints are constants: this does not happen
	}
	c.A = alpha
	return c
}

func (t tint) stroke(width float64, dashes ...vg.Length) draw.LineStyle {
	return draw.LineStyle{Color: t.rgb(255), Width: vg.Length(width), Dashes: dashes}
}

// plotHeight is the height of the data and its axes.
const plotHeight = 210.0

// emptyPlot is a plot with the axes of the reports.
func emptyPlot() *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	face := font.Font{Typeface: "Liberation", Variant: "Sans", Size: smallSize}
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font = face
		axis.Tick.Label.Font = face
		axis.LineStyle = tintInk.stroke(0.8)
		axis.Tick.LineStyle = tintInk.stroke(0.8)
		axis.Tick.Length = 4
		axis.Padding = 0
	}
	return p
}

// newPlot is a plot over the whole run with the look of the timelines.
func newPlot(w window, yLabel string) *plot.Plot {
	p := emptyPlot()
	p.Y.Label.Text = yLabel
	p.X.Min, p.X.Max = w.from.Seconds(), w.to.Seconds()
	p.X.Tick.Marker = plot.TickerFunc(func(from, to float64) []plot.Tick {
		step := niceStep(fromSeconds(to-from), 9)
		var ticks []plot.Tick
		if step <= 0 {
			return ticks
		}
		for t := (fromSeconds(from) + step - 1) / step * step; t <= fromSeconds(to); t += step {
			ticks = append(ticks, plot.Tick{Value: t.Seconds(), Label: tickLabel(t, step)})
		}
		return ticks
	})
	return p
}

func fromSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// A key is an entry of a plot's legend.
type key struct {
	text string
	draw func(s *drawing, x, y float64)
}

// plotOnce is [digest.once] for what may fail.
func (d *digest) plotOnce(name string, draw func() (figure, error)) (figure, error) {
	var err error
	f := d.once(name, func() (f figure) {
		f, err = draw()
		return f
	})
	if err != nil {
		delete(d.figures, name) // it was not drawn
	}
	return f, err
}

// plotFigure draws a plot as a figure, with its title, its legend and the
// names of the faults above it. Its data area lies exactly below that of a
// timeline.
func (d *digest) plotFigure(p *plot.Plot, w window, title string, keys []key) (figure, error) {
	head := 26.0
	canvas := vgsvg.New(vg.Length(chartWidth), vg.Length(plotHeight))
	area := draw.New(canvas)
	for range 4 { // tick labels at the edges move the data area a little each time
		data := p.DataCanvas(area)
		area = draw.Crop(area, vg.Length(chartLeft)-data.Min.X, vg.Length(chartWidth-chartRight)-data.Max.X,
			0, vg.Length(plotHeight-2)-data.Max.Y)
	}
	p.Draw(area)
	inner, err := restyle(canvas)
	if err != nil {
		return figure{}, fmt.Errorf("draw %s: %w", title, err)
	}
	var s drawing
	s.text("t-group", 4, 14, title)
	x := max(chartLeft, 4+wide(title, smallSize)*1.1+18)
	for _, k := range keys {
		k.draw(&s, x, 10)
		s.text("t-small", x+26, 14, k.text)
		x += 26 + wide(k.text, smallSize) + 16
	}
	c := &chart{digest: d, win: w}
	head = d.plotFaults(&s, c, head)
	if len(d.distinct()) > 0 {
		for _, m := range markClusters(d.distinct(), func(v *checker.Violation) float64 { return c.x(d.since(v)) }) {
			first := m.of[0]
			s.line("t-flag-pole", m.x, head+8, m.x, head+14)
			s.path("t-bad-mark t-plot-mark", cross(m.x, head+4, 4), fmt.Sprintf("%s from %s on: %s", say.Count(len(m.of), "violation"), say.Instant(d.since(first)), first.Explanation))
			if len(m.of) > 1 {
				s.text("t-small t-bad-text", m.x+7, head+8, say.Thousands(int64(len(m.of))))
			}
		}
		head += 14
	}
	s.raw(`<g class="plot" transform="translate(0 `, num(head), `)">`, inner, `</g>`)
	for i := range d.faults {
		if f := &d.faults[i]; f.OK {
			s.rect("t-hover", c.x(f.Start), head, max(c.x(f.End)-c.x(f.Start), 3), plotHeight-20, 0, fmt.Sprintf("%d: %s", i+1, faultTitle(f)))
		}
	}
	label := title + " over " + say.Length(w.length())
	if n := effective(d.faults); n > 0 {
		label += ", with " + say.Count(n, "fault") + " in effect"
	}
	if n := len(d.distinct()); n > 0 {
		label += " and " + say.Count(n, "violation") + " marked"
	}
	return figure{body: s.String(), height: head + plotHeight, win: w, label: label}, nil
}

// plotFaults writes which families of faults there are, and where each fault begins: with
// its number in the table of faults, and its name where there is room. It returns where
// the plot may begin.
func (d *digest) plotFaults(s *drawing, c *chart, head float64) float64 {
	if effective(d.faults) == 0 {
		return head
	}
	x := chartLeft
	for i, family := range families() {
		if !slices.ContainsFunc(d.faults, func(f Fault) bool { return f.OK && f.family() == i }) {
			continue
		}
		s.rect("t-band t-"+family.variable, x, head-3, 20, 12, 0, "")
		s.text("t-small", x+26, head+7, family.name)
		x += 26 + wide(family.name, smallSize) + 16
	}
	head += 16
	type label struct {
		at, end float64
		text    string
		of      []int
	}
	var labels []label
	for i := range d.faults {
		f := &d.faults[i]
		if !f.OK {
			continue
		}
		at, of := c.x(f.Start), []int{i + 1}
		if n := len(labels); n > 0 && at <= labels[n-1].end { // they share a label
			at, of = labels[n-1].at, append(labels[n-1].of, i+1)
			labels = labels[:n-1]
		}
		text := fmt.Sprint(of[0])
		switch {
		case len(of) > 3:
			text += fmt.Sprintf("–%d", i+1)
		case len(of) > 1:
			text = strings.Trim(strings.ReplaceAll(fmt.Sprint(of), " ", ", "), "[]")
		}
		next := chartWidth
		for j := i + 1; j < len(d.faults); j++ {
			if d.faults[j].OK {
				next = c.x(d.faults[j].Start)
				break
			}
		}
		if long := text + " " + shorten(f.label(), 40); len(of) == 1 && at+wide(long, smallSize) < next {
			text = long
		}
		labels = append(labels, label{at, at + wide(text, smallSize) + 4, text, of})
	}
	for _, l := range labels {
		class, x := "t-tick-left", l.at
		if l.end > chartWidth {
			class, x = "t-tick end", chartWidth
		}
		s.text(class, x, head+7, l.text)
	}
	return head + 12
}

var (
	svgFont  = regexp.MustCompile(`font-family:[^"]*?(;font-size|")`)
	svgBlank = regexp.MustCompile(`\s*\n\s*`)
)

// restyle takes the drawing out of its SVG element, hands its colours and
// fonts over to the style sheet, and drops what a page does not need.
func restyle(canvas *vgsvg.Canvas) (string, error) {
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", fmt.Errorf("write svg: %w", err)
	}
	_, s, _ := strings.Cut(b.String(), "<svg")
	_, s, _ = strings.Cut(s, ">")
	s = strings.TrimSuffix(strings.TrimSpace(s), "</svg>")
	s = svgFont.ReplaceAllString(s, "$1")
	replace := []string{
		"xlink:href", "href", "data:image/jpg;", "data:image/png;",
		`style=";`, `style="`, ` style=""`, "", `style="font-size:11px;fill:#010203"`, "", `style="font-size:11px"`, "",
	}
	for t, name := range map[tint]string{tintInk: "soft", tintGrid: "grid", tintOK: "ok", tintInfo: "info", tintFail: "fail"} {
		replace = append(replace, ":"+string(t), ":var(--"+name+")")
	}
	for _, f := range families() {
		replace = append(replace, ":"+string(f.tint), ":var(--"+f.variable+")")
	}
	s = strings.NewReplacer(replace...).Replace(s)
	return svgBlank.ReplaceAllString(s, " "), nil
}

// bands shades the time in which a fault was in effect. It comes first, so
// that grid and data lie above it.
type bands struct{ faults []Fault }

// Plot implements [plot.Plotter].
func (b bands) Plot(c draw.Canvas, p *plot.Plot) {
	for i := range b.faults {
		f := &b.faults[i]
		if !f.OK {
			continue
		}
		from, to := c.X(p.X.Norm(f.Start.Seconds())), c.X(p.X.Norm(f.End.Seconds()))
		to = max(to, from+1)
		tint := families()[f.family()].tint
		c.FillPolygon(tint.rgb(30), []vg.Point{
			{X: from, Y: c.Min.Y}, {X: to, Y: c.Min.Y}, {X: to, Y: c.Max.Y}, {X: from, Y: c.Max.Y},
		})
		c.StrokeLine2(tint.stroke(0.8), from, c.Min.Y, from, c.Max.Y)
	}
}

// grid draws a line at every labelled tick of the y axis.
type grid struct{}

// Plot implements [plot.Plotter].
func (grid) Plot(c draw.Canvas, p *plot.Plot) {
	for _, t := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
		if y := c.Y(p.Y.Norm(t.Value)); !t.IsMinor() && c.ContainsY(y) {
			c.StrokeLine2(tintGrid.stroke(0.8), c.Min.X, y, c.Max.X, y)
		}
	}
}

// A point lies at a time, in seconds, and a value.
type point struct{ x, y float64 }

// polyline joins points; a value that is not a number interrupts it.
type polyline struct {
	points []point
	style  draw.LineStyle
}

// Plot implements [plot.Plotter].
func (l polyline) Plot(c draw.Canvas, p *plot.Plot) {
	var run []vg.Point
	for _, pt := range l.points {
		if math.IsNaN(pt.y) {
			c.StrokeLines(l.style, run)
			run = nil
			continue
		}
		run = append(run, vg.Point{X: c.X(p.X.Norm(pt.x)), Y: c.Y(p.Y.Norm(pt.y))})
	}
	c.StrokeLines(l.style, run)
}
