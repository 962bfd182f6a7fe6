package plots

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"image/color"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/facts"
)

// A tint is a colour that is legible on light and on dark paper, as 0xRRGGBB.
type tint uint32

const (
	ink  tint = 0x76808C
	ok   tint = 0x2F86D6
	info tint = 0xD98200
	fail tint = 0xE0187F
	bad  tint = 0xD1242F
	sand tint = 0xB58A1E
)

func (t tint) color(alpha uint8) color.NRGBA {
	return color.NRGBA{R: uint8(t >> 16), G: uint8(t >> 8), B: uint8(t), A: alpha} //nolint:gosec // a byte each
}

// A chart is a plot of a run, or a distribution.
type chart struct {
	*plot.Plot

	legend plot.Legend
	err    error // the first of what can't be drawn
}

// newPlot is a plot with grey texts and axes, and its legend beside it. Logarithmic values must be above 0.
func newPlot(title, label string, logarithmic bool) *chart {
	p := &chart{Plot: plot.New(), legend: plot.NewLegend()}
	p.BackgroundColor = nil
	p.Title.Text, p.Y.Label.Text = title, label
	p.legend.Top, p.legend.Left = true, true
	texts := []*draw.TextStyle{&p.Title.TextStyle, &p.legend.TextStyle}
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Color, a.Tick.Color = ink.color(255), ink.color(255)
		texts = append(texts, &a.Label.TextStyle, &a.Tick.Label)
	}
	for _, t := range texts {
		t.Color, t.Font.Variant = ink.color(255), "Sans"
	}
	if logarithmic {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	return p
}

func (p *chart) grid() {
	g := plotter.NewGrid()
	g.Vertical.Color, g.Horizontal.Color = nil, ink.color(70)
	p.Add(g)
}

// scaleOf is the least and the greatest of durations, with room around them.
func scaleOf(d facts.Durations) (low, high float64) {
	low = math.Inf(1)
	for _, pt := range slices.Concat(xy(d.Most), xy(d.Short), xy(d.Open)) {
		low, high = min(low, pt.Y), max(high, pt.Y)
	}
	if high == 0 {
		low, high = 1e-4, 1e-1
	}
	return max(5e-7, low/1.5), max(high*1.5, low*10)
}

// xy are durations as points; shorter ones than a microsecond are clamped.
func xy(all []facts.Duration) plotter.XYs {
	points := make(plotter.XYs, len(all))
	for i, d := range all {
		points[i] = plotter.XY{X: d.At.Seconds(), Y: max(d.Took, time.Microsecond).Seconds()}
	}
	return points
}

// runPlot is a plot over the time of a run, with its faults as bands behind the data and a cross above it at each
// violation.
func runPlot(r *facts.Facts, low, high float64, title, label string, logarithmic bool) *chart {
	p := newPlot(title, label, logarithmic)
	p.X.Label.Text = "seconds"
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, r.Whole().To.Seconds(), low, high
	var numbers plotter.XYLabels
	for i := range r.Faults {
		f := &r.Faults[i]
		left, right := f.Start.Seconds(), min(max(f.End.Seconds(), f.Start.Seconds()+p.X.Max/1000), p.X.Max)
		if !f.OK || left > right {
			continue
		}
		shade, err := plotter.NewPolygon(plotter.XYs{{X: left, Y: low}, {X: right, Y: low}, {X: right, Y: high}, {X: left, Y: high}})
		if p.err = err; err != nil {
			return p
		}
		shade.Color, shade.LineStyle = sand.color(40), draw.LineStyle{}
		p.Add(shade)
		if len(numbers.Labels) == 0 {
			p.legend.Add("fault", shade)
		}
		numbers.XYs, numbers.Labels = append(numbers.XYs, plotter.XY{X: left, Y: low}), append(numbers.Labels, fmt.Sprint(i+1))
	}
	p.grid()
	if labels, err := plotter.NewLabels(numbers); err == nil && len(numbers.XYs) > 0 {
		for i := range labels.TextStyle {
			labels.TextStyle[i].Color = ink.color(255)
		}
		p.Add(labels)
	}
	var marks plotter.XYs
	for _, v := range r.Violations { // of those that would cover each other one is drawn
		at := min(r.Since(v).Seconds(), p.X.Max)
		if n := len(marks); n == 0 || at-marks[n-1].X > p.X.Max/300 {
			marks = append(marks, plotter.XY{X: at, Y: high})
		}
	}
	p.points("violation", marks, bad, draw.CrossGlyph{})
	return p
}

// points draws a glyph each.
func (p *chart) points(name string, points plotter.XYs, t tint, glyph draw.GlyphDrawer) {
	if len(points) == 0 {
		return
	}
	s, err := plotter.NewScatter(points)
	if err != nil {
		p.err = err
		return
	}
	s.GlyphStyle = draw.GlyphStyle{Color: t.color(255), Radius: vg.Points(2), Shape: glyph}
	p.legend.Add(name, s)
	p.Add(s)
}

