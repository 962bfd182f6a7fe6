// Package draw knows of the plots of reports, and draws none: that is package reports/plots.
package draw

import (
	"html/template"
	"strings"

	"github.com/lockchaos/lockchaos/reports/internal/facts"
)

// Plots draws the plots of a run. It is package reports/plots, where a program imports that; else nil. What draws plots is
// large, and is no part of a test that imports package chaos.
var Plots func(r *facts.Facts) ([]Plot, error) //nolint:gochecknoglobals // an import sets it

// A Plot is an SVG element, and the file that it goes to.
type Plot struct{ File, SVG string }

// HTML is the plot as part of a page, which needs no name spaces. What it is drawn with escapes every text.
func (p Plot) HTML() template.HTML {
	inner := strings.NewReplacer(` xmlns="http://www.w3.org/2000/svg"`, "", ` xmlns:xlink="http://www.w3.org/1999/xlink"`, "").Replace(p.SVG)
	return template.HTML(`<div class="scroll" tabindex="0">` + inner + `</div>`) //nolint:gosec // it is escaped
}

// The files of plots.
const (
	LatencyFile    = "latency.svg"
	HoldsFile      = "holds.svg"
	ThroughputFile = "throughput.svg"
)

// LeastPlotted is how many requests for a lock it takes for a plot to say more than a table does.
const LeastPlotted = 20
