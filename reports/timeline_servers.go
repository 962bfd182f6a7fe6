package reports

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/chart"
)

// serverLanes draws what role each server had, and when it was down.
func (c *timeline) serverLanes() {
	servers := c.servers()
	if len(servers) == 0 {
		return
	}
	const h = 18.0
	c.y += groupGap - laneGap
	c.heading("servers")
	for _, node := range servers {
		c.names.Text("t-label end", chart.Left-10, c.y+h/2+4, say.Shorten(node, 16))
		for _, s := range c.server(node) {
			if !c.win.meets(s.from, s.to) || s.to <= s.from {
				continue
			}
			c.stretch(node, s, h)
		}
		c.y += h + laneGap - 2
	}
}

// keyLanes draws which server had whose key of the violated lock.
func (c *timeline) keyLanes() {
	v := c.violation
	if v == nil || v.Lock == "" {
		return
	}
	const h = 18.0
	spans, named := c.keySpans(v.Lock, c.win), false
	for _, node := range c.servers() {
		var mine []keySpan
		for _, s := range spans {
			if s.server == node {
				mine = append(mine, s)
			}
		}
		empty := slices.DeleteFunc(c.emptyLooks(v.Lock, node), func(at time.Duration) bool { return !c.win.meets(at, at) })
		if len(mine)+len(empty) == 0 {
			continue
		}
		if !named {
			c.y += groupGap - laneGap
			c.heading("keys of " + v.Lock)
			named = true
		}
		c.names.Text("t-label end", chart.Left-10, c.y+h/2+4, say.Shorten(node, 16))
		c.base(h)
		for _, s := range mine {
			c.keySpan(s, h)
		}
		for _, at := range empty {
			c.used["look-none"] = true
			c.out.Path("t-look", chart.Cross(c.x(at), c.y+h/2, 2.5), node+" had no holder of "+v.Lock+" at "+say.Instant(at))
		}
		c.y += h + laneGap - 2
	}
}

func (c *timeline) keySpan(s keySpan, h float64) {
	from, to := c.x(s.from), math.Max(c.x(s.until), c.x(s.from)+1)
	title := fmt.Sprintf("%s had the key of %s, granted at %s, until %s as far as is known", s.server, client(s.owner), say.Instant(s.from), say.Instant(s.until))
	class, key := "t-key", "key"
	if !s.vote {
		class, key = "t-key t-copy", "copy"
		title = fmt.Sprintf("%s was seen to have the key of %s at %s, until %s as far as is known", s.server, client(s.owner), say.Instant(s.from), say.Instant(s.until))
	}
	c.used[key] = true
	c.out.Rect(class, from, c.y+1, to-from, h-2, 2, title)
	var looks strings.Builder
	for _, at := range s.looks {
		if c.win.meets(at, at) {
			c.used["look"] = true
			looks.WriteString("M" + chart.Num(c.x(at)) + " " + chart.Num(c.y+h-5) + "v4")
		}
	}
	c.out.Path("t-look", looks.String(), "")
	words := "key of " + client(s.owner)
	if s.until > c.win.to && s.until != history.Never {
		words += " until " + say.Instant(s.until) + " →"
	}
	for _, words := range []string{words, client(s.owner)} {
		if chart.Wide(words, chart.SmallSize)+14 < to-from {
			c.out.Text("t-small", from+7, c.y+h/2+2, words)
			return
		}
	}
}

func (c *timeline) stretch(node string, s stretch, h float64) {
	from, to := c.x(s.from), c.x(s.to)
	if s.to >= c.end {
		to = c.x(c.win.to)
	}
	title := fmt.Sprintf("%s: %s from %s to %s", node, s.state, say.Instant(s.from), say.Instant(s.to))
	label, class := s.state, "t-small"
	switch s.state {
	case "master":
		c.used["master"] = true
		c.out.Rect("t-master", from, c.y, math.Max(to-from, 1), h, 2, title)
		class = "t-on-master"
		if s.changed && c.win.meets(s.from, s.from) {
			label = "promoted to master at " + say.Instant(s.from)
		}
	case roleLeader:
		c.used[roleLeader] = true
		c.out.Rect("t-master", from, c.y, math.Max(to-from, 1), h, 2, title)
		class = "t-on-master"
	case roleFollower, roleMember:
		c.used[roleFollower] = true
		c.out.Rect("t-replica", from, c.y, math.Max(to-from, 1), h, 2, title)
	case "replica":
		c.used["replica"] = true
		c.out.Rect("t-replica", from, c.y, math.Max(to-from, 1), h, 2, title)
	default:
		c.used["down"] = true
		c.out.Rect("t-down", from, c.y+0.5, math.Max(to-from, 1), h-1, 2, title)
	}
	if s.changed && s.state != "master" {
		label = became(s.state)
	}
	for _, text := range []string{label, s.state} {
		if chart.Wide(text, chart.SmallSize)+14 < to-from {
			c.out.Text(class, from+7, c.y+h/2+4, text)
			return
		}
	}
}
