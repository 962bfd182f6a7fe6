//go:build linux

package attach_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/attach"
	"github.com/lockchaos/lockchaos/topologies/topologiestest"
)

// attached attaches to an installation until the test ends.
func attached(t *testing.T, i *installation, b attach.Backend) topologies.Deployment {
	t.Helper()
	d, err := b.Start(within(t), topologies.Topology{Name: i.topology.Name})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// The servers of one installation serve one test after the other, of which each leaves them as it found them, but for the last.
func TestAnInstallation(t *testing.T) {
	t.Parallel()
	for name, tests := range map[string][]struct {
		name string
		test func(t *testing.T, i *installation)
	}{
		topologies.Single: {
			{"is found out", isFoundOut},
			{"nothing is left", nothingIsLeft},
			{"another run drives it", anotherRunDrivesIt},
			{"few rights", fewRightsAreEnough},
			{"can't be talked to", serversThatCantBeTalkedTo},
			{"a claim is repeated", aClaimIsRepeated},
			{"no right to write", refusesWrites("NOPERM", "+set", "ACL", "SETUSER", "chaos", "-set")},
			{"no memory", refusesWrites("OOM", "", "CONFIG", "SET", "maxmemory", "1")},
		},
		topologies.Sentinels: {
			{"is found out", isFoundOut},
			{"another run drives it", anotherRunDrivesIt},
			{"names", namesDoNotDependOnWhoIsAsked},
			{"without leave", withoutLeave},
			{"of another kind", sentinelsOfAnotherKind},
			{"few rights", fewRightsAreEnough},
			{"a run", aRunSaysWhichFaultsItLeavesOut},
			{"no right to wait", refusesWrites("NOPERM", "+wait", "ACL", "SETUSER", "chaos", "-wait")},
			{"failovers", failoversPutTheSentinelsBack},
		},
		topologies.Cluster: {
			{"is found out", isFoundOut},
			{"another run drives it", anotherRunDrivesIt},
			{"few rights", fewRightsAreEnough},
			{"split-brain", aSplitBrainIsRefused},
			{"not these keys", refusesWrites("NOPERM", "~*", "ACL", "SETUSER", "chaos", "resetkeys", "~lockchaos:claim*")},
			{"not whole", aClusterThatIsNotWhole},
		},
		topologies.Independent: {
			{"is found out", isFoundOut},
			{"another run drives it", anotherRunDrivesIt},
			{"two at once", ofTwoRunsThatBeginAtOnceOneDrives},
			{"fewer servers", fewerServersThanTheScript},
			{"a link without a proxy", aLinkThatNoProxyStandsForIsNamed},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := install(t, name)
			for _, tt := range tests {
				t.Run(tt.name, func(t *testing.T) { tt.test(t, i) })
			}
		})
	}
}

func isFoundOut(t *testing.T, i *installation) {
	t.Helper()
	d := attached(t, i, i.backend())
	want := i.topology
	for _, kind := range []topologies.Kind{topologies.Redis, topologies.Sentinel, topologies.Zone} {
		require.Equal(t, want.Of(kind), d.Topology().Of(kind))
	}
	require.Empty(t, d.Topology().Links, "there is no toxiproxy")
	require.Len(t, d.Topology().Shards(), len(want.Shards()))
	for node, at := range i.at {
		found := d.NodeAt(at.Announced.String())
		n, _ := want.Node(node)
		seen, ok := d.Topology().Node(found)
		require.True(t, ok, "%s is %s", at.Announced, found)
		require.Equal(t, n.Role, seen.Role)
		require.Equal(t, n.Of == "", seen.Of == "")
	}
	require.Regexp(t, `^\d+\.\d+\.\d+$`, d.Version())
	for _, zone := range want.Of(topologies.Zone) {
		for n, c := range topologies.Clients(d.ClientOptions(zone)) {
			require.NoError(t, c.Set(within(t), fmt.Sprintf("of-%s-%d", zone, n), "v", time.Minute).Err())
			require.NoError(t, c.Close())
		}
	}

	without := d.Unsupported()
	require.Contains(t, without[topologies.Processes], "no compose project")
	require.Contains(t, without[topologies.Proxies], "no toxiproxy")
	require.Contains(t, without, topologies.Wiping)
	require.NotContains(t, without, topologies.Failovers)
	s := d.Server("redis-1")
	for _, do := range []func(context.Context) error{s.Kill, s.Restart, s.Pause, s.Resume} {
		require.ErrorContains(t, do(within(t)), without[topologies.Processes])
	}
	require.ErrorContains(t, s.Wipe(within(t)), without[topologies.Wiping])
	require.Empty(t, s.Log())
	require.Nil(t, d.Proxy("zone-a>redis-1"))
}

func namesDoNotDependOnWhoIsAsked(t *testing.T, i *installation) {
	t.Helper()
	var before map[string]string
	for _, from := range []string{"sentinel-1", "sentinel-3"} {
		b := i.backend()
		b.Endpoints = []string{i.endpoint(from)}
		d := attached(t, i, b)
		names := map[string]string{}
		for _, at := range i.at {
			names[at.Announced.String()] = d.NodeAt(at.Announced.String())
		}
		if before != nil {
			require.Equal(t, before, names)
		}
		before = names
		require.NoError(t, d.Close(), "one run at a time has it")
	}
}

func withoutLeave(t *testing.T, i *installation) {
	t.Helper()
	b := i.backend()
	b.Yes = false
	d := attached(t, i, b)
	require.Contains(t, d.Unsupported()[topologies.Failovers], "leave")
	require.ErrorContains(t, d.Promote(within(t), d.Topology().Shards()[0]), "leave")
}

