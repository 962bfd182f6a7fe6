package topologies

import (
	"fmt"
	"slices"
	"strings"
)

// A Kind says what a node is.
type Kind string

// The kinds of node.
const (
	Redis     Kind = "redis"     // a Redis server
	Sentinel  Kind = "sentinel"  // a Redis Sentinel
	Etcd      Kind = "etcd"      // a member of an etcd cluster
	ZooKeeper Kind = "zookeeper" // a member of a ZooKeeper ensemble
	Zone      Kind = "zone"      // a group of clients with links of its own
)

// A LinkKind says what a link carries.
type LinkKind string

// The kinds of link.
const (
	Client      LinkKind = "client"      // a zone's clients to a server or sentinel
	Replication LinkKind = "replication" // a replica to its master
	Monitor     LinkKind = "monitor"     // a sentinel to a Redis server
	Gossip      LinkKind = "gossip"      // a sentinel to another
	Bus         LinkKind = "bus"         // a cluster's node to the bus port of another
	Peer        LinkKind = "peer"        // a member of a consensus store to another
)

// A Node is a server, a sentinel or a zone of clients.
type Node struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	// Role is what a server boots as: master or replica of Redis, member of a
	// consensus store; empty for the other kinds.
	Role string `json:"role,omitempty"`
	// Of is the master that a replica boots as a replica of; empty for all
	// others.
	Of string `json:"of,omitempty"`
}

// A Link is one direction of dialling: From opens connections to To, and data
// flows both ways on them.
type Link struct {
	From string   `json:"from"`
	To   string   `json:"to"`
	Kind LinkKind `json:"kind"`
}

// Name is how the link is called in plans and histories: "zone-a>redis-1". A
// cluster's nodes may have two links to each other, of which the one to the bus
// port is called "redis-1>redis-2/bus".
func (l Link) Name() string {
	if l.Kind == Bus {
		return l.From + ">" + l.To + "/" + string(Bus)
	}
	return l.From + ">" + l.To
}

// The roles of a server.
const (
	Master  = "master"
	Replica = "replica"
	// Member is the boot role of every server of a consensus store, whose members elect
	// a Leader, which the others are a Follower of.
	Member   = "member"
	Leader   = "leader"
	Follower = "follower"
)

// Store is the store that the servers are of.
func (t Topology) Store() string { return StoreOf(t.Name) }

// Consensus reports whether the servers answer a write only after a majority of them
// has it, so that a new leader knows all that was granted.
func (t Topology) Consensus() bool {
	return slices.ContainsFunc(t.Nodes, func(n Node) bool { return n.Role == Member })
}

// Servers are the names of the servers that locks can be on, in order.
func (t Topology) Servers() []string {
	return t.names(func(n Node) bool { return n.Kind != Zone && n.Kind != Sentinel })
}

// names are those of some nodes, in order.
func (t Topology) names(are func(Node) bool) []string {
	var names []string
	for _, n := range t.Nodes {
		if are(n) {
			names = append(names, n.Name)
		}
	}
	return names
}

// ServerKind is the kind of the servers that locks can be on; empty if there are none.
func (t Topology) ServerKind() Kind {
	n, _ := t.Node(append(t.Servers(), "")[0])
	return n.Kind
}

// Unsupported says what can't be done to any deployment of the topology, and why; empty
// where its servers rule nothing out.
func (t Topology) Unsupported() map[Capability]string {
	redis := "it is a fault of Redis servers, and topology " + t.Name + " has none"
	messages := "the proxies take apart what Redis clients send, and not what " + t.Store() + " clients send"
	bandwidth := t.Store() + " has no request that comes back as large as it was sent, by which the bandwidth could be proven"
	switch t.Store() {
	case StoreEtcd:
		return map[Capability]string{
			Settings: redis, Messages: messages, Bandwidth: bandwidth,
			Wiping: "an etcd member that lost its data may not come back under its name",
			Clocks: "etcd counts leases and elections by monotonic time, and a Go program evades the library that shows another clock",
			Disks:  "a Go program evades the library that shows another disk",
		}
	case StoreZooKeeper:
		return map[Capability]string{
			Settings: redis, Messages: messages, Bandwidth: bandwidth,
			HandOvers: "a ZooKeeper leader can't be asked to hand over",
			Clocks:    "ZooKeeper counts sessions and elections by monotonic time",
			Disks:     "the library that shows another disk knows the files of Redis alone",
		}
	default:
		return nil
	}
}

