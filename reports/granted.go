package reports

import (
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/say"
	"github.com/lockchaos/lockchaos/topologies"
)

// locateGrants infers which server granted a hold, where the record does not say it: the master
// that was seen to have its key, else the only master that the client could reach. It assumes that
// a server has the role that it was last seen in, and that the client is in the zone of its name. What
// is inferred is marked with "≈" wherever it is shown.
func (m *model) locateGrants() {
	seen := map[string]string{}
	for _, e := range m.notes {
		if e.Op != history.Observe || e.What != history.ObserveKey {
			continue
		}
		if _, known := seen[e.Value]; !known && m.roleAt(e.Node, e.Time) == "master" {
			seen[e.Value] = e.Node
		}
	}
	m.granters = map[int]string{}
	for i := range m.holds {
		h := &m.holds[i]
		if h.Acquire.Complete.Node != "" {
			continue
		}
		node := seen[h.Lock+" "+h.Owner]
		if master := m.masterOf(h.Owner, h.Acquire.Invoke.Time); node == "" && master == m.masterOf(h.Owner, h.Acquire.Complete.Time) {
			node = master
		}
		if node != "" {
			m.granters[h.Acquire.Ordinal()] = node
		}
	}
}

// granter is the server that granted a hold, as recorded or else inferred; empty where neither is known.
func (m *model) granter(h *holding.Hold) string {
	if node := h.Acquire.Complete.Node; node != "" {
		return node
	}
	return m.granters[h.Acquire.Ordinal()]
}

// masterOf is the only master that the client of an owner could reach at an
// instant, by what was seen of the servers and by the faults that cut groups
// off from each other. It is empty if there was none, or more than one.
func (m *model) masterOf(owner string, at time.Duration) string {
	zone, only := m.zoneOf(owner), ""
	for _, n := range m.Run.Topology.Nodes {
		if n.Role == "" || m.roleAt(n.Name, at) != "master" || !m.reaches(zone, n.Name, at) {
			continue
		}
		if only != "" {
			return ""
		}
		only = n.Name
	}
	return only
}

// reaches reports whether no fault kept a zone from a server for certain: once its heal was
// asked for, some links may be there again, and others not yet.
func (m *model) reaches(zone, server string, at time.Duration) bool {
	if !m.isZone(zone) {
		// It is not known where the client is: it may be in any zone.
		return !slices.ContainsFunc(m.Run.Topology.Nodes, func(n history.Node) bool {
			return n.Kind == string(topologies.Zone) && !m.reaches(n.Name, server, at)
		})
	}
	for i := range m.faults {
		f := &m.faults[i]
		if f.OK && at >= f.at() && at <= m.heals[i] && (f.has(history.Isolates) || f.has(history.Stops)) && f.blocks(zone, server, m.Run.Topology) {
			return false
		}
	}
	return true
}

// roleAt is the role that a server was last seen in.
func (m *model) roleAt(node string, at time.Duration) string {
	role := ""
	for _, c := range m.roles {
		if c.node == node && c.at <= at {
			role = c.role
		}
	}
	return role
}

// voters are the servers that granted a hold, as far as it is known: one, or of
// independent servers all that were seen to have its key.
func (m *model) voters(h *holding.Hold) []string {
	first := m.granter(h)
	if first == "" {
		return nil
	}
	voters := []string{first}
	if h.Acquire.Complete.Node != "" || slices.ContainsFunc(m.Run.Topology.Nodes, func(n history.Node) bool { return n.Role == roleReplica }) {
		return voters // what others have is a copy
	}
	for _, l := range m.looksAt(h.Lock) {
		if l.owner == h.Owner && !slices.Contains(voters, l.server) && m.roleAt(l.server, h.Start) == "master" {
			voters = append(voters, l.server)
		}
	}
	slices.SortFunc(voters, say.Natural)
	return voters
}

// grantors names the servers that granted a hold, with the mark of what is inferred; empty where
// that is not known.
func (m *model) grantors(h *holding.Hold) string {
	names := strings.Join(m.voters(h), ", ")
	if names == "" {
		return ""
	}
	return inferred(names, h.Acquire.Complete.Node == "")
}

func (m *model) isZone(name string) bool {
	return slices.ContainsFunc(m.Run.Topology.Nodes, func(n history.Node) bool { return n.Kind == string(topologies.Zone) && n.Name == name })
}

// zoneOf is the zone of a client: that of the script, else its name up to the first dot.
func (m *model) zoneOf(owner string) string {
	if zone := m.Run.Clients[client(owner)]; zone != "" {
		return zone
	}
	zone, _, _ := strings.Cut(client(owner), ".")
	return zone
}
