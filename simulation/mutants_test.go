package simulation_test

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/internal/clientclock"
	"github.com/lockchaos/lockchaos/mutants"
	"github.com/lockchaos/lockchaos/mutants/broken"
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

// opened is a mutant, or its twin, for one case: each zone has a clock of its own, which
// half of the time is slow, and half of the time is set.
func opened(m mutants.Mutant, twin bool, c simulation.Case) harness.LockSpec {
	rng := rand.New(rand.NewPCG(c.Seed, 0xc10c))
	return m.Simulated(twin, func(s *broken.Setup) {
		s.Clock = &clientclock.Clock{}
		if rng.IntN(2) == 0 {
			s.Clock.Slow(rng.Float64() * 0.09) // which the margin of a correct lock covers
		}
		if clock := s.Clock; rng.IntN(2) == 0 {
			at, by := time.Duration(rng.Int64N(int64(2*time.Second))), time.Duration(rng.Int64N(int64(2*time.Hour)))-time.Hour
			time.AfterFunc(at, func() { clock.Step(by) })
		}
		if one, ok := s.Servers[0].(*redis.Client); ok && m.Name == "wait-elsewhere" {
			s.Other = redis.NewClient(one.Options())
		}
	})
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
	found, err := c.Findings(t.Context(), l, run(t, opened(m, twin, c), c))
	require.NoError(t, err)
	return slices.Contains(found, m.Violation)
}

// The correct twins withstand what a correct lock can withstand. At some seeds, a careless
// client was granted a lock of which nearly nothing was left, which convicted its twin.
func TestCorrectTwins_NoRace(t *testing.T) {
	for name, convicted := range map[string][]int{
		"plain-delete": {172}, "stale-waiter": {32, 172, 759, 845}, "passed-to-all": {845}, "half-quorum": nil,
		"wait-ignored": nil, "fence-unreplicated": nil, "reentry-unreplicated": nil,
	} {
		t.Run(name, func(t *testing.T) {
			m, err := mutants.FindMutant(name)
			require.NoError(t, err)
			k := simulation.Campaign{Topology: m.Topology, Servers: 3}
			if m.Acks() > 0 { // without failovers: renewals of the twins wait for no replica
				k.ReplicaAcks, k.Faults = 2, simulation.MixNetwork
			}
			if name == "stale-waiter" {
				k.Progress = 10 * time.Second // a late copy of a request joins the queue again, for one lease
			}
			kinds := map[string][]int{}
			for seed := 1; seed <= seeds(t, 5); seed++ {
				convicted = append(convicted, seed)
			}
			for _, seed := range convicted {
				c, err := k.Draw(m.Spec(), uint64(seed))
				require.NoError(t, err)
				found, err := c.Findings(t.Context(), m.Spec(), run(t, opened(m, true, c), c))
				require.NoError(t, err)
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
