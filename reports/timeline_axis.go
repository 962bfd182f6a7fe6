package reports

import (
	"html/template"

	"github.com/lockchaos/lockchaos/reports/internal/chart"
)

// axis draws the time axis below the lanes and its grid behind them.
func (c *timeline) axis(top, bottom float64) {
	step := chart.NiceStep(c.win.length(), 9)
	if step <= 0 {
		return
	}
	bottom += 4
	c.out.Line("t-axis", chart.Left, bottom, chart.Width-chart.Right, bottom)
	first := (c.win.from + step - 1) / step * step
	for t := first; t <= c.win.to; t += step {
		x := c.x(t)
		c.behind.Line("t-grid", x, top, x, bottom)
		c.out.Line("t-axis", x, bottom, x, bottom+4)
		label := chart.TickLabel(t, step)
		class := "t-tick"
		if x-chart.Wide(label, chart.SmallSize)/2 < chart.Left {
			class = "t-tick-left"
			x = chart.Left
		}
		if x+chart.Wide(label, chart.SmallSize)/2 > chart.Width {
			class += " end"
			x = chart.Width - 2
		}
		c.out.Text(class, x, bottom+16, label)
	}
	c.y = bottom + 24
}

// A legendEntry explains one thing that a chart can show.
type legendEntry struct {
	key, text string
	draw      func(s *chart.Drawing, x, y float64) // at the left end of its middle
}

func legendEntries() []legendEntry {
	box := func(class string, half, radius float64) func(*chart.Drawing, float64, float64) {
		return func(s *chart.Drawing, x, y float64) { s.Rect(class, x, y-half, 20, 2*half, radius, "") }
	}
	return []legendEntry{
		{"wait", "waiting", box("t-wait", 3, 0)},
		{"hold", "entitled to hold", box("t-hold", 7, 3)},
		{"extend", "extended", func(s *chart.Drawing, x, y float64) {
			s.Rect("t-hold", x, y-7, 20, 14, 3, "")
			s.Line("t-extend", x+10, y-7, x+10, y+7)
		}},
		{"beyond", "held beyond its lease", box("t-beyond", 6, 3)},
		{"late", "use after that", box("t-late", 7, 0)},
		{"violation", "violation", box("t-violation", 7, 2)},
		{"violation-mark", "violation", func(s *chart.Drawing, x, y float64) { s.Path("t-bad-mark", chart.Cross(x+10, y, 4), "") }},
		{"access", "access", func(s *chart.Drawing, x, y float64) {
			s.Path("t-access", "M"+chart.Num(x+10)+" "+chart.Num(y-7)+"v14", "")
		}},
		{"bad-access", "access that proves a violation", func(s *chart.Drawing, x, y float64) {
			s.Path("t-access t-bad", "M"+chart.Num(x+10)+" "+chart.Num(y-7)+"v14m-4 0h8m0 -14h-8", "")
		}},
		{"fail", "refused", func(s *chart.Drawing, x, y float64) { s.Path("t-fail", chart.Slash(x+10, y, 3.5), "") }},
		{"refused", "access refused or given up", func(s *chart.Drawing, x, y float64) { s.Path("t-fail", chart.Slash(x+10, y, 4), "") }},
		{"info", "outcome unknown", func(s *chart.Drawing, x, y float64) { s.Ring(x+10, y, 3.5, "") }},
		{"key", "key that this server granted", box("t-key", 7, 2)},
		{"copy", "key that was seen there", box("t-key t-copy", 7, 2)},
		{"look", "looked: it was there", func(s *chart.Drawing, x, y float64) {
			s.Path("t-look", "M"+chart.Num(x+10)+" "+chart.Num(y+2)+"v5", "")
		}},
		{"look-none", "looked: no key", func(s *chart.Drawing, x, y float64) { s.Path("t-look", chart.Cross(x+10, y, 2.5), "") }},
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
func (c *timeline) legend() (key string, height float64) {
	var s chart.Drawing
	x, y := chart.Left, c.y+12
	for _, e := range legendEntries() {
		if !c.used[e.key] {
			continue
		}
		w := 26 + chart.Wide(e.text, chart.SmallSize) + 14
		if x+w > chart.Width {
			x = chart.Left
			y += 20
		}
		e.draw(&s, x, y)
		s.Text("t-small", x+26, y+4, e.text)
		x += w
	}
	return s.String(), y + 16 - c.y
}

// legendList is the legend of a page: it explains what any of its charts use.
func legendList(used map[string]bool) template.HTML {
	var s chart.Drawing
	s.Raw(`<ul class="legend">`)
	for _, e := range legendEntries() {
		if used[e.key] && (e.key != "violation-mark" || !used["violation"]) {
			s.Raw(`<li><svg class="figure" width="20" height="16" viewBox="0 0 20 16" aria-hidden="true">`)
			e.draw(&s, 0, 8)
			s.Raw(`</svg>`, chart.Escape(e.text), `</li>`)
		}
	}
	s.Raw(`</ul>`)
	return template.HTML(s.String())
}
