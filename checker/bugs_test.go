package checker_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
)

// Every bug is caught by the property that should catch it, in many runs that
// are long enough for it to show, and by both engines.
func TestSimulatedBugsAreCaught(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		bug, property string
		kinds         []string
	}{
		{bugForeignDelete, "ownership", []string{checker.ForeignRelease, checker.PrematureLoss}},
		{bugForeignExtend, "ownership", []string{checker.ForeignRelease}},
		{bugConstantToken, "mutual-exclusion", []string{checker.DoubleGrant}},
		{bugForgets, "ownership", []string{checker.PrematureLoss}},
		{bugShortLease, "ownership", []string{checker.PrematureLoss}},
		{bugShortLease, "mutual-exclusion", []string{checker.DoubleGrant}},
		{bugOneTooMany, "capacity", []string{checker.OverCapacity}},
		{bugReadersIn, "mutual-exclusion", []string{checker.DoubleGrant}},
		{bugFirstRelease, "linearizability", []string{checker.NotLinearizable}}, // premature-loss, or double-grant
	} {
		t.Run(test.bug+": "+test.property, func(t *testing.T) {
			t.Parallel()
			caught, confirmed := 0, 0
			const runs = 6
			for seed := range uint64(runs) {
				r := checker.Check(t.Context(), simulateBug(source(seed), 4, 4000, test.bug))
				var found []string
				for _, v := range result(t, r, test.property).Violations {
					found = append(found, v.Kind)
				}
				if slices.ContainsFunc(test.kinds, func(kind string) bool { return slices.Contains(found, kind) }) {
					caught++
				}
				if result(t, r, "linearizability").Verdict == checker.Invalid {
					confirmed++
				}
				for _, result := range r.Results {
					require.NotEqual(t, "engines-agree", result.Name, "seed %d: %s", seed, result.Summary)
				}
			}
			require.Greater(t, caught, runs/3, "caught in %d runs of %d", caught, runs)
			require.Greater(t, confirmed, runs/3, "the search saw it in %d runs of %d", confirmed, runs)
		})
	}
}

// A lock whose leases never run out is stuck once a holder is gone, and the same
// lock without the bug never is.
func TestASimulatedLockWithoutExpiryIsStuck_NoRace(t *testing.T) {
	t.Parallel()
	const runs, bound = 24, 30 // ticks; the longest lease has 22
	stuck := 0
	for seed := range uint64(runs) {
		r := checker.Progress(bound).Check(t.Context(), simulateBug(source(seed), 4, 4000, bugNoExpiry))
		if slices.ContainsFunc(r.Violations, func(v checker.Violation) bool { return v.Kind == checker.Stuck }) {
			stuck++
		}
		twin := checker.Progress(bound).Check(t.Context(), simulate(source(seed), 4, 4000))
		require.Equal(t, checker.Valid, twin.Verdict, "seed %d: %s", seed, twin.Summary)
	}
	// Those who gave up with an unknown outcome excuse the lock in most runs, and so do those whose
	// hold was extended after its lease.
	require.GreaterOrEqual(t, stuck, 2, "stuck in %d runs of %d", stuck, runs)
}
