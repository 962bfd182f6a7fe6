package causes

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/reports"
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
