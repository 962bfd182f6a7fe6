package simulation_test

import (
	"bytes"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/simulation"
	"github.com/lockchaos/lockchaos/topologies"
)

// processorTime is what the process has used, which a busy machine does not change much.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// How many runs a second one processor makes as a worker does, with their verdicts: two
// seconds of a random case with four faults at most, and a schedule of three operations.
func BenchmarkRuns(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer simulation.DeepStacks()()
	for _, x := range []struct {
		name, topology, lock string
		operations           bool
	}{
		{"operations/single/redislock", topologies.Single, "redislock", true},
		{"operations/single/mutex", topologies.Single, "mutex", true},
		{"operations/sentinel/mutex", topologies.Sentinels, "mutex", true},
		{"operations/cluster/mutex", topologies.Cluster, "mutex", true},
		{"operations/independent/redlock", topologies.Independent, "redlock", true},
		{"random/single/redislock", topologies.Single, "redislock", false},
		{"random/single/mutex", topologies.Single, "mutex", false},
		{"random/sentinel/mutex", topologies.Sentinels, "mutex", false},
		{"random/cluster/mutex", topologies.Cluster, "mutex", false},
		{"random/independent/redlock", topologies.Independent, "redlock", false},
	} {
		b.Run(x.name, func(b *testing.B) {
			l, k := spec(b, x.lock), simulation.Campaign{Topology: x.topology}
			events, requests, begin := 0, 0, processorTime(b)
			seed := uint64(0)
			for b.Loop() {
				seed++
				c, err := k.Draw(l, seed)
				require.NoError(b, err)
				if c.Length = 2 * time.Second; x.operations {
					c = simulation.SweepBase(l, k, seed)
					c.Length = 60 * time.Millisecond
				}
				r, err := simulation.Do(b.Context(), new(testing.T), l, simulation.Job{Case: &c, Keep: true})
				require.NoError(b, err)
				events += bytes.Count(r.Outcome.History, []byte("\n"))
				requests += r.Counts.Requests
			}
			b.ReportMetric(float64(b.N)/(processorTime(b)-begin).Seconds(), "runs/s")
			b.ReportMetric(float64(events)/float64(b.N), "events/run")
			b.ReportMetric(float64(requests)/float64(b.N), "requests/run")
		})
	}
}
