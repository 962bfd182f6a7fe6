package reports

import (
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
)

// byOneServer reports whether all answers that a violation is about were given by one server,
// as far as it is known. That another server took over, or was cut off, does not explain it.
func (m *model) byOneServer(f *Fault, v *checker.Violation, evidence []*holding.Hold) bool {
	if len(evidence) == 0 {
		return false
	}
	by := m.granter(evidence[0])
	switch v.Kind {
	case checker.DoubleGrant:
		return by != "" && (len(evidence) < 2 || m.granter(evidence[1]) == by)
	case checker.OverCapacity:
		return by != "" && !slices.ContainsFunc(evidence, func(h *holding.Hold) bool { return m.granter(h) != by })
	case checker.PrematureLoss:
		return by != "" && len(v.Events) > 0 && m.answeredBy(f, evidence[0], slices.Max(v.Events)) == by
	default:
		return false
	}
}

// answeredBy is the server that told a holder of a loss; empty where it is not known, or
// where it did not keep its role from the grant on. If the record does not name the server, it
// is the only master that the client could reach, once the fault is known to have made one.
func (m *model) answeredBy(f *Fault, h *holding.Hold, index int64) string {
	told, ok := m.event(index)
	if !ok {
		return ""
	}
	by, made := told.Node, false
	if by == "" {
		by = m.masterOf(h.Owner, told.Time)
	}
	for _, c := range m.roles {
		if c.node == by && c.at >= sentAt(h) && c.at <= told.Time {
			return ""
		}
		made = made || c.role == "master" && c.was != "" && c.at >= f.Start && c.at < sentAt(h)
	}
	if told.Node == "" && !made {
		return ""
	}
	return by
}

// sentAt is when the request was sent that was granted, at the earliest.
func sentAt(h *holding.Hold) time.Duration {
	if sent, ok := lastTry(h); ok {
		return sent
	}
	return h.Acquire.Invoke.Time
}

// extraMasters are the servers that were seen as masters at an instant, if they were more
// than at the start.
func (m *model) extraMasters(at time.Duration) []string {
	var masters []string
	most := 0
	for _, name := range m.servers() {
		most += b2i(m.roleAt(name, 0) == "master")
		if m.roleAt(name, at) == "master" {
			masters = append(masters, name)
		}
	}
	if most == 0 || len(masters) <= most {
		return nil
	}
	return masters
}
