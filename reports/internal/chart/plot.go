package chart

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A Tint is a colour that is legible on light and on dark paper, as 0xRRGGBB.
type Tint uint32

// The tints of what is drawn in plots.
const (
	Ink  Tint = 0x76808C
	OK   Tint = 0x2F86D6
	Info Tint = 0xD98200
	Fail Tint = 0xE0187F
	bad  Tint = 0xD1242F
)

func (t Tint) color(alpha uint8) color.NRGBA {
	return color.NRGBA{R: uint8(t >> 16), G: uint8(t >> 8), B: uint8(t), A: alpha} //nolint:gosec // a byte each
}

// A Family are bands that are drawn alike.
type Family struct {
	Name string
	tint Tint
}

// Families are all families of bands: faults by what they are done to.
func Families() []Family {
	return []Family{
		{"fault of the network", 0xB58A1E}, {"failover or partition", 0x8A63D2}, {"fault of a server", 0x5E6B7B}, {"fault of a clock", 0x0A9D7A}, {"fault of a client", 0xC2571A},
	}
}

// A Band shades a part of the time.
type Band struct {
	Number   int // what it is called in a table
	From, To time.Duration
	Family   int // as an index into [Families]
}

// A Plot has the time of a run in seconds to the right, and faults as bands behind its data.
type Plot struct {
	*plot.Plot

	legend plot.Legend
	bands  []Band
	marks  []time.Duration
	log    bool
	err    error // the first of those that were added and can't be drawn
}

// NewPlot is a plot from one instant to another, whose values are from low to high: without data, and with
// a cross above it at each mark.
func NewPlot(from, to time.Duration, title, label string, low, high float64, logarithmic bool, bands []Band, marks []time.Duration) *Plot {
	p := newPlot(title, label)
	p.bands, p.marks = bands, marks
	if logarithmic {
		p.Logarithmic()
		low, high = math.Log10(low), math.Log10(high)
	}
	p.X.Label.Text = "seconds"
	p.X.Min, p.X.Max = from.Seconds(), max(to, from+time.Millisecond).Seconds()
	p.Y.Min, p.Y.Max = low, high
	for _, b := range bands {
		left, right := max(b.From.Seconds(), p.X.Min), min(max(b.To.Seconds(), b.From.Seconds()+(p.X.Max-p.X.Min)/1000), p.X.Max)
		shade, err := plotter.NewPolygon(plotter.XYs{{X: left, Y: low}, {X: right, Y: low}, {X: right, Y: high}, {X: left, Y: high}})
		if p.err = err; err != nil || left > right {
			continue
		}
		family := Families()[b.Family]
		shade.Color, shade.LineStyle = family.tint.color(40), draw.LineStyle{}
		p.Add(shade)
		if !slices.ContainsFunc(bands[:slices.Index(bands, b)], func(o Band) bool { return o.Family == b.Family }) {
			p.legend.Add(family.Name, shade)
		}
	}
	p.grid()
	return p
}

// newPlot is a plot with grey texts and axes, and its legend beside it.
func newPlot(title, label string) *Plot {
	p := &Plot{Plot: plot.New(), legend: plot.NewLegend()}
	p.BackgroundColor = nil
	p.Title.Text, p.Y.Label.Text = title, label
	p.legend.Top, p.legend.Left = true, true
	texts := []*draw.TextStyle{&p.Title.TextStyle, &p.legend.TextStyle}
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Color, a.Tick.Color = Ink.color(255), Ink.color(255)
		texts = append(texts, &a.Label.TextStyle, &a.Tick.Label)
	}
	for _, t := range texts {
		t.Color, t.Font.Variant = Ink.color(255), "Sans"
	}
	return p
}

func (p *Plot) grid() {
	g := plotter.NewGrid()
	g.Vertical.Color, g.Horizontal.Color = nil, Ink.color(70)
	p.Add(g)
}

// Logarithmic gives the values, which must be above 0, a logarithmic axis: what is drawn are their powers of
// ten, since a cloud takes the axis for a linear one.
func (p *Plot) Logarithmic() {
	p.log = true
	p.Y.Tick.Marker = plot.TickerFunc(func(low, high float64) []plot.Tick {
		ticks := plot.LogTicks{Prec: -1}.Ticks(math.Pow(10, low), math.Pow(10, high))
		for i := range ticks {
			ticks[i].Value = math.Log10(ticks[i].Value)
		}
		return ticks
	})
}

// scaled are points as they are drawn.
func (p *Plot) scaled(points plotter.XYs) plotter.XYs {
	if points = slices.Clone(points); p.log {
		for i := range points {
			points[i].Y = math.Log10(points[i].Y)
		}
	}
	return points
}

// AddPoints draws points by a glyph each, or many of them as a cloud.
func (p *Plot) AddPoints(name string, points plotter.XYs, tint Tint, glyph draw.GlyphDrawer) {
	const most = 400
	if len(points) == 0 {
		return
	}
	points = p.scaled(points)
	s, err := plotter.NewScatter(points)
	if err != nil {
		p.err = err
		return
	}
	s.GlyphStyle = draw.GlyphStyle{Color: tint.color(255), Radius: vg.Points(2), Shape: glyph}
	p.legend.Add(name, s)
	if len(points) <= most {
		p.Add(s)
		return
	}
	cloud := plotter.NewHeatMap(p.density(points), shades(tint))
	cloud.Rasterized = true
	p.Add(cloud)
}

