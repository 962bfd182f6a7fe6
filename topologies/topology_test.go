package topologies_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/topologies"
)

func mustNew(t *testing.T, name string, o topologies.Options) topologies.Topology {
	t.Helper()
	topology, err := topologies.New(name, o)
	require.NoError(t, err)
	return topology
}

func TestPartiesOfEveryTopology(t *testing.T) {
	tests := []struct {
		name                           string
		options                        topologies.Options
		servers, sentinels, links, bus int
		shards                         []string
	}{
		{name: "single", servers: 1, links: 2},
		{name: "single", options: topologies.Options{Access: topologies.AccessName}, servers: 3, links: 12, shards: []string{"redis-1"}},
		{name: "sentinel", options: topologies.Options{Access: topologies.AccessName}, servers: 3, sentinels: 3, links: 33, shards: []string{"redis-1"}},
		{name: "sentinel", servers: 3, sentinels: 3, links: 33, shards: []string{"redis-1"}},
		{name: "cluster", servers: 6, links: 48, bus: 30, shards: []string{"redis-1", "redis-2", "redis-3"}},
		{name: "independent", servers: 5, links: 10},
		{name: "independent", options: topologies.Options{Nodes: 7}, servers: 7, links: 14},
	}
	for _, tt := range tests {
		topology := mustNew(t, tt.name, tt.options)
		require.Len(t, topology.Of(topologies.Redis), tt.servers)
		require.Len(t, topology.Of(topologies.Sentinel), tt.sentinels)
		require.Equal(t, []string{"zone-a", "zone-b"}, topology.Of(topologies.Zone))
		require.Len(t, topology.Links, tt.links)
		names := map[string]bool{}
		bus := 0
		for _, l := range topology.Links {
			names[l.Name()] = true
			if l.Kind == topologies.Bus {
				bus++
			}
		}
		require.Len(t, names, tt.links, "each link has a name of its own")
		require.Equal(t, tt.bus, bus)
		require.Equal(t, tt.shards, topology.Shards())

		b, err := json.Marshal(topology)
		require.NoError(t, err)
		var again topologies.Topology
		require.NoError(t, json.Unmarshal(b, &again))
		require.Equal(t, topology, again)
	}
}

func TestMembersOfAShard(t *testing.T) {
	cluster := mustNew(t, "cluster", topologies.Options{})
	require.Equal(t, []string{"redis-2", "redis-5"}, cluster.Members("redis-2"))
	require.Empty(t, cluster.Members("redis-5"), "a replica has no shard of its own")
	require.Equal(t, []string{"redis-3"}, mustNew(t, "independent", topologies.Options{}).Members("redis-3"))
}

func TestSelect(t *testing.T) {
	cluster := mustNew(t, "cluster", topologies.Options{})
	for target, want := range map[string]int{
		"client":              12,
		"replication":         6,
		"bus":                 30,
		"redis-1":             2 + 2 + 10,
		"zone-a>redis":        6,
		"zone-a>*":            6,
		"redis-1>redis-4":     2,
		"redis-1>redis-4/bus": 1,
		"redis-1>redis-2":     1,
		"redis-1>*/bus":       5,
	} {
		links, err := cluster.Select(target)
		require.NoError(t, err, target)
		require.Len(t, links, want, target)
	}
	for _, target := range []string{"", "monitor", "redis-9", "redis-1>redis-2/replication", "redis-1>redis-2/", "zone-a>zone-b"} {
		_, err := cluster.Select(target)
		require.ErrorContains(t, err, "no link of topology cluster", target)
	}
	require.Len(t, cluster.Across([]string{"redis-1", "zone-a"}), 10+2+1+5, "bus, replication, zone-b's to it, zone-a's to the others")
}

func TestOptionsSayWhatIsWrong(t *testing.T) {
	tests := []struct {
		topology string
		options  topologies.Options
		want     string
	}{
		{"clutser", topologies.Options{}, "did you mean cluster?"},
		{"single", topologies.Options{Nodes: 3}, "topology single has a fixed number of servers"},
		{"independent", topologies.Options{Nodes: 4}, "odd number from 3 to 15, not 4"},
		{"independent", topologies.Options{Nodes: 1}, "odd number from 3 to 15, not 1"},
		{"independent", topologies.Options{Nodes: 17}, "odd number from 3 to 15, not 17"},
		{"single", topologies.Options{Persistence: "evrysec"}, "did you mean everysec?"},
		{"single", topologies.Options{MinReplicas: 1}, "from 0 to 0"},
		{"cluster", topologies.Options{MinReplicas: 2}, "from 0 to 1"},
		{"sentinel", topologies.Options{MinReplicas: -1}, "from 0 to 2"},
		{"sentinel", topologies.Options{NodeTimeout: time.Second}, "topology sentinel has no node timeout"},
		{"single", topologies.Options{Access: "named"}, "did you mean name?"},
		{"cluster", topologies.Options{Access: topologies.AccessName}, "the clients of topology cluster can't go by one name"},
		{"independent", topologies.Options{Access: topologies.AccessDirect, Nodes: 4}, "odd number"},
		{"single", topologies.Options{Access: topologies.AccessName, MinReplicas: 3}, "from 0 to 2"},
		{"cluster", topologies.Options{NodeTimeout: time.Millisecond}, "from 50ms to 10s"},
		{"cluster", topologies.Options{NodeTimeout: 100*time.Millisecond + 1}, "whole milliseconds"},
		{"cluster", topologies.Options{Nodes: 6, MinReplicas: 9}, "min replicas must be"},
	}
	for _, tt := range tests {
		_, err := topologies.New(tt.topology, tt.options)
		require.ErrorContains(t, err, tt.want)
	}
	o := mustNew(t, "cluster", topologies.Options{}).Options
	require.Equal(t, topologies.Options{Persistence: "none", NodeTimeout: 200 * time.Millisecond}, o)
	require.Equal(t, 5, mustNew(t, "independent", topologies.Options{}).Options.Nodes)
}

func TestClientsFollowTheTopology(t *testing.T) {
	kinds := func(o *redis.UniversalOptions) []any {
		var all []any
		for _, c := range topologies.Clients(o) {
			require.NoError(t, c.Close())
			all = append(all, c)
		}
		return all
	}
	addrs := []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}
	independent := kinds(&redis.UniversalOptions{Addrs: addrs})
	require.Len(t, independent, 3)
	for i, c := range independent {
		require.Equal(t, addrs[i], c.(*redis.Client).Options().Addr)
	}
	cluster := kinds(&redis.UniversalOptions{Addrs: addrs, IsClusterMode: true})
	require.Len(t, cluster, 1)
	require.Equal(t, 100*time.Millisecond, cluster[0].(*redis.ClusterClient).Options().ClusterStateReloadInterval)
	require.Len(t, kinds(&redis.UniversalOptions{Addrs: addrs, MasterName: "mymaster"}), 1)
}
