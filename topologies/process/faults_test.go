package process_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/faults/failover"
	"github.com/lockchaos/lockchaos/faults/faultstest"
	"github.com/lockchaos/lockchaos/faults/network"
	faultprocess "github.com/lockchaos/lockchaos/faults/process"
	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/topologies"
)

// links are the wires of a target.
func links(t *testing.T, d topologies.Deployment, target string) []network.Link {
	t.Helper()
	chosen, err := d.Topology().Select(target)
	require.NoError(t, err)
	var ls []network.Link
	for _, l := range chosen {
		ls = append(ls, d.Wire(l.Name()))
	}
	return ls
}

func TestFaultsOfLinksAndProcessesKeepTheContract(t *testing.T) {
	t.Parallel()
	d := start(t, "single")
	link := links(t, d, "zone-a>redis-1")
	server := d.Server("redis-1")
	fails := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		if took, err := link[0].Probe(ctx); err == nil {
			return fmt.Errorf("it answers after %v", took)
		}
		return nil
	}
	slow := func(ctx context.Context) error {
		if took, err := link[0].Probe(ctx); err != nil || took < 20*time.Millisecond {
			return fmt.Errorf("it answers after %v, %w", took, err)
		}
		return nil
	}
	tests := []struct {
		fault  faults.Fault
		broken func(context.Context) error
	}{
		{network.Cut(link), fails},
		{network.Hold(link, "both"), fails},
		{network.Hold(link, "upstream"), fails},
		{network.Hold(link, "downstream"), fails},
		{network.Latency(link, "both", 20*time.Millisecond, 5*time.Millisecond), slow},
		{faultprocess.Kill(server), fails},
		{faultprocess.Pause(server), fails},
		{faultprocess.Restart(server), nil},
	}
	for _, tt := range tests {
		t.Run(tt.fault.Name(), func(t *testing.T) {
			faultstest.Run(t, tt.fault, tt.broken, d.AwaitReady)
		})
	}
}

func TestFailoversKeepTheContract(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ topology, shard, sentinel string }{
		{"sentinel", "redis-1", "sentinel-1"},
		{"cluster", "redis-2", ""},
	} {
		t.Run(tt.topology, func(t *testing.T) {
			t.Parallel()
			failoversKeepTheContract(t, tt.topology, tt.shard, tt.sentinel)
		})
	}
}

func failoversKeepTheContract(t *testing.T, topology, shard, sentinel string) {
	t.Helper()
	d := start(t, topology).(topologies.Failover)
	master := func(ctx context.Context) (name string, err error) {
		err = await.Until(ctx, func() error { // one who is asked may be slow to answer
			name, err = d.Master(ctx, shard)
			return err
		})
		return name, err
	}
	old := ""
	changed := func(ctx context.Context) error {
		now, err := master(ctx)
		if err == nil && now == old {
			err = errors.New(now + " is still the master")
		}
		return err
	}
	whole := func(ctx context.Context) (err error) {
		if err := d.AwaitReady(ctx); err != nil {
			return err
		}
		old, err = master(ctx)
		return err
	}
	side := func(master string) (failover.Side, error) {
		var ls []network.Link
		for _, l := range d.Topology().Across([]string{master, sentinel, "zone-a"}) {
			ls = append(ls, d.Wire(l.Name()))
		}
		return failover.Side{Name: "the minority", Links: ls}, nil
	}
	for _, f := range []faults.Fault{
		failover.Crash(d, shard, func(name string) faultprocess.Process { return d.Server(name) }),
		failover.Graceful(d, shard),
		failover.SplitBrain(d, shard, side),
	} {
		t.Run(f.Name(), func(t *testing.T) { faultstest.Run(t, f, changed, whole) })
	}
}

func TestAFaultWithoutEffectIsAnErrorAndLeavesNothing(t *testing.T) {
	t.Parallel()
	d := start(t, "sentinel").(topologies.Failover)
	ctx := within(t)
	_, err := network.Reset(links(t, d, "redis-3>redis-2")).Inject(ctx)
	require.ErrorContains(t, err, "no connection was open")

	// Nobody can be promoted while no replica answers.
	require.NoError(t, d.Server("redis-2").Kill(ctx))
	require.NoError(t, d.Server("redis-3").Kill(ctx))
	crash := failover.Crash(d, "redis-1", func(name string) faultprocess.Process { return d.Server(name) })
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
	client := links(t, d, "zone-a>redis")
	require.NoError(t, d.Server("redis-3").Kill(ctx))
	cut, err := network.Cut(client).Inject(ctx)
	require.NoError(t, err)
	require.Equal(t, "2 of 3 links refusing", cut.Effect, "the third answered nobody before")
	require.NoError(t, d.Server("redis-2").Kill(ctx))
	effect, err := cut.Heal(ctx)
	require.NoError(t, err)
	require.Equal(t, "2 links mended, 1 answering again", effect, "the server behind the other is gone")

	dead := links(t, d, "zone-a>redis-3")
	for _, f := range []faults.Fault{network.Cut(dead), network.Hold(dead, "both")} {
		_, err := f.Inject(ctx)
		require.ErrorContains(t, err, "no link answered before", f.Name())
	}
}
