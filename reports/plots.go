package reports

import (
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/chart"
)

// leastLatency is where a logarithmic axis begins: shorter is clamped.
const leastLatency = time.Microsecond

// family is where the fault belongs, as an index into [chart.Families].
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

// A scale are the axes of a plot: the time, and the least and the greatest value.
type scale struct {
	win       window
	low, high float64
}

// both is the scale on which two plots can be compared.
func (s scale) both(other scale) scale {
	return scale{window{min(s.win.from, other.win.from), max(s.win.to, other.win.to)}, min(s.low, other.low), max(s.high, other.high)}
}

// span is the scale of durations, with room around them.
func (m *model) span(all ...plotter.XYs) scale {
	low, high := math.Inf(1), 0.0
	for _, pt := range slices.Concat(all...) {
		low, high = min(low, pt.Y), max(high, pt.Y)
	}
	if high == 0 {
		low, high = 1e-4, 1e-1
	}
	return scale{m.whole(), max(leastLatency.Seconds()/2, low/1.5), max(high*1.5, low*10)}
}

// newPlot is a plot of the run, with its faults and violations.
func (m *model) newPlot(s scale, title, label string, logarithmic bool) *chart.Plot {
	var bands []chart.Band
	for i := range m.faults {
		if f := &m.faults[i]; f.OK {
			bands = append(bands, chart.Band{Number: i + 1, From: f.Start, To: f.End, Family: f.family()})
		}
	}
	var marks []time.Duration
	for _, v := range m.distinct() {
		marks = append(marks, m.since(v))
	}
	return chart.NewPlot(s.win.from, s.win.to, title, label, s.low, s.high, logarithmic, bands, marks)
}

// point is how long an operation took, as a point of a plot.
func point(at, long time.Duration) plotter.XY {
	return plotter.XY{X: at.Seconds(), Y: max(long, leastLatency).Seconds()}
}

// A durations is what a plot of lengths of time has: most of them, those that were cut short, and those of
// which the end is unknown; and what each is called.
type durations struct {
	most, short, open plotter.XYs
	words             [3]string
}

// requestDurations are how long each request for a lock took to be answered.
func (m *model) requestDurations() durations {
	d := durations{words: [3]string{"granted", "refused", "outcome unknown"}}
	for i := range m.ops {
		op := &m.ops[i]
		if op.Invoke.Op != history.Acquire {
			continue
		}
		switch pt := point(op.Complete.Time, took(op)); {
		case op.OK():
			d.most = append(d.most, pt)
		case op.Failed():
			d.short = append(d.short, pt)
		default:
			d.open = append(d.open, pt)
		}
	}
	return d
}

// holdDurations are the lengths of the holds that ended within the record, at their ends.
func (m *model) holdDurations() durations {
	d := durations{words: [3]string{"released", "ended by its lease, or lost", "end unknown"}}
	for i := range m.holds {
		h := &m.holds[i]
		if h.End > m.end || h.Ended == holding.EndUnknown && h.End == m.end || m.cutByTheEnd(h) {
			continue // a lease that had time left, or a hold that the end of the record cut
		}
		switch pt := point(h.End, h.End-h.Start); h.Ended {
		case holding.EndReleased:
			d.most = append(d.most, pt)
		case holding.EndExpired, holding.EndLost:
			d.short = append(d.short, pt)
		case holding.EndUnknown:
			d.open = append(d.open, pt)
		default: // nothing ended it
		}
	}
	return d
}

// cutByTheEnd reports whether the end of a random run may have ended a hold: it was released
// after the last request for a lock, when the clients had stopped.
func (m *model) cutByTheEnd(h *holding.Hold) bool {
	return m.Run.Scenario == "" && h.Ended == holding.EndReleased && h.End > m.lastAsked
}

// holdLatency are the lengths of the holds that a release ended; false if there
// were none.
func (m *model) holdLatency() (Latency, bool) {
	var lengths []time.Duration
	for i := range m.holds {
		if h := &m.holds[i]; h.Ended == holding.EndReleased && !m.cutByTheEnd(h) {
			lengths = append(lengths, max(h.End-h.Start, 0))
		}
	}
	if len(lengths) == 0 {
		return Latency{}, false
	}
	return latencyOf(lengths), true
}

