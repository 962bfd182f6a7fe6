package reports

import (
	"slices"
	"strconv"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports/internal/chart"
)

// shift is how far ahead of the true time a fault has the clocks that it changes, at an
// instant; below 0 it is behind. known is false where the record does not say how far.
func (f *Fault) shift(at time.Duration) (ahead time.Duration, known bool) {
	if !f.OK || at < f.at() || at > f.End {
		return 0, true
	}
	number := func(name string) (float64, bool) {
		n, err := strconv.ParseFloat(f.Params[name], 64)
		return n, err == nil
	}
	switch f.Name {
	case "clock-forward", "clock-back":
		by, ok := number("by")
		if f.Name == "clock-back" {
			by = -by
		}
		return time.Duration(by * float64(time.Millisecond)), ok
	case "clock-freeze":
		return f.at() - at, true
	case "clock-rate":
		percent, ok := number("percent")
		return time.Duration(percent / 100 * float64(at-f.at())), ok
	}
	return 0, false
}

// gains is by how much a fault can have put a clock ahead until an instant of what it showed
// when a server counted the lease of a hold, at its grant or at an extension: the lease ends so
// much before its time.
func (f *Fault) gains(h *holding.Hold, to time.Duration) (ahead time.Duration, known bool) {
	to += chart.OneLook
	known = true
	each := func(from, until time.Duration, do func(at, shift time.Duration)) {
		for _, at := range []time.Duration{from, f.at() - 1, f.at(), f.End, f.End + 1, until} {
			if at >= from && at <= until {
				now, ok := f.shift(at)
				known = known && ok
				do(at, now)
			}
		}
	}
	for i, op := range append([]history.Operation{h.Acquire}, h.Extensions...) {
		from := op.Invoke.Time
		if i == 0 {
			from = sentAt(h)
		}
		if op.Failed() || from > to {
			continue
		}
		each(from-chart.OneLook, min(op.Complete.Time+chart.OneLook, to), func(counted, then time.Duration) {
			each(counted, to, func(_, now time.Duration) { ahead = max(ahead, now-then) })
		})
	}
	return ahead, known
}

// endsEarly reports whether a fault of clocks can have ended a lease before an instant that
// is within it. Where the record does not say how long the lease is, any gain can.
func (f *Fault) endsEarly(h *holding.Hold, at time.Duration) bool {
	gain, known := f.gains(h, at)
	if !known {
		return true
	}
	due := h.Acquire.Expires()
	for i := range h.Extensions {
		if e := &h.Extensions[i]; e.OK() && e.Complete.Time <= at {
			due = e.Expires()
		}
	}
	return gain > 0 && (due <= 0 || at+gain+chart.OneLook >= due)
}

// endsLate reports whether a fault of clocks can have kept a grant beyond its lease: the
// clock was ahead when it was made, and then set to the true time.
func (f *Fault) endsLate(h *holding.Hold, at time.Duration) bool {
	most := time.Duration(0)
	for _, t := range []time.Duration{h.Acquire.Invoke.Time, h.Start, f.at(), f.End} {
		if now, known := f.shift(t); !known {
			return true
		} else if t >= h.Acquire.Invoke.Time && t <= at {
			most = max(most, now)
		}
	}
	return most > 0
}

// shiftsEnough reports whether a fault that shifts clocks shifts them the way that a
// violation needs, and as far.
func (m *model) shiftsEnough(f *Fault, v *checker.Violation, holds []*holding.Hold) bool {
	if !f.has(history.ShiftsClock) || len(holds) == 0 {
		return true
	}
	switch v.Kind {
	case checker.DoubleGrant:
		return len(holds) < 2 || f.endsEarly(holds[0], holds[1].Start)
	case checker.PrematureLoss:
		return slices.ContainsFunc(holds, func(h *holding.Hold) bool { return f.endsEarly(h, m.since(v)) })
	case checker.OverCapacity:
		return slices.ContainsFunc(holds, func(h *holding.Hold) bool { return h.Start < v.From && f.endsEarly(h, v.From) })
	default:
		return true
	}
}
