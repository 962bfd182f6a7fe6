package reports

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/chart"
)

// accesses draws a lane for each protected resource.
func (c *timeline) accesses() {
	var resources []string
	for _, name := range c.resources() {
		if c.violation == nil || c.violation.Lock == "" || slices.Contains(c.locksOfResources()[name], c.violation.Lock) {
			resources = append(resources, name)
		}
	}
	c.damagedFirst(resources)
	if len(resources) == 0 {
		return
	}
	c.y += groupGap - laneGap
	c.heading("protected resource")
	const most = 4
	for i, name := range resources {
		if i == most {
			c.out.Text("t-note", chart.Left, c.y+10, "and "+say.Count(len(resources)-most, "resource")+" more, left out here")
			c.y += 18
			break
		}
		c.laneLabel(name)
		c.base(laneHeight)
		c.accessLane(name)
		c.y += laneHeight + laneGap
	}
}

// damagedFirst puts the resources that violations damaged before the others.
func (m *model) damagedFirst(resources []string) {
	damaged := map[string]bool{}
	for _, v := range m.distinct() {
		damaged[v.Resource] = true
		for name, locks := range m.locksOfResources() {
			if slices.Contains(locks, v.Lock) {
				damaged[name] = true
			}
		}
	}
	slices.SortStableFunc(resources, func(a, b string) int { return b2i(damaged[b]) - b2i(damaged[a]) })
}

func (c *timeline) accessLane(name string) {
	var shown []*history.Operation
	for _, op := range c.accessesOf()[name] {
		if c.win.meets(op.Complete.Time, op.Complete.Time) {
			shown = append(shown, op)
		}
	}
	bad := c.badAccesses()
	var ok, fail strings.Builder
	lastOK, lastFail, room := -9.0, -9.0, chart.Left
	for i, op := range shown {
		x, mid := c.x(op.Complete.Time), c.y+laneHeight/2
		title := ""
		if len(shown) <= dense {
			title = c.accessClause(op) + " at " + say.Instant(op.Complete.Time)
		}
		switch {
		case op.OK() && title == "":
			if x-lastOK >= 1 {
				fmt.Fprintf(&ok, "M%s %sv%s", chart.Num(x), chart.Num(c.y+5), chart.Num(laneHeight-10))
				lastOK = x
			}
			c.used["access"] = true
		case op.OK():
			c.used["access"] = true
			class, label, textClass := "t-access", say.Shorten(c.accessLabel(op), 28), "t-small"
			stroke := fmt.Sprintf("M%s %sv%s", chart.Num(x), chart.Num(c.y+4), chart.Num(laneHeight-8))
			if slices.Contains(bad, op.Complete.Index) { // told apart by its ends, and not by its colour alone
				class, textClass = class+" t-bad", "t-small t-bad-text"
				stroke += fmt.Sprintf("m-4 0h8m0 %sh-8", chart.Num(8-laneHeight))
				c.used["bad-access"] = true
			}
			c.out.Path(class, stroke, title)
			next := chart.Width - chart.Right
			if i+1 < len(shown) {
				next = c.x(shown[i+1].Complete.Time)
			}
			switch w := chart.Wide(label, chart.SmallSize) + 8; {
			case label == "":
			case x+w < next:
				c.out.Text(textClass, x+5, mid+4, label)
				room = x + w
			case x-w > room:
				c.out.Text(textClass+" end", x-5, mid+4, label)
			}
			room = math.Max(room, x)
		case op.Failed():
			c.used["refused"] = true
			if title != "" {
				c.out.Path("t-fail", chart.Slash(x, mid, 4), title)
			} else if x-lastFail >= 4 {
				fail.WriteString(chart.Slash(x, mid, 3))
				lastFail = x
			}
		default:
			c.used["info"] = true
			c.out.Ring(x, mid, 3.5, title)
		}
	}
	c.out.Path("t-access t-many", ok.String(), "")
	c.out.Path("t-fail", fail.String(), "")
}

// accessLabel is who wrote what: "a: 41 → 42".
func (m *model) accessLabel(op *history.Operation) string {
	value := strings.Replace(op.Complete.Value, ">", " → ", 1)
	if value == "" {
		return ""
	}
	return strings.TrimPrefix(m.whoOf(op.Invoke), "client ") + ": " + value
}

// badAccesses are the accesses that prove a violation.
func (m *model) badAccesses() []int64 {
	var events []int64
	for _, r := range m.Report.Results {
		for _, v := range r.Violations {
			if kind, _ := checker.KindOf(v.Kind); kind.ByAccess {
				events = append(events, v.Events...)
			}
		}
	}
	return events
}
