package simulation_test

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/simulation"
	"github.com/lockchaos/lockchaos/topologies"
)

// seedsVariable sets how many seeds a test tries; else there are few.
const seedsVariable = "LOCKCHAOS_SIMULATION_SEEDS"

func seeds(t *testing.T, few int) int {
	t.Helper()
	if s := os.Getenv(seedsVariable); s != "" {
		n, err := strconv.Atoi(s)
		require.NoError(t, err)
		return n
	}
	return few
}

// findings are the kinds of violation of one seed.
func findings(t *testing.T, k simulation.Campaign, l harness.LockSpec, seed uint64) (simulation.Case, []string) {
	t.Helper()
	c, err := k.Draw(l, seed)
	require.NoError(t, err)
	found, err := c.Findings(t.Context(), l, run(t, l, c))
	require.NoError(t, err)
	return c, found
}

// Correct locks withstand what a correct lock can withstand.
func TestCorrectLocks(t *testing.T) {
	for _, x := range []struct {
		topology, faults string
		acks             int
		locks            []string
	}{
		{topologies.Single, "network,process", 0, []string{
			"memory", "mutex", "mutex-fair", "mutex-fenced", "mutex-spin", "mutex-unnamed", "multilock", "rwmutex", "rwmutex-write", "semaphore", "semaphore-permit", "correct-key", "correct-queue",
		}},
		{topologies.Sentinels, "network,failover", 2, []string{"mutex", "mutex-fair", "mutex-fenced", "mutex-unnamed", "multilock", "rwmutex", "semaphore-permit", "correct-key"}},
		{topologies.Cluster, "network,failover", 1, []string{"mutex", "mutex-fair", "mutex-fenced", "rwmutex", "semaphore-permit"}},
		{topologies.Independent, "network,process", 0, []string{"redlock"}},
	} {
		for _, name := range x.locks {
			t.Run(x.topology+"/"+name, func(t *testing.T) {
				l := spec(t, name)
				k := simulation.Campaign{Topology: x.topology, Faults: x.faults}
				if l.ReplicaAcks {
					k.ReplicaAcks = x.acks
				}
				if name == "correct-queue" {
					k.Progress = 10 * time.Second // a late copy of a request joins the queue again, for one lease
				}
				kinds := map[string][]int{}
				n := seeds(t, 5)
				for seed := 1; seed <= n; seed++ {
					_, found := findings(t, k, l, uint64(seed))
					for _, kind := range found {
						kinds[kind] = append(kinds[kind], seed)
					}
				}
				for _, kind := range slices.Sorted(maps.Keys(kinds)) {
					t.Errorf("%s: %d of %d seeds, first %v", kind, len(kinds[kind]), n, kinds[kind][:min(8, len(kinds[kind]))])
				}
			})
		}
	}
}
