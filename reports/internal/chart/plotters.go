package chart

import (
	"image"
	"math"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/lockchaos/lockchaos/internal/say"
)

// How many answers are drawn one by one, of which more become a density, and how many it
// takes for lines of percentiles.
const (
	maxDots     = 1500
	minQuantile = 400
)

// Durations are lengths of time, in seconds, at the times at which they ended: most of them
// of the usual kind, and some that are drawn one by one.
type Durations struct {
	Most, Slashes, Rings []Point
	Words                [3]string // what each is called
}

// AddDurations draws durations with their legend, and their percentiles where there are
// enough.
func (p *Plot) AddDurations(d Durations) {
	if len(d.Most) > maxDots {
		p.Add(density{d.Most})
	} else {
		p.Add(dots{d.Most})
	}
	p.Add(glyphs{d.Rings, Info.Stroke(1.4), ring}, glyphs{d.Slashes, Fail.Stroke(1.4), slash})
	p.Keys = append(p.Keys, Key{d.Words[0], func(s *Drawing, x, y float64) { s.Rect("t-dot", x+8, y-2, 4, 4, 0, "") }})
	if len(d.Slashes) > 0 {
		p.Keys = append(p.Keys, Key{d.Words[1], func(s *Drawing, x, y float64) { s.Path("t-fail", Slash(x+10, y, 3), "") }})
	}
	if len(d.Rings) > 0 {
		p.Keys = append(p.Keys, Key{d.Words[2], func(s *Drawing, x, y float64) { s.Ring(x+10, y, 3, "") }})
	}
	if len(d.Most) >= minQuantile {
		p.AddPercentiles(d.Most, Ink)
		p.AddKey("p50", "t-axis t-p50")
		p.AddKey("p99", "t-axis t-p99")
	}
}

// AddPercentiles draws p50 and, with dashes, p99 of values over time, where there are enough
// of them. It returns the least and the greatest of what it drew: +Inf and 0 for nothing.
func (p *Plot) AddPercentiles(points []Point, tint Tint) (low, high float64) {
	low = math.Inf(1)
	for i, line := range [][]Point{p.quantile(points, 500, 20), p.quantile(points, 990, 200)} {
		drawn := false
		for _, pt := range line {
			if !math.IsNaN(pt.Y) {
				low, high, drawn = min(low, pt.Y), max(high, pt.Y), true
			}
		}
		if len(line) == 1 { // of few there is one figure for the whole time
			line = []Point{{p.from.Seconds(), line[0].Y}, {p.to.Seconds(), line[0].Y}}
		}
		style := tint.Stroke(1.6)
		if i == 1 {
			style = tint.Stroke(1.2, 4, 3)
		}
		if drawn {
			p.Add(Polyline{line, style})
		}
	}
	return low, high
}

// AddKey explains a line of this class in the legend.
func (p *Plot) AddKey(text, class string) {
	p.Keys = append(p.Keys, Key{text, func(s *Drawing, x, y float64) { s.Line(class, x, y, x+20, y) }})
}

// Logarithmic gives the values, which are lengths of time in seconds, a logarithmic axis.
func (p *Plot) Logarithmic(low, high float64) {
	p.Y.Scale = plot.LogScale{}
	p.Y.Tick.Marker = plot.TickerFunc(latencyTicks)
	p.Y.Min, p.Y.Max = low, high
}

// latencyTicks are the powers of ten in the unit that reads best.
func latencyTicks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		decade := math.Pow(10, e)
		ticks = append(ticks, plot.Tick{Value: decade, Label: say.Span(lasting(decade))})
		for m := 2.0; m < 10; m++ {
			ticks = append(ticks, plot.Tick{Value: m * decade})
		}
	}
	return slices.DeleteFunc(ticks, func(t plot.Tick) bool { return t.Value < low*0.999 || t.Value > high*1.001 })
}

// lasting is this many seconds, or the longest time that there is.
func lasting(seconds float64) time.Duration {
	if ns := math.Round(seconds * 1e9); ns < math.MaxInt64 {
		return time.Duration(ns)
	}
	return math.MaxInt64
}

