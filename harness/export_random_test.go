package harness

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/faults"
)

// PlanOf is what a seed draws for a run on servers of ours.
func PlanOf(t *testing.T, r RandomRun, seed uint64) (plan []faults.Step) {
	t.Helper()
	x, err := r.resolve()
	require.NoError(t, err)
	for _, step := range faults.Generate(seed, x.chosen, r.Length) {
		plan = append(plan, step.Step)
	}
	return plan
}

// Candidates are the faults that a run knows, on servers of ours.
func Candidates(t *testing.T, r RandomRun) []faults.Candidate {
	t.Helper()
	x, err := r.resolve()
	require.NoError(t, err)
	return x.draws.Candidates()
}
