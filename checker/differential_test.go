package checker_test

import (
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/checker/oracle"
	"github.com/lockchaos/lockchaos/history"
)

// cases is how many random histories each differential test judges: a twentieth with the
// race detector or -short, and more where LOCKCHAOS_CASES says so.
func cases(t *testing.T, usual int) int {
	t.Helper()
	info, _ := debug.ReadBuildInfo()
	if testing.Short() || slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		usual = max(usual/20, 20)
	}
	return fromEnv(t, "LOCKCHAOS_CASES", usual)
}

func source(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// made is a small history of the oracle's generator.
func made(seed uint64) *history.History { return oracle.NewGenerator(seed).Next() }

// An order that explains a history is a proof: the search finds one, too. Of the
// histories of a correct lock, nearly all have the likeliest.
func TestALikelyOrderIsAProof(t *testing.T) {
	t.Parallel()
	likely, legal := 0, 0
	for seed := range uint64(cases(t, 500)) {
		h := made(seed)
		if h.Events[0].Lock != "k" {
			continue
		}
		found, searched := checker.Likely(t.Context(), h, "k")
		if found {
			require.Equal(t, checker.Valid, searched, "seed %d\n%s", seed, oracle.Lines(h))
		}
		if searched == checker.Valid {
			legal++
			if found {
				likely++
			}
		}
	}
	t.Logf("%d of %d legal histories have the likeliest order", likely, legal)
	require.Greater(t, likely, legal*8/10)
}
