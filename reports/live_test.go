package reports_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

// A growing run is written while it is watched.
type growing struct {
	testing.TB

	dir  string
	file *os.File
	in   reports.Input
}

func grow(tb testing.TB, dir string) *growing {
	tb.Helper()
	in := failover()
	in.Run.Settings = json.RawMessage(`{"length":40000000000}`)
	require.NoError(tb, os.MkdirAll(dir, 0o755))
	require.NoError(tb, history.Dir(dir).WriteRun(in.Run))
	file, err := os.Create(filepath.Join(dir, reports.HistoryFile))
	require.NoError(tb, err)
	tb.Cleanup(func() { file.Close() })
	return &growing{tb, dir, file, in}
}

// until writes the events up to an instant, in pieces that end within a line.
func (g *growing) until(from, to time.Duration) {
	g.Helper()
	var b strings.Builder
	enc := json.NewEncoder(&b)
	for _, e := range g.in.History.Events {
		if e.Time >= from && e.Time < to {
			require.NoError(g, enc.Encode(e))
		}
	}
	text := b.String()
	for _, part := range []string{text[:len(text)/3], text[len(text)/3:]} {
		_, err := g.file.WriteString(part)
		require.NoError(g, err)
	}
}

// A watched run tells what was granted, which faults are in effect and what was found,
// and that it is over.
func TestLive(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := grow(t, filepath.Join(dir, "running"))
	server := serving(t, dir)
	run.until(0, ms(500))

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/running/events", http.NoBody)
	require.NoError(t, err)
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	lines := bufio.NewScanner(resp.Body)
	next := func(so func(reports.Live) bool) reports.Live {
		t.Helper()
		for lines.Scan() {
			data, found := strings.CutPrefix(lines.Text(), "data: ")
			if !found {
				continue
			}
			var now reports.Live
			require.NoError(t, json.Unmarshal([]byte(data), &now))
			if so(now) {
				return now
			}
		}
		require.NoError(t, lines.Err())
		require.Fail(t, "the stream ended")
		return reports.Live{}
	}
	now := next(func(now reports.Live) bool { return now.Granted == 3 })
	require.Equal(t, []string{"cut replication", "kill redis-1"}, now.Faults)
	require.InDelta(t, 40, now.Length, 0.001)
	require.InDelta(t, 0.415, now.Elapsed, 0.001)
	require.Zero(t, now.Violations, "nothing was granted twice so far")
	require.False(t, now.Done)

	run.until(ms(500), ms(3000))
	now = next(func(now reports.Live) bool { return now.Violations > 0 })
	require.Equal(t, 4, now.Granted)
	require.Equal(t, 1, now.Unknown)
	require.Equal(t, []string{"kill redis-1"}, now.Faults)
	require.NotEmpty(t, now.Found)

	require.NoError(t, reports.WriteDir(run.dir, run.in))
	next(func(now reports.Live) bool { return now.Done })
	for lines.Scan() {
		require.Empty(t, lines.Text(), "there is no more to tell")
	}
}

// What is no history, or belongs to no run, is not streamed.
func TestLiveRefuses(t *testing.T) {
	t.Parallel()
	dir, outside := t.TempDir(), t.TempDir()
	writeRun(t, outside, failover())
	require.NoError(t, os.Mkdir(filepath.Join(dir, "linked"), 0o755))
	require.NoError(t, os.Symlink(filepath.Join(outside, reports.HistoryFile), filepath.Join(dir, "linked", reports.HistoryFile)))
	server := serving(t, dir)
	for _, path := range []string{"/linked/events", "/nowhere/events", "/nowhere/live", "/events", "/live", "/a/b/events"} {
		resp, _ := ask(t, server, http.MethodGet, path)
		require.Equal(t, http.StatusNotFound, max(resp.StatusCode, http.StatusNotFound), path)
		require.NotEqual(t, http.StatusOK, resp.StatusCode, path)
	}
	writeRun(t, filepath.Join(dir, "<b>x"), failover())
	resp, page := ask(t, server, http.MethodGet, "/%3Cb%3Ex/live")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Contains(t, resp.Header.Get("Content-Security-Policy"), "default-src 'none'")
	require.NotContains(t, page, "<b>x")

	// A damaged line is said, and ends nothing.
	damaged := filepath.Join(dir, "damaged")
	writeRun(t, damaged, failover())
	require.NoError(t, os.WriteFile(filepath.Join(damaged, reports.HistoryFile), []byte("{\n"), 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/damaged/events", http.NoBody)
	require.NoError(t, err)
	resp, err = http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "read history")
}

// The page follows the run without loading again, and leads to the report at its end.
func TestBrowserLive(t *testing.T) {
	t.Parallel()
	tab := newTab(t)
	dir := t.TempDir()
	run := grow(t, filepath.Join(dir, "running"))
	server := serving(t, dir)
	run.until(0, ms(500))
	tab.visit(server.URL+"/running/live", "")
	tab.until(`document.getElementById("granted").textContent === "3"`)
	require.Equal(t, "cut replication, kill redis-1", tab.text("#faults"))
	require.Equal(t, "No violation so far", tab.text("#found"))
	eval[bool](tab, `(window.same = true)`)
	run.until(ms(500), ms(3000))
	tab.until(`document.getElementById("violations").textContent !== "0"`)
	require.True(t, eval[bool](tab, `window.same === true`), "it was loaded again")
	require.Contains(t, tab.text("#verdict"), "✗")
	for _, scheme := range []string{"light", "dark"} { // what came with the data is legible in either
		tab.screen(wideScreen, 900, scheme)
		for what, ratio := range eval[map[string]float64](tab, `(() => {
	const light = (colour) => colour.match(/\d+/g).slice(0, 3).map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const paper = light([document.body, document.documentElement].map((n) => getComputedStyle(n).backgroundColor).find((c) => c !== "rgba(0, 0, 0, 0)"));
	const ratio = (colour) => (Math.max(light(colour), paper) + 0.05) / (Math.min(light(colour), paper) + 0.05);
	const all = {};
	for (const id of ["found", "faults", "granted", "violations", "verdict"]) all[id] = ratio(getComputedStyle(document.getElementById(id)).color) / 4.5;
	all.rate = ratio(getComputedStyle(document.querySelector("#rate path")).stroke) / 3;
	return all;
})()`) {
			require.GreaterOrEqual(t, ratio, 1.0, "%s, %s", scheme, what)
		}
	}
	require.NoError(t, reports.WriteDir(run.dir, run.in))
	require.Eventually(t, func() bool {
		path, err := chromedp.Run(tab.ctx, chromedp.Evaluate[string](`location.pathname`)) // it fails while the page is loaded
		return err == nil && strings.HasSuffix(path, "/report.html")
	}, browserTimeout, 100*time.Millisecond)
	tab.untilReport()
	tab.forgive() // it asks its server for the figures, and for the report
}
