package reports

import (
	"slices"
	"strings"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/topologies"
)

// linksOf are the links that a target names, several separated by spaces or
// commas: that of the name, else all of a kind, or FROM>TO and FROM>TO/KIND, where either side
// may be a node, a kind of node or "*". Two nodes may have two links, of which one has the
// name FROM>TO: a history names each that was hit.
func linksOf(target string, t history.Topology) []history.Link {
	names := strings.Fields(strings.ReplaceAll(strings.Trim(target, "{}"), ",", " "))
	kinds := map[string]string{}
	for _, n := range t.Nodes {
		kinds[n.Name] = n.Kind
	}
	covers := func(pattern, node string) bool {
		return pattern == "*" || pattern == node || pattern == kinds[node]
	}
	named := map[string]bool{}
	for _, l := range t.Links {
		named[l.Name] = true
	}
	var links []history.Link
	for _, l := range t.Links {
		if slices.ContainsFunc(names, func(name string) bool {
			if named[name] {
				return name == l.Name
			}
			pair, kind, narrowed := strings.Cut(name, "/")
			from, to, directed := strings.Cut(pair, ">")
			return name == l.Kind ||
				directed && covers(from, l.From) && covers(to, l.To) && (!narrowed || kind == l.Kind)
		}) {
			links = append(links, l)
		}
	}
	return links
}

// links are those that the fault concerns: of a partition those between the parties
// that it keeps apart, else those that its target names.
func (f *Fault) links(t history.Topology) []history.Link {
	if spec := f.spec(); spec.Links != nil {
		if chosen, err := spec.LinksOf(plan(t), faults.Step{Fault: f.Name, Target: f.Target, Params: f.Params}); err == nil {
			return slices.DeleteFunc(slices.Clone(t.Links), func(l history.Link) bool {
				return !slices.ContainsFunc(chosen, func(c topologies.Link) bool {
					return c.From == l.From && c.To == l.To && string(c.Kind) == l.Kind
				})
			})
		}
	}
	if f.separates() {
		return slices.DeleteFunc(slices.Clone(t.Links), func(l history.Link) bool { return f.hits(l.From) == f.hits(l.To) })
	}
	links := linksOf(f.Target, t)
	for _, l := range t.Links {
		if (f.hits(l.From) || f.hits(l.To)) && !slices.Contains(links, l) && (l.Kind != string(topologies.Client) || !f.keepsClients()) {
			links = append(links, l)
		}
	}
	return links
}

// keepsClients reports whether a server that the fault cuts off from the others is still reached by
// all clients, as in a simulated split-brain.
func (f *Fault) keepsClients() bool { return f.Params["clients"] == "kept" }

// plan is a recorded topology as faults see it.
func plan(t history.Topology) topologies.Topology {
	p := topologies.Topology{Name: t.Name}
	for _, n := range t.Nodes {
		p.Nodes = append(p.Nodes, topologies.Node{Name: n.Name, Kind: topologies.Kind(n.Kind), Role: n.Role, Of: n.Of})
	}
	for _, l := range t.Links {
		p.Links = append(p.Links, topologies.Link{From: l.From, To: l.To, Kind: topologies.LinkKind(l.Kind)})
	}
	return p
}

// blocks reports whether the fault, while it is in effect, keeps a zone of
// clients from a server.
func (f *Fault) blocks(zone, server string, t history.Topology) bool {
	switch {
	case !f.OK:
		return false
	case f.has(history.Stops):
		return f.hits(server)
	case f.separates():
		return f.hits(zone) != f.hits(server)
	case f.has(history.Cuts), f.has(history.Stalls):
		return slices.ContainsFunc(f.links(t), func(l history.Link) bool {
			return l.From == zone && l.To == server
		})
	default:
		return false
	}
}