// minQuantile is how many points a plot has with lines of their percentiles.
const minQuantile = 400

// durationPlot plots lengths of time, and their percentiles where there are enough.
func (m *model) durationPlot(title string, d durations, s scale) *chart.Plot {
	p := m.newPlot(s, title, "seconds", true)
	p.AddPoints(d.words[0], d.most, chart.OK, draw.BoxGlyph{})
	p.AddPoints(d.words[1], d.short, chart.Fail, draw.TriangleGlyph{})
	p.AddPoints(d.words[2], d.open, chart.Info, draw.RingGlyph{})
	if len(d.most) >= minQuantile {
		m.addPercentiles(p, "", d.most, chart.Ink)
	}
	return p
}

// addPercentiles draws p50 and, with dashes, p99 of points, in parts of the time that have enough of them.
func (m *model) addPercentiles(p *chart.Plot, of string, points plotter.XYs, tint chart.Tint) {
	line, gap := m.quantiles(points, 500, 20)
	p.AddLine(of+"p50", line, gap, tint)
	line, gap = m.quantiles(points, 990, 200)
	p.AddLine(of+"p99", line, gap, tint, vg.Points(4), vg.Points(3))
}

// quantiles are a percentile over time, in at most 100 parts that have so many points on average; one that
// has too few has none. Neighbours lie less than a gap apart.
func (m *model) quantiles(points plotter.XYs, permille, each int) (line plotter.XYs, gap float64) {
	parts := min(max(len(points)/each, 1), 100)
	width := m.whole().length().Seconds() / float64(parts)
	samples := make([][]float64, parts)
	for _, pt := range points {
		at := min(max(int(pt.X/width), 0), parts-1)
		samples[at] = append(samples[at], pt.Y)
	}
	for i, s := range samples {
		if chart.Carries(len(s), permille) {
			slices.Sort(s)
			line = append(line, plotter.XY{X: (float64(i) + 0.5) * width, Y: s[max(0, (len(s)*permille+999)/1000-1)]})
		}
	}
	return line, 1.5 * width
}

// operationsPlot plots how long the other operations took, by their percentiles; nil if there are too few of
// each.
func (m *model) operationsPlot() *chart.Plot {
	ops := []history.Op{history.Extend, history.Release, history.Access}
	all := make([]plotter.XYs, len(ops))
	for i := range m.ops {
		if op := &m.ops[i]; op.OK() && slices.Contains(ops, op.Invoke.Op) {
			at := slices.Index(ops, op.Invoke.Op)
			all[at] = append(all[at], point(op.Complete.Time, took(op)))
		}
	}
	if !slices.ContainsFunc(all, func(points plotter.XYs) bool { return len(points) >= minPlot }) {
		return nil
	}
	p := m.newPlot(m.span(all...), "Latency of the other operations", "seconds", true)
	for i, points := range all {
		if len(points) >= minPlot {
			m.addPercentiles(p, string(ops[i])+" ", points, []chart.Tint{chart.Info, chart.Ink, chart.OK}[i])
		}
	}
	return p
}

// rateStep is the length of time over which answers are counted.
func rateStep(w window) time.Duration { return max(w.length()/120, time.Nanosecond) }

// answers counts the requests for a lock that were answered in each step of a
// window, by outcome. One that was still open at the end has no answer.
func (m *model) answers(w window) map[history.Type][]float64 {
	step := rateStep(w)
	parts := max(1, int(math.Ceil(float64(w.length())/float64(step))))
	counts := map[history.Type][]float64{}
	for _, t := range []history.Type{history.OK, history.Fail, history.Info} {
		counts[t] = make([]float64, parts)
	}
	for i := range m.ops {
		op := &m.ops[i]
		if op.Invoke.Op == history.Acquire && op.Complete.Index >= 0 {
			counts[op.Complete.Type][min(int(op.Complete.Time/step), parts-1)]++
		}
	}
	return counts
}

