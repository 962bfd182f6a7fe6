// Package draw knows of the plots of reports, and draws none: that is package reports/plots.
package draw

import "github.com/lockchaos/lockchaos/reports/internal/facts"

// Plots draws the plots of a run. It is package reports/plots, where a program imports that; else nil. What draws plots is
// large, and is no part of a test that imports package chaos.
var Plots func(r *facts.Facts) ([]Plot, error) //nolint:gochecknoglobals // an import sets it

// A Plot is an SVG element, and the file that it goes to.
type Plot struct{ File, SVG string }

// The files of plots.
const (
	LatencyFile    = "latency.svg"
	HoldsFile      = "holds.svg"
	ThroughputFile = "throughput.svg"
)

// LeastPlotted is how many requests for a lock it takes for a plot to say more than a table does.
const LeastPlotted = 20
