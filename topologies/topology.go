package topologies

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockchaos/lockchaos/internal/names"
)

// A Kind says what a node is.
type Kind string

// The kinds of node.
const (
	Redis    Kind = "redis"    // a Redis server
	Sentinel Kind = "sentinel" // a Redis Sentinel
	Zone     Kind = "zone"     // a group of clients with links of its own
)

// A LinkKind says what a link carries.
type LinkKind string

// The kinds of link.
const (
	Client      LinkKind = "client"      // a zone's clients to a server or sentinel
	Replication LinkKind = "replication" // a replica to its master
	Monitor     LinkKind = "monitor"     // a sentinel to a Redis server
	Gossip      LinkKind = "gossip"      // a sentinel to another
)

// A Node is one party of a topology.
type Node struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	// Role is what a Redis server boots as: master or replica; empty for the
	// other kinds.
	Role string `json:"role,omitempty"`
}

// A Link is one direction of dialling: From opens connections to To, and data
// flows both ways on them.
type Link struct {
	From string   `json:"from"`
	To   string   `json:"to"`
	Kind LinkKind `json:"kind"`
}

// Name is how the link is called in plans and histories: "zone-a>redis-1".
func (l Link) Name() string { return l.From + ">" + l.To }

// The roles of a Redis server.
const (
	Master  = "master"
	Replica = "replica"
)

// A Topology is the plan of a deployment.
type Topology struct {
	Name  string `json:"name"`
	Nodes []Node `json:"nodes"`
	Links []Link `json:"links"`
}

// Names lists the topologies that [ByName] knows.
func Names() []string { return []string{"single", "sentinel"} }

// ByName returns a topology in its default size.
//
//   - single: one Redis server.
//   - sentinel: a master, two replicas and three sentinels.
//
// Both have two zones of clients, zone-a and zone-b.
func ByName(name string) (Topology, error) {
	switch name {
	case "single":
		return wire(name, 1, 0), nil
	case "sentinel":
		return wire(name, 3, 3), nil
	default:
		return Topology{}, names.Unknown("topology", name, Names())
	}
}

// wire names the parties and links every pair of them that may ever talk: any
// server may become the master, so replication links exist in both directions.
func wire(name string, servers, sentinels int) Topology {
	t := Topology{Name: name}
	for i := range servers {
		role := Replica
		if i == 0 {
			role = Master
		}
		t.Nodes = append(t.Nodes, Node{Name: fmt.Sprintf("redis-%d", i+1), Kind: Redis, Role: role})
	}
	for i := range sentinels {
		t.Nodes = append(t.Nodes, Node{Name: fmt.Sprintf("sentinel-%d", i+1), Kind: Sentinel})
	}
	for _, zone := range []string{"a", "b"} {
		t.Nodes = append(t.Nodes, Node{Name: "zone-" + zone, Kind: Zone})
	}
	for _, from := range t.Nodes {
		for _, to := range t.Nodes {
			if kind, ok := linkKind(from, to); ok {
				t.Links = append(t.Links, Link{From: from.Name, To: to.Name, Kind: kind})
			}
		}
	}
	return t
}

func linkKind(from, to Node) (LinkKind, bool) {
	switch {
	case from.Name == to.Name || to.Kind == Zone:
		return "", false
	case from.Kind == Zone:
		return Client, true
	case from.Kind == Redis && to.Kind == Redis:
		return Replication, true
	case from.Kind == Sentinel && to.Kind == Redis:
		return Monitor, true
	case from.Kind == Sentinel && to.Kind == Sentinel:
		return Gossip, true
	default:
		return "", false
	}
}

// Of returns the names of the nodes of a kind, in order.
func (t Topology) Of(kind Kind) []string {
	var names []string
	for _, n := range t.Nodes {
		if n.Kind == kind {
			names = append(names, n.Name)
		}
	}
	return names
}

// Node returns the node with that name.
func (t Topology) Node(name string) (Node, bool) {
	i := slices.IndexFunc(t.Nodes, func(n Node) bool { return n.Name == name })
	if i < 0 {
		return Node{}, false
	}
	return t.Nodes[i], true
}

// Select returns the links that a target names:
//
//   - "replication", "client", "monitor", "gossip": all of that kind;
//   - "redis-1": all from or to that node;
//   - "zone-a>redis-1": that link; either side may be a kind of node or "*":
//     "zone-a>*", "sentinel>redis-1".
//
// A target that names no link is an error.
func (t Topology) Select(target string) ([]Link, error) {
	var match func(Link) bool
	from, to, directed := strings.Cut(target, ">")
	switch {
	case directed:
		match = func(l Link) bool { return t.covers(from, l.From) && t.covers(to, l.To) }
	case t.has(target):
		match = func(l Link) bool { return l.From == target || l.To == target }
	default:
		match = func(l Link) bool { return string(l.Kind) == target }
	}
	links := slices.DeleteFunc(slices.Clone(t.Links), func(l Link) bool { return !match(l) })
	if len(links) == 0 {
		return nil, fmt.Errorf("no link of topology %s is called %q (want a node, a kind of link, or FROM>TO)", t.Name, target)
	}
	return links, nil
}

func (t Topology) has(name string) bool {
	_, ok := t.Node(name)
	return ok
}

func (t Topology) covers(pattern, name string) bool {
	n, _ := t.Node(name)
	return pattern == "*" || pattern == name || pattern == string(n.Kind)
}

// Across returns the links between a group of nodes and all others, in both
// directions: those that a partition cuts.
func (t Topology) Across(group []string) []Link {
	return slices.DeleteFunc(slices.Clone(t.Links), func(l Link) bool {
		return slices.Contains(group, l.From) == slices.Contains(group, l.To)
	})
}
