package plots

import (
	"fmt"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

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

// Curves draws distributions on the same axes as an SVG element. Both axes are
// logarithmic: to the right the share that took longer gets smaller, upwards the time
// longer. It is empty when no curve has two points.
func Curves(title string, curves []Curve) (string, error) {
	tints := []tint{ok, info, fail, 0x0A9D7A, 0x8A63D2, 0xB58A1E, bad, 0x4A9FA8}
	p := newPlot(title, "µs", true)
	p.X.Tick.Marker = plot.TickerFunc(shareTicks)
	p.grid()
	drawn := false
	for _, c := range curves {
		var points plotter.XYs
		for _, pt := range c.Points {
			if pt.Share >= 0 && pt.Share < 1 && pt.Micros > 0 {
				points = append(points, plotter.XY{X: -math.Log10(1 - pt.Share), Y: pt.Micros})
			}
		}
		if len(points) < 2 {
			continue
		}
		drawn = true
		if c.Base {
			p.line(c.Name, points, math.Inf(1), ink, vg.Points(4), vg.Points(3))
		} else {
			p.line(c.Name, points, math.Inf(1), tints[c.Hue%len(tints)])
		}
	}
	if !drawn || p.err != nil {
		return "", p.err
	}
	p.X.Max += 1e-9 // so that a tick at the end is on the axis
	return p.svg(860, 320, title)
}

// shareTicks label the median, and every further tenth of what is left.
func shareTicks(_, to float64) []plot.Tick {
	ticks := []plot.Tick{{Value: 0, Label: "0"}, {Value: -math.Log10(0.5), Label: "50 %"}}
	for n := 1; float64(n) <= to; n++ {
		label := fmt.Sprintf("%s %%", [2]string{"90", "99." + strings.Repeat("9", max(0, n-2))}[min(1, n-1)])
		ticks = append(ticks, plot.Tick{Value: float64(n), Label: strings.Replace(label, "99. ", "99 ", 1)})
	}
	return ticks
}
