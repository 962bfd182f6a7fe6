package reports_test

import (
	"os"
	"path/filepath"
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
	tab.shows(moment, "1.716 s")
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
