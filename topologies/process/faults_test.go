package process_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/bootstrap"
	"github.com/lockchaos/lockchaos/topologies/topologiestest"
)

// fault makes a fault, with parameters as names and values.
func fault(t *testing.T, d topologies.Deployment, name, target string, params ...string) faults.Fault {
	t.Helper()
	step := faults.Step{Fault: name, Target: target, Params: map[string]string{}}
	for i := 0; i < len(params); i += 2 {
		step.Params[params[i]] = params[i+1]
	}
	p, err := faults.Environment{Topology: d.Topology(), Script: true}.Resolve(step)
	require.NoError(t, err)
	f, err := p.On(faults.Site{Deployment: d})
	require.NoError(t, err)
	return f
}

// The sentinel that is made quick to replace a master is so for one failover: on a busy machine it
// would replace the new master, too, before it is disarmed.
func TestArmedSentinelsReplaceOneMaster(t *testing.T) {
	t.Parallel()
	d := start(t, "sentinel")
	ctx := within(t)
	downAfter := func() (all []string) {
		for _, name := range d.Topology().Of(topologies.Sentinel) {
			masters, err := bootstrap.AskSentinel(ctx, d.Server(name).Observer(), "MASTERS")
			require.NoError(t, err)
			for _, m := range masters {
				all = append(all, m["down-after-milliseconds"])
			}
		}
		return all
	}
	shard := d.Topology().Shards()[0]
	old := topologiestest.MasterOf(ctx, t, d, shard)
	before := downAfter()
	require.NoError(t, d.Arm(ctx))
	require.NotEqual(t, before, downAfter())
	require.Equal(t, old, topologiestest.MasterOf(ctx, t, d, shard)) // to find the old master changes nothing
	require.NotEqual(t, before, downAfter())
	require.NoError(t, d.Server(old).Kill(ctx))
	_, err := d.AwaitMaster(ctx, shard, old)
	require.NoError(t, err)
	require.Equal(t, before, downAfter(), "it is not disarmed yet")
	require.NoError(t, d.Disarm(ctx))
}

// Replicas are promoted as well whose links to the master were cut for longer than sentinels as quick as possible forgive.
func TestSentinelsForgiveLinksThatWereCut(t *testing.T) {
	t.Parallel()
	d := start(t, "sentinel")
	ctx := within(t)
	for _, link := range []string{"redis-2>redis-1", "redis-3>redis-1"} {
		_, err := fault(t, d, "cut", link).Inject(ctx)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		replicas, err := bootstrap.AskSentinel(ctx, d.Server("sentinel-1").Observer(), "REPLICAS", "mymaster")
		return err == nil && !slices.ContainsFunc(replicas, func(r map[string]string) bool {
			down, _ := strconv.Atoi(r["master-link-down-time"])
			return down < 5000
		})
	}, time.Minute, 100*time.Millisecond)
	_, err := fault(t, d, "crash-failover", "").Inject(ctx)
	require.NoError(t, err)
}

func TestAFaultWithoutEffectIsAnErrorAndLeavesNothing(t *testing.T) {
	t.Parallel()
	d := start(t, "sentinel")
	ctx := within(t)
	_, err := fault(t, d, "reset", "redis-3>redis-2").Inject(ctx)
	require.ErrorContains(t, err, "no connection was open")

	// Nobody can be promoted while no replica answers.
	require.NoError(t, d.Server("redis-2").Kill(ctx))
	require.NoError(t, d.Server("redis-3").Kill(ctx))
	crash := fault(t, d, "crash-failover", "")
	short, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err = crash.Inject(short)
	require.ErrorContains(t, err, "await a new master: not done after")
	// A client whose dials were all refused dials no more for up to a second.
	require.Eventually(t, func() bool { return d.Server("redis-1").Observer().Ping(ctx).Err() == nil },
		time.Minute, 20*time.Millisecond, "the master runs again")
}

func TestAFaultOfLinksClaimsOnlyWhatWasSeen(t *testing.T) {
	t.Parallel()
	d := start(t, "sentinel")
	ctx := within(t)
	require.NoError(t, d.Server("redis-3").Kill(ctx))
	cut, err := fault(t, d, "cut", "zone-a>redis").Inject(ctx)
	require.NoError(t, err)
	require.Equal(t, "2 of 3 links refusing", cut.Effect, "the third answered nobody before")
	require.NoError(t, d.Server("redis-2").Kill(ctx))
	effect, err := cut.Heal(ctx)
	require.NoError(t, err)
	require.Equal(t, "2 links mended, 1 answering again", effect, "the server behind the other is gone")

	const dead = "zone-a>redis-3"
	for _, f := range []faults.Fault{fault(t, d, "cut", dead), fault(t, d, "stall", dead)} {
		_, err := f.Inject(ctx)
		require.ErrorContains(t, err, "no link answered before", f.Fault)
	}
}
