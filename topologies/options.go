package topologies

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockchaos/lockchaos/internal/names"
)

// Options size and tune a topology. The zero value gives every topology its
// defaults; those that a topology has no use for stay zero.
type Options struct {
	// Nodes is how many servers the independent topology has: an odd number
	// from 3 to 15; 5 by default. An etcd cluster and a ZooKeeper ensemble have 3
	// members by default, or 5. The others have their fixed size.
	Nodes int `json:"nodes,omitempty" yaml:"nodes"`
	// Persistence is what a server keeps of its data when it is killed: one of
	// [Persistences]; none by default.
	Persistence string `json:"persistence,omitempty" yaml:"persistence"`
	// MinReplicas is min-replicas-to-write: how many replicas must have been
	// heard of within the last second for a master to take a write; 0 by
	// default, which is any number.
	MinReplicas int `json:"min_replicas,omitempty" yaml:"min-replicas"`
	// NodeTimeout is the cluster's cluster-node-timeout, in whole milliseconds:
	// after how much silence a node is suspected; 200 ms by default. Promoting
	// a replica takes 500 to 1000 ms more.
	NodeTimeout time.Duration `json:"node_timeout,omitempty" yaml:"node-timeout"`
	// Access is how clients find the master of single and sentinel: one of
	// [Accesses]; direct by default. By name, single has two replicas.
	Access string `json:"access,omitempty" yaml:"access"`
}

// How clients find the master.
const (
	// AccessDirect is by the server's own address or, with sentinels, by asking
	// them.
	AccessDirect = "direct"
	// AccessName is by an address that leads to the master of now, as a DNS name, a
	// virtual IP or a managed endpoint does. Clients are told nothing when it moves:
	// new connections go to the new master, and those that are open stay where they
	// are.
	AccessName = "name"
)

// Accesses lists the values of [Options.Access].
func Accesses() []string { return []string{AccessDirect, AccessName} }

// Primary is what the address of [AccessName] is called, in [Deployment.NodeAt]
// and in observations. It is no node.
const Primary = "primary"

// ByName reports whether clients find the master by a name.
func (o Options) ByName() bool { return o.Access == AccessName }

// What a server keeps of its data. The last three write an append-only file,
// and are named by its appendfsync. A write is in that file before it is
// answered, and so survives the death of the process; what fsync adds would
// show in a power cut only.
const (
	PersistNone     = "none"
	PersistNo       = "no"
	PersistEverySec = "everysec"
	PersistAlways   = "always"
)

// Persistences lists the values of [Options.Persistence].
func Persistences() []string {
	return []string{PersistNone, PersistNo, PersistEverySec, PersistAlways}
}

// The bounds of a node timeout.
const (
	defaultNodeTimeout = 200 * time.Millisecond
	leastNodeTimeout   = 50 * time.Millisecond // below, an idle cluster fails over by itself
	mostNodeTimeout    = 10 * time.Second
)

// replicasOf is how many replicas each master of a topology has. A name that moves
// needs somewhere to move to.
func (o Options) replicasOf(name string) int {
	if name == Single && o.ByName() {
		return 2
	}
	return ShapeOf(name).Replicas
}

// Validate joins everything that is wrong with the options for the topology of
// that name.
func (o Options) Validate(name string) error {
	if !slices.Contains(Names(), name) {
		return names.Unknown("topology", name, Names())
	}
	var errs []error
	problem := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	of := ShapeOf(name)
	switch {
	case o.Nodes == 0 || slices.Contains(of.Sizes, o.Nodes):
	case of.Sizes == nil:
		problem("topology %s has a fixed number of servers, and can't have %d: only %s, %s and %s can be sized", name, o.Nodes,
			Independent, EtcdCluster, ZooKeeperEnsemble)
	case of.Member != "":
		problem("topology %s has %d or %d members, not %d", name, slices.Min(of.Sizes), slices.Max(of.Sizes), o.Nodes)
	default:
		problem("independent servers must be an odd number from %d to %d, not %d", slices.Min(of.Sizes), slices.Max(of.Sizes), o.Nodes)
	}
	switch {
	case o.Persistence == "":
	case !of.can("persistence"):
		problem("topology %s has no persistence to choose: its servers keep all that they acknowledged", name)
	case !slices.Contains(Persistences(), o.Persistence):
		errs = append(errs, names.Unknown("persistence", o.Persistence, Persistences()))
	}
	switch {
	case o.Access != "" && !slices.Contains(Accesses(), o.Access):
		errs = append(errs, names.Unknown("access", o.Access, Accesses()))
	case o.ByName() && !of.can("access"):
		problem("the clients of topology %s can't go by one name: only %s and %s have one master", name, Single, Sentinels)
	}
	if replicas := o.replicasOf(name); o.MinReplicas < 0 || o.MinReplicas > replicas {
		problem("min replicas must be from 0 to %d, the replicas that a master of topology %s has, not %d", replicas, name, o.MinReplicas)
	}
	switch {
	case o.NodeTimeout == 0:
	case !of.can("node-timeout"):
		problem("topology %s has no node timeout: only %s has one", name, Cluster)
	case o.NodeTimeout < leastNodeTimeout || o.NodeTimeout > mostNodeTimeout || o.NodeTimeout%time.Millisecond != 0:
		problem("node timeout must be from %v to %v in whole milliseconds, not %v", leastNodeTimeout, mostNodeTimeout, o.NodeTimeout)
	}
	return errors.Join(errs...)
}

// Changed are the options that are not the default of the topology of that
// name, in words.
func (o Options) Changed(name string) map[string]string {
	given, usual := o.withDefaults(name), Options{}.withDefaults(name)
	changed := map[string]string{}
	note := func(option string, value, otherwise any) {
		if value != otherwise {
			changed[option] = fmt.Sprint(value)
		}
	}
	note("nodes", given.Nodes, usual.Nodes)
	note("persistence", given.Persistence, usual.Persistence)
	note("min-replicas", given.MinReplicas, usual.MinReplicas)
	note("node-timeout", given.NodeTimeout, usual.NodeTimeout)
	note("access", given.Access, usual.Access)
	return changed
}

// withDefaults fills in what is zero and means something in the topology.
func (o Options) withDefaults(name string) Options {
	of := ShapeOf(name)
	if of.can("persistence") {
		o.Persistence = cmp.Or(o.Persistence, PersistNone)
	}
	if of.can("access") {
		o.Access = cmp.Or(o.Access, AccessDirect)
	}
	if of.can("nodes") {
		o.Nodes = cmp.Or(o.Nodes, of.Sizes[0])
	}
	if of.can("node-timeout") {
		o.NodeTimeout = cmp.Or(o.NodeTimeout, defaultNodeTimeout)
	}
	return o
}
