package reports

import (
	"math"
	"strconv"
	"time"
)

// axis draws the time axis below the lanes and its grid behind them.
func (c *chart) axis(top, bottom float64) {
	step := niceStep(c.win.length(), 9)
	if step <= 0 {
		return
	}
	bottom += 4
	c.out.line("t-axis", chartLeft, bottom, chartWidth-chartRight, bottom)
	first := (c.win.from + step - 1) / step * step
	for t := first; t <= c.win.to; t += step {
		x := c.x(t)
		c.behind.line("t-grid", x, top, x, bottom)
		c.out.line("t-axis", x, bottom, x, bottom+4)
		label := tickLabel(t, step)
		class := "t-tick"
		if x+wide(label, smallSize)/2 > chartWidth {
			class += " end"
			x = chartWidth - 2
		}
		c.out.text(class, x, bottom+16, label)
	}
	c.y = bottom + 24
}

// niceStep is the smallest 1, 2 or 5 times a power of ten that divides a
// length into at most n parts.
func niceStep(length time.Duration, n int) time.Duration {
	if length <= 0 {
		return 0
	}
	rough := float64(length) / float64(n)
	power := math.Pow(10, math.Floor(math.Log10(rough)))
	for _, m := range []float64{1, 2, 5, 10} {
		if power*m >= rough*0.999 {
			return max(1, time.Duration(math.Round(power*m)))
		}
	}
	return max(1, time.Duration(math.Round(power*10)))
}

// tickLabel writes a tick in seconds with as many decimals as its step needs.
func tickLabel(t, step time.Duration) string {
	decimals := 0
	for s := time.Second; s > step && decimals < 9; s /= 10 {
		decimals++
	}
	return strconv.FormatFloat(t.Seconds(), 'f', decimals, 64) + " s"
}

// legend explains what the chart uses, and nothing else.
func (c *chart) legend() {
	entries := []struct {
		key, text string
		draw      func(x, y float64)
	}{
		{"wait", "waiting", func(x, y float64) { c.out.rect("t-wait", x, y-3, 20, 6, 0, "") }},
		{"hold", "entitled to believe it holds", func(x, y float64) { c.out.rect("t-hold", x, y-7, 20, 14, 3, "") }},
		{"extend", "extended", func(x, y float64) {
			c.out.rect("t-hold", x, y-7, 20, 14, 3, "")
			c.out.line("t-extend", x+10, y-7, x+10, y+7)
		}},
		{"beyond", "held beyond its lease", func(x, y float64) { c.out.rect("t-beyond", x, y-6, 20, 12, 3, "") }},
		{"late", "use after that", func(x, y float64) { c.out.rect("t-late", x, y-7, 20, 14, 0, "") }},
		{"violation", "violation", func(x, y float64) { c.out.rect("t-violation", x, y-7, 20, 14, 2, "") }},
		{"violation-mark", "violation", func(x, y float64) { c.out.path("t-bad-mark", cross(x+10, y, 4), "") }},
		{"access", "access", func(x, y float64) { c.out.path("t-access", "M"+num(x+10)+" "+num(y-7)+"v14", "") }},
		{"fail", "refused", func(x, y float64) { c.out.path("t-fail", cross(x+10, y, 3.5), "") }},
		{"refused", "access refused", func(x, y float64) { c.out.path("t-fail", cross(x+10, y, 4), "") }},
		{"info", "outcome unknown", func(x, y float64) { c.out.ring(x+10, y, 3.5, "") }},
		{"master", "master", func(x, y float64) { c.out.rect("t-master", x, y-7, 20, 14, 2, "") }},
		{"replica", "replica", func(x, y float64) { c.out.rect("t-replica", x, y-7, 20, 14, 2, "") }},
		{"down", "down or paused", func(x, y float64) { c.out.rect("t-down", x, y-6.5, 20, 13, 2, "") }},
		{"fault", "fault", func(x, y float64) { c.out.rect("t-fault", x, y-7, 20, 14, 2, "") }},
		{"missed", "fault without effect", func(x, y float64) { c.out.rect("t-missed", x, y-7, 20, 14, 2, "") }},
	}
	x := chartLeft
	c.y += 12
	for _, e := range entries {
		if !c.used[e.key] {
			continue
		}
		w := 26 + wide(e.text, smallSize) + 14
		if x+w > chartWidth {
			x = chartLeft
			c.y += 20
		}
		e.draw(x, c.y)
		c.out.text("t-small", x+26, c.y+4, e.text)
		x += w
	}
	c.y += 16
}