// quantile is a percentile over time, in as many bins as have so many samples each on
// average: at most 100. A bin with too few samples for the percentile has none.
func (p *Plot) quantile(points []Point, permille, each int) []Point {
	bins := min(max(len(points)/each, 1), 100)
	width := (p.to - p.from).Seconds() / float64(bins)
	samples := make([][]float64, bins)
	for _, pt := range points {
		at := min(max(int((pt.X-p.from.Seconds())/width), 0), bins-1)
		samples[at] = append(samples[at], pt.Y)
	}
	var line []Point
	for i, s := range samples {
		x := p.from.Seconds() + (float64(i)+0.5)*width
		if len(s) == 0 || !Carries(len(s), permille) {
			line = append(line, Point{x, math.NaN()})
			continue
		}
		slices.Sort(s)
		line = append(line, Point{x, s[max(0, (len(s)*permille+999)/1000-1)]})
	}
	return line
}

// dots draws every point as a small square, all in one path.
type dots struct{ points []Point }

// Plot implements [plot.Plotter].
func (d dots) Plot(c draw.Canvas, p *plot.Plot) {
	const r = 1.5
	var path vg.Path
	for _, pt := range d.points {
		x, y := c.X(p.X.Norm(pt.X)), c.Y(p.Y.Norm(pt.Y))
		path.Move(vg.Point{X: x - r, Y: y - r})
		path.Line(vg.Point{X: x + r, Y: y - r})
		path.Line(vg.Point{X: x + r, Y: y + r})
		path.Line(vg.Point{X: x - r, Y: y + r})
		path.Close()
	}
	if len(path) > 0 {
		c.SetColor(OK.rgb(255))
		c.Fill(path)
	}
}

// density draws many points as a raster in which more points are more opaque.
type density struct{ points []Point }

// Plot implements [plot.Plotter].
func (d density) Plot(c draw.Canvas, p *plot.Plot) {
	const columns, rows = 480, 100
	var counts [columns * rows]float64
	most := 0.0
	for _, pt := range d.points {
		x := min(max(int(p.X.Norm(pt.X)*columns), 0), columns-1)
		y := min(max(int((1-p.Y.Norm(pt.Y))*rows), 0), rows-1)
		counts[y*columns+x]++
		most = max(most, counts[y*columns+x])
	}
	img := image.NewNRGBA(image.Rect(0, 0, columns, rows))
	for i, n := range counts {
		if n > 0 {
			// Between the blue of the light and that of the dark palette.
			shade := Tint("#4B9BE8").rgb(uint8(70 + 185*math.Log1p(n)/math.Log1p(most)))
			img.SetNRGBA(i%columns, i/columns, shade)
		}
	}
	c.DrawImage(c.Rectangle, img)
}

// glyphs draws points with a shape of their own; of those that would cover
// each other one is drawn.
type glyphs struct {
	points []Point
	style  draw.LineStyle
	shape  func(path *vg.Path, x, y vg.Length)
}

// Plot implements [plot.Plotter].
func (g glyphs) Plot(c draw.Canvas, p *plot.Plot) {
	const cell = 4
	type place struct{ x, y int }
	drawn := map[place]bool{}
	var path vg.Path
	for _, pt := range g.points {
		x, y := c.X(p.X.Norm(pt.X)), c.Y(p.Y.Norm(pt.Y))
		at := place{int(x / cell), int(y / cell)}
		if !drawn[at] {
			drawn[at] = true
			g.shape(&path, x, y)
		}
	}
	if len(path) > 0 {
		c.SetLineStyle(g.style)
		c.Stroke(path)
	}
}

func slash(path *vg.Path, x, y vg.Length) {
	const r = 3
	path.Move(vg.Point{X: x - r, Y: y - r})
	path.Line(vg.Point{X: x + r, Y: y + r})
}

func ring(path *vg.Path, x, y vg.Length) {
	const r = 2.8
	path.Move(vg.Point{X: x + r, Y: y})
	path.Arc(vg.Point{X: x, Y: y}, r, 0, 2*math.Pi)
}

// leastRanked is how many samples have a percentile at all.
const leastRanked = 5

// Carries reports whether a sample of this size has enough above a percentile, in
// permille, for it to be more than one of the extremes.
func Carries(n, permille int) bool { return n >= leastRanked && n*(1000-permille) >= 1000 }
