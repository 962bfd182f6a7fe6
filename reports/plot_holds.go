package reports

import (
	"math"
	"time"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/reports/internal/chart"
)

// holdsFigure plots how long each hold lasted, at its end.
func (m *model) holdsFigure() (figure, error) {
	s, dd := m.holdDurations()
	return m.durationPlot("Holds", "length of hold", s, dd)
}

// holdDurations are the lengths of the holds that ended within the record.
func (m *model) holdDurations() (scale, chart.Durations) {
	s := scale{m.whole(), math.Inf(1), 0}
	dd := chart.Durations{Words: [3]string{"released", "ended by its lease, or lost", "end unknown"}}
	for i := range m.holds {
		h := &m.holds[i]
		if h.End > m.end || h.Ended == holding.EndUnknown && h.End == m.end || m.cutByTheEnd(h) {
			continue // a lease that had time left, or a hold that the end of the record cut
		}
		pt := chart.Point{X: h.End.Seconds(), Y: max(h.End-h.Start, leastLatency).Seconds()}
		switch h.Ended {
		case holding.EndReleased:
			dd.Most = append(dd.Most, pt)
		case holding.EndExpired, holding.EndLost:
			dd.Slashes = append(dd.Slashes, pt)
		case holding.EndUnknown:
			dd.Rings = append(dd.Rings, pt)
		default:
			continue // nothing ended it
		}
		s.low, s.high = min(s.low, pt.Y), max(s.high, pt.Y)
	}
	if s.high == 0 {
		s.low, s.high = 1e-4, 1e-1
	}
	return s, dd
}

// cutByTheEnd reports whether the end of a random run may have ended a hold: it was released
// after the last request for a lock, when the clients had stopped.
func (m *model) cutByTheEnd(h *holding.Hold) bool {
	return m.Run.Scenario == "" && h.Ended == holding.EndReleased && h.End > m.lastAsked
}

// holdLatency are the lengths of the holds that a release ended; false if there
// were none.
func (m *model) holdLatency() (Latency, bool) {
	var lengths []time.Duration
	for i := range m.holds {
		if h := &m.holds[i]; h.Ended == holding.EndReleased && !m.cutByTheEnd(h) {
			lengths = append(lengths, max(h.End-h.Start, 0))
		}
	}
	if len(lengths) == 0 {
		return Latency{}, false
	}
	return latencyOf(lengths), true
}
