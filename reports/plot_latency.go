package reports

import (
	"image"
	"math"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

const (
	// maxDots is how many answers are drawn one by one; more become a density.
	maxDots = 1500
	// minQuantile is how many answers it takes for lines of percentiles.
	minQuantile = 400
	// leastLatency is where the logarithmic axis begins: shorter is clamped.
	leastLatency = time.Microsecond
)

// latencyFigure plots how long each request for a lock took to be answered.
func (d *digest) latencyFigure() (figure, error) {
	return d.latencyPlot("Latency", d.latencyScale())
}

// A scale are the axes of a plot: the time, and the least and the greatest
// value.
type scale struct {
	win       window
	low, high float64
}

// both is the scale on which two plots can be compared.
func (s scale) both(other scale) scale {
	return scale{window{min(s.win.from, other.win.from), max(s.win.to, other.win.to)}, min(s.low, other.low), max(s.high, other.high)}
}

// latencyScale is that of all requests for a lock, in seconds.
func (d *digest) latencyScale() scale {
	s := scale{d.whole(), math.Inf(1), 0}
	for i := range d.ops {
		if op := &d.ops[i]; op.Invoke.Op == history.Acquire {
			y := max(took(op), leastLatency).Seconds()
			s.low, s.high = min(s.low, y), max(s.high, y)
		}
	}
	if s.high == 0 {
		s.low, s.high = 1e-4, 1e-1
	}
	return s
}

func (d *digest) latencyPlot(title string, s scale) (figure, error) {
	var dd durations
	for i := range d.ops {
		op := &d.ops[i]
		if op.Invoke.Op != history.Acquire {
			continue
		}
		pt := point{op.Complete.Time.Seconds(), max(took(op), leastLatency).Seconds()}
		switch {
		case op.OK():
			dd.most = append(dd.most, pt)
		case op.Failed():
			dd.crosses = append(dd.crosses, pt)
		default:
			dd.rings = append(dd.rings, pt)
		}
	}
	dd.words = [3]string{"granted", "refused", "outcome unknown"}
	return d.durationPlot(title, "acquire latency", s, dd)
}

// durations are lengths of time, in seconds, at the times at which they ended:
// most of them of the usual kind, and some that are drawn one by one.
type durations struct {
	most, crosses, rings []point
	words                [3]string // what each is called
}

// durationPlot plots durations on a logarithmic axis, and their percentiles
// where there are enough.
func (d *digest) durationPlot(title, label string, s scale, dd durations) (figure, error) {
	w := s.win
	p := newPlot(w, label)
	p.Y.Scale = plot.LogScale{}
	p.Y.Tick.Marker = plot.TickerFunc(latencyTicks)
	p.Y.Min, p.Y.Max = max(leastLatency.Seconds(), s.low/1.5), max(s.high*1.5, s.low*10)
	p.Add(bands{d.faults}, grid{})
	if len(dd.most) > maxDots {
		p.Add(density{dd.most})
	} else {
		p.Add(dots{dd.most})
	}
	p.Add(glyphs{points: dd.rings, style: tintInfo.stroke(1.4), shape: ring}, glyphs{points: dd.crosses, style: tintFail.stroke(1.2), shape: crossShape})
	keys := []key{{dd.words[0], func(s *drawing, x, y float64) { s.rect("t-dot", x+8, y-2, 4, 4, 0, "") }}}
	if len(dd.crosses) > 0 {
		keys = append(keys, key{dd.words[1], func(s *drawing, x, y float64) { s.path("t-fail", cross(x+10, y, 3), "") }})
	}
	if len(dd.rings) > 0 {
		keys = append(keys, key{dd.words[2], func(s *drawing, x, y float64) { s.ring(x+10, y, 3, "") }})
	}
	if len(dd.most) >= minQuantile {
		p.Add(
			polyline{quantile(dd.most, w, 500, 20), tintInk.stroke(1.6)},
			polyline{quantile(dd.most, w, 990, 200), tintInk.stroke(1.2, 4, 3)},
		)
		keys = append(keys,
			key{"p50", func(s *drawing, x, y float64) { s.line("t-axis t-p50", x, y, x+20, y) }},
			key{"p99", func(s *drawing, x, y float64) { s.line("t-axis t-p99", x, y, x+20, y) }})
	}
	return d.plotFigure(p, w, title, keys)
}

// operationsFigure plots how long the other operations took, by their percentiles; false
// if there are too few of each.
func (d *digest) operationsFigure() (figure, error) {
	w := d.whole()
	p := newPlot(w, "latency")
	p.Y.Scale = plot.LogScale{}
	p.Y.Tick.Marker = plot.TickerFunc(latencyTicks)
	p.Add(bands{d.faults}, grid{})
	low, high := math.Inf(1), 0.0
	var keys []key
	for _, series := range []struct {
		op    history.Op
		tint  tint
		class string
	}{{history.Extend, tintInfo, "t-rate-info"}, {history.Release, tintInk, "t-axis t-p50"}, {history.Access, tintOK, "t-rate-ok"}} {
		var points []point
		for i := range d.ops {
			if op := &d.ops[i]; op.Invoke.Op == series.op && op.OK() {
				points = append(points, point{op.Complete.Time.Seconds(), max(took(op), leastLatency).Seconds()})
			}
		}
		if len(points) < minPlot {
			continue
		}
		for i, line := range [][]point{quantile(points, w, 500, 20), quantile(points, w, 990, 200)} {
			drawn := false
			for _, pt := range line {
				if !math.IsNaN(pt.y) {
					low, high, drawn = min(low, pt.y), max(high, pt.y), true
				}
			}
			if len(line) == 1 { // of few there is one figure for the whole time
				line = []point{{w.from.Seconds(), line[0].y}, {w.to.Seconds(), line[0].y}}
			}
			style := series.tint.stroke(1.6)
			if i == 1 {
				style = series.tint.stroke(1.2, 4, 3)
			}
			if drawn {
				p.Add(polyline{line, style})
			}
		}
		keys = append(keys, key{string(series.op), func(s *drawing, x, y float64) { s.line(series.class, x, y, x+20, y) }})
	}
	if len(keys) == 0 || high == 0 {
		return figure{}, nil
	}
	p.Y.Min, p.Y.Max = max(leastLatency.Seconds()/2, low/1.5), max(high*1.5, low*10)
	return d.plotFigure(p, w, "Latency of the other operations, p50 and dashed p99", keys)
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
func quantile(points []point, w window, permille, each int) []point {
	bins := min(max(len(points)/each, 1), 100)
	width := w.length().Seconds() / float64(bins)
	samples := make([][]float64, bins)
	for _, pt := range points {
		at := min(max(int((pt.x-w.from.Seconds())/width), 0), bins-1)
		samples[at] = append(samples[at], pt.y)
	}
	var line []point
	for i, s := range samples {
		x := w.from.Seconds() + (float64(i)+0.5)*width
		if len(s) == 0 || !carries(len(s), permille) {
			line = append(line, point{x, math.NaN()})
			continue
		}
		slices.Sort(s)
		line = append(line, point{x, s[max(0, (len(s)*permille+999)/1000-1)]})
	}
	return line
}

// dots draws every point as a small square, all in one path.
type dots struct{ points []point }

// Plot implements [plot.Plotter].
func (d dots) Plot(c draw.Canvas, p *plot.Plot) {
	const r = 1.5
	var path vg.Path
	for _, pt := range d.points {
		x, y := c.X(p.X.Norm(pt.x)), c.Y(p.Y.Norm(pt.y))
		path.Move(vg.Point{X: x - r, Y: y - r})
		path.Line(vg.Point{X: x + r, Y: y - r})
		path.Line(vg.Point{X: x + r, Y: y + r})
		path.Line(vg.Point{X: x - r, Y: y + r})
		path.Close()
	}
	if len(path) > 0 {
		c.SetColor(tintOK.rgb(255))
		c.Fill(path)
	}
}

// density draws many points as a raster in which more points are more opaque.
type density struct{ points []point }

// Plot implements [plot.Plotter].
func (d density) Plot(c draw.Canvas, p *plot.Plot) {
	const columns, rows = 480, 100
	var counts [columns * rows]float64
	most := 0.0
	for _, pt := range d.points {
		x := min(max(int(p.X.Norm(pt.x)*columns), 0), columns-1)
		y := min(max(int((1-p.Y.Norm(pt.y))*rows), 0), rows-1)
		counts[y*columns+x]++
		most = max(most, counts[y*columns+x])
	}
	img := image.NewNRGBA(image.Rect(0, 0, columns, rows))
	for i, n := range counts {
		if n > 0 {
			// Between the blue of the light and that of the dark palette.
			shade := tint("#4B9BE8").rgb(uint8(70 + 185*math.Log1p(n)/math.Log1p(most)))
			img.SetNRGBA(i%columns, i/columns, shade)
		}
	}
	c.DrawImage(c.Rectangle, img)
}

// glyphs draws points with a shape of their own; of those that would cover
// each other one is drawn.
type glyphs struct {
	points []point
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
		x, y := c.X(p.X.Norm(pt.x)), c.Y(p.Y.Norm(pt.y))
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

func crossShape(path *vg.Path, x, y vg.Length) {
	const r = 2.5
	path.Move(vg.Point{X: x - r, Y: y - r})
	path.Line(vg.Point{X: x + r, Y: y + r})
	path.Move(vg.Point{X: x - r, Y: y + r})
	path.Line(vg.Point{X: x + r, Y: y - r})
}

func ring(path *vg.Path, x, y vg.Length) {
	const r = 2.8
	path.Move(vg.Point{X: x + r, Y: y})
	path.Arc(vg.Point{X: x, Y: y}, r, 0, 2*math.Pi)
}