// throughputScale is that of the answers per second in a window.
func (m *model) throughputScale(w window) scale {
	s := scale{w, 0, 1}
	for _, c := range m.answers(w) {
		s.high = max(s.high, 1.08*slices.Max(c)/rateStep(w).Seconds())
	}
	return s
}

// throughputPlot plots how many requests for a lock were answered a second, by outcome.
func (m *model) throughputPlot(title string, s scale) *chart.Plot {
	step := rateStep(s.win).Seconds()
	p := m.newPlot(s, title, "answers per second", false)
	all := m.answers(s.win)
	for _, series := range []struct {
		outcome history.Type
		text    string
		tint    chart.Tint
		dashes  []vg.Length
	}{
		{history.Fail, "refused", chart.Fail, []vg.Length{vg.Points(5), vg.Points(2)}},
		{history.Info, "outcome unknown", chart.Info, nil},
		{history.OK, "granted", chart.OK, nil},
	} {
		if slices.Max(all[series.outcome]) == 0 {
			continue
		}
		var line plotter.XYs
		for i, n := range all[series.outcome] {
			if from := float64(i) * step; i == 0 || from+step <= m.end.Seconds()+1e-9 { // a part of a step is no drop to nothing: the record ends
				line = append(line, plotter.XY{X: from, Y: n / step}, plotter.XY{X: min(from+step, s.win.to.Seconds()), Y: n / step})
			}
		}
		p.AddLine(series.text, line, math.Inf(1), series.tint, series.dashes...)
	}
	return p
}

// A plotted is a plot with the name of its file.
type plotted struct {
	file string
	svg  string
}

// html is the plot as part of a page, which needs no name spaces. What it is drawn with escapes every text.
func (p plotted) html() template.HTML {
	inner := strings.NewReplacer(` xmlns="http://www.w3.org/2000/svg"`, "", ` xmlns:xlink="http://www.w3.org/1999/xlink"`, "").Replace(p.svg)
	return template.HTML(`<div class="scroll" tabindex="0">` + inner + `</div>`) //nolint:gosec // it is escaped
}

// write writes the plot as a file.
func (p plotted) write(w io.Writer) error {
	_, err := io.WriteString(w, say.Plain(p.svg))
	return err
}

// plots are those of the run, drawn once; none where there is too little to plot.
func (m *model) plots() ([]plotted, error) {
	if m.drawn != nil || outcomes(m.ops)[string(history.Acquire)].Total() < minPlot {
		return m.drawn, nil
	}
	requests, holds := m.requestDurations(), m.holdDurations()
	all := []struct {
		file string
		*chart.Plot
	}{
		{LatencyFile, m.durationPlot("Latency", requests, m.span(requests.most, requests.short, requests.open))},
		{HoldsFile, m.durationPlot("Holds", holds, m.span(holds.most, holds.short, holds.open))},
		{ThroughputFile, m.throughputPlot(fmt.Sprintf("Throughput, per %s", say.Span(rateStep(m.whole()))), m.throughputScale(m.whole()))},
		{"", m.operationsPlot()},
	}
	for _, p := range all {
		if p.Plot == nil {
			continue
		}
		svg, err := p.SVG(p.Title.Text + " over " + say.Length(m.whole().length()))
		if err != nil {
			return nil, err
		}
		m.drawn = append(m.drawn, plotted{p.file, svg})
	}
	return m.drawn, nil
}

// A Curve is a distribution of times, in the order of its shares.
type Curve = chart.Curve

// A CurvePoint says that a share of all, of 0 up to but not 1, took no longer than
// this many microseconds.
type CurvePoint = chart.CurvePoint

// DrawCurves draws distributions on the same axes as an SVG element: to the right the
// share that took longer gets smaller, upwards the time longer. It is empty when no
// curve has two points.
func DrawCurves(title string, curves []Curve) (string, error) { return chart.DrawCurves(title, curves) }