// A Topology is the plan of a deployment.
type Topology struct {
	Name string `json:"name"`
	// Options are those it was made with, defaults filled in.
	Options Options `json:"options"`
	Nodes   []Node  `json:"nodes"`
	Links   []Link  `json:"links"`
}

// ByName returns a topology in its default size.
func ByName(name string) (Topology, error) { return New(name, Options{}) }

// New returns a topology.
//
//   - single: one Redis server; with [AccessName], a master and two replicas.
//   - sentinel: a master, two replicas and three sentinels.
//   - cluster: three masters, with a third of the slots and one replica each.
//   - independent: [Options.Nodes] servers that know nothing of each other.
//   - etcd: [Options.Nodes] members of one etcd cluster.
//   - zookeeper: [Options.Nodes] members of one ZooKeeper ensemble.
//
// All have two zones of clients, zone-a and zone-b.
func New(name string, o Options) (Topology, error) {
	if err := o.Validate(name); err != nil {
		return Topology{}, err
	}
	t, of := Topology{Name: name, Options: o.withDefaults(name)}, ShapeOf(name)
	if of.Member != "" {
		t.add(of.Member, t.Options.Nodes, Member)
	} else {
		masters := max(of.Masters, t.Options.Nodes)
		for i := range masters * (1 + o.replicasOf(name)) {
			n := Node{Name: fmt.Sprintf("redis-%d", i+1), Kind: Redis, Role: Master}
			if i >= masters { // after them come their replicas in turns: of three masters, redis-4 is the first one's
				n.Role, n.Of = Replica, t.Nodes[i%masters].Name
			}
			t.Nodes = append(t.Nodes, n)
		}
	}
	t.add(Sentinel, of.Sentinels, "")
	for _, zone := range []string{"a", "b"} {
		t.Nodes = append(t.Nodes, Node{Name: "zone-" + zone, Kind: Zone})
	}
	for _, from := range t.Nodes {
		for _, to := range t.Nodes {
			for _, kind := range t.linkKinds(from, to) {
				t.Links = append(t.Links, Link{From: from.Name, To: to.Name, Kind: kind})
			}
		}
	}
	return t, nil
}

func (t *Topology) add(kind Kind, count int, role string) {
	for i := range count {
		t.Nodes = append(t.Nodes, Node{Name: fmt.Sprintf("%s-%d", kind, i+1), Kind: kind, Role: role})
	}
}

// linkKinds are the links of a pair that may ever talk. Any server of a shard may become
// its master, so replication links exist in both directions.
func (t *Topology) linkKinds(from, to Node) []LinkKind {
	var kinds []LinkKind
	switch {
	case from.Name == to.Name || to.Kind == Zone:
	case from.Kind == Zone:
		kinds = append(kinds, Client)
	case from.Kind == Redis && to.Kind == Redis:
		if from.shard() == to.shard() {
			kinds = append(kinds, Replication)
		}
		if t.HasSlots() {
			kinds = append(kinds, Bus)
		}
	case from.Role == Member && to.Role == Member:
		kinds = append(kinds, Peer)
	case from.Kind == Sentinel && to.Kind == Redis:
		kinds = append(kinds, Monitor)
	case from.Kind == Sentinel && to.Kind == Sentinel:
		kinds = append(kinds, Gossip)
	}
	return kinds
}

