package reports

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/reports/internal/chart"
)

// mark draws the violation over the lanes that it concerns.
func (c *timeline) mark(lanes []*lane) {
	v := c.violation
	var tops []float64
	for _, l := range c.lanesOf(v) {
		if slices.Contains(lanes, l) {
			tops = append(tops, c.top[l])
		}
	}
	if len(tops) == 0 && len(lanes) > 0 {
		tops = append(tops, c.top[lanes[0]])
	}
	if len(tops) == 0 {
		return
	}
	from, to := c.x(v.From), c.x(min(v.Until, max(c.end, v.From)))
	if to-from < 3 {
		from, to = from-1.5, from+1.5
	}
	c.used["violation"] = true
	var frame strings.Builder
	parts := framed(tops)
	for i, part := range parts {
		fmt.Fprintf(&frame, "M%s %sh%sV%sh%sz", chart.Num(from), chart.Num(part[0]), chart.Num(to-from), chart.Num(part[1]), chart.Num(from-to))
		if i > 0 {
			c.out.Line("t-flag-pole", from, parts[i-1][1], from, part[0])
		}
	}
	c.out.Path("t-violation", frame.String(), v.Explanation)
	label := "✗ " + c.markWords(v)
	w := chart.Wide(label, chart.TextSize)*1.1 + 14
	x := math.Min(math.Max(from, chart.Left), chart.Width-chart.Right-w)
	c.out.Line("t-flag-pole", from, 27, from, parts[0][0])
	c.out.Rect("t-flag", x, 6, w, 21, 3, "")
	c.out.Text("t-flag-text", x+7, 21, label)
}

// framed are the frames around lanes that stand beside each other: none of them covers a
// lane that is not concerned.
func framed(tops []float64) [][2]float64 {
	slices.Sort(tops)
	var parts [][2]float64
	for _, top := range tops {
		if n := len(parts); n > 0 && top-3 <= parts[n-1][1]+laneGap {
			parts[n-1][1] = top + laneHeight + 3
			continue
		}
		parts = append(parts, [2]float64{top - 3, top + laneHeight + 3})
	}
	return parts
}

func (m *model) markWords(v *checker.Violation) string {
	switch v.Kind {
	case checker.DoubleGrant:
		if m.together(v, m.holdsOf(v)) > m.end {
			if m.end > v.From {
				return "both hold: " + say.Span(m.end-v.From) + " observed"
			}
			return "both hold"
		}
		return "both hold for " + say.Span(v.Until-v.From)
	case checker.UseAfterLease:
		return "used after its lease"
	case checker.LostUpdate:
		return "an update is lost"
	case checker.ForeignRelease:
		return "confirmed for a client that does not hold"
	case checker.PrematureLoss:
		return "lost before its time"
	case checker.OverCapacity:
		return "more permits out than there are"
	case checker.Reentrancy:
		return "granted again to its holder"
	case checker.FenceRegress, checker.FenceDuplicate:
		return "its token is not greater"
	case checker.StaleAccess:
		return "an old token was accepted"
	case checker.Stuck:
		return "no client could acquire it"
	case checker.Overtaken:
		return "overtaken in the queue"
	default:
		return strings.ReplaceAll(v.Kind, "-", " ")
	}
}

// violations marks every violation above the lanes of a whole run: those that lie too
// close to be told apart share a mark, with their number. It reports whether there is
// any.
func (c *timeline) violations() bool {
	clusters := markClusters(c.distinct(), func(v *checker.Violation) float64 { return c.x(c.since(v)) })
	for _, m := range clusters {
		first, last := m.of[0], m.of[len(m.of)-1]
		title := first.Kind + " at " + say.Instant(c.since(first)) + ": " + first.Explanation
		if len(m.of) > 1 {
			title = fmt.Sprintf("%s from %s to %s, the first: %s", say.Count(len(m.of), "violation"), say.Instant(c.since(first)), say.Instant(c.since(last)), first.Explanation)
			c.out.Text("t-small t-bad-text", m.x+7, 11, say.Thousands(int64(len(m.of))))
		}
		c.out.Path("t-bad-mark", chart.Cross(m.x, 7, 4), title)
	}
	if len(clusters) > 0 {
		c.used["violation-mark"] = true
	}
	return len(clusters) > 0
}

// A cluster is a mark for violations that lie close to each other.
type cluster struct {
	x  float64
	of []*checker.Violation
}

// markClusters puts violations, in order of time, into as many marks as have room
// beside each other.
func markClusters(all []*checker.Violation, at func(*checker.Violation) float64) []cluster {
	var clusters []cluster
	for _, v := range all {
		x := at(v)
		if n := len(clusters); n > 0 {
			last := &clusters[n-1]
			room := 9.0
			if len(last.of) > 1 {
				room += 5 + chart.Wide(say.Thousands(int64(len(last.of))), chart.SmallSize)
			}
			if x < last.x+room {
				last.of = append(last.of, v)
				continue
			}
		}
		clusters = append(clusters, cluster{x, []*checker.Violation{v}})
	}
	return clusters
}

// repeats reports whether a violation is the search's finding in the very events
// in which another engine found one: it needs no mark of its own.
func (m *model) repeats(v *checker.Violation) bool {
	return v.Kind == checker.NotLinearizable && slices.ContainsFunc(m.Report.Results, func(r checker.Result) bool {
		return slices.ContainsFunc(r.Violations, func(other checker.Violation) bool {
			return other.Kind != v.Kind && slices.Equal(other.Events, v.Events)
		})
	})
}
