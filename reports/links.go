package reports

import (
	"slices"
	"strings"

	"github.com/lockchaos/lockchaos/workload/history"
)

// linksOf are the links that a target names, several separated by spaces or
// commas: all of a kind, or FROM>TO and FROM>TO/KIND, where either side may
// be a node, a kind of node or "*".
func linksOf(target string, t history.Topology) []history.Link {
	names := strings.Fields(strings.ReplaceAll(strings.Trim(target, "{}"), ",", " "))
	kinds := map[string]string{}
	for _, n := range t.Nodes {
		kinds[n.Name] = n.Kind
	}
	covers := func(pattern, node string) bool {
		return pattern == "*" || pattern == node || pattern == kinds[node]
	}
	var links []history.Link
	for _, l := range t.Links {
		if slices.ContainsFunc(names, func(name string) bool {
			pair, kind, narrowed := strings.Cut(name, "/")
			from, to, directed := strings.Cut(pair, ">")
			return name == l.Name || name == l.Kind ||
				directed && covers(from, l.From) && covers(to, l.To) && (!narrowed || kind == l.Kind)
		}) {
			links = append(links, l)
		}
	}
	return links
}

func linkNames(links []history.Link) []string {
	names := make([]string, len(links))
	for i, l := range links {
		names[i] = l.Name
	}
	return names
}

// cuts reports whether a fault keeps data from a link.
func cuts(name string) bool { return name == "cut" || name == "hold" || name == "drop" }

// blocks reports whether the fault, while it is in effect, keeps a zone of
// clients from a server.
func (f *Fault) blocks(zone, server string, t history.Topology) bool {
	switch {
	case !f.OK:
		return false
	case stops(f.Name):
		return f.hits(server)
	case f.separates():
		return f.hits(zone) != f.hits(server)
	case cuts(f.Name):
		return slices.ContainsFunc(linksOf(f.Target, t), func(l history.Link) bool {
			return l.From == zone && l.To == server
		})
	default:
		return false
	}
}
