// Package locks lists the locks that come with the program. Only the program and
// tests import it: packages that run a lock are given a [harness.LockSpec].
package locks

import (
	"cmp"
	"slices"
	"strings"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/mutants"
	"github.com/lockchaos/lockchaos/topologies"
)

// All lists what can be put under test, in order of name; those with a planted bug
// come last.
func All() harness.Locks {
	all := slices.Concat(own(), others(), onEtcd(), onZooKeeper(), planted())
	for _, m := range mutants.Mutants() {
		all = append(all, m.Spec())
	}
	order := func(l harness.LockSpec) string { return strings.Replace(l.Name, "broken-", "~", 1) } // which is behind all letters
	slices.SortFunc(all, func(a, b harness.LockSpec) int { return cmp.Compare(order(a), order(b)) })
	return all
}

// Control is the name of the lock that does the least that is correct on a topology.
func Control(topology string) string {
	return cmp.Or(map[string]string{
		topologies.EtcdCluster: "etcd-mutex-leased", topologies.ZooKeeperEnsemble: "zookeeper-lock-leased", topologies.Independent: "redlock",
	}[topology], "correct-key")
}

// ControlFor is the control lock of what is asked of a lock on a topology: the least that is correct, or, where that is
// unsuited, one of ours that is re-entrant, has tokens, a queue, readers or permits. Where none suits it is the least.
func ControlFor(known harness.Locks, topology string, unsuited func(harness.LockSpec) error) (harness.LockSpec, error) {
	for _, name := range []string{Control(topology), "mutex", "mutex-fenced", "mutex-fair", "rwmutex", "semaphore-permit"} {
		if l, err := known.ByName(name); err == nil && unsuited(l) == nil {
			return l, nil
		}
	}
	return known.ByName(Control(topology))
}

// Default is the name of the lock that is put under test on a topology when none is
// named.
func Default(topology string) string {
	return cmp.Or(map[string]string{
		topologies.EtcdCluster: "etcd-mutex", topologies.ZooKeeperEnsemble: "zookeeper-lock", topologies.Independent: "redlock",
	}[topology], "mutex")
}
