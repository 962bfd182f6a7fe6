package causes

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/simulation/world"
)

// What an earlier fault of the run made is not counted for a later one.
func TestViolationsBeforeTheSuspectAreOfAnother(t *testing.T) {
	c := Cluster{
		Kind: "double-grant", Properties: []string{"mutual-exclusion"}, From: 16 * time.Second,
		Faults: []reports.Fault{{Name: "split-brain", Start: time.Second}, {Name: "failover", Start: 15 * time.Second}}, Suspects: []int{1},
	}
	require.Equal(t, 14900*time.Millisecond, c.begin())
	found := func(at time.Duration) []string {
		kinds, _ := shown(checker.Report{Results: []checker.Result{
			{Name: "mutual-exclusion", Verdict: checker.Invalid, Violations: []checker.Violation{{Kind: "double-grant", From: at}}},
		}}, c, c.begin())
		return kinds
	}
	require.Empty(t, found(3*time.Second))
	require.Equal(t, []string{"double-grant"}, found(15*time.Second))
	for _, name := range []string{"progress", "mutual-exclusion"} {
		_, undecided := shown(checker.Report{Results: []checker.Result{{Name: name, Verdict: checker.Unknown}}}, c, 0)
		require.Equal(t, name == "mutual-exclusion", undecided)
	}
}

// Of more faults than are measured those are that were in effect at the violation, and then those that ended nearest before.
func TestTheNearestFaultsAreSuspects(t *testing.T) {
	at := func(name, target string, from, to int) reports.Fault {
		return reports.Fault{Name: name, Target: target, Start: time.Duration(from) * time.Second, End: time.Duration(to) * time.Second, OK: true}
	}
	plan := []world.Fault{{Name: "cut", Target: "a>b"}, {Name: "kill", Target: world.TheMaster}, {Name: "stall", Target: "a>b"}, {Name: "cut", Target: "a>b"}, {Name: "flush", Target: "b"}}
	had := happened(plan, []reports.Fault{at("cut", "a>b", 1, 2), at("kill", "b", 1, 3), at("stall", "a>b", 3, 9), at("cut", "a>b", 4, 5)})
	require.Equal(t, at("kill", "b", 1, 3), had[1])
	require.False(t, had[4].OK, "it did not happen")
	for violated, want := range map[int][]int{8: {1, 2, 3}, 2: {0, 1, 2}, 20: {1, 2, 3}} {
		var c Cluster
		order, _ := nearest(had, time.Duration(violated)*time.Second, time.Duration(violated)*time.Second)
		c.suspect(order)
		require.Equal(t, want, c.Suspects, violated)
	}
	require.True(t, happened(plan, nil)[4].OK, "without a record the plan is what there is")
}
