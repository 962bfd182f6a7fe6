package reports_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/reports"
)

func TestIndex(t *testing.T) {
	dir := t.TempDir()
	for i, name := range []string{"first", "javascript:alert(1)", "<b>\"x\" #1?"} {
		in := []reports.Input{failover(), valid(), undecided()}[i]
		in.Run.Started = in.Run.Started.Add(time.Duration(i) * time.Hour)
		writeRun(t, filepath.Join(dir, name), in)
		require.NoError(t, reports.WriteDir(filepath.Join(dir, name), in))
	}
	writeRun(t, filepath.Join(dir, "running"), undecided())
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "no run", "logs"), 0o755))
	writeRun(t, filepath.Join(dir, "damaged"), failover())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "damaged", reports.ResultsFile), []byte("{"), 0o644))
	require.NoError(t, os.Symlink("first", filepath.Join(dir, "latest")))

	runs, err := reports.ReadRuns(dir)
	require.NoError(t, err)
	var names []string
	for _, r := range runs {
		names = append(names, r.Name)
	}
	require.Equal(t, []string{"<b>\"x\" #1?", "javascript:alert(1)", "running", "first", "damaged"}, names, "the newest first")
	require.Equal(t, checker.Invalid, runs[3].Verdict)
	require.Equal(t, 2, runs[3].Violations)
	require.True(t, runs[3].Page)
	require.Equal(t, "Not judged: it is still under way, or was stopped", runs[2].Headline)
	require.False(t, runs[2].Page)
	require.Equal(t, "The results can't be read", runs[4].Headline)
	require.Equal(t, "sentinel", runs[4].Topology)

	require.NoError(t, reports.UpdateIndex(dir))
	page, err := os.ReadFile(filepath.Join(dir, reports.IndexFile))
	require.NoError(t, err)
	counts := elements(t, withoutCode(string(page)), false)
	require.Equal(t, 6, counts["tr"], "a heading and five runs")
	require.Zero(t, counts["b"])
	require.Contains(t, string(page), `href="./%3Cb%3E%22x%22%20%231%3F/report.html"`)
	require.Contains(t, string(page), `href="./javascript:alert%281%29/report.html"`)
	require.NoError(t, reports.UpdateIndex(dir))
	again, err := os.ReadFile(filepath.Join(dir, reports.IndexFile))
	require.NoError(t, err)
	require.Equal(t, string(page), string(again))

	none := written(t, func(w io.Writer) error { return reports.WriteIndex(w, nil, nil) })
	require.Contains(t, string(none), "There is no run here yet")
}

func TestIndexOfNothing(t *testing.T) {
	require.ErrorIs(t, reports.UpdateIndex(filepath.Join(t.TempDir(), "nowhere")), os.ErrNotExist)
}
