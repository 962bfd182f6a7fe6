package reports

import (
	"slices"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
)

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
