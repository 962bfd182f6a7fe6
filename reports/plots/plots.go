// Package plots draws the plots of reports: latency, holds and throughput. A program that imports it has them in its
// reports; one that does not, such as a test with package chaos, has reports without them, and does not compile what
// draws them. `lockchaos report` draws them into a run directory of any origin.
package plots

import (
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/draw"
	"github.com/lockchaos/lockchaos/reports/internal/facts"
)

func init() { draw.Plots = &draw.Plotter{Run: ofRun, Curves: curves} } //nolint:gochecknoinits // see the package

// What the points of a plot are called.
var (
	requestWords = [3]string{"granted", "refused", "outcome unknown"}                  //nolint:gochecknoglobals // a constant
	holdWords    = [3]string{"released", "ended by its lease, or lost", "end unknown"} //nolint:gochecknoglobals // a constant
)

func ofRun(r *facts.Facts) ([]draw.Plot, error) {
	requests, holds := r.Requests(), r.HeldFor()
	return drawn([]string{draw.LatencyFile, draw.HoldsFile, draw.ThroughputFile, ""},
		latency(r, "Latency", requests, scaleOf(r, requests), requestWords),
		latency(r, "Holds", holds, scaleOf(r, holds), holdWords),
		throughput(r, "Throughput, per "+say.Span(rateStep(r.Whole())), rateScale(r, r.Whole())),
		operations(r, draw.LeastPlotted),
	)
}
