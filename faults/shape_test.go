package faults_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/topologies"
)

// A partition is seen by its links: those that it cuts.
func TestPartitionsHaveTheirShape(t *testing.T) {
	cluster, err := topologies.ByName(topologies.Cluster)
	require.NoError(t, err)
	sentinel, err := topologies.ByName(topologies.Sentinels)
	require.NoError(t, err)
	apart := func(t *testing.T, topology topologies.Topology, fault, target string) func(a, b string) bool {
		t.Helper()
		spec, err := faults.ByName(fault)
		require.NoError(t, err)
		links, err := spec.LinksOf(topology, faults.Step{Fault: fault, Target: target})
		require.NoError(t, err)
		cut := map[string]bool{}
		for _, l := range links {
			cut[l.From+l.To] = true
		}
		return func(a, b string) bool { return cut[a+b] || cut[b+a] }
	}
	nodes := cluster.Of(topologies.Redis)
	t.Run("isolate", func(t *testing.T) {
		is := apart(t, cluster, "partition", "redis-1 zone-a")
		require.True(t, is("redis-1", "redis-2"))
		require.True(t, is("zone-b", "redis-1"))
		require.True(t, is("zone-a", "redis-2"))
		require.False(t, is("zone-a", "redis-1"))
		require.False(t, is("redis-2", "redis-3"))
	})
	t.Run("halves", func(t *testing.T) {
		is := apart(t, sentinel, "partition-halves", "")
		require.True(t, is("redis-1", "redis-2"))
		require.True(t, is("zone-a", "redis-3"))
		require.True(t, is("zone-b", "redis-1"))
		require.True(t, is("sentinel-1", "sentinel-2"), "a minority of the sentinels is on the first side")
		require.False(t, is("sentinel-2", "sentinel-3"))
		require.False(t, is("sentinel-1", "redis-1"))
		require.False(t, is("redis-2", "redis-3"))
	})
	t.Run("bridge", func(t *testing.T) {
		is := apart(t, cluster, "partition-bridge", "redis-3")
		for _, n := range nodes {
			require.False(t, is("redis-3", n))
		}
		require.True(t, is("redis-1", "redis-4"))
		require.True(t, is("redis-2", "redis-6"))
		require.False(t, is("redis-1", "redis-2"))
		require.False(t, is("redis-4", "redis-5"))
	})
	t.Run("ring", func(t *testing.T) {
		is := apart(t, cluster, "partition-ring", "")
		views := map[string]bool{}
		for _, a := range nodes {
			var sees []string
			for _, b := range nodes {
				if a == b || !is(a, b) {
					sees = append(sees, b)
				}
			}
			require.Greater(t, len(sees), len(nodes)/2, "%s sees a majority", a)
			require.Less(t, len(sees), len(nodes), "%s does not see everybody", a)
			views[strings.Join(sees, " ")] = true
		}
		require.Len(t, views, len(nodes), "no two see the same")
		require.False(t, is("zone-a", "redis-1"))
	})
}
