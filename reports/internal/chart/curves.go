package chart

import (
	"fmt"
	"image/color"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
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

const curvesWidth, curvesHeight = 760.0, 300.0

// curveTints are legible on light and on dark paper.
func curveTints() []color.NRGBA {
	return []color.NRGBA{
		{0x2f, 0x86, 0xd6, 255},
		{0xd9, 0x82, 0x00, 255},
		{0xe0, 0x18, 0x7f, 255},
		{0x0a, 0x9d, 0x7a, 255},
		{0x8a, 0x63, 0xd2, 255},
		{0xb5, 0x8a, 0x1e, 255},
		{0xc4, 0x16, 0x1c, 255},
		{0x4a, 0x9f, 0xa8, 255},
	}
}

// DrawCurves draws distributions on the same axes as an SVG element for a page
// with the palette of the reports. Both axes are logarithmic: to the right the
// share that took longer gets smaller, upwards the time longer. It is empty when
// no curve has two points.
func DrawCurves(title string, curves []Curve) (string, error) {
	p := emptyPlot()
	p.X.Tick.Marker = plot.TickerFunc(shareTicks)
	p.Y.Tick.Marker = plot.TickerFunc(microTicks)
	p.X.Min, p.X.Max = 0, 1
	p.Y.Min, p.Y.Max = math.Inf(1), math.Inf(-1)
	p.Add(grid{})
	var legend Drawing
	x := 4.0
	tints := curveTints()
	for _, c := range curves {
		line := Polyline{Style: draw.LineStyle{Color: tints[c.Hue%len(tints)], Width: 1.6}}
		if c.Base {
			line.Style = Ink.Stroke(1.4, 4, 3)
		}
		for _, pt := range c.Points {
			if pt.Share < 0 || pt.Share >= 1 || pt.Micros <= 0 {
				continue
			}
			at := Point{-math.Log10(1 - pt.Share), math.Log10(pt.Micros)}
			line.Points = append(line.Points, at)
			p.X.Max = max(p.X.Max, at.X+1e-9) // so that a tick at the end is on the axis
			p.Y.Min, p.Y.Max = min(p.Y.Min, at.Y), max(p.Y.Max, at.Y)
		}
		if len(line.Points) < 2 {
			continue
		}
		p.Add(line)
		stroke, dash := hex(line.Style.Color), ""
		if c.Base {
			stroke, dash = "var(--soft)", ` stroke-dasharray="4 3"`
		}
		legend.Raw(`<path d="M`, Num(x), ` 30h20" stroke="`, stroke, `" stroke-width="2"`, dash, `/>`)
		legend.Text("t-small", x+25, 34, c.Name)
		x += 25 + Wide(c.Name, SmallSize) + 18
	}
	if math.IsInf(p.Y.Min, 1) {
		return "", nil
	}
	p.Y.Min, p.Y.Max = math.Floor(p.Y.Min), max(math.Ceil(p.Y.Max), math.Floor(p.Y.Min)+1)
	canvas := vgsvg.New(vg.Length(curvesWidth), vg.Length(curvesHeight))
	p.Draw(draw.Crop(draw.New(canvas), 4, -14, 2, -6))
	inner, err := restyle(canvas)
	if err != nil {
		return "", fmt.Errorf("draw %s: %w", title, err)
	}
	const head = 44.0
	var s Drawing
	s.Raw(`<svg class="curves" viewBox="0 0 `, Num(max(curvesWidth, x)), ` `, Num(head+curvesHeight), `" role="img" aria-label="`, attribute(title), `">`)
	s.Text("t-group", 4, 14, title)
	s.Raw(legend.String(), `<g class="plot" transform="translate(0 `, Num(head), `)">`, inner, `</g></svg>`)
	return s.String(), nil
}

func hex(c color.Color) string {
	r, g, b, _ := c.RGBA()
	return fmt.Sprintf("#%02x%02x%02x", r>>8, g>>8, b>>8)
}

func attribute(s string) string {
	return strings.NewReplacer("&", "&amp;", `"`, "&quot;", "<", "&lt;").Replace(s)
}

// shareTicks label the median, and every further tenth of what is left.
func shareTicks(_, to float64) []plot.Tick {
	ticks := []plot.Tick{{Value: 0, Label: "0"}, {Value: -math.Log10(0.5), Label: "50 %"}}
	for n := 1; float64(n) <= to; n++ {
		label := "90 %"
		if n > 1 {
			label = "99"
			if n > 2 {
				label += "." + strings.Repeat("9", n-2)
			}
			label += " %"
		}
		ticks = append(ticks, plot.Tick{Value: float64(n), Label: label})
	}
	return ticks
}

// microTicks label the powers of ten.
func microTicks(from, to float64) []plot.Tick {
	var ticks []plot.Tick
	for n := math.Floor(from); n <= to; n++ {
		label := ""
		switch v := math.Pow(10, n); {
		case n < 0:
			label = fmt.Sprintf("%g µs", v)
		case n < 3:
			label = fmt.Sprintf("%.0f µs", v)
		case n < 6:
			label = fmt.Sprintf("%.0f ms", v/1e3)
		default:
			label = fmt.Sprintf("%.0f s", v/1e6)
		}
		ticks = append(ticks, plot.Tick{Value: n, Label: label})
	}
	return ticks
}
