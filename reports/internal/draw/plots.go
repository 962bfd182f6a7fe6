// Package draw knows of the plots of reports, and draws none: that is package reports/plots.
package draw

import "github.com/lockchaos/lockchaos/reports/internal/facts"

// A Plotter draws the plots of reports.
type Plotter struct {
	// Run draws those of a run.
	Run func(r *facts.Facts) ([]Plot, error)
	// Curves draws distributions; it is empty when no curve has two points.
	Curves func(title string, curves []Curve) (string, error)
}

// Plots is the plotter of package reports/plots, where a program imports that; else nil. What draws plots is large, and
// is no part of a test that imports package chaos.
var Plots *Plotter //nolint:gochecknoglobals // an import sets it

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

// A Curve is a distribution of times, in the order of its shares.
type Curve struct {
	Name string
	// Base says that others are compared with it; it is drawn with dashes.
	Base bool
	// Hue chooses the colour, so that one name has the same in several drawings.
	Hue    int
	Points []CurvePoint
}

// A CurvePoint says that a share of all, of 0 up to but not 1, took no longer than
// this many microseconds.
type CurvePoint struct{ Share, Micros float64 }
