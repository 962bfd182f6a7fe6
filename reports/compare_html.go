package reports

import (
	"bytes"
	"fmt"
	"html/template"
	"io"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/chart"
)

// WriteComparison writes a comparison as one HTML file that needs no network:
// the differences in words, the plots of both runs on the same axes, and their
// figures side by side.
func WriteComparison(w io.Writer, a, b Named) error {
	models := [2]*model{newModel(a.Input), newModel(b.Input)}
	p := struct {
		Comparison
		CSS   template.CSS
		Runs  [2]Results
		Plots []template.HTML
	}{
		Comparison: compareModels([2]string{a.Name, b.Name}, models[0], models[1]),
		CSS:        template.CSS(paletteCSS + drawingCSS + pageCSS),
		Runs:       [2]Results{models[0].results(), models[1].results()},
	}
	var err error
	if p.Plots, err = comparedPlots(models, p.Runs); err != nil {
		return fmt.Errorf("write comparison: %w", err)
	}
	t, err := template.New("compare").Funcs(template.FuncMap{
		"sign": sign, "length": say.Length, "letter": func(i int) string { return string(rune('A' + i)) },
	}).Parse(compareHTML)
	if err != nil {
		return fmt.Errorf("parse template: %w", err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, &p); err != nil {
		return fmt.Errorf("write comparison: %w", err)
	}
	if _, err := io.WriteString(w, say.Plain(out.String())); err != nil {
		return fmt.Errorf("write comparison: %w", err)
	}
	return nil
}

// comparedPlots are the plots of two runs, on the axes that suit both. Where
// one of them has too little to plot there are none.
func comparedPlots(models [2]*model, runs [2]Results) ([]template.HTML, error) {
	requests := [2]durations{models[0].requestDurations(), models[1].requestDurations()}
	span := func(i int) scale { return models[i].span(requests[i].most, requests[i].short, requests[i].open) }
	latency := span(0).both(span(1))
	throughput := models[0].throughputScale(latency.win).both(models[1].throughputScale(latency.win))
	var all []*chart.Plot
	for i, d := range models {
		if o := runs[i].Operations[string(history.Acquire)]; o.Total() < minPlot {
			return nil, nil
		}
		all = append(all, d.durationPlot(fmt.Sprintf("%c: latency", 'A'+i), requests[i], latency))
	}
	for i, d := range models {
		all = append(all, d.throughputPlot(fmt.Sprintf("%c: per %s", 'A'+i, say.Span(rateStep(throughput.win))), throughput))
	}
	var plots []template.HTML
	for _, p := range all {
		svg, err := p.SVG(p.Title.Text)
		if err != nil {
			return nil, err
		}
		plots = append(plots, plotted{svg: svg}.html())
	}
	return plots, nil
}
