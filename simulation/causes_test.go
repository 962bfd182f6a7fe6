package simulation_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/harness"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/simulation"
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

// A correct lock is violated only by faults: where its report has a violation, a fault was in effect at the
// time or before it, and says so.
func TestReportsNameTheFaultsInEffect_NoRace(t *testing.T) {
	for _, x := range []struct {
		topology, lock string
		from           uint64 // the first seed that shows one
	}{
		{topologies.Single, "mutex", 8},
		{topologies.Sentinels, "mutex-fair", 9},
		{topologies.Sentinels, "mutex", 27},
		{topologies.Cluster, "mutex", 11},
	} {
		l := spec(t, x.lock)
		told := 0
		for seed := x.from; seed < x.from+uint64(seeds(t, 5)); seed++ {
			c, err := simulation.Campaign{Topology: x.topology, Faults: "all"}.Draw(l, seed)
			require.NoError(t, err)
			r := summary(t, l, c)
			if r.Counts.Total == 0 {
				continue
			}
			told++
			named := slices.ContainsFunc(r.Faults, func(f reports.Fault) bool { return strings.Contains(r.Story.InEffect, f.Name) })
			require.True(t, named, "%s on %s, seed %d: %s", x.lock, x.topology, seed, r.Story.InEffect)
		}
		require.Positive(t, told, "%s on %s", x.lock, x.topology)
	}
}
