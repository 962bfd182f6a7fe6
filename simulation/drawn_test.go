package simulation_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/simulation"
	"github.com/lockchaos/lockchaos/simulation/world"
	"github.com/lockchaos/lockchaos/topologies"
)

// A library has a lease of its own, which its grants have where none is asked for. A lock that is handed to
// a client that gave up is taken for the lease that this client asked for, which may be that of the workload.
func TestPatienceCountsLeases(t *testing.T) {
	t.Parallel()
	replaced := []world.Fault{{Name: world.CrashFailover}}
	late := []world.Fault{{Name: world.DelayReply, By: time.Second}}
	for _, x := range []struct {
		topology, lock, workload string
		plan                     []world.Fault
		want                     time.Duration
	}{
		{topologies.Independent, "redsync", "contended", nil, 32 * time.Second},
		{topologies.Independent, "redlock", "contended", nil, 2600 * time.Millisecond},
		{topologies.Sentinels, "mutex", "contended", replaced, 2*time.Second + 2*600*time.Millisecond},
		{topologies.Sentinels, "mutex", "re-entrant", replaced, 2*time.Second + 2*2*time.Second},
		{topologies.Sentinels, "mutex", "re-entrant", nil, 2 * time.Second},
		{topologies.Single, "mutex", "contended", late, 5 * time.Second},
		{topologies.Single, "mutex-spin", "contended", late, 2 * time.Second},
	} {
		c := simulation.Case{Topology: x.topology, Clients: 2, Workload: x.workload, Watchdog: 600 * time.Millisecond, Plan: x.plan}
		require.Equal(t, x.want, simulation.Patience(spec(t, x.lock), c), "%v", x)
	}
}

// A service that grants several locks at once is asked for several: a bug in how it gives them back shows.
func TestSeveralLocksAreSimulated(t *testing.T) {
	k := simulation.Campaign{Topology: topologies.Single}
	require.Greater(t, simulation.SweepBase(spec(t, "multilock"), k, 1).Locks, 1)
	convicted := 0
	for seed := range uint64(8) {
		for _, name := range []string{"multilock", "broken-first-member"} {
			l := spec(t, name)
			c, err := k.Draw(l, seed)
			require.NoError(t, err)
			require.Greater(t, c.Locks, 1)
			found := judged(t, l, c)
			if name == "multilock" {
				require.Empty(t, found, "seed %d", seed)
			} else if len(found) > 0 {
				convicted++
			}
		}
	}
	require.NotZero(t, convicted)
}

// Holds that live are extended in some cases, and what is released late in others.
func TestCasesExtendAndReleaseLate(t *testing.T) {
	l, k := spec(t, "mutex"), simulation.Campaign{Topology: topologies.Single}
	kinds, extended := map[string]int{}, 0
	for seed := range uint64(30) {
		c, err := k.Draw(l, seed)
		require.NoError(t, err)
		kinds[c.Workload]++
		if !c.Extends || !strings.Contains("contended late-release", c.Workload) || c.Workload == "contended" && c.Lease == 0 {
			continue
		}
		o := run(t, l, c)
		h, err := o.Read()
		require.NoError(t, err)
		for _, e := range h.Events {
			if e.Op == history.Extend && e.Type == history.OK {
				extended++
			}
		}
	}
	require.NotZero(t, kinds["late-release"])
	require.NotZero(t, extended)
}
