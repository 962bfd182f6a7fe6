package simulation_test

import (
	"math"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/simulation"
)

// processorTime is what the process has used, which a busy machine does not change much.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// A search by its defaults of each lock on each deployment: how many cases one processor plays in a second of its
// time, with their verdicts, how many of 100 convict the lock, and in how much of its time half of all searches
// have found one.
func BenchmarkSearch(b *testing.B) {
	defer simulation.DeepStacks()()
	for _, topology := range simulation.Topologies() {
		for acks := range 2 {
			for _, l := range locks.All() {
				k := simulation.Campaign{Topology: topology, ReplicaAcks: acks}
				if k.Validate(l) != nil {
					continue
				}
				b.Run(topology+"-"+strconv.Itoa(acks)+"/"+l.Name, func(b *testing.B) {
					convicted, seed, begin := 0, uint64(0), processorTime(b)
					for b.Loop() {
						seed++
						r, err := simulation.Do(b.Context(), new(testing.T), l, simulation.Job{Campaign: k, Seed: seed})
						require.NoError(b, err)
						convicted += min(1, len(r.Findings))
					}
					cases, took := float64(b.N), (processorTime(b) - begin).Seconds()
					b.ReportMetric(cases/took, "cases/s")
					b.ReportMetric(100*float64(convicted)/cases, "%convict")
					if convicted > 0 {
						median := max(1, -math.Ln2/math.Log1p(-float64(convicted)/cases))
						b.ReportMetric(median, "cases/find")
						b.ReportMetric(median*took/cases, "s/find")
					}
				})
			}
		}
	}
}
