package bench

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/lockchaos/lockchaos/reports/plots"
)

//go:embed page.html
var pageTemplate string

// A pageWorkload is a workload as the page shows it.
type pageWorkload struct {
	Name, Title, Rounds string
	Head                []string
	Rows                []pageRow
	Missing             []string
	Plot                template.HTML
}

type pageRow struct {
	Class string
	Cells []string
}

// WritePage writes the tables, and the latencies as plots, as one HTML page that
// needs nothing else.
func (r Results) WritePage(out io.Writer) error {
	t, err := template.New("benchmark").Parse(pageTemplate)
	if err != nil {
		return fmt.Errorf("parse page: %w", err)
	}
	page := struct {
		About, Command string
		Workloads      []pageWorkload
	}{About: strings.Join(append(r.caveats(), r.describe()), " · "), Command: r.Command}
	hues := r.hues()
	for _, w := range r.Workloads {
		p, err := w.page(hues)
		if err != nil {
			return err
		}
		p.Rounds = r.rounds(w)
		page.Workloads = append(page.Workloads, p)
	}
	if err := t.Execute(out, page); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}

// hues give every system a colour for the whole page.
func (r Results) hues() map[string]int {
	hues := map[string]int{}
	for _, w := range r.Workloads {
		for _, s := range w.Systems {
			if _, known := hues[s.Name]; !known {
				hues[s.Name] = len(hues)
			}
		}
	}
	return hues
}

func (w WorkloadResult) page(hues map[string]int) (pageWorkload, error) {
	rows, unfit := w.rows()
	p := pageWorkload{Name: w.Name, Title: w.title(), Head: rows[0], Missing: unfit}
	what, of := w.curve()
	var curves []plots.Curve
	for i, r := range w.Systems[:len(rows)-1] { // who did not take part comes last
		row := pageRow{Cells: rows[i+1]}
		switch {
		case r.Baseline:
			row.Class = "baseline"
		case r.Broken():
			row.Class = "bad"
		}
		p.Rows = append(p.Rows, row)
		c := plots.Curve{Name: r.Name, Base: r.Name == w.Baseline, Hue: hues[r.Name]}
		for _, q := range of(r).Curve {
			c.Points = append(c.Points, plots.CurvePoint(q))
		}
		curves = append(curves, c)
	}
	svg, err := plots.Curves(w.Name+": "+what, curves)
	p.Plot = template.HTML(svg) //nolint:gosec // it is drawn here
	return p, err
}

// curve is the latency that is drawn of a workload.
func (w WorkloadResult) curve() (what string, of func(SystemResult) Latency) {
	switch w.Metric {
	case HandoverMedian:
		return "from release to the next holder", func(r SystemResult) Latency { return r.Handover }
	case HandoversPerSecond:
		return "wait for the lock", func(r SystemResult) Latency { return r.Acquire }
	default:
		return "acquire and release", func(r SystemResult) Latency { return r.Cycle }
	}
}