// line draws a line, with dashes if it is asked for. Where two neighbours lie further apart than the gap, nothing is
// known between them.
func (p *chart) line(name string, points plotter.XYs, gap float64, t tint, dashes ...vg.Length) {
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
		line.LineStyle = draw.LineStyle{Color: t.color(255), Width: vg.Points(1.4), Dashes: dashes}
		p.Add(line)
		if points = points[n:]; len(points) == 0 {
			p.legend.Add(name, line)
		}
	}
}

// many is how many durations are drawn one by one. Of more it is the longest of each part of the time, with percentiles.
const many = 400

// latency plots lengths of time, which are called by the words, and their percentiles where there are many: p50 and,
// with dashes, p99.
func latency(r *facts.Facts, title string, d facts.Durations, words [3]string) *chart {
	low, high := scaleOf(d)
	p := runPlot(r, low, high, title, "seconds", true)
	p.points(words[0], xy(longest(r, d.Most)), ok, draw.BoxGlyph{})
	p.points(words[1], xy(longest(r, d.Short)), fail, draw.TriangleGlyph{})
	p.points(words[2], xy(longest(r, d.Open)), info, draw.RingGlyph{})
	if len(d.Most) > many {
		line, gap := quantiles(r, d.Most, 500, 20)
		p.line("p50", line, gap, ink)
		line, gap = quantiles(r, d.Most, 990, 200)
		p.line("p99", line, gap, ink, vg.Points(4), vg.Points(3))
	}
	return p
}

// longest are all durations, or of many the longest in each of as many parts of the time.
func longest(r *facts.Facts, all []facts.Duration) []facts.Duration {
	if len(all) <= many {
		return all
	}
	found := map[int]facts.Duration{}
	for _, d := range all {
		at := int(d.At * many / r.Whole().To)
		if d.Took >= found[at].Took {
			found[at] = d
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b facts.Duration) int { return cmp.Compare(a.At, b.At) })
}

// quantiles are a percentile over time, in at most 100 parts that have so many durations on average; one that has too
// few has none. Neighbours lie less than a gap apart.
func quantiles(r *facts.Facts, all []facts.Duration, permille, each int) (line plotter.XYs, gap float64) {
	parts := min(max(len(all)/each, 1), 100)
	width := r.Whole().Length().Seconds() / float64(parts)
	samples := make([][]time.Duration, parts)
	for _, d := range all {
		at := min(max(int(d.At.Seconds()/width), 0), parts-1)
		samples[at] = append(samples[at], max(d.Took, time.Microsecond))
	}
	for i, s := range samples {
		slices.Sort(s)
		if at := facts.Rank(s, permille); at > 0 {
			line = append(line, plotter.XY{X: (float64(i) + 0.5) * width, Y: at.Seconds()})
		}
	}
	return line, 1.5 * width
}

// throughput plots how many requests for a lock were answered a second, by outcome. One that was still open at the end
// has no answer.
func throughput(r *facts.Facts) *chart {
	w := r.Whole()
	length := max(w.Length()/120, time.Nanosecond)
	step, parts := length.Seconds(), max(1, int(math.Ceil(float64(w.Length())/float64(length))))
	counts, most := map[history.Type][]float64{}, 0.0
	for _, op := range r.Ops {
		if outcome := op.Outcome(); op.Verb == holding.Acquire && !op.Open() {
			if counts[outcome] == nil {
				counts[outcome] = make([]float64, parts)
			}
			at := min(int(op.Complete.Time/length), parts-1)
			counts[outcome][at]++
			most = max(most, counts[outcome][at])
		}
	}
	p := runPlot(r, 0, max(1, 1.08*most/step), "Throughput, per "+say.Span(length), "answers per second", false)
	for _, of := range []struct {
		outcome history.Type
		text    string
		tint    tint
		dashes  []vg.Length
	}{
		{history.Fail, "refused", fail, []vg.Length{vg.Points(5), vg.Points(2)}},
		{history.Info, "outcome unknown", info, nil},
		{history.OK, "granted", ok, nil},
	} {
		var line plotter.XYs
		for i, n := range counts[of.outcome] {
			if from := float64(i) * step; i == 0 || from+step <= r.End.Seconds()+1e-9 { // a part of a step is no drop to nothing: the record ends
				line = append(line, plotter.XY{X: from, Y: n / step}, plotter.XY{X: min(from+step, w.To.Seconds()), Y: n / step})
			}
		}
		p.line(of.text, line, math.Inf(1), of.tint, of.dashes...)
	}
	return p
}

// svg draws a plot, with its legend on the right.
func (p *chart) svg(width, height vg.Length, label string) (string, error) {
	const beside = 170
	if p.err != nil {
		return "", fmt.Errorf("draw %s: %w", label, p.err)
	}
	c := vgsvg.New(width, height)
	p.Draw(draw.Crop(draw.New(c), 4, -beside, 4, -4))
	p.legend.Draw(draw.Crop(draw.New(c), width-beside+12, 0, 0, -30))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return "", fmt.Errorf("draw %s: %w", label, err)
	}
	_, body, _ := strings.Cut(b.String(), "<svg") // a page has no XML declaration within
	return `<svg class="plot" role="img" aria-label="` + html.EscapeString(say.OneLine(label)) + `"` + strings.ReplaceAll(body, "\n\t", " "), nil
}
