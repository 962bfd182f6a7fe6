package reports

import (
	"math"
	"time"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports/internal/chart"
)

// leastLatency is where the logarithmic axis begins: shorter is clamped.
const leastLatency = time.Microsecond

// latencyFigure plots how long each request for a lock took to be answered.
func (m *model) latencyFigure() (figure, error) {
	return m.latencyPlot("Latency", m.latencyScale())
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
func (m *model) latencyScale() scale {
	s := scale{m.whole(), math.Inf(1), 0}
	for i := range m.ops {
		if op := &m.ops[i]; op.Invoke.Op == history.Acquire {
			y := max(took(op), leastLatency).Seconds()
			s.low, s.high = min(s.low, y), max(s.high, y)
		}
	}
	if s.high == 0 {
		s.low, s.high = 1e-4, 1e-1
	}
	return s
}

func (m *model) latencyPlot(title string, s scale) (figure, error) {
	dd := chart.Durations{Words: [3]string{"granted", "refused", "outcome unknown"}}
	for i := range m.ops {
		op := &m.ops[i]
		if op.Invoke.Op != history.Acquire {
			continue
		}
		pt := chart.Point{X: op.Complete.Time.Seconds(), Y: max(took(op), leastLatency).Seconds()}
		switch {
		case op.OK():
			dd.Most = append(dd.Most, pt)
		case op.Failed():
			dd.Slashes = append(dd.Slashes, pt)
		default:
			dd.Rings = append(dd.Rings, pt)
		}
	}
	return m.durationPlot(title, "acquire latency", s, dd)
}

// durationPlot plots durations on a logarithmic axis, and their percentiles
// where there are enough.
func (m *model) durationPlot(title, label string, s scale, dd chart.Durations) (figure, error) {
	p := m.newPlot(s.win, title, label)
	p.Logarithmic(max(leastLatency.Seconds(), s.low/1.5), max(s.high*1.5, s.low*10))
	p.AddDurations(dd)
	return m.plotFigure(p, s.win)
}

// operationsFigure plots how long the other operations took, by their percentiles; false
// if there are too few of each.
func (m *model) operationsFigure() (figure, error) {
	w := m.whole()
	p := m.newPlot(w, "Latency of the other operations, p50 and dashed p99", "latency")
	low, high := math.Inf(1), 0.0
	for _, series := range []struct {
		op    history.Op
		tint  chart.Tint
		class string
	}{{history.Extend, chart.Info, "t-rate-info"}, {history.Release, chart.Ink, "t-axis t-p50"}, {history.Access, chart.OK, "t-rate-ok"}} {
		var points []chart.Point
		for i := range m.ops {
			if op := &m.ops[i]; op.Invoke.Op == series.op && op.OK() {
				points = append(points, chart.Point{X: op.Complete.Time.Seconds(), Y: max(took(op), leastLatency).Seconds()})
			}
		}
		if len(points) < minPlot {
			continue
		}
		least, most := p.AddPercentiles(points, series.tint)
		low, high = min(low, least), max(high, most)
		p.AddKey(string(series.op), series.class)
	}
	if len(p.Keys) == 0 || high == 0 {
		return figure{}, nil
	}
	p.Logarithmic(max(leastLatency.Seconds()/2, low/1.5), max(high*1.5, low*10))
	return m.plotFigure(p, w)
}
