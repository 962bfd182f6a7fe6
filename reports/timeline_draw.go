package reports

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/chart"
)

// The measures of a timeline, in SVG units.
const (
	laneHeight = 26.0
	laneGap    = 6.0
	groupGap   = 14.0
)

// dense is how many things a lane shows one by one; more are drawn as the share of each
// pixel that they cover. A lane of a whole run shows wholeDense.
const (
	dense      = 160
	wholeDense = 40
)

// A timeline draws one window of a run.
type timeline struct {
	*model
	win       window
	violation *checker.Violation // drawn in full, if it is set
	zoom      window             // marked, if it has a length
	behind    chart.Drawing      // what lies below the rest: the grid
	names     chart.Drawing      // of the lanes, left of them
	out       chart.Drawing
	y         float64
	used      map[string]bool // what the legend has to explain
	top       map[*lane]float64
	folded    bool // its lanes are whole locks
	many      bool // all lanes are drawn as shares: one has too much to draw one by one
}

// A figure is a finished chart.Drawing with its size and time axis.
type figure struct {
	body   string
	height float64
	win    window
	label  string
	// names are the names of the lanes, which stay in sight; key is the
	// legend, below the body. Empty for a figure that has neither.
	names     string
	key       string
	keyHeight float64
	used      map[string]bool // what the legend explains
}

// focusFigure draws the first violation from near.
func (m *model) focusFigure(v *checker.Violation) figure {
	return m.once(fmt.Sprintf("focus %p", v), func() figure { return m.drawFocus(v) })
}

func (m *model) drawFocus(v *checker.Violation) figure {
	c := &timeline{model: m, win: m.focus(v), violation: v}
	lanes, left := m.focusLanes(v, c.win)
	return c.draw(lanes, left, "Timeline of the violation that is told")
}

// wholeFigure draws the whole run; zoom marks the part that is drawn apart.
func (m *model) wholeFigure(zoom window) figure {
	return m.once(fmt.Sprint("whole", zoom), func() figure { return m.drawWhole(zoom) })
}

func (m *model) drawWhole(zoom window) figure {
	c := &timeline{model: m, win: m.whole(), zoom: zoom}
	if lanes := m.lanes(); len(lanes) <= maxWholeLanes {
		return c.draw(lanes, 0, "Timeline of the whole run")
	}
	rows, left := m.lockRows()
	c.folded = true
	return c.draw(rows, left, "Timeline of the whole run, a row for each lock")
}

// once draws a figure that several files show the first time only.
func (m *model) once(name string, draw func() figure) figure {
	f, drawn := m.figures[name]
	if !drawn {
		f = draw()
		if m.figures == nil {
			m.figures = map[string]figure{}
		}
		m.figures[name] = f
	}
	return f
}

// x is where an instant lies, clipped to the window.
func (c *timeline) x(t time.Duration) float64 {
	t = min(max(t, c.win.from), c.win.to)
	share := float64(t-c.win.from) / float64(max(c.win.length(), 1))
	return chart.Left + share*(chart.Width-chart.Left-chart.Right)
}

func (c *timeline) draw(lanes []*lane, left int, label string) figure {
	c.used, c.top = map[string]bool{}, map[*lane]float64{}
	c.y = 8
	if c.violation != nil {
		c.y = 34 // room for the violation's label
	} else if c.violations() {
		c.y += 4
	}
	lanesTop := c.y
	if c.folded {
		c.heading("locks")
	}
	most := dense
	if c.violation == nil {
		most = wholeDense
	}
	c.many = c.folded || slices.ContainsFunc(lanes, func(l *lane) bool {
		waits, holds := c.shown(l)
		return len(waits)+len(holds) > most
	})
	lock := ""
	for i, l := range lanes {
		if l.lock != lock && !c.folded {
			if i > 0 {
				c.y += groupGap - laneGap
			}
			c.heading(lockHeading(l.lock))
			lock = l.lock
		}
		c.lane(l)
	}
	what := "lane"
	if c.folded {
		what = "lock"
	}
	if left > 0 {
		c.out.Text("t-note", chart.Left, c.y+10, "and "+say.Count(left, what)+" more, left out here")
		c.y += 18
	}
	if len(lanes) == 0 {
		c.out.Text("t-note", chart.Left, c.y+12, "no client used a lock")
		c.y += 24
	}
	c.accesses()
	c.keyLanes()
	c.serverLanes()
	c.faultLanes()
	bottom := c.y
	c.axis(lanesTop-8, bottom)
	if c.violation != nil {
		c.mark(lanes)
	}
	if c.zoom.length() > 0 {
		c.out.Rect("t-zoom", c.x(c.zoom.from), lanesTop-6, math.Max(3, c.x(c.zoom.to)-c.x(c.zoom.from)), bottom-lanesTop+6, 3,
			fmt.Sprintf("shown above: %s to %s", say.Instant(c.zoom.from), say.Instant(c.zoom.to)))
	}
	key, keyHeight := c.legend()
	return figure{
		body: c.behind.String() + c.out.String(), height: c.y, win: c.win, label: label,
		names: c.names.String(), key: key, keyHeight: keyHeight, used: c.used,
	}
}

