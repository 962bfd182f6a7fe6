package mutants_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/mutants"
	"github.com/lockchaos/lockchaos/scenarios"
)

// All mutants are played by `make mutants`. These are quick, and three properties
// convict them.
func TestMutantsAreCaughtAndTheirTwinsAreNot(t *testing.T) {
	for _, name := range []string{"get-then-delete", "no-elapsed-check", "half-quorum", "retry-refused", "passed-to-all", "set-then-expire"} {
		m, err := mutants.FindMutant(name)
		require.NoError(t, err)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			setup := runtest.Setup(t)
			require.NoError(t, m.Run(t.Context(), setup, false))
			run, h, report := runtest.Judged(t, setup.Dir)
			require.Empty(t, run.AbortReason)
			require.Empty(t, runtest.FailedFaults(h))
			require.True(t, m.Caught(report), "%+v", report)
			require.NoError(t, scenarios.Expectation{Verdict: "invalid", Violation: m.Violation}.Met(run, report))
		})
		t.Run(name+" without the bug", func(t *testing.T) {
			t.Parallel()
			setup := runtest.Setup(t)
			require.NoError(t, m.Run(t.Context(), setup, true))
			run, h, report := runtest.Judged(t, setup.Dir)
			require.Empty(t, run.AbortReason)
			require.Empty(t, runtest.FailedFaults(h))
			require.False(t, m.Caught(report))
			require.Equal(t, checker.Valid, report.Verdict, "%+v", report)
		})
	}
}

func TestMutantsAreListed(t *testing.T) {
	all := mutants.Mutants()
	require.Len(t, all, 30)
	known := locks.All().Names()
	broken := slices.IndexFunc(known, func(name string) bool { return strings.HasPrefix(name, "broken-") })
	require.Positive(t, broken)
	require.True(t, slices.IsSorted(known[:broken]), known)
	require.True(t, slices.IsSorted(known[broken:]), "planted bugs come last")
	for _, m := range all {
		require.NotEmpty(t, m.About)
		require.Contains(t, known, m.Lock())
	}
	_, err := mutants.FindMutant("plain-delet")
	require.ErrorContains(t, err, "did you mean plain-delete?")
}

// Only the property that must convict a mutant does.
func TestCaught(t *testing.T) {
	m, err := mutants.FindMutant("plain-delete")
	require.NoError(t, err)
	found := func(property, kind string) checker.Report {
		return checker.Report{Verdict: checker.Invalid, Results: []checker.Result{{
			Name: property, Verdict: checker.Invalid, Violations: []checker.Violation{{Kind: kind}},
		}}}
	}
	require.True(t, m.Caught(found(m.Property(), m.Violation)))
	require.False(t, m.Caught(found(m.Property(), checker.Reentrancy)))
	require.False(t, m.Caught(found("linearizability", m.Violation)))
	require.False(t, m.Caught(checker.Report{Verdict: checker.Unknown}))
}
