package reports_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/reports"
)

// An index that begins with what came of all runs sorts and filters its runs, not their
// causes, and has all columns on a screen of usual width.
func TestBrowserJointIndex(t *testing.T) {
	t.Parallel()
	tab := newTab(t)
	dir := t.TempDir()
	long := forgotten()
	long.Run.Scenario, long.Run.Lock = "promotion-refused-by-sentinel", "broken-abandoned-wait"
	var runs []reports.JointRun
	for name, in := range map[string]reports.Input{"failover-double-grant-without-acks-1": failover(), "valid-1": valid(), "promotion-refused-by-sentinel-of-old-1": long} {
		writeRun(t, filepath.Join(dir, name), in)
		require.NoError(t, reports.WriteDir(filepath.Join(dir, name), in))
		runs = append(runs, reports.NewJointRun(reports.Summarize(in), name))
	}
	require.NoError(t, reports.WriteJoint(dir, runs, len(runs)))
	tab.screen(1280, 900, "light")
	tab.visit("file://"+filepath.Join(dir, reports.IndexFile), "#q=valid-1")

	const names = `[...document.querySelectorAll("#runs tbody tr")].filter((row) => !row.hidden).map((row) => row.cells[10].textContent)`
	require.Equal(t, []string{"valid-1"}, eval[[]string](tab, names))
	require.Equal(t, "1 of 3", tab.text("#count"))
	tab.click("#runs th:last-child button")
	tab.hash(`by=10`)
	require.Zero(t, eval[int](tab, `[...document.querySelectorAll(".wide")].filter((n) => n.scrollWidth > n.clientWidth).length`), "a column is out of view")

	// On a small screen the verdict and most of what was found are in view.
	tab.screen(narrowScreen, 900, "light")
	require.Less(t, eval[float64](tab, `[...document.querySelectorAll("#runs th")].find((n) => n.textContent === "What was found").getBoundingClientRect().left`), 0.55*narrowScreen)
	require.LessOrEqual(t, eval[int](tab, `document.documentElement.scrollWidth`), narrowScreen)
}