// Unlinked reports whether two servers talk to each other past every link, as those of a
// deployment may that runs already: nothing but clients passes a link to either.
func (t Topology) Unlinked(a, b string) bool {
	one, _ := t.Node(a)
	other, _ := t.Node(b)
	if one.Kind == Zone || other.Kind == Zone || len(t.linkKinds(one, other)) == 0 {
		return false
	}
	return !slices.ContainsFunc(t.Links, func(l Link) bool { return l.Kind != Client && (l.To == a || l.To == b) })
}

// shard is the boot master of the servers that replicate each other.
func (n Node) shard() string {
	if n.Of != "" {
		return n.Of
	}
	return n.Name
}

// Shards names the masters whose role can move to a replica, by the servers
// that have it at boot: redis-1 of sentinel, redis-1 to redis-3 of cluster, redis-1
// of single with [AccessName]; none where no server has a replica. A consensus store is
// one shard, named by its first member, whichever member leads.
func (t Topology) Shards() []string {
	if t.Consensus() {
		return t.Servers()[:1]
	}
	var shards []string
	for _, name := range t.Of(Redis) {
		if len(t.Members(name)) > 1 {
			shards = append(shards, name)
		}
	}
	return shards
}

// Elects reports whether the servers replace a master that is gone by themselves.
// Where they do not, an operator moves its role: in a planned failover.
func (t Topology) Elects() bool { return ShapeOf(t.Name).Elects }

// HasSlots reports whether each shard serves some of the keys only, by the slots that these are in.
func (t Topology) HasSlots() bool { return ShapeOf(t.Name).Slots }

// Apart reports whether there are several servers that know nothing of each other.
func (t Topology) Apart() bool { return len(t.Servers()) > 1 && len(t.Shards()) == 0 }

// Members are the servers that share the data of a boot master, itself first:
// redis-1 and redis-4 of the cluster's redis-1. They are none for a server that
// boots as a replica.
func (t Topology) Members(master string) []string {
	if t.Consensus() {
		if servers := t.Servers(); servers[0] == master {
			return servers
		}
		return nil
	}
	return t.names(func(n Node) bool { return n.Kind == Redis && n.shard() == master })
}

// Replicas is how many replicas the first server boots with, which may acknowledge a
// write one by one; 0 for a consensus store, whose members are no replicas.
func (t Topology) Replicas() int {
	if servers := t.Servers(); len(servers) > 0 && !t.Consensus() {
		return len(t.Members(servers[0])) - 1
	}
	return 0
}

// Of returns the names of the nodes of a kind, in order.
func (t Topology) Of(kind Kind) []string {
	return t.names(func(n Node) bool { return n.Kind == kind })
}

// Node returns the node with that name.
func (t Topology) Node(name string) (Node, bool) {
	for _, n := range t.Nodes {
		if n.Name == name {
			return n, true
		}
	}
	return Node{}, false
}

// Select returns the links that a target names:
//
//   - "replication", "client", "monitor", "gossip", "bus", "peer": all of that kind;
//   - "redis-1": all from or to that node;
//   - "zone-a>redis-1": those from one to the other; either side may be a kind
//     of node or "*": "zone-a>*", "sentinel>redis-1";
//   - "redis-1>redis-2/bus": of those, the ones of a kind.
//
// A target that names no link is an error.
func (t Topology) Select(target string) ([]Link, error) {
	var match func(Link) bool
	_, node := t.Node(target)
	pair, kind, narrowed := strings.Cut(target, "/")
	from, to, directed := strings.Cut(pair, ">")
	switch {
	case directed:
		match = func(l Link) bool {
			return t.covers(from, l.From) && t.covers(to, l.To) && (!narrowed || string(l.Kind) == kind)
		}
	case node:
		match = func(l Link) bool { return l.From == target || l.To == target }
	default:
		match = func(l Link) bool { return string(l.Kind) == target }
	}
	links := slices.DeleteFunc(slices.Clone(t.Links), func(l Link) bool { return !match(l) })
	if len(links) == 0 {
		return nil, fmt.Errorf("no link of topology %s is called %q (want a node, a kind of link, FROM>TO, or FROM>TO/KIND)", t.Name, target)
	}
	return links, nil
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
