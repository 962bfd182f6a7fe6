package reports

import (
	"slices"
	"sort"
	"time"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
)

// measureRecovery fills in how long it took after each fault, and after its
// heal, until a lock was granted again.
func (m *model) measureRecovery() {
	grants := m.grantedBy()
	for i := range m.faults {
		f := &m.faults[i]
		if !f.OK || !m.interrupts(f) {
			continue
		}
		f.Interrupts = true
		concerned := m.concernedBy(f, grants)
		f.Recovery = m.nextGrant(f.at(), m.promotionIn(f), concerned)
		if f.Healed {
			f.HealRecovery = m.nextGrant(f.End, f.End, concerned)
		}
	}
}

// interrupts reports whether a fault can keep locks from being granted for a while, so
// that there is a recovery from it to measure. A script's steps wait for each other: the
// time until its next grant is the script's.
func (m *model) interrupts(f *Fault) bool {
	return m.Run.Scenario == "" && slices.ContainsFunc([]history.Effect{
		history.Cuts, history.Stalls, history.Isolates, history.Stops, history.Suspends, history.Promotes, history.Restarts, history.Refuses, history.Withholds,
	}, f.has)
}

// promotionIn is when a master took over in a fault that makes one: what was
// granted before, between the order and the blow, was granted by the old one.
// It is the fault's own instant where none did.
func (m *model) promotionIn(f *Fault) time.Duration {
	if f.has(history.Promotes) {
		for _, c := range m.roles {
			if c.role == "master" && c.was != "" && c.at >= f.Start && c.at <= f.InEffect {
				return c.at
			}
		}
	}
	return f.at()
}

// nextGrant is how long it took from an instant to the first grant to a
// request that was sent after it, and was not answered before another. A grant
// that was already on its way shows nothing. It is 0 if there was none.
func (m *model) nextGrant(from, notBefore time.Duration, concerned func(*history.Operation) bool) time.Duration {
	first := sort.Search(len(m.ops), func(i int) bool { return m.ops[i].Invoke.Time > from })
	best := time.Duration(0)
	for i := first; i < len(m.ops); i++ {
		op := &m.ops[i]
		if best > 0 && op.Invoke.Time-from >= best {
			break
		}
		if op.Invoke.Op == history.Acquire && op.OK() && op.Complete.Time >= notBefore && concerned(op) && (best == 0 || op.Complete.Time-from < best) {
			best = op.Complete.Time - from
		}
	}
	return best
}

// concernedBy tells which requests a fault concerns: those that had to pass
// where it was, or all if none had to.
func (m *model) concernedBy(f *Fault, grants map[string][]*holding.Hold) func(*history.Operation) bool {
	var zones, masters []string
	for _, n := range m.Run.Topology.Nodes {
		switch {
		case n.Kind == "zone":
			zones = append(zones, n.Name)
		case m.roleAt(n.Name, f.at()) == "master":
			masters = append(masters, n.Name)
		}
	}
	blocked := func(zone, server string) bool {
		if !slices.Contains(zones, zone) && !f.has(history.Stops) {
			return false // a script does not say where its clients are
		}
		return f.blocks(zone, server, m.Run.Topology)
	}
	promoted := slices.ContainsFunc(masters, func(server string) bool {
		return blocked("", server) || slices.ContainsFunc(zones, func(zone string) bool { return blocked(zone, server) })
	})
	if !promoted {
		return func(*history.Operation) bool { return true }
	}
	known := map[string]bool{} // by zone and lock
	return func(op *history.Operation) bool {
		zone := m.zoneOf(op.Invoke.Owner)
		key := zone + "\x00" + op.Invoke.Lock
		if is, ok := known[key]; ok {
			return is
		}
		servers := masters
		if server := m.lastGranter(grants[op.Invoke.Lock], f.at()); slices.Contains(masters, server) {
			servers = []string{server}
		}
		known[key] = slices.ContainsFunc(servers, func(server string) bool { return blocked(zone, server) })
		return known[key]
	}
}

// grantedBy are the holds of each lock of which it is known who granted them,
// in order of their start.
func (m *model) grantedBy() map[string][]*holding.Hold {
	grants := map[string][]*holding.Hold{}
	for i := range m.holds {
		if h := &m.holds[i]; m.granter(h) != "" {
			grants[h.Lock] = append(grants[h.Lock], h)
		}
	}
	return grants
}

// lastGranter granted the last of some holds that began before an instant.
func (m *model) lastGranter(holds []*holding.Hold, before time.Duration) string {
	at := sort.Search(len(holds), func(i int) bool { return holds[i].Start > before })
	if at == 0 {
		return ""
	}
	return m.granter(holds[at-1])
}

// recoveryCell is a recovery in a table, where one was due at all.
func recoveryCell(due bool, took time.Duration) string {
	switch {
	case !due:
		return "–"
	case took == 0:
		return "none"
	default:
		return say.Span(took)
	}
}
