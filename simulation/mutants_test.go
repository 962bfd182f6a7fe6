package simulation_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/mutants"
	"github.com/lockchaos/lockchaos/simulation"
)

// notFound are mutants that 1,000 cases by the defaults do not find on the servers of the mutant, and why.
func notFound() map[string]string {
	return map[string]string{
		"granted-by-message":   "it needs an address that moves from one server to another",
		"reads-replica":        "it needs a client of a replica, which its own client of the master can't be made into",
		"renew-recreates":      "of one server it shows in none of 1,500 cases, and on Sentinels in 1 of 500",
		"reentry-unreplicated": "the grant within a grant must be the master's last write before a failover, which no case in 1,000 is",
	}
}

// campaignOf is the search by its defaults, on the servers of a mutant.
func campaignOf(m mutants.Mutant) simulation.Campaign {
	return simulation.Campaign{Topology: m.Topology, ReplicaAcks: m.Acks()}
}

// The correct twins withstand what a correct lock can withstand.
func TestCorrectTwins_NoRace(t *testing.T) {
	for _, name := range []string{"plain-delete", "stale-waiter", "passed-to-all", "half-quorum", "wait-ignored", "fence-unreplicated", "reentry-unreplicated"} {
		t.Run(name, func(t *testing.T) {
			m, err := mutants.FindMutant(name)
			require.NoError(t, err)
			convictsNone(t, campaignOf(m), m.Twin(), seeds(t, 3))
		})
	}
}

// Each mutant is convicted of its violation by some seed of which its twin is not.
func TestSimulatedMutants_NoRace(t *testing.T) {
	n := seeds(t, 0)
	few := []string{"plain-delete", "constant-token", "half-quorum", "wait-ignored"}
	for _, m := range mutants.Mutants() {
		t.Run(m.Name, func(t *testing.T) {
			limit := n
			if why := notFound()[m.Name]; why != "" {
				t.Skip(why)
			}
			if limit == 0 {
				if limit = 300; !slices.Contains(few, m.Name) {
					t.Skip("in the nightly run: set " + seedsVariable)
				}
			}
			k, shared := campaignOf(m), 0
			shows := func(l harness.LockSpec, seed int) bool {
				return slices.Contains(findings(t, k, m.Spec(), l, uint64(seed)), m.Violation)
			}
			for seed := 1; seed <= limit; seed++ {
				if !shows(m.Spec(), seed) {
					continue
				}
				if shows(m.Twin(), seed) {
					shared++ // a limit of the servers, or of the twin
					continue
				}
				t.Logf("%s: seed %d; %d seeds at which the twin shows it as well", m.Violation, seed, shared)
				return
			}
			t.Errorf("%s: none of %d seeds (%d at which the twin shows it as well)", m.Violation, limit, shared)
		})
	}
}
