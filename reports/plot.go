package reports

import (
	"fmt"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/chart"
)

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

// newPlot is a plot over a stretch of the run, with its faults and violations.
func (m *model) newPlot(w window, title, yLabel string) *chart.Plot {
	var bands []chart.Band
	for i := range m.faults {
		if f := &m.faults[i]; f.OK {
			bands = append(bands, chart.Band{Number: i + 1, From: f.Start, To: f.End, Family: f.family(), Name: f.label(), Title: faultTitle(f)})
		}
	}
	p := chart.NewPlot(w.from, w.to, title, yLabel, bands)
	for _, v := range m.distinct() {
		p.Marks = append(p.Marks, chart.Mark{At: m.since(v), Title: v.Explanation})
	}
	return p
}

// plotFigure draws a plot of [model.newPlot].
func (m *model) plotFigure(p *chart.Plot, w window) (figure, error) {
	body, height, err := p.Figure()
	if err != nil {
		return figure{}, fmt.Errorf("write plot: %w", err)
	}
	label := p.Title + " over " + say.Length(w.length())
	if n := len(p.Bands); n > 0 {
		label += ", with " + say.Count(n, "fault") + " in effect"
	}
	if n := len(p.Marks); n > 0 {
		label += " and " + say.Count(n, "violation") + " marked"
	}
	return figure{body: body, height: height, win: w, label: label}, nil
}

// plotOnce is [model.once] for what may fail.
func (m *model) plotOnce(name string, draw func() (figure, error)) (figure, error) {
	var err error
	f := m.once(name, func() (f figure) {
		f, err = draw()
		return f
	})
	if err != nil {
		delete(m.figures, name) // it was not drawn
	}
	return f, err
}
