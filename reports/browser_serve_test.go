package reports_test

import (
	"crypto/sha256"
	"encoding/base64"
	"html"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/reports"
)

// A served report works as one from disk does, and so does every other file of a run
// and the index: no page asks for more than it may.
func TestServedRunInABrowser(t *testing.T) {
	t.Parallel()
	tab := newTab(t)
	dir := t.TempDir()
	run := filepath.Join(dir, "one")
	writeRun(t, run, failover())
	require.NoError(t, reports.WriteDir(run, failover()))
	writeRun(t, filepath.Join(dir, "running"), failover())
	server := serving(t, dir)

	tab.visit(server.URL+"/one/report.html", "#at=1.716")
	tab.untilReport()
	tab.click(`[data-do="whole"]`)
	tab.shows(shown, "the whole run")
	tab.drag(chart, 0.3, 0.6)
	tab.hash(`^#t=[0-9.]+-[0-9.]+&at=1\.716$`)
	tab.click("[data-copy]")
	tab.until(`document.querySelector("[data-copy]").textContent === "Copied" || String(getSelection()) === "lockchaos reproduce failover-double-grant"`)

	files, err := os.ReadDir(run)
	require.NoError(t, err)
	for _, f := range files {
		tab.visit(server.URL+"/one/"+f.Name(), "")
	}
	tab.visit(server.URL+"/running/report.html", "")
	tab.untilReport()
	tab.visit(server.URL+"/one/", "")
	tab.visit(server.URL+"/", "")
	rows := func() (int, error) {
		return chromedp.Run(tab.ctx, chromedp.Evaluate[int](`document.querySelectorAll("tbody tr").length`))
	}
	n, err := rows()
	require.NoError(t, err)
	require.Equal(t, 2, n)
	writeRun(t, filepath.Join(dir, "next"), failover())
	require.Eventually(t, func() bool {
		n, err := rows() // it fails while the page is loaded
		if tab.brokenOff() {
			tab.visit(server.URL+"/", "")
		}
		return err == nil && n == 3
	}, browserTimeout, 100*time.Millisecond, "the index keeps itself up to date")
}

// A page that came with a run directory of another author reads no other run, nor
// what browsers keep for the reports.
func TestBrowserForeignPage(t *testing.T) {
	t.Parallel()
	tab := newTab(t)
	dir := t.TempDir()
	writeRun(t, filepath.Join(dir, "one"), failover())
	require.NoError(t, os.Mkdir(filepath.Join(dir, "foreign"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "foreign", "report.html"), []byte(`<!DOCTYPE html><title>foreign</title><script>
const tries = {
	fetch: async () => (await fetch("/one/run.json")).text(),
	request: async () => {
		const r = new XMLHttpRequest();
		r.open("GET", "/one/run.json", false);
		r.send();
		return r.responseText;
	},
	frame: () => new Promise((done, fail) => {
		const f = document.createElement("iframe");
		f.onload = () => f.contentDocument ? done(f.contentDocument.body.textContent) : fail(new Error("refused"));
		f.src = "/one/run.json";
		document.documentElement.append(f);
	}),
	popup: () => new Promise((done, fail) => {
		const w = open("/one/run.json");
		if (!w) fail(new Error("refused"));
		else w.onload = () => done(w.document.body.textContent);
	}),
	script: () => new Promise((done, fail) => {
		const s = document.createElement("script");
		s.onload = () => done("loaded");
		s.onerror = () => fail(new Error("refused"));
		s.src = "/one/run.json";
		document.documentElement.append(s);
	}),
	storage: async () => { localStorage.setItem("foreign", "1"); return "stored"; },
};
window.found = Promise.all(Object.entries(tries).map(async ([how, get]) => {
	try { return how + ": " + (await get()).slice(0, 40); } catch { return how + ": refused"; }
}));
</script>`), 0o600))
	server := serving(t, dir)

	tab.visit(server.URL+"/foreign/report.html", "")
	require.Equal(t, []string{
		"fetch: refused", "request: refused", "frame: refused", "popup: refused", "script: refused", "storage: refused",
	}, eval[[]string](tab, `window.found`))
	require.NotEmpty(t, tab.forgive(), "the browser says what it refused")
}

// scripted are the pages with a script of a folder that is served: their text, and what allows the script.
func scripted(t *testing.T, dir string) map[string][2]string {
	t.Helper()
	writeRun(t, filepath.Join(dir, "one"), failover())
	require.NoError(t, reports.WriteDir(filepath.Join(dir, "one"), failover()))
	writeRun(t, filepath.Join(dir, "running"), failover())
	server := serving(t, dir)
	pages := map[string][2]string{}
	for _, path := range []string{"/", "/one/report.html", "/one/porcupine-orders.html", "/running/report.html"} {
		resp, page := ask(t, server, http.MethodGet, path)
		require.Equal(t, http.StatusOK, resp.StatusCode, path)
		policy := resp.Header.Get("Content-Security-Policy")
		if inPage := regexp.MustCompile(`http-equiv="Content-Security-Policy" content="(.*?)"`).FindStringSubmatch(page); inPage != nil {
			policy = html.UnescapeString(inPage[1])
		}
		pages[path] = [2]string{page, policy}
	}
	return pages
}

// Each page allows the script that it was written with, and no other.
func TestPagesAllowTheirOwnScriptAlone(t *testing.T) {
	t.Parallel()
	for path, of := range scripted(t, t.TempDir()) {
		page, policy := of[0], of[1]
		require.Equal(t, 1, strings.Count(page, "<script"), path)
		_, script, _ := strings.Cut(page, "<script>")
		script, _, _ = strings.Cut(script, "</script>")
		sum := sha256.Sum256([]byte(script))
		require.Regexp(t, `script-src `+regexp.QuoteMeta("'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")+`(;|$)`, policy, path)
		require.NotContains(t, policy, "script-src 'unsafe-inline'", path)
	}
}

// A script that gets into a page is not run, and the page's own is.
func TestPoliciesInABrowser(t *testing.T) {
	t.Parallel()
	tab := newTab(t)
	dir := t.TempDir()
	works := map[string]string{
		"/":                          `document.documentElement.classList.contains("has-js")`,
		"/one/report.html":           `document.documentElement.classList.contains("has-chart")`,
		"/one/porcupine-orders.html": `document.querySelectorAll("#canvas rect").length > 0`,
		"/running/report.html":       `document.documentElement.classList.contains("has-chart")`,
	}
	for path, of := range scripted(t, dir) {
		page := regexp.MustCompile("<body.*?>").ReplaceAllString(of[0], `$0<script>window.injected = true</script><img src="data:," onerror="window.injected = true">`)
		require.Contains(t, page, "window.injected", path)
		file := filepath.Join(dir, "page.html")
		require.NoError(t, os.WriteFile(file, []byte(page), 0o600))
		tab.visit("file://"+file, "")
		tab.until(works[path])
		require.False(t, eval[bool](tab, `window.injected === true`), path)
		require.NotEmpty(t, tab.forgive(), "%s: the browser says what it refused", path)
	}
}

// An index that begins with what came of all runs sorts and filters its runs, not their
// causes, and has all columns on a screen of usual width.
func TestBrowserJointIndex(t *testing.T) {
	t.Parallel()
	tab := newTab(t)
	dir := t.TempDir()
	long := corpus("premature-loss--watchdog")()
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
