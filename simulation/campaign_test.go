package simulation_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/simulation"
	"github.com/lockchaos/lockchaos/simulation/world"
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

// findings are the kinds of violation that a lock shows in the case that is drawn for another one, which it may be.
func findings(t *testing.T, k simulation.Campaign, drawn, l harness.LockSpec, seed uint64) []string {
	t.Helper()
	c, err := k.Draw(drawn, seed)
	require.NoError(t, err)
	return judged(t, l, c)
}

// convictsNone plays the first n seeds with a correct lock.
func convictsNone(t *testing.T, k simulation.Campaign, l harness.LockSpec, n int) {
	t.Helper()
	kinds := map[string][]int{}
	for seed := 1; seed <= n; seed++ {
		for _, kind := range findings(t, k, l, l, uint64(seed)) {
			kinds[kind] = append(kinds[kind], seed)
		}
	}
	require.Empty(t, kinds, "seeds by kind of violation")
}

// judged are the kinds of violation of a case.
func judged(t *testing.T, l harness.LockSpec, c simulation.Case) []string {
	t.Helper()
	found, err := c.Findings(t.Context(), l, run(t, l, c))
	require.NoError(t, err)
	return found
}

// Correct locks withstand what a correct lock can withstand.
func TestCorrectLocks_NoRace(t *testing.T) {
	for _, x := range []struct {
		topology string
		acks     int
		locks    []string
	}{
		{topologies.Single, 0, []string{
			"memory", "mutex", "mutex-fair", "mutex-fenced", "mutex-spin", "mutex-unnamed", "multilock", "rwmutex", "rwmutex-write", "semaphore", "semaphore-permit", "correct-key", "correct-queue",
		}},
		{topologies.Sentinels, 2, []string{"mutex", "mutex-fair", "mutex-fenced", "mutex-unnamed", "multilock", "rwmutex", "semaphore-permit", "correct-key"}},
		{topologies.Cluster, 1, []string{"mutex", "mutex-fair", "mutex-fenced", "rwmutex", "semaphore-permit"}},
		{topologies.Independent, 0, []string{"redlock"}},
	} {
		for _, name := range x.locks {
			t.Run(x.topology+"/"+name, func(t *testing.T) {
				l := spec(t, name)
				k := simulation.Campaign{Topology: x.topology}
				if l.ReplicaAcks {
					k.ReplicaAcks = x.acks
				}
				convictsNone(t, k, l, seeds(t, 2))
			})
		}
	}
}

// Cases in which a correct lock was convicted, because a bound was too short, a client sent
// a request twice, or a lock said that it was granted from a place which it had lost, or took a late message for a grant.
func TestCasesThatConvictedCorrectLocks(t *testing.T) {
	files, err := filepath.Glob("testdata/cases/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			c := readCase(t, file)
			require.Empty(t, judged(t, spec(t, c.Lock), c), "%v", c.Plan)
		})
	}
}

func readCase(t *testing.T, file string) (c simulation.Case) {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &c))
	return c
}

// The mix of a search that names none is one that a correct lock withstands: on a topology
// with replicas there are failovers only if enough of them acknowledge each grant.
func TestSafeMix(t *testing.T) {
	for _, x := range []struct {
		topology string
		acks     int
		failover bool
	}{
		{topologies.Single, 0, false},
		{topologies.Sentinels, 0, false},
		{topologies.Sentinels, 1, true},
		{topologies.Sentinels, 2, true},
		{topologies.Cluster, 0, false},
		{topologies.Cluster, 1, true},
	} {
		k, failover := simulation.Campaign{Topology: x.topology, ReplicaAcks: x.acks}, false
		for seed := range uint64(50) {
			c, err := k.Draw(spec(t, "mutex"), seed)
			require.NoError(t, err)
			for _, f := range c.Plan {
				failover = failover || f.Name == world.CrashFailover
				require.True(t, f.Name != world.SplitBrain || x.acks != 1 || x.topology == topologies.Cluster, "its old master may still have a replica")
				if x.topology != topologies.Single {
					require.NotContains(t, []string{world.Kill, world.Pause}, f.Name)
				}
			}
		}
		require.Equal(t, x.failover, failover, "%v", x)
	}
}

// A run is long enough for a lock to be seen stuck for longer than it may be.
func TestCasesLastLongerThanTheirBound(t *testing.T) {
	for _, name := range []string{"mutex", "mutex-fair", "semaphore-permit", "redlock"} {
		for _, topology := range simulation.Topologies() {
			k := simulation.Campaign{Topology: topology}
			if k.Validate(spec(t, name)) != nil {
				continue
			}
			for seed := range uint64(20) {
				c, err := k.Draw(spec(t, name), seed)
				require.NoError(t, err)
				if c.Calm > 0 { // else it ends early, for what needs less time
					require.Greater(t, c.Length-2*time.Second, min(c.Progress, 8*time.Second))
				}
			}
			w := simulation.NewSweep(simulation.SweepBase(spec(t, name), k, 1), map[string]int{"zone-a>redis-1": 1}).Case(0)
			require.Greater(t, w.Length-time.Second, min(w.Progress, 8*time.Second))
		}
	}
}
