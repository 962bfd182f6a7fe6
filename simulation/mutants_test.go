package simulation_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/mutants"
	"github.com/lockchaos/lockchaos/simulation"
	"github.com/lockchaos/lockchaos/topologies"
)

// notFound are mutants that a campaign of 1,000 seeds does not find, and why.
func notFound() map[string]string {
	return map[string]string{
		"granted-by-message":   "it needs an address that moves from one server to another; and the lock waits for its subscription with a mutex locked, for which time stands still in a bubble",
		"reads-replica":        "it needs a client of a replica, which its own client of the master can't be made into",
		"reentry-unreplicated": "the grant within a grant must be the master's last write before a failover, which no case in 1,000 is",
	}
}

// campaignOf is the one that all mutants have, on the servers of each.
func campaignOf(m mutants.Mutant) simulation.Campaign {
	k := simulation.Campaign{Topology: m.Topology, Servers: 3, Faults: "network,process,client", ReplicaAcks: m.Acks(), Progress: 2 * time.Second}
	if m.Topology == topologies.Sentinels {
		k.Faults = "network,failover"
	}
	return k
}

func shows(t *testing.T, k simulation.Campaign, m mutants.Mutant, twin bool, seed uint64) bool {
	t.Helper()
	l := m.Spec()
	c, err := k.Draw(l, seed)
	require.NoError(t, err)
	if twin {
		l = m.Twin()
	}
	return slices.Contains(judged(t, l, c), m.Violation)
}

// The correct twins withstand what a correct lock can withstand.
func TestCorrectTwins_NoRace(t *testing.T) {
	for _, name := range []string{"plain-delete", "stale-waiter", "passed-to-all", "half-quorum", "wait-ignored", "fence-unreplicated", "reentry-unreplicated"} {
		t.Run(name, func(t *testing.T) {
			m, err := mutants.FindMutant(name)
			require.NoError(t, err)
			k := simulation.Campaign{Topology: m.Topology, Servers: 3, ReplicaAcks: m.Acks()}
			if name == "stale-waiter" {
				k.Progress = 10 * time.Second // a late copy of a request joins the queue again, for one lease
			}
			kinds := map[string][]int{}
			for seed := 1; seed <= seeds(t, 3); seed++ {
				_, found := findings(t, k, m.Twin(), uint64(seed))
				for _, kind := range found {
					kinds[kind] = append(kinds[kind], seed)
				}
			}
			require.Empty(t, kinds, "seeds by kind of violation")
		})
	}
}

// Each mutant is convicted of its violation by some seed of which its twin is not.
func TestSimulatedMutants_NoRace(t *testing.T) {
	n := seeds(t, 0)
	few := []string{"plain-delete", "constant-token", "half-quorum", "wait-ignored"}
	for _, m := range mutants.Mutants() {
		if only := os.Getenv("LOCKCHAOS_SIMULATION_MUTANTS"); !strings.Contains(","+only+",", ","+m.Name+",") && only != "" {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			if why := notFound()[m.Name]; why != "" {
				t.Skip(why)
			}
			limit := n
			if limit == 0 {
				if limit = 300; !slices.Contains(few, m.Name) {
					t.Skip("in the nightly run: set " + seedsVariable)
				}
			}
			k, shared := campaignOf(m), 0
			begin := time.Now()
			for seed := 1; seed <= limit; seed++ {
				if !shows(t, k, m, false, uint64(seed)) {
					continue
				}
				if shows(t, k, m, true, uint64(seed)) {
					shared++ // a limit of the servers, or of the twin
					continue
				}
				t.Logf("%s: seed %d, %v; %d seeds at which the twin shows it as well", m.Violation, seed, time.Since(begin).Round(time.Millisecond), shared)
				return
			}
			t.Errorf("%s: none of %d seeds (%d at which the twin shows it as well), %v", m.Violation, limit, shared, time.Since(begin).Round(time.Millisecond))
		})
	}
}
