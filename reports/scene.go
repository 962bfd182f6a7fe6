package reports

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/holding"
	"github.com/lockchaos/lockchaos/history"
)

// A scene is where a violation took place, as far as it is known.
type scene struct {
	servers map[string]bool // that granted or answered, or were masters of those locks at that time; nil for any
	masters map[string]bool // of all locks at that time
	zones   map[string]bool // of the clients; nil for any
}

// sceneOf is where the holds and answers of a violation took place.
func (m *model) sceneOf(v *checker.Violation, holds []*holding.Hold) scene {
	from, to := v.From, m.since(v)
	for _, h := range holds {
		from = min(from, h.Acquire.Invoke.Time)
	}
	s := scene{map[string]bool{}, m.mastersIn(from, to), map[string]bool{}}
	for _, h := range holds {
		voters := m.voters(h)
		if len(voters) == 0 { // they are not known of all
			s.servers = nil
		}
		for _, node := range voters {
			if s.servers != nil {
				s.servers[node] = true
			}
		}
		if zone := m.zoneOf(h.Owner); m.isZone(zone) && s.zones != nil {
			s.zones[zone] = true
		} else {
			s.zones = nil
		}
	}
	if len(holds) == 0 || s.servers == nil {
		s.servers = nil
		return s
	}
	for _, index := range v.Events {
		if e, ok := m.event(index); ok && e.Node != "" {
			s.servers[e.Node] = true
		}
	}
	shards := map[string]bool{}
	for node := range s.servers {
		shards[m.shardOf(node)] = true
	}
	for server := range s.masters {
		if shards[m.shardOf(server)] {
			s.servers[server] = true
		}
	}
	return s
}

// mastersIn are the servers that were masters at some time of a window, as far as it was seen.
func (m *model) mastersIn(from, to time.Duration) map[string]bool {
	masters := map[string]bool{}
	for _, n := range m.Run.Topology.Nodes {
		if n.Role != "" && m.roleAt(n.Name, from) == "master" {
			masters[n.Name] = true
		}
	}
	for _, c := range m.roles {
		if c.role == "master" && c.at >= from && c.at <= to {
			masters[c.node] = true
		}
	}
	return masters
}

func (m *model) isZone(name string) bool {
	return slices.ContainsFunc(m.Run.Topology.Nodes, func(n history.Node) bool { return n.Kind == "zone" && n.Name == name })
}

// shardOf is the server that a server shares its data with as their master at the start.
func (m *model) shardOf(server string) string {
	first := ""
	for _, n := range m.Run.Topology.Nodes {
		if first == "" && n.Role == "master" {
			first = n.Name
		}
	}
	for _, n := range m.Run.Topology.Nodes {
		if n.Name == server && n.Role == "replica" {
			return cmp.Or(n.Of, first) // a record may leave it out where there is one
		}
	}
	return server
}

func (s scene) server(name string) bool { return s.servers == nil || s.servers[name] }
func (s scene) zone(name string) bool   { return s.zones == nil || s.zones[name] }

// concerns reports whether a fault can have touched what happened at a scene: one of
// other servers, of links that lead elsewhere, or of other zones of clients can't.
func (m *model) concerns(f *Fault, s scene) bool {
	if f.Met != nil && *f.Met == 0 {
		return false
	}
	if f.has(history.Promotes) && !f.has(history.Isolates) && s.servers != nil {
		return m.replaces(f, s)
	}
	named, touched := false, false
	for _, n := range m.Run.Topology.Nodes {
		if strings.Contains(f.Target, ">") || !f.hits(n.Name) {
			continue
		}
		switch {
		case n.Kind == "zone":
			named, touched = true, touched || s.zone(n.Name)
		case n.Role != "" || n.Kind == "redis":
			// What a replica has, or its clock shows, matters once it is the master.
			named, touched = true, touched || s.server(n.Name) && (s.servers != nil || len(s.masters) == 0 || s.masters[n.Name] || !f.has(history.ShiftsClock) && !f.has(history.Forgets))
		case n.Kind == "sentinel" && (f.has(history.Stops) || f.has(history.Restarts) || f.has(history.ShiftsClock)):
			named, touched = true, touched || m.promotes(f.Start) // it keeps no lock
		}
	}
	if named {
		return touched
	}
	links := f.links(m.Run.Topology)
	return len(links) == 0 || slices.ContainsFunc(links, func(l history.Link) bool {
		switch {
		case m.isZone(l.From):
			return s.zone(l.From) && (s.server(l.To) || !m.isServer(l.To))
		case m.isServer(l.From):
			return s.server(l.From) || s.server(l.To)
		default:
			return s.server(l.To) || !m.isServer(l.To)
		}
	})
}

// promotes reports whether a server was seen to be promoted from an instant on.
func (m *model) promotes(from time.Duration) bool {
	return slices.ContainsFunc(m.roles, func(c roleChange) bool { return c.at >= from && c.was != "" && c.role == "master" })
}

// replaces reports whether the masters that a fault replaces are those of a scene.
func (m *model) replaces(f *Fault, s scene) bool {
	shard := f.Params["shard"]
	for _, n := range m.Run.Topology.Nodes {
		if shard == "" && n.Role != "" && f.hits(n.Name) {
			shard = m.shardOf(n.Name)
		}
	}
	for _, n := range m.Run.Topology.Nodes {
		if shard == "" && n.Role == "master" { // that of the first
			shard = n.Name
		}
	}
	for server := range s.servers {
		if shard == "" || m.shardOf(server) == shard {
			return true
		}
	}
	return false
}

func (m *model) isServer(name string) bool {
	return slices.ContainsFunc(m.Run.Topology.Nodes, func(n history.Node) bool {
		return n.Name == name && (n.Role != "" || n.Kind == "redis")
	})
}
