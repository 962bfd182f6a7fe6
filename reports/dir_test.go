package reports_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/reports"
	"github.com/lockchaos/lockchaos/reports/internal/draw"
)

func TestDirRoundTrip(t *testing.T) {
	dir := t.TempDir()
	in := plotted(failover())
	writeRun(t, dir, in)
	require.NoError(t, reports.WriteDir(dir, in))
	back, err := reports.ReadDir(dir)
	require.NoError(t, err)
	require.Equal(t, in, back)

	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 10, "the run's two, seven reports and porcupine's page")
}

// A pipe without a writer keeps no reader waiting.
func TestReadDirRefusesPipes(t *testing.T) {
	for _, name := range []string{reports.RunFile, reports.HistoryFile, reports.ResultsFile} {
		dir := t.TempDir()
		in := failover()
		writeRun(t, dir, in)
		require.NoError(t, reports.WriteDir(dir, in))
		require.NoError(t, os.Remove(filepath.Join(dir, name)))
		require.NoError(t, syscall.Mkfifo(filepath.Join(dir, name), 0o600))
		_, err := reports.ReadDir(dir)
		require.ErrorContains(t, err, name+": it is no regular file")
		_, err = reports.ReadRuns(filepath.Dir(dir))
		require.NoError(t, err)
	}
}

func TestReadDirNamesEveryPart(t *testing.T) {
	_, err := reports.ReadDir(filepath.Join(t.TempDir(), "nowhere"))
	for _, name := range []string{reports.RunFile, reports.HistoryFile, reports.ResultsFile} {
		require.ErrorContains(t, err, name)
	}
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NotContains(t, err.Error(), "\n", "one sentence for one mistake")
}

// A history of which whole lines are missing, or all, is not that of the run: the stored verdict is
// not told as that of the report.
func TestReadDirCountsTheEvents(t *testing.T) {
	for _, missing := range []int{0, 1, -1} { // all of them
		dir := t.TempDir()
		in := valid()
		in.Run.Events = int64(len(in.History.Events))
		writeRun(t, dir, in)
		require.NoError(t, reports.WriteDir(dir, in))
		path := filepath.Join(dir, reports.HistoryFile)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		lines := strings.SplitAfter(string(text), "\n")
		left := lines[:len(lines)-1-missing] // after the last line there is an empty one
		if missing < 0 {
			left = nil
		}
		require.NoError(t, os.WriteFile(path, []byte(strings.Join(left, "")), 0o600))
		again, err := reports.ReadDir(dir)
		if missing == 0 {
			require.NoError(t, err)
			require.Equal(t, checker.Valid, reports.Summarize(again).Verdict)
			continue
		}
		require.ErrorContains(t, err, fmt.Sprintf("history.jsonl has %d events, and the run recorded %d", len(left), in.Run.Events))
		require.Equal(t, checker.Unknown, reports.Summarize(again).Verdict, "%d", missing)
	}
}

// Of a damaged run there is a report of what is left, which says what is not,
// and which is never valid. The stored verdicts stay as they are.
func TestDamagedRuns(t *testing.T) {
	for _, tt := range []struct {
		name, file, content string // no content: the file is missing
		want, shows         string
	}{
		{"no run", reports.RunFile, "", "run.json is missing", "client a was granted"},
		{"no history", reports.HistoryFile, "", "history.jsonl is missing", "mutual-exclusion"},
		{"no results", reports.ResultsFile, "", "results.json is missing", "Nothing was checked"},
		{"history cut", reports.HistoryFile, `{"time":1,"process":1,"type":"invoke","op":"acquire","lock":"k"}` + "\n{}\n", "1 event before it can be read", "mutual-exclusion"},
		{"run of another version", reports.RunFile, `{"version":9}`, "run.json: version 9, want 1", "client a was granted"},
		{"results damaged", reports.ResultsFile, "[]", "results.json: read results: ", "Nothing was checked"},
		{"results of another version", reports.ResultsFile, `{"version":2}`, "version 2, want 1", "Nothing was checked"},
		{"results without a verdict", reports.ResultsFile, `{"version":1,"verdict":"fine"}`, `unknown verdict "fine"`, "Nothing was checked"},
		{"run cut", reports.RunFile, `{"version":1,`, "run.json: want one JSON object: it ends in the middle of one", "client a was granted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			in := failover()
			writeRun(t, dir, in)
			require.NoError(t, reports.WriteDir(dir, in))
			path := filepath.Join(dir, tt.file)
			if tt.content == "" {
				require.NoError(t, os.Remove(path))
			} else {
				require.NoError(t, os.WriteFile(path, []byte(tt.content), 0o644))
			}
			before, _ := os.ReadFile(filepath.Join(dir, reports.ResultsFile))
			left, err := reports.ReadDir(dir)
			require.Error(t, err)
			require.Len(t, left.Missing, 1)
			require.Contains(t, left.Missing[0], tt.want)
			require.NotContains(t, left.Missing[0], dir)
			require.NoError(t, reports.WriteDir(dir, left))
			page, err := os.ReadFile(filepath.Join(dir, reports.HTMLFile))
			require.NoError(t, err)
			require.Contains(t, string(page), "Parts of this run are missing")
			require.Contains(t, string(page), tt.shows)
			after, _ := os.ReadFile(filepath.Join(dir, reports.ResultsFile))
			require.Equal(t, string(before), string(after))

			left.Report.Verdict = checker.Valid
			r := reports.Summarize(left)
			require.Equal(t, checker.Unknown, r.Verdict)
			require.Equal(t, tt.name == "no results", strings.HasPrefix(r.Story.Headline, "Not decided yet"), "it may be under way")
			text := string(written(t, func(w io.Writer) error { return reports.WriteText(w, r, reports.TextOptions{}) }))
			require.Contains(t, text, "? incomplete")
		})
	}
}

// There is no file of a plot where there is too little to plot, and the page names none.
func TestNoPlotOfTwoDots(t *testing.T) {
	for i, in := range []reports.Input{failover(), plotted(failover())} {
		dir, plots := t.TempDir(), i == 1
		require.NoError(t, reports.WriteDir(dir, in))
		page, err := os.ReadFile(filepath.Join(dir, reports.HTMLFile))
		require.NoError(t, err)
		for _, name := range []string{draw.LatencyFile, draw.HoldsFile, draw.ThroughputFile} {
			_, err := os.Stat(filepath.Join(dir, name))
			require.Equal(t, plots, err == nil, name)
			require.Equal(t, plots, strings.Contains(string(page), name), name)
		}
	}
}

func TestWriteDirErrors(t *testing.T) {
	err := reports.WriteDir(filepath.Join(t.TempDir(), "nowhere"), failover())
	require.ErrorIs(t, err, os.ErrNotExist)
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestWriteErrors(t *testing.T) {
	in := failover()
	r := reports.Summarize(in)
	for name, err := range map[string]error{
		"json":     reports.WriteJSON(brokenWriter{}, r),
		"text":     reports.WriteText(brokenWriter{}, r, reports.TextOptions{}),
		"junit":    reports.WriteJUnit(brokenWriter{}, r),
		"markdown": reports.WriteMarkdown(brokenWriter{}, r),
		"html":     reports.WriteHTML(brokenWriter{}, in),
	} {
		require.ErrorIs(t, err, os.ErrClosed, name)
	}
}
