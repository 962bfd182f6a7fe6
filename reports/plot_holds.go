package reports

import (
	"math"
	"time"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/reports/internal/chart"
)

// holdsFigure plots how long each hold lasted, at its end.
func (d *digest) holdsFigure() (figure, error) {
	s, dd := d.holdDurations()
	return d.durationPlot("Holds", "length of hold", s, dd)
}

// holdDurations are the lengths of the holds that ended within the record.
func (d *digest) holdDurations() (scale, chart.Durations) {
	s := scale{d.whole(), math.Inf(1), 0}
	dd := chart.Durations{Words: [3]string{"released", "ended by its lease, or lost", "end unknown"}}
	for i := range d.holds {
		h := &d.holds[i]
		if h.End > d.end || h.Ended == holding.EndUnknown && h.End == d.end || d.cutByTheEnd(h) {
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
func (d *digest) cutByTheEnd(h *holding.Hold) bool {
	return d.Run.Scenario == "" && h.Ended == holding.EndReleased && h.End > d.lastAsked
}

// holdLatency are the lengths of the holds that a release ended; false if there
// were none.
func (d *digest) holdLatency() (Latency, bool) {
	var lengths []time.Duration
	for i := range d.holds {
		if h := &d.holds[i]; h.Ended == holding.EndReleased && !d.cutByTheEnd(h) {
			lengths = append(lengths, max(h.End-h.Start, 0))
		}
	}
	if len(lengths) == 0 {
		return Latency{}, false
	}
	return latencyOf(lengths), true
}