// AddLine draws a line, with dashes if it is asked for. Where two neighbours lie further apart than the gap,
// nothing is known between them.
func (p *Plot) AddLine(name string, points plotter.XYs, gap float64, tint Tint, dashes ...vg.Length) {
	points = p.scaled(points)
	for len(points) > 0 {
		n := 1
		for n < len(points) && points[n].X-points[n-1].X <= gap {
			n++
		}
		line, err := plotter.NewLine(points[:n])
		if err != nil {
			p.err = err
			return
		}
		line.LineStyle = draw.LineStyle{Color: tint.color(255), Width: vg.Points(1.4), Dashes: dashes}
		p.Add(line)
		if points = points[n:]; len(points) == 0 {
			p.legend.Add(name, line)
		}
	}
}

// SVG is the plot as an element of a page, or a file.
func (p *Plot) SVG(label string) (string, error) {
	var numbers plotter.XYLabels
	for _, b := range p.bands {
		if at := b.From.Seconds(); at >= p.X.Min && at <= p.X.Max {
			numbers.XYs, numbers.Labels = append(numbers.XYs, plotter.XY{X: at, Y: p.Y.Min}), append(numbers.Labels, fmt.Sprint(b.Number))
		}
	}
	var marks plotter.XYs
	for _, at := range p.marks { // of those that would cover each other one is drawn
		at := min(max(at.Seconds(), p.X.Min), p.X.Max)
		if n := len(marks); n == 0 || at-marks[n-1].X > (p.X.Max-p.X.Min)/300 {
			marks = append(marks, plotter.XY{X: at, Y: p.Y.Max})
		}
	}
	p.log = false
	if p.err == nil && len(numbers.XYs) > 0 {
		l, err := plotter.NewLabels(numbers)
		if p.err = err; err == nil {
			for i := range l.TextStyle {
				l.TextStyle[i].Color = Ink.color(255)
			}
			p.Add(l)
		}
	}
	p.AddPoints("violation", marks, bad, draw.CrossGlyph{})
	if p.err != nil {
		return "", fmt.Errorf("draw %s: %w", label, p.err)
	}
	return p.svg(1000, 260, label)
}

// svg draws a plot, with its legend on the right.
func (p *Plot) svg(width, height vg.Length, label string) (string, error) {
	const beside = 170
	c := vgsvg.New(width, height)
	p.Draw(draw.Crop(draw.New(c), 4, -beside, 4, -4))
	p.legend.Draw(draw.Crop(draw.New(c), width-beside+12, 0, 0, -30))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return "", fmt.Errorf("draw %s: %w", label, err)
	}
	_, body, _ := strings.Cut(b.String(), "<svg") // a page has no XML declaration within
	return `<svg class="plot" role="img" aria-label="` + Escape(label) + `"` + strings.ReplaceAll(body, "\n\t", " "), nil
}

// cells are how many points lie in each part of a plot.
type cells struct {
	p      *Plot
	counts [columns][rows]float64
}

const columns, rows = 300, 60

// density counts points in the parts of the plot.
func (p *Plot) density(points plotter.XYs) *cells {
	c := &cells{p: p}
	for _, pt := range points {
		x, y := int(p.X.Norm(pt.X)*columns), int(p.Y.Norm(pt.Y)*rows)
		c.counts[min(max(x, 0), columns-1)][min(max(y, 0), rows-1)]++
	}
	return c
}

// Dims implements [plotter.GridXYZ], as X, Y and Z do.
func (c *cells) Dims() (int, int) { return columns, rows }

// X is the middle of a column.
func (c *cells) X(i int) float64 { return c.p.X.Min + (c.p.X.Max-c.p.X.Min)*(float64(i)+0.5)/columns }

// Y is the middle of a row.
func (c *cells) Y(i int) float64 { return c.p.Y.Min + (c.p.Y.Max-c.p.Y.Min)*(float64(i)+0.5)/rows }

// Z is how many points there are, on a logarithmic scale; not a number for none.
func (c *cells) Z(x, y int) float64 {
	if c.counts[x][y] == 0 {
		return math.NaN()
	}
	return math.Log1p(c.counts[x][y])
}

// shades are the colours of a cloud, from few points to many.
type shades Tint

// Colors implements the palette of a heat map.
func (s shades) Colors() []color.Color {
	var all []color.Color
	for alpha := 80; alpha <= 255; alpha += 25 {
		all = append(all, Tint(s).color(uint8(alpha))) //nolint:gosec // it is below 256
	}
	return all
}

// leastRanked is how many samples have a percentile at all.
const leastRanked = 5

// Carries reports whether a sample of this size has enough above a percentile, in
// permille, for it to be more than one of the extremes.
func Carries(n, permille int) bool { return n >= leastRanked && n*(1000-permille) >= 1000 }
