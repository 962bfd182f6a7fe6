package reports

import (
	"html/template"
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
		if x-wide(label, smallSize)/2 < chartLeft {
			class = "t-tick-left"
			x = chartLeft
		}
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

// A legendEntry explains one thing that a chart can show.
type legendEntry struct {
	key, text string
	draw      func(s *drawing, x, y float64) // at the left end of its middle
}

func legendEntries() []legendEntry {
	box := func(class string, half, radius float64) func(*drawing, float64, float64) {
		return func(s *drawing, x, y float64) { s.rect(class, x, y-half, 20, 2*half, radius, "") }
	}
	return []legendEntry{
		{"wait", "waiting", box("t-wait", 3, 0)},
		{"hold", "entitled to hold", box("t-hold", 7, 3)},
		{"extend", "extended", func(s *drawing, x, y float64) {
			s.rect("t-hold", x, y-7, 20, 14, 3, "")
			s.line("t-extend", x+10, y-7, x+10, y+7)
		}},
		{"beyond", "held beyond its lease", box("t-beyond", 6, 3)},
		{"late", "use after that", box("t-late", 7, 0)},
		{"violation", "violation", box("t-violation", 7, 2)},
		{"violation-mark", "violation", func(s *drawing, x, y float64) { s.path("t-bad-mark", cross(x+10, y, 4), "") }},
		{"access", "access", func(s *drawing, x, y float64) { s.path("t-access", "M"+num(x+10)+" "+num(y-7)+"v14", "") }},
		{"fail", "refused", func(s *drawing, x, y float64) { s.path("t-fail", cross(x+10, y, 3.5), "") }},
		{"refused", "access refused", func(s *drawing, x, y float64) { s.path("t-fail", cross(x+10, y, 4), "") }},
		{"info", "outcome unknown", func(s *drawing, x, y float64) { s.ring(x+10, y, 3.5, "") }},
		{"key", "key that this server granted", box("t-key", 7, 2)},
		{"copy", "key that was seen there", box("t-key t-copy", 7, 2)},
		{"look", "looked: it was there", func(s *drawing, x, y float64) { s.path("t-look", "M"+num(x+10)+" "+num(y+2)+"v5", "") }},
		{"look-none", "looked: no key", func(s *drawing, x, y float64) { s.path("t-look", cross(x+10, y, 2.5), "") }},
		{"master", "master", box("t-master", 7, 2)},
		{"replica", "replica", box("t-replica", 7, 2)},
		{roleLeader, roleLeader, box("t-master", 7, 2)},
		{roleFollower, roleFollower, box("t-replica", 7, 2)},
		{"down", "down or paused", box("t-down", 6.5, 2)},
		{"fault", "fault", box("t-fault", 7, 2)},
		{"missed", "fault without effect", box("t-missed", 7, 2)},
	}
}

// legend explains what the chart uses, and nothing else, below it.
func (c *chart) legend() (key string, height float64) {
	var s drawing
	x, y := chartLeft, c.y+12
	for _, e := range legendEntries() {
		if !c.used[e.key] {
			continue
		}
		w := 26 + wide(e.text, smallSize) + 14
		if x+w > chartWidth {
			x = chartLeft
			y += 20
		}
		e.draw(&s, x, y)
		s.text("t-small", x+26, y+4, e.text)
		x += w
	}
	return s.String(), y + 16 - c.y
}

// legendList is the legend of a page: it explains what any of its charts use.
func legendList(used map[string]bool) template.HTML {
	var s drawing
	s.raw(`<ul class="legend">`)
	for _, e := range legendEntries() {
		if used[e.key] && (e.key != "violation-mark" || !used["violation"]) {
			s.raw(`<li><svg class="figure" width="20" height="16" viewBox="0 0 20 16" aria-hidden="true">`)
			e.draw(&s, 0, 8)
			s.raw(`</svg>`, escape(e.text), `</li>`)
		}
	}
	s.raw(`</ul>`)
	return template.HTML(s.String())
}
