package simulation_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/simulation"
	"github.com/lockchaos/lockchaos/simulation/world"
	"github.com/lockchaos/lockchaos/topologies"
)

// summary is the report of a case.
func summary(t *testing.T, l harness.LockSpec, c simulation.Case) reports.Results {
	t.Helper()
	o := run(t, l, c)
	h, err := history.ReadAll(bytes.NewReader(o.History))
	require.NoError(t, err)
	return reports.Summarize(reports.Input{Run: c.Record(l, o), History: h, Report: checker.Check(t.Context(), h)})
}

// What a report names as the cause was one: without that fault the same run does not have the
// violation that is told. Of a correct lock there always is one.
func TestReportsNameTheCause_NoRace(t *testing.T) {
	told := 0
	for _, x := range []struct{ topology, lock string }{
		{topologies.Single, "mutex"},
		{topologies.Single, "rwmutex"},
		{topologies.Single, "semaphore-permit"},
		{topologies.Sentinels, "semaphore"},
		{topologies.Sentinels, "mutex-fair"},
		{topologies.Sentinels, "mutex"},
		{topologies.Sentinels, "redislock"},
		{topologies.Cluster, "mutex"},
	} {
		l := spec(t, x.lock)
		for seed := range uint64(seeds(t, 30)) {
			c, err := simulation.Campaign{Topology: x.topology, Faults: "all"}.Draw(l, seed+1)
			require.NoError(t, err)
			for _, cause := range summary(t, l, c).Causes {
				require.NotEmpty(t, cause.Fault, "%s on %s, seed %d: %s", x.lock, x.topology, seed+1, cause.Title)
				events := cause.Story.Events
				at := slices.IndexFunc(events, func(e reports.StoryEvent) bool { return e.Kind == reports.EventViolation })
				require.GreaterOrEqual(t, at, 0)
				without := c
				without.Plan = slices.DeleteFunc(slices.Clone(c.Plan), func(f world.Fault) bool { return f.Name == cause.Fault })
				require.Less(t, len(without.Plan), len(c.Plan), "%s: a fault of the plan", cause.Title)
				require.False(t, has(summary(t, l, without), events[at].At),
					"%s on %s, seed %d: %s: it is there without that, too", x.lock, x.topology, seed+1, cause.Title)
				told++
			}
		}
	}
	require.Greater(t, told, 10)
}

// has reports whether a violation began or ended at an instant, within a few microseconds:
// that is how far faults shift what comes later.
func has(r reports.Results, at time.Duration) bool {
	for _, p := range r.Properties {
		for _, v := range p.Violations {
			if (v.From-at).Abs() < 2*time.Microsecond || (v.Until-at).Abs() < 2*time.Microsecond {
				return true
			}
		}
	}
	return false
}
