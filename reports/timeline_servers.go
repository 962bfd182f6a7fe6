package reports

import (
	"fmt"
	"math"
)

// serverLanes draws what role each server had, and when it was down.
func (c *chart) serverLanes() {
	servers := c.servers()
	if len(servers) == 0 {
		return
	}
	const h = 18.0
	c.y += groupGap - laneGap
	c.heading("servers")
	for _, node := range servers {
		c.names.text("t-label end", chartLeft-10, c.y+h/2+4, shorten(node, 16))
		for _, s := range c.server(node) {
			if !c.win.meets(s.from, s.to) || s.to <= s.from {
				continue
			}
			c.stretch(node, s, h)
		}
		c.y += h + laneGap - 2
	}
}

func (c *chart) stretch(node string, s stretch, h float64) {
	from, to := c.x(s.from), c.x(s.to)
	if s.to >= c.end {
		to = c.x(c.win.to)
	}
	title := fmt.Sprintf("%s: %s from %s to %s", node, s.state, instant(s.from), instant(s.to))
	label, class := s.state, "t-small"
	switch s.state {
	case "master":
		c.used["master"] = true
		c.out.rect("t-master", from, c.y, math.Max(to-from, 1), h, 2, title)
		class = "t-on-master"
		if s.changed && c.win.meets(s.from, s.from) {
			label = "promoted to master at " + instant(s.from)
		}
	case "replica":
		c.used["replica"] = true
		c.out.rect("t-replica", from, c.y, math.Max(to-from, 1), h, 2, title)
	default:
		c.used["down"] = true
		c.out.rect("t-down", from, c.y+0.5, math.Max(to-from, 1), h-1, 2, title)
	}
	if s.changed && s.state != "master" {
		label = "became a " + s.state
	}
	for _, text := range []string{label, s.state} {
		if wide(text, smallSize)+14 < to-from {
			c.out.text(class, from+7, c.y+h/2+4, text)
			return
		}
	}
}
