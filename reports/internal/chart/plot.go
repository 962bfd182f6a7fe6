package chart

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

	"github.com/lockchaos/lockchaos/internal/say"
)

// A Tint is a colour that plotters draw with. It stands for a variable of the palette;
// restyle puts the variables in, so that one SVG serves light and dark.
type Tint string

// The tints of what is drawn in plots.
const (
	Ink  Tint = "#010203"
	Soft Tint = "#C0C1C2" // of the grid
	OK   Tint = "#81BFFC"
	Info Tint = "#FFA400"
	Fail Tint = "#FF1E90"
)

// A Family are bands that are drawn alike.
type Family struct {
	Name     string
	Variable string // of the palette, and the end of the class
	tint     Tint
}

// Families are all families of bands: faults by what they are done to.
func Families() []Family {
	return []Family{
		{"fault of the network", "band", "#B58A1E"},
		{"failover or partition", "band-failover", "#8A63D2"},
		{"fault of a server", "band-server", "#5E6B7B"},
		{"fault of a clock", "band-clock", "#0A9D7A"},
		{"fault of a client", "band-client", "#C2571A"},
	}
}

// rgb is the tint as a colour with so much opacity.
func (t Tint) rgb(alpha uint8) color.NRGBA {
	var c color.NRGBA
	if _, err := fmt.Sscanf(string(t), "#%02X%02X%02X", &c.R, &c.G, &c.B); err != nil {
		return color.NRGBA{A: alpha} // the tints are constants: this does not happen
	}
	c.A = alpha
	return c
}

// Stroke is a line of this width in the tint; dashes are lengths on and off.
func (t Tint) Stroke(width float64, dashes ...vg.Length) draw.LineStyle {
	return draw.LineStyle{Color: t.rgb(255), Width: vg.Length(width), Dashes: dashes}
}

// plotHeight is the height of the data and its axes.
const plotHeight = 210.0

// emptyPlot is a plot with the axes of the reports.
func emptyPlot() *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	face := font.Font{Typeface: "Liberation", Variant: "Sans", Size: SmallSize}
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font = face
		axis.Tick.Label.Font = face
		axis.LineStyle = Ink.Stroke(0.8)
		axis.Tick.LineStyle = Ink.Stroke(0.8)
		axis.Tick.Length = 4
		axis.Padding = 0
	}
	return p
}

// A Plot is drawn over a stretch of time, with the look of the timelines.
type Plot struct {
	*plot.Plot

	Title string
	Keys  []Key
	Bands []Band
	Marks []Mark

	from, to time.Duration
}

// A Key is an entry of a plot's legend.
type Key struct {
	Text string
	Draw func(s *Drawing, x, y float64) // at the left end of its middle
}

// A Band shades a part of the time, from an instant on that a line marks.
type Band struct {
	Number   int // what it is called in a table
	From, To time.Duration
	Family   int // as an index into [Families]
	Name     string
	Title    string // what a pointer that rests on it shows
}

// A Mark is a cross above the plot.
type Mark struct {
	At    time.Duration
	Title string
}

// NewPlot is a plot from one instant to another, without data. The bands lie below what is
// added.
func NewPlot(from, to time.Duration, title, yLabel string, bands []Band) *Plot {
	p := &Plot{Plot: emptyPlot(), Title: title, Bands: bands, from: from, to: to}
	p.Y.Label.Text = yLabel
	p.X.Min, p.X.Max = from.Seconds(), to.Seconds()
	p.X.Tick.Marker = plot.TickerFunc(func(from, to float64) []plot.Tick {
		step := NiceStep(fromSeconds(to-from), 9)
		var ticks []plot.Tick
		if step <= 0 {
			return ticks
		}
		for t := (fromSeconds(from) + step - 1) / step * step; t <= fromSeconds(to); t += step {
			ticks = append(ticks, plot.Tick{Value: t.Seconds(), Label: TickLabel(t, step)})
		}
		return ticks
	})
	p.Add(shades{bands}, grid{})
	return p
}

func fromSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// x is where an instant lies, clipped to the time of the plot.
func (p *Plot) x(t time.Duration) float64 {
	share := float64(min(max(t, p.from), p.to)-p.from) / float64(max(p.to-p.from, 1))
	return Left + share*(Width-Left-Right)
}

// Figure draws the plot with its title, its legend, and the names of the bands and the marks
// above it. Its data area lies exactly below that of a timeline.
func (p *Plot) Figure() (body string, height float64, err error) {
	canvas := vgsvg.New(vg.Length(Width), vg.Length(plotHeight))
	area := draw.New(canvas)
	for range 4 { // tick labels at the edges move the data area a little each time
		data := p.DataCanvas(area)
		area = draw.Crop(area, vg.Length(Left)-data.Min.X, vg.Length(Width-Right)-data.Max.X,
			0, vg.Length(plotHeight-2)-data.Max.Y)
	}
	p.Draw(area)
	inner, err := restyle(canvas)
	if err != nil {
		return "", 0, fmt.Errorf("draw %s: %w", p.Title, err)
	}
	var s Drawing
	s.Text("t-group", 4, 14, p.Title)
	x := max(Left, 4+Wide(p.Title, SmallSize)*1.1+18)
	for _, k := range p.Keys {
		k.Draw(&s, x, 10)
		s.Text("t-small", x+26, 14, k.Text)
		x += 26 + Wide(k.Text, SmallSize) + 16
	}
	head := p.drawBands(&s)
	if len(p.Marks) > 0 {
		for _, c := range Clusters(p.Marks, func(m Mark) float64 { return p.x(m.At) }) {
			s.Line("t-flag-pole", c.X, head+8, c.X, head+14)
			s.Path("t-bad-mark t-plot-mark", Cross(c.X, head+4, 4), fmt.Sprintf("%s from %s on: %s", say.Count(len(c.Of), "violation"), say.Instant(c.Of[0].At), c.Of[0].Title))
			if len(c.Of) > 1 {
				s.Text("t-small t-bad-text", c.X+7, head+8, say.Thousands(int64(len(c.Of))))
			}
		}
		head += 14
	}
	s.Raw(`<g class="plot" transform="translate(0 `, Num(head), `)">`, inner, `</g>`)
	for _, b := range p.Bands {
		s.Rect("t-hover", p.x(b.From), head, max(p.x(b.To)-p.x(b.From), 3), plotHeight-20, 0, fmt.Sprintf("%d: %s", b.Number, b.Title))
	}
	return s.String(), head + plotHeight, nil
}

// drawBands writes which families of bands there are, and where each begins: with its
// number, and its name where there is room. It returns where the plot may begin.
func (p *Plot) drawBands(s *Drawing) float64 {
	head := 26.0
	if len(p.Bands) == 0 {
		return head
	}
	x := Left
	for i, family := range Families() {
		if !slices.ContainsFunc(p.Bands, func(b Band) bool { return b.Family == i }) {
			continue
		}
		s.Rect("t-band t-"+family.Variable, x, head-3, 20, 12, 0, "")
		s.Text("t-small", x+26, head+7, family.Name)
		x += 26 + Wide(family.Name, SmallSize) + 16
	}
	head += 16
	type label struct {
		at, end float64
		text    string
		of      []int
	}
	var labels []label
	for i, b := range p.Bands {
		at, of := p.x(b.From), []int{b.Number}
		if n := len(labels); n > 0 && at <= labels[n-1].end { // they share a label
			at, of = labels[n-1].at, append(labels[n-1].of, b.Number)
			labels = labels[:n-1]
		}
		text := fmt.Sprint(of[0])
		switch {
		case len(of) > 3:
			text += fmt.Sprintf("–%d", b.Number)
		case len(of) > 1:
			text = strings.Trim(strings.ReplaceAll(fmt.Sprint(of), " ", ", "), "[]")
		}
		next := Width
		if i+1 < len(p.Bands) {
			next = p.x(p.Bands[i+1].From)
		}
		if long := text + " " + say.Shorten(b.Name, 40); len(of) == 1 && at+Wide(long, SmallSize) < next {
			text = long
		}
		labels = append(labels, label{at, at + Wide(text, SmallSize) + 4, text, of})
	}
	for _, l := range labels {
		class, x := "t-tick-left", l.at
		if l.end > Width {
			class, x = "t-tick end", Width
		}
		s.Text(class, x, head+7, l.text)
	}
	return head + 12
}

