package simulation_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/simulation"
	"github.com/lockchaos/lockchaos/simulation/world"
	"github.com/lockchaos/lockchaos/topologies"
)

// spec is the lock of that name.
func spec(tb testing.TB, name string) harness.LockSpec {
	tb.Helper()
	l, err := locks.All().ByName(name)
	require.NoError(tb, err)
	return l
}

// quiet is a case without faults.
func quiet(topology string, l harness.LockSpec) simulation.Case {
	return simulation.Case{
		Lock: l.Name, Topology: topology, Seed: 1, Length: 2 * time.Second, Workload: l.DefaultWorkload(),
		Clients: 3, Lease: time.Second, Wait: 500 * time.Millisecond,
	}
}

func run(t *testing.T, l harness.LockSpec, c simulation.Case) simulation.Outcome {
	t.Helper()
	o, err := simulation.Run(new(testing.T), l, c)
	require.NoError(t, err)
	return o
}

// The events that a run collects are those that its lines say.
func TestEventsAreThoseOfTheLines(t *testing.T) {
	l := spec(t, "mutex")
	for seed := range uint64(8) {
		c, err := simulation.Campaign{Topology: topologies.Single, Faults: "network,process,clock,client"}.Draw(l, seed)
		require.NoError(t, err)
		if seed%4 == 0 {
			c.Plan = append(c.Plan, world.Fault{Name: world.KillClient, Target: "zone-a", At: 300 * time.Millisecond})
		}
		o := run(t, l, c)
		collected, err := o.Read()
		require.NoError(t, err)
		read, err := (&simulation.Outcome{History: o.History}).Read()
		require.NoError(t, err)
		require.Equal(t, read.Events, collected.Events)
	}
	_, err := (&simulation.Outcome{History: []byte("nonsense\n{}\n")}).Read()
	require.Error(t, err)
}

// Every lock that can be simulated works without faults, and is valid.
func TestEveryLockWithoutFaults(t *testing.T) {
	for _, l := range locks.All() {
		for _, topology := range simulation.Topologies() {
			if simulation.Simulable(l, topology) != nil {
				continue
			}
			t.Run(topology+"/"+l.Name, func(t *testing.T) {
				c := quiet(topology, l)
				c.Length = time.Second
				o := run(t, l, c)
				found, err := c.Findings(t.Context(), l, o)
				require.NoError(t, err)
				if !strings.HasPrefix(l.Name, "broken-") {
					require.Empty(t, found)
				}
				require.Contains(t, string(o.History), `"type":"ok","op":"acquire"`)
			})
		}
	}
}
