package bootstrap_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
)

// addresses are made up.
func addresses(t topologies.Topology) map[string]bootstrap.Address {
	at := map[string]bootstrap.Address{}
	for i, n := range t.Nodes {
		if n.Kind == topologies.Zone {
			continue
		}
		at[n.Name] = bootstrap.Address{
			Listen:    netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 1, byte(i + 1)}), 6379),
			Announced: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 2, byte(i + 1)}), 7000),
			Bus:       16379, AnnouncedBus: 17000,
		}
	}
	return at
}

func TestConfigure(t *testing.T) {
	cluster, err := topologies.New("cluster", topologies.Options{
		Persistence: topologies.PersistAlways, MinReplicas: 1, NodeTimeout: time.Second,
	})
	require.NoError(t, err)
	c, err := bootstrap.RedisStore{}.Configure(cluster, "redis-5", addresses(cluster))
	require.NoError(t, err)
	require.Equal(t, []string{"redis.conf"}, c.Args)
	for _, line := range []string{
		"bind 10.0.1.5\n", "port 6379\n", "appendfsync always\n", "min-replicas-to-write 1\n",
		"cluster-node-timeout 1000\n", "cluster-announce-ip 10.0.2.5\n", "cluster-announce-port 7000\n", "cluster-announce-bus-port 17000\n",
	} {
		require.Contains(t, c.Files["redis.conf"], line)
	}
	require.Equal(t, `0000000000000000000000000000000000000001 10.0.2.1:7000@17000 master - 0 0 1 connected 0-5460
0000000000000000000000000000000000000002 10.0.2.2:7000@17000 master - 0 0 2 connected 5461-10921
0000000000000000000000000000000000000003 10.0.2.3:7000@17000 master - 0 0 3 connected 10922-16383
0000000000000000000000000000000000000004 10.0.2.4:7000@17000 slave 0000000000000000000000000000000000000001 0 0 0 connected
0000000000000000000000000000000000000005 10.0.2.5:7000@17000 myself,slave 0000000000000000000000000000000000000002 0 0 0 connected
0000000000000000000000000000000000000006 10.0.2.6:7000@17000 slave 0000000000000000000000000000000000000003 0 0 0 connected
vars currentEpoch 3 lastVoteEpoch 0
`, c.Files["nodes.conf"])

	sentinel, err := topologies.ByName("sentinel")
	require.NoError(t, err)
	c, err = bootstrap.RedisStore{}.Configure(sentinel, "redis-3", addresses(sentinel))
	require.NoError(t, err)
	require.Contains(t, c.Files["redis.conf"], "replicaof 10.0.2.1 7000\n")
	require.NotContains(t, c.Files["redis.conf"], "appendonly yes")
	c, err = bootstrap.RedisStore{}.Configure(sentinel, "sentinel-1", addresses(sentinel))
	require.NoError(t, err)
	require.Equal(t, []string{"sentinel.conf", "--sentinel"}, c.Args)
	require.Contains(t, c.Files["sentinel.conf"], "sentinel monitor mymaster 10.0.2.1 7000 2\n")

	_, err = bootstrap.RedisStore{}.Configure(sentinel, "zone-a", addresses(sentinel))
	require.ErrorContains(t, err, `no server "zone-a"`)
	_, err = bootstrap.RedisStore{}.Configure(sentinel, "redis-1", nil)
	require.ErrorContains(t, err, "redis-1 has no address")
}