// A Cluster is a mark for things that lie close to each other.
type Cluster[T any] struct {
	X  float64
	Of []T
}

// Clusters puts things, in order of their places, into as many marks as have room beside each
// other, each with its number where that is not one.
func Clusters[T any](all []T, at func(T) float64) []Cluster[T] {
	var clusters []Cluster[T]
	for _, v := range all {
		x := at(v)
		if n := len(clusters); n > 0 {
			last := &clusters[n-1]
			room := 9.0
			if len(last.Of) > 1 {
				room += 5 + Wide(say.Thousands(int64(len(last.Of))), SmallSize)
			}
			if x < last.X+room {
				last.Of = append(last.Of, v)
				continue
			}
		}
		clusters = append(clusters, Cluster[T]{x, []T{v}})
	}
	return clusters
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
	for t, name := range map[Tint]string{Ink: "soft", Soft: "grid", OK: "ok", Info: "info", Fail: "fail"} {
		replace = append(replace, ":"+string(t), ":var(--"+name+")")
	}
	for _, f := range Families() {
		replace = append(replace, ":"+string(f.tint), ":var(--"+f.Variable+")")
	}
	s = strings.NewReplacer(replace...).Replace(s)
	return svgBlank.ReplaceAllString(s, " "), nil
}

// shades draws bands. It comes first, so that grid and data lie above it.
type shades struct{ bands []Band }

// Plot implements [plot.Plotter].
func (b shades) Plot(c draw.Canvas, p *plot.Plot) {
	for _, band := range b.bands {
		from, to := c.X(p.X.Norm(band.From.Seconds())), c.X(p.X.Norm(band.To.Seconds()))
		to = max(to, from+1)
		tint := Families()[band.Family].tint
		c.FillPolygon(tint.rgb(30), []vg.Point{
			{X: from, Y: c.Min.Y}, {X: to, Y: c.Min.Y}, {X: to, Y: c.Max.Y}, {X: from, Y: c.Max.Y},
		})
		c.StrokeLine2(tint.Stroke(0.8), from, c.Min.Y, from, c.Max.Y)
	}
}

// grid draws a line at every labelled tick of the y axis.
type grid struct{}

// Plot implements [plot.Plotter].
func (grid) Plot(c draw.Canvas, p *plot.Plot) {
	for _, t := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
		if y := c.Y(p.Y.Norm(t.Value)); !t.IsMinor() && c.ContainsY(y) {
			c.StrokeLine2(Soft.Stroke(0.8), c.Min.X, y, c.Max.X, y)
		}
	}
}

// A Point lies at a time, in seconds, and a value.
type Point struct{ X, Y float64 }

// A Polyline joins points; a value that is not a number interrupts it.
type Polyline struct {
	Points []Point
	Style  draw.LineStyle
}

// Plot implements [plot.Plotter].
func (l Polyline) Plot(c draw.Canvas, p *plot.Plot) {
	var run []vg.Point
	for _, pt := range l.Points {
		if math.IsNaN(pt.Y) {
			c.StrokeLines(l.Style, run)
			run = nil
			continue
		}
		run = append(run, vg.Point{X: c.X(p.X.Norm(pt.X)), Y: c.Y(p.Y.Norm(pt.Y))})
	}
	c.StrokeLines(l.Style, run)
}
