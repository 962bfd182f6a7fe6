package reports

import (
	"fmt"
	"math"
	"slices"

	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/chart"
)

// maxFaultRows bounds the rows of faults; what is left out is said.
const maxFaultRows = 8

// faultLanes packs the faults of the window into rows, with their names.
func (c *timeline) faultLanes() {
	type placed struct {
		f        *Fault
		row      int
		textLeft bool
	}
	const h = 18.0
	var rows []float64 // where each row is free again
	var all []placed
	left := 0
	for i := range c.faults {
		f := &c.faults[i]
		if !c.win.meets(f.Start, f.End) {
			continue
		}
		from, to := c.x(f.Start), c.x(f.End)
		need := chart.Wide(c.faultLabel(f), chart.SmallSize) + 12
		p := placed{f: f}
		begin, until := from, to
		if to-from < need {
			until = math.Max(to, from+3) + need // the name goes behind the band
		}
		if until > chart.Width-chart.Right && to-from < need { // no room at the right: the name goes to the left
			begin, until, p.textLeft = from-need, to, true
		}
		p.row = slices.IndexFunc(rows, func(free float64) bool { return free <= begin })
		if p.row < 0 {
			if len(rows) == maxFaultRows {
				left++
				continue
			}
			rows, p.row = append(rows, 0), len(rows)
		}
		rows[p.row] = until + 4
		all = append(all, p)
	}
	if len(all) == 0 {
		return
	}
	c.y += groupGap - laneGap
	c.heading("faults")
	for _, p := range all {
		c.fault(p.f, c.y+float64(p.row)*(h+4), h, p.textLeft)
	}
	c.y += float64(len(rows)) * (h + 4)
	if left > 0 {
		c.out.Text("t-note", chart.Left, c.y+10, "and "+say.Count(left, "fault")+" more, in the table below")
		c.y += 18
	}
}

func (c *timeline) faultLabel(f *Fault) string {
	s := say.Shorten(f.label(), 48)
	if !f.OK {
		s += " – no effect"
	}
	return s
}

func (c *timeline) fault(f *Fault, y, h float64, textLeft bool) {
	from, to := c.x(f.Start), c.x(f.End)
	class := "t-fault"
	c.used["fault"] = c.used["fault"] || f.OK
	if !f.OK {
		class = "t-missed"
		c.used["missed"] = true
	}
	c.out.Rect(class, from, y, math.Max(to-from, 3), h, 2, faultTitle(f))
	label := c.faultLabel(f)
	if textLeft {
		c.out.Text("t-small end", from-5, y+h/2+4, label)
		return
	}
	x := from + 7
	if to-from < chart.Wide(label, chart.SmallSize)+14 {
		x = math.Max(to, from+3) + 5
	}
	c.out.Text("t-small", x, y+h/2+4, label)
}

// faultTitle is what a pointer that rests on a fault shows.
func faultTitle(f *Fault) string {
	title := fmt.Sprintf("%s, %s to %s", f.detail(), say.Instant(f.Start), say.Instant(f.End))
	if f.Effect != "" {
		title += ": " + adapt(f.Effect)
	}
	if !f.OK {
		title += ": no effect. " + f.Error
	}
	return title
}
