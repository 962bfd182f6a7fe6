package scenarios_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/scenarios"
)

func TestAPropertyThatIsToHoldIsLookedAt(t *testing.T) {
	report := checker.Report{Verdict: checker.Invalid, Results: []checker.Result{
		{Name: "mutual-exclusion", Verdict: checker.Invalid, Violations: []checker.Violation{{Kind: checker.DoubleGrant}}},
		{Name: "protected-resource", Verdict: checker.Valid},
	}}
	e := scenarios.Expectation{Verdict: "invalid", Violation: checker.DoubleGrant, Holds: []string{"protected-resource"}}
	require.NoError(t, e.Met(history.Run{}, report))
	report.Results[1].Verdict = checker.Unknown
	require.ErrorContains(t, e.Met(history.Run{}, report), "expected protected-resource to hold, and it is unknown")
	e.Holds = []string{"capacity"}
	require.ErrorContains(t, e.Met(history.Run{}, report), "expected capacity to hold, and it was not judged")
}
