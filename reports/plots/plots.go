// Package plots draws the plots of reports: latency, holds and throughput. A program that imports it has them in its
// reports; one that does not, such as a test with package chaos, has reports without them, and does not compile what
// draws them. `lockchaos report` draws them into a run directory of any origin.
package plots

import (
	"github.com/lockchaos/lockchaos/reports/internal/draw"
	"github.com/lockchaos/lockchaos/reports/internal/facts"
)

func init() { draw.Plots = ofRun } //nolint:gochecknoinits // see the package

func ofRun(r *facts.Facts) (all []draw.Plot, err error) {
	for _, of := range []struct {
		file  string
		chart *chart
	}{
		{draw.LatencyFile, latency(r, "Latency", r.Requests(), [3]string{"granted", "refused", "outcome unknown"})},
		{draw.HoldsFile, latency(r, "Holds", r.HeldFor(), [3]string{"released", "ended by its lease, or lost", "end unknown"})},
		{draw.ThroughputFile, throughput(r)},
	} {
		svg, err := of.chart.svg(1000, 260, of.chart.Title.Text)
		if err != nil {
			return nil, err
		}
		all = append(all, draw.Plot{File: of.file, SVG: svg})
	}
	return all, nil
}
