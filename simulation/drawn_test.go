package simulation_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/simulation"
	"github.com/lockchaos/lockchaos/topologies"
)

// A library has a lease of its own, which its grants have where none is asked for.
func TestPatienceCountsTheLeaseOfTheLibrary(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]time.Duration{"redsync": 32 * time.Second, "redlock": 2600 * time.Millisecond} {
		c := simulation.Case{Topology: topologies.Independent, Clients: 2, Workload: "contended", Watchdog: 600 * time.Millisecond}
		require.Equal(t, want, simulation.Patience(spec(t, name), c), name)
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
			found, err := c.Findings(t.Context(), l, run(t, l, c))
			require.NoError(t, err)
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