func failoversPutTheSentinelsBack(t *testing.T, i *installation) {
	t.Helper()
	ctx := within(t)
	settings := func() string {
		var all []string
		for _, name := range i.topology.Of(topologies.Sentinel) {
			c := i.client(name)
			defer c.Close()
			m, err := c.Do(ctx, "SENTINEL", "MASTER", "mymaster").Result()
			require.NoError(t, err)
			said := fmt.Sprint(m)
			for _, field := range []string{"down-after-milliseconds:", "quorum:", "failover-timeout:", "parallel-syncs:"} {
				_, after, _ := strings.Cut(said, field)
				value, _, _ := strings.Cut(after, " ")
				all = append(all, field+value)
			}
		}
		return strings.Join(all, " ")
	}
	before := settings()
	require.Contains(t, before, "down-after-milliseconds:60000 quorum:2")

	d := attached(t, i, i.backend())
	shard := d.Topology().Shards()[0]
	first := topologiestest.MasterOf(ctx, t, d, shard)
	promote(t, d, shard)
	second, err := d.AwaitMaster(ctx, shard, first)
	require.NoError(t, err)
	require.NoError(t, d.Disarm(ctx))
	require.NoError(t, d.AwaitReady(ctx))

	require.NoError(t, d.Arm(ctx))
	require.NotEqual(t, before, settings())
	i.kill(i.named(d, second))
	third, err := d.AwaitMaster(ctx, shard, second)
	require.NoError(t, err)
	require.Contains(t, slices.Collect(maps.Keys(claims(t, i))), i.named(d, third), "the claim outlives it")
	require.NoError(t, d.Close())
	require.Equal(t, before, settings(), "Close undoes an Arm that nobody disarmed")
	dead := i.endpoint(i.named(d, second))
	require.NoError(t, await.Until(ctx, func() error { // the others follow a new master first, which closes connections
		_, err := i.backend().Start(ctx, topologies.Topology{Name: topologies.Sentinels})
		if err == nil || !strings.Contains(err.Error(), dead) {
			return fmt.Errorf("%s is dead: %w", dead, errors.Join(err))
		}
		return nil
	}))
}

func nothingIsLeft(t *testing.T, i *installation) {
	t.Helper()
	ctx := within(t)
	owner := i.client("redis-1")
	defer owner.Close()
	writes := func() string {
		info, err := owner.Info(ctx, "commandstats").Result()
		require.NoError(t, err)
		var found []string
		for line := range strings.Lines(info) {
			if name, rest, _ := strings.Cut(line, ":"); name == "cmdstat_set" || name == "cmdstat_del" {
				calls, _, _ := strings.Cut(rest, ",")
				found = append(found, name+" "+calls)
			}
		}
		return strings.Join(found, " ")
	}
	b := i.backend()
	require.NoError(t, owner.ConfigResetStat(ctx).Err())
	require.NoError(t, owner.FlushAll(ctx).Err())
	_, err := b.Start(ctx, topologies.Topology{Name: topologies.Cluster})
	require.ErrorIs(t, err, attach.ErrUsage)
	require.Empty(t, writes(), "what is refused was not written to")

	d := attached(t, i, b)
	require.NoError(t, d.Close())
	require.NotEmpty(t, writes(), "zones proved that they can write")
	require.Zero(t, owner.DBSize(ctx).Val())
}

func fewRightsAreEnough(t *testing.T, i *installation) {
	t.Helper()
	redis := "~lockchaos:* &* -@all +hello +auth +ping +info +role +wait +get +set +del +client|list"
	sentinel := "&* -@all +hello +auth +ping +info +subscribe +sentinel|myid +sentinel|masters +sentinel|master +sentinel|replicas " +
		"+sentinel|sentinels +sentinel|get-master-addr-by-name +sentinel|set +sentinel|failover"
	cluster := " +cluster|info +cluster|slots +cluster|links +cluster|failover"
	ctx := within(t)
	for node := range i.at {
		rights := redis
		if n, _ := i.topology.Node(node); n.Kind == topologies.Sentinel {
			rights = sentinel
		} else if i.topology.Name == topologies.Cluster {
			rights += cluster
		}
		c := i.client(node)
		defer c.Close()
		args := []any{"ACL", "SETUSER", "few", "on", ">few-secret"}
		for right := range strings.FieldsSeq(rights) {
			args = append(args, right)
		}
		require.NoError(t, c.Do(ctx, args...).Err())
	}
	b := i.backend()
	b.Username, b.Password, b.SentinelUsername, b.SentinelPassword = "few", "few-secret", "few", "few-secret"
	d := attached(t, i, b)
	if d.Topology().Elects() {
		shard := d.Topology().Shards()[0]
		old := topologiestest.MasterOf(ctx, t, d, shard)
		require.NoError(t, d.Arm(ctx))
		promote(t, d, shard)
		_, err := d.AwaitMaster(ctx, shard, old)
		require.NoError(t, err)
		require.NoError(t, d.Disarm(ctx))
		require.NoError(t, d.AwaitReady(ctx))
	}
}

// named is what the installation calls a server that the deployment calls otherwise.
func (i *installation) named(d topologies.Deployment, server string) string {
	for name, at := range i.at {
		if d.NodeAt(at.Announced.String()) == server {
			return name
		}
	}
	return ""
}

// promote asks for a failover until it is granted: servers that were just
// started may not count on each other yet.
func promote(t *testing.T, d topologies.Deployment, shard string) {
	t.Helper()
	ctx := within(t)
	require.NoError(t, await.Until(ctx, func() error { return d.Promote(ctx, shard) }))
}
