package reports

import (
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg/draw"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/chart"
)

// throughputFigure plots how many requests for a lock were answered a second,
// by outcome.
func (m *model) throughputFigure() (figure, error) {
	s := m.throughputScale(m.whole())
	return m.throughputPlot(fmt.Sprintf("Throughput, per %s", say.Span(rateStep(s.win))), s)
}

// rateStep is the length of time over which answers are counted.
func rateStep(w window) time.Duration { return chart.NiceStep(w.length(), 120) }

// answers counts the requests for a lock that were answered in each step of a
// window, by outcome. One that was still open at the end has no answer.
func (m *model) answers(w window) map[history.Type][]float64 {
	step := rateStep(w)
	bins := max(1, int(math.Ceil(float64(w.length())/float64(step))))
	counts := map[history.Type][]float64{}
	for _, t := range []history.Type{history.OK, history.Fail, history.Info} {
		counts[t] = make([]float64, bins)
	}
	for i := range m.ops {
		op := &m.ops[i]
		if op.Invoke.Op == history.Acquire && op.Complete.Index >= 0 {
			counts[op.Complete.Type][min(int(op.Complete.Time/step), bins-1)]++
		}
	}
	return counts
}

// throughputScale is that of the answers per second in a window.
func (m *model) throughputScale(w window) scale {
	s := scale{w, 0, 1 / 1.08}
	for _, c := range m.answers(w) {
		s.high = max(s.high, slices.Max(c)/rateStep(w).Seconds())
	}
	return s
}

func (m *model) throughputPlot(title string, s scale) (figure, error) {
	w, step := s.win, rateStep(s.win)
	p := m.newPlot(w, title, "answers per second")
	p.Y.Min, p.Y.Max = 0, s.high*1.08
	total := map[history.Type]float64{}
	lines := map[history.Type][]chart.Point{}
	for t, c := range m.answers(w) {
		for i, n := range c {
			from := float64(i) * step.Seconds()
			if i > 0 && from+step.Seconds() > m.end.Seconds()+1e-9 {
				break // a part of a step is no drop to nothing: the record ends
			}
			rate := n / step.Seconds()
			total[t] += n
			to := min(from+step.Seconds(), w.to.Seconds())
			lines[t] = append(lines[t], chart.Point{X: from, Y: rate}, chart.Point{X: to, Y: rate})
		}
	}
	p.Y.Tick.Marker = plot.TickerFunc(rateTicks)
	for _, series := range []struct {
		outcome     history.Type
		style       draw.LineStyle
		text, class string
	}{
		{history.Fail, chart.Fail.Stroke(1.4, 5, 2), "refused", "t-rate-fail"},
		{history.Info, chart.Info.Stroke(1.8), "outcome unknown", "t-rate-info"},
		{history.OK, chart.OK.Stroke(1.8), "granted", "t-rate-ok"},
	} {
		if total[series.outcome] > 0 {
			p.Add(chart.Polyline{Points: lines[series.outcome], Style: series.style})
			p.AddKey(series.text, series.class)
		}
	}
	return m.plotFigure(p, w)
}

// rateTicks are about five round numbers.
func rateTicks(low, high float64) []plot.Tick {
	power := math.Pow(10, math.Floor(math.Log10((high-low)/4)))
	step := power
	for _, m := range []float64{1, 2, 5, 10} {
		step = power * m
		if (high-low)/step <= 5 {
			break
		}
	}
	var ticks []plot.Tick
	for i := math.Ceil(low / step); i*step <= high; i++ {
		label := say.TrimZeros(fmt.Sprintf("%.2f", i*step))
		if i*step >= 1000 {
			label = say.Thousands(int64(math.Round(i * step)))
		}
		ticks = append(ticks, plot.Tick{Value: i * step, Label: label})
	}
	return ticks
}