// heading names a group of lanes.
func (c *timeline) heading(text string) {
	c.names.Text("t-group", 4, c.y+11, say.Shorten(text, 100))
	c.y += 18
}

// laneLabel names a lane in the margin.
func (c *timeline) laneLabel(name string) {
	c.names.Text("t-label end", chart.Left-10, c.y+laneHeight/2+4, say.Shorten(name, 16))
}

// base is the empty lane that things are drawn on.
func (c *timeline) base(h float64) {
	c.out.Rect("t-lane", chart.Left, c.y, chart.Width-chart.Left-chart.Right, h, 0, "")
}

// lane draws one client at one lock.
func (c *timeline) lane(l *lane) {
	c.top[l] = c.y
	name := l.client
	if c.folded {
		name = l.lock
	}
	c.laneLabel(name)
	c.base(laneHeight)
	waits, holds := c.shown(l)
	if c.many {
		c.denseLane(waits, holds)
	} else {
		for _, op := range waits {
			c.wait(op)
		}
		for _, h := range holds {
			c.hold(h)
		}
	}
	for _, op := range l.uses {
		c.late(l, op)
	}
	c.y += laneHeight + laneGap
}

// shown are the requests and the holds of a lane that lie in the window.
func (c *timeline) shown(l *lane) (waits []*history.Operation, holds []*holding.Hold) {
	for _, op := range l.waits {
		if c.win.meets(op.Invoke.Time, op.Complete.Time) {
			waits = append(waits, op)
		}
	}
	for _, h := range l.holds {
		if c.win.meets(h.Start, h.End) && h.End > h.Start {
			holds = append(holds, h)
		}
	}
	return waits, holds
}

// wait draws a request from its invocation to its answer.
func (c *timeline) wait(op *history.Operation) {
	from, to := c.x(op.Invoke.Time), c.x(op.Complete.Time)
	mid := c.y + laneHeight/2
	title := fmt.Sprintf("%s asked for %s at %s: %s after %s", client(op.Invoke.Owner), op.Invoke.Lock,
		say.Instant(op.Invoke.Time), op.Complete.Type, say.Span(took(op)))
	if op.Complete.Error != "" {
		title += " (" + op.Complete.Error + ")"
	}
	if to-from > 1.5 {
		c.used["wait"] = true
		c.out.Rect("t-wait", from, mid-3, to-from, 6, 0, title)
	}
	if op.Complete.Time > c.win.to {
		return
	}
	switch {
	case op.Failed():
		c.used["fail"] = true
		c.out.Path("t-fail", chart.Slash(to, mid, 3.5), title)
	case op.Unknown():
		c.used["info"] = true
		c.out.Ring(to, mid, 3.5, title)
	}
}

// hold draws the time in which an owner may believe.
func (c *timeline) hold(h *holding.Hold) {
	c.used["hold"] = true
	from, to := c.x(h.Start), c.x(h.End)
	until := "the end of the record"
	if h.End != history.Never {
		until = say.Instant(h.End)
	}
	title := fmt.Sprintf("%s holds %s from %s to %s (%s)", client(h.Owner), h.Lock, say.Instant(h.Start), until, h.Ended)
	if h.Token != 0 {
		title += fmt.Sprintf(", token %d", h.Token)
	}
	if node := c.grantors(h); node != "" {
		title += ", granted by " + node
	}
	for _, part := range h.Certain() {
		if c.win.meets(part.From, part.Until) {
			from := c.x(part.From)
			c.out.Rect("t-hold", from, c.y+2, math.Max(c.x(part.Until)-from, 1), laneHeight-4, 3, title)
		}
	}
	for _, part := range h.Late {
		if c.win.meets(part.From, part.Until) {
			c.used["beyond"] = true
			from := c.x(part.From)
			c.out.Rect("t-beyond", from, c.y+3, math.Max(c.x(part.Until)-from, 1), laneHeight-6, 3, title+"; beyond its lease, as a later answer shows")
		}
	}
	for i := range h.Extensions {
		if e := &h.Extensions[i]; e.OK() && c.win.meets(e.Complete.Time, e.Complete.Time) && len(h.Extensions) <= 40 {
			x := c.x(e.Complete.Time)
			c.used["extend"] = true
			c.out.Line("t-extend", x, c.y+2, x, c.y+laneHeight-2)
		}
	}
	right := ""
	if h.End > c.win.to && to-from > 120 {
		right = "no end →"
		if h.End != history.Never {
			right = "until " + say.Instant(h.End) + " →"
		}
		if c.marks(to-chart.Wide(right, chart.SmallSize)-8, to-4) {
			right = ""
		}
		c.out.Text("t-in end", to-8, c.y+laneHeight/2+4, right)
	}
	words := ""
	if node := c.grantors(h); node != "" {
		words = "granted by " + node
	}
	if h.Token != 0 {
		words = strings.TrimSpace(words + fmt.Sprintf(" token %d", h.Token))
	}
	if words != "" && chart.Wide(words, chart.SmallSize)+chart.Wide(right, chart.SmallSize)+26 < to-from {
		c.out.Text("t-in", from+8, c.y+laneHeight/2+4, words)
	}
}

