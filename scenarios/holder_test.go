package scenarios_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/locks"
	"github.com/lockchaos/lockchaos/internal/runtest"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/scenarios"
)

// Of a planted bug the report says which server had whose key, as of other locks: here that
// of a client that had given up.
func TestTheKeyOfAPlantedBugIsLookedAt(t *testing.T) {
	for name, want := range map[string]string{
		"abandoned-wait":            "redis-1 still had the key of client b (whose request was refused at",
		"late-release-double-grant": "redis-1 had client b as the holder of orders",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, variant, err := scenarios.Find(name, locks.All())
			require.NoError(t, err)
			setup := runtest.Setup(t)
			require.NoError(t, found.As(variant).Run(t.Context(), setup))
			run, h, report := runtest.Judged(t, setup.Dir)
			require.Empty(t, run.AbortReason)
			require.Contains(t, reports.Summarize(reports.Input{Run: run, History: h, Report: report}).Story.String(), want)
		})
	}
}
