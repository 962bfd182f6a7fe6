package topologies

import (
	"slices"
	"sync"

	"github.com/lockchaos/lockchaos/internal/names"
)

// The names of the topologies.
const (
	Single      = "single"      // one server
	Sentinels   = "sentinel"    // a master, two replicas and three sentinels
	Cluster     = "cluster"     // three masters with a replica each
	Independent = "independent" // masters that know nothing of each other
	EtcdCluster = "etcd"        // members of one etcd cluster

	ZooKeeperEnsemble = "zookeeper" // members of one ZooKeeper ensemble
)

// The stores that servers are of.
const (
	StoreRedis     = "redis"
	StoreEtcd      = "etcd"
	StoreZooKeeper = "zookeeper"
)

// A Shape is what a topology has that others do not, whatever its size.
type Shape struct {
	Name, Store string
	// Masters have so many Replicas each, and Sentinels watch them. Of a topology whose size is an option there are none.
	Masters, Replicas, Sentinels int
	// Member is the kind of the servers of a consensus store; empty for any other.
	Member Kind
	// Sizes are how many servers there can be, the default first; none: their number is fixed.
	Sizes []int
	// Elects says that the servers replace a master that is gone by themselves.
	Elects bool
	// Slots says that each shard serves some of the keys, and the servers talk by a bus of their own.
	Slots bool
	// Options are those of [Options] that mean something, as flags and scripts call them.
	Options []string
}

var shapes = sync.OnceValue(func() []Shape { //nolint:gochecknoglobals // a constant
	return []Shape{
		{Name: Single, Store: StoreRedis, Masters: 1, Options: []string{"persistence", "access"}},
		{Name: Sentinels, Store: StoreRedis, Masters: 1, Replicas: 2, Sentinels: 3, Elects: true, Options: []string{"persistence", "min-replicas", "access"}},
		{Name: Cluster, Store: StoreRedis, Masters: 3, Replicas: 1, Elects: true, Slots: true, Options: []string{"persistence", "min-replicas", "node-timeout"}},
		{Name: Independent, Store: StoreRedis, Sizes: []int{5, 3, 7, 9, 11, 13, 15}, Options: []string{"persistence", "nodes"}},
		{Name: EtcdCluster, Store: StoreEtcd, Member: Etcd, Sizes: []int{3, 5}, Elects: true, Options: []string{"nodes"}},
		{Name: ZooKeeperEnsemble, Store: StoreZooKeeper, Member: ZooKeeper, Sizes: []int{3, 5}, Elects: true, Options: []string{"nodes"}},
	}
})

// ShapeOf is the shape of the topology of that name; of any other, one of Redis that has nothing.
func ShapeOf(name string) Shape {
	for _, s := range shapes() {
		if s.Name == name {
			return s
		}
	}
	return Shape{Name: name, Store: StoreRedis}
}

// Apart reports whether the servers know nothing of each other, of which there are several.
func (s Shape) Apart() bool { return s.Sizes != nil && s.Member == "" }

func (s Shape) can(option string) bool { return slices.Contains(s.Options, option) }

// Names lists the topologies that [New] knows.
func Names() []string {
	return names.Of(shapes(), func(s Shape) string { return s.Name })
}

// StoreOf is the store that the servers of the topology of that name are of.
func StoreOf(name string) string { return ShapeOf(name).Store }

// Stores lists the stores of all topologies.
func Stores() []string {
	return slices.Compact(names.Of(shapes(), func(s Shape) string { return s.Store }))
}

// NamesOf lists the topologies whose servers are of a store.
func NamesOf(store string) []string {
	return slices.DeleteFunc(Names(), func(name string) bool { return StoreOf(name) != store })
}
