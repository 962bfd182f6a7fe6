package reports

import (
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/plot"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// throughputFigure plots how many requests for a lock were answered a second,
// by outcome.
func (d *digest) throughputFigure() (figure, error) {
	s := d.throughputScale(d.whole())
	return d.throughputPlot(fmt.Sprintf("Throughput, per %s", say.Span(rateStep(s.win))), s)
}

// rateStep is the length of time over which answers are counted.
func rateStep(w window) time.Duration { return niceStep(w.length(), 120) }

// answers counts the requests for a lock that were answered in each step of a
// window, by outcome.
func (d *digest) answers(w window) map[history.Type][]float64 {
	step := rateStep(w)
	bins := max(1, int(math.Ceil(float64(w.length())/float64(step))))
	counts := map[history.Type][]float64{}
	for _, t := range []history.Type{history.OK, history.Fail, history.Info} {
		counts[t] = make([]float64, bins)
	}
	for i := range d.ops {
		op := &d.ops[i]
		if op.Invoke.Op == history.Acquire {
			counts[op.Complete.Type][min(int(op.Complete.Time/step), bins-1)]++
		}
	}
	return counts
}

// throughputScale is that of the answers per second in a window.
func (d *digest) throughputScale(w window) scale {
	s := scale{w, 0, 1 / 1.08}
	for _, c := range d.answers(w) {
		s.high = max(s.high, slices.Max(c)/rateStep(w).Seconds())
	}
	return s
}

func (d *digest) throughputPlot(title string, s scale) (figure, error) {
	w, step := s.win, rateStep(s.win)
	p := newPlot(w, "answers per second")
	p.Y.Min, p.Y.Max = 0, s.high*1.08
	total := map[history.Type]float64{}
	lines := map[history.Type][]point{}
	for t, c := range d.answers(w) {
		for i, n := range c {
			from := float64(i) * step.Seconds()
			if i > 0 && from+step.Seconds() > d.end.Seconds()+1e-9 {
				break // a part of a step is no drop to nothing: the record ends
			}
			rate := n / step.Seconds()
			total[t] += n
			to := min(from+step.Seconds(), w.to.Seconds())
			lines[t] = append(lines[t], point{from, rate}, point{to, rate})
		}
	}
	p.Y.Tick.Marker = plot.TickerFunc(rateTicks)
	p.Add(bands{d.faults}, grid{})
	var keys []key
	for _, series := range []struct {
		outcome history.Type
		tint    tint
		text    string
		class   string
		dash    bool
	}{
		{history.Fail, tintFail, "refused", "t-rate-fail", true},
		{history.Info, tintInfo, "outcome unknown", "t-rate-info", false},
		{history.OK, tintOK, "granted", "t-rate-ok", false},
	} {
		if total[series.outcome] == 0 {
			continue
		}
		style := series.tint.stroke(1.8)
		if series.dash {
			style = series.tint.stroke(1.4, 5, 2)
		}
		p.Add(polyline{lines[series.outcome], style})
		keys = append(keys, key{series.text, func(s *drawing, x, y float64) { s.line(series.class, x, y, x+20, y) }})
	}
	return d.plotFigure(p, w, title, keys)
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
