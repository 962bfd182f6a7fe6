package harness_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/faults"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/topologies"
)

// steady is a cluster in which nobody is replaced who is a little late, as all are on
// a busy machine.
var steady = topologies.Options{NodeTimeout: 5 * time.Second}

// On a cluster, faults of a server are aimed at those on which the locks are.
// lock-1, lock-2 and lock-3 have the slots 6018, 10209 and 14272, of which redis-2
// serves two, redis-3 one, and redis-1 none.
func TestFaultsOfServersHitThoseThatServeTheLocks(t *testing.T) {
	t.Parallel()
	setup := runtest.Setup(t)
	setup.Seed = 7 // of which so short a plan has four faults
	r := harness.RandomRun{Topology: topologies.Cluster, Servers: steady, Lock: runtest.Lock("mutex"), Faults: string(faults.Redis), Length: 5 * time.Second}
	r.Workload.Clients, r.Workload.Think = 4, 100*time.Millisecond
	want := []string{"redis-2", "redis-2", "redis-3"}
	var hit []string
	_, h, _ := runtest.Until(t, r, setup, "", func(h *history.History, _ checker.Report) bool {
		hit = nil
		for _, e := range h.Events {
			if e.Op == history.Inject && e.Type == history.Invoke {
				hit = append(hit, e.Target)
			}
		}
		return len(hit) >= len(want)
	})
	for i, target := range hit {
		require.Equal(t, want[i%len(want)], target, "%q", hit)
	}
	for _, e := range runtest.FailedFaults(h) {
		require.False(t, strings.Contains(e.Error, "MOVED") || strings.Contains(e.Error, "CROSSSLOT"), e.Error)
	}
}
