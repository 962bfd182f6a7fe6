package reports_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// There is no recovery from a slow link or from a wrong clock, and none to measure in a
// script.
func TestRecoveryIsMeasuredWhereThereIsOne(t *testing.T) {
	of := func(fault, scenario string) reports.Fault {
		s := &script{}
		s.fault(history.Inject, fault, "zone-a>redis-1", 10, 12, history.OK, "", "")
		s.fault(history.Heal, fault, "zone-a>redis-1", 30, 33, history.OK, "", "")
		s.acquire(1, "orders", "zone-a.1#1", "redis-1", 20, 41, 300)
		r := run()
		r.Scenario = scenario
		return reports.Summarize(reports.Input{Run: r, History: s.history()}).Faults[0]
	}
	cut := of("cut", "")
	require.True(t, cut.Interrupts)
	require.Positive(t, cut.Recovery)
	for _, f := range []reports.Fault{of("latency", ""), of("cut", "failover-double-grant")} {
		require.False(t, f.Interrupts)
		require.Zero(t, f.Recovery)
	}
}

// A run without results is not a run that was judged.
func TestARunWithoutResultsIsNotOver(t *testing.T) {
	in := valid()
	in.Missing, in.Pending = []string{reports.ResultsFile + " is missing"}, true
	require.Contains(t, reports.Summarize(in).Story.Headline, "Not decided yet")
}