// marks reports whether the end of the violation's frame crosses a stretch.
func (c *timeline) marks(from, to float64) bool {
	return c.violation != nil && c.x(c.violation.Until) > from && c.x(c.violation.Until) < to
}

// late draws an access, and what of it lies after its owner's belief.
func (c *timeline) late(l *lane, op *history.Operation) {
	if !c.win.meets(op.Invoke.Time, op.Complete.Time) || op.Failed() {
		return
	}
	under := l.holdAt(op.Invoke)
	if under == nil || believes(under) >= op.Complete.Time {
		return
	}
	c.used["late"] = true
	from, to := c.x(believes(under)), c.x(op.Complete.Time)
	title := fmt.Sprintf("%s used %s until %s, %s after it had ceased to hold", l.client, resourceOf(op),
		say.Instant(op.Complete.Time), say.Span(op.Complete.Time-believes(under)))
	c.out.Rect("t-late", from, c.y+2, math.Max(to-from, 2), laneHeight-4, 0, title)
}

// denseLane draws how much of each pixel the holds cover, with what was refused, what has
// no known outcome, and the waits that are long enough to be seen.
func (c *timeline) denseLane(waits []*history.Operation, holds []*holding.Hold) {
	c.denseWaits(waits)
	const columns = int(chart.Width - chart.Left - chart.Right)
	var covered [columns + 1]float64
	for _, h := range holds {
		from, to := c.x(h.Start)-chart.Left, c.x(h.End)-chart.Left
		for at := int(from); at <= int(to) && at < columns; at++ {
			covered[at] += math.Min(to, float64(at+1)) - math.Max(from, float64(at))
		}
	}
	c.used["hold"] = true
	const levels = 4
	var paths [levels + 1]strings.Builder
	level := func(column int) int { return min(levels, int(math.Ceil(covered[column]*levels-0.001))) }
	begin := 0
	for at := 1; at <= columns; at++ {
		if at < columns && level(at) == level(begin) {
			continue
		}
		fmt.Fprintf(&paths[level(begin)], "M%d %sh%dv%sh-%dz", int(chart.Left)+begin, chart.Num(c.y+2), at-begin, chart.Num(laneHeight-4), at-begin)
		begin = at
	}
	for level := 1; level <= levels; level++ {
		c.out.Path(fmt.Sprintf("t-hold t-d%d", level), paths[level].String(), "")
	}
	mid, last, lastRefused := c.y+laneHeight/2, -9.0, -9.0
	var refused strings.Builder
	for _, op := range waits {
		x := c.x(op.Complete.Time)
		switch {
		case op.Complete.Time > c.win.to:
		case op.Unknown() && x-last > 4:
			c.used["info"] = true
			c.out.Ring(x, mid, 3, "no known outcome: "+op.Complete.Error)
			last = x
		case op.Failed() && x-lastRefused > 6:
			c.used["fail"] = true
			refused.WriteString(chart.Slash(x, mid, 3))
			lastRefused = x
		}
	}
	c.out.Path("t-fail", refused.String(), "")
}

// denseWaits draws the waits of a lane as one shape.
func (c *timeline) denseWaits(waits []*history.Operation) {
	var shape strings.Builder
	mid, drawn := c.y+laneHeight/2, chart.Left
	for _, op := range waits {
		from, to := math.Max(c.x(op.Invoke.Time), drawn), c.x(op.Complete.Time)
		if to-from <= 1.5 {
			continue
		}
		fmt.Fprintf(&shape, "M%s %sh%sv6h%sz", chart.Num(from), chart.Num(mid-3), chart.Num(to-from), chart.Num(from-to))
		drawn = to
		c.used["wait"] = true
	}
	c.out.Path("t-wait", shape.String(), "")
}
