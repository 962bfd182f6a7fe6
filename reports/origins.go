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

// withOthers adds to the permit that its owner was told is lost the others that it had at that
// time: which of them a release gave back, and which was lost, is not recorded.
func (m *model) withOthers(v *checker.Violation, evidence []*holding.Hold) []*holding.Hold {
	if v.Kind != checker.PrematureLoss || len(evidence) == 0 || m.kindOf(v.Lock) != history.KindSemaphore {
		return evidence
	}
	lost := evidence[0]
	for _, h := range m.holdIndex().owner[lost.Owner] {
		if h != lost && h.Lock == lost.Lock && h.Start <= m.since(v) && h.End >= lost.Start {
			evidence = append(slices.Clip(evidence), h)
		}
	}
	return evidence
}

// miscounted is the last fault that can have made the servers forget permits which their holder
// gave back later, and that hold; -1 if there is none. A semaphore that only counts its permits
// takes those from another holder then, and has too many to grant from there on. Permits with
// a lease are known each by itself.
func (m *model) miscounted(v *checker.Violation) (int, *holding.Hold) {
	if m.kindOf(v.Lock) != history.KindSemaphore || v.Kind != checker.OverCapacity && v.Kind != checker.PrematureLoss {
		return -1, nil
	}
	if m.lostPermits == nil {
		m.lostPermits = map[string][]*holding.Hold{}
	}
	if m.lostPermits[v.Lock] == nil {
		m.lostPermits[v.Lock] = m.permitsForgotten(v.Lock)
	}
	for i, h := range slices.Backward(m.lostPermits[v.Lock]) {
		if h != nil && m.faults[i].Start <= v.From && h.Release.Invoke.Time < v.From {
			return i, h
		}
	}
	return -1, nil
}

// permitsForgotten are, for each fault that can have made the servers forget the permits of a
// lock, those that were given back first; nil for a fault of which there are none.
func (m *model) permitsForgotten(lock string) []*holding.Hold {
	first := make([]*holding.Hold, len(m.faults))
	for i := range m.faults {
		f := &m.faults[i]
		if !f.counts() || !f.has(history.Promotes) && !f.has(history.Forgets) && (!f.has(history.Restarts) || m.keepsData(f)) {
			continue
		}
		until := m.settled(f)
		for j := range m.holds {
			h := &m.holds[j]
			if h.Lock == lock && h.Acquire.Expires() == 0 && h.Acquire.Invoke.Time <= until && h.Release != nil && h.Release.Complete.Time >= f.Start &&
				(first[i] == nil || h.Release.Invoke.Time < first[i].Release.Invoke.Time) {
				first[i] = h
			}
		}
	}
	return first
}

// leavesStuck reports whether a fault that was over can have left a lock that no client can
// acquire: it was in effect after the last grant was asked for. If that was given back for
// certain it may have undone the release; else only the lease ends the grant, and only a
// clock can have kept that from ending.
func (m *model) leavesStuck(f *Fault, v *checker.Violation) bool {
	before := m.lastGrant(v.Lock, v.From)
	switch {
	case !f.counts() || f.End > v.From:
		return false
	case before == nil:
		return true
	case f.has(history.ShiftsClock):
		return f.endsLate(before, v.From)
	case before.Release == nil || !before.Release.OK():
		return false
	default:
		return f.End >= before.Acquire.Invoke.Time
	}
}

// lastGrant is the last grant of a lock before an instant; nil if there is none.
func (m *model) lastGrant(lock string, at time.Duration) *holding.Hold {
	var before *holding.Hold
	for i := range m.holds {
		if h := &m.holds[i]; h.Lock == lock && h.Start <= at && (before == nil || h.Start > before.Start) {
			before = h
		}
	}
	return before
}

// inFlight reports whether a fault was in effect, on a link of its client, while a request
// was under way that the evidence is about.
func (m *model) inFlight(f *Fault, holds []*holding.Hold) bool {
	under := func(op *history.Operation) bool {
		return f.Start <= op.Complete.Time && f.End >= op.Invoke.Time
	}
	links := f.links(m.Run.Topology)
	return slices.ContainsFunc(holds, func(h *holding.Hold) bool {
		zone := m.zoneOf(h.Owner)
		if m.isZone(zone) && !slices.ContainsFunc(links, func(l history.Link) bool { return l.From == zone || m.isServer(l.From) }) {
			return false
		}
		return under(&h.Acquire) || h.Release != nil && under(h.Release) ||
			slices.ContainsFunc(h.Extensions, func(op history.Operation) bool { return under(&op) })
	})
}

// follows is the double grant that a violation follows from, and the release that leads from
// one to the other: two clients held, and when the first of them gave the lock back, the hold
// of the second ended with it. There is none where a fault explains the violation itself, and
// of a lock that several clients may hold, where to give one grant back ends no other.
func (m *model) follows(v *checker.Violation) (before *checker.Violation, release *history.Operation) {
	holds := m.holdsOf(v)
	if len(holds) == 0 || v.Kind != checker.DoubleGrant && v.Kind != checker.PrematureLoss || m.shared(v.Lock) || m.origin(v) >= 0 {
		return nil, nil
	}
	until := m.since(v)
	if len(holds) > 1 {
		until = holds[1].Start
	}
	if m.seconds == nil {
		m.seconds = map[*holding.Hold][]*checker.Violation{}
		for _, u := range m.distinct() {
			if both := m.holdsOf(u); u.Kind == checker.DoubleGrant && len(both) > 1 {
				m.seconds[both[1]] = append(m.seconds[both[1]], u)
			}
		}
	}
	for _, u := range m.seconds[holds[0]] {
		other := m.holdsOf(u)[0]
		a, b := m.granter(other), m.granter(holds[0])
		r := other.Release
		if u != v && (a == b || a == "" || b == "") && r != nil && !r.Failed() && r.Complete.Time >= holds[0].Acquire.Invoke.Time && r.Invoke.Time <= until {
			before, release = u, r
		}
	}
	return before, release
}
