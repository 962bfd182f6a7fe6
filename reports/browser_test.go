package reports_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// chromium finds a browser, or skips: most machines that test have none.
func chromium(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a browser")
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("LOCKCHAOS_TEST_REQUIRE") == "1" && os.Getenv("LOCKCHAOS_TEST_BROWSER") == "1" {
		t.Fatal("no Chromium in PATH, and LOCKCHAOS_TEST_BROWSER=1 wants one")
	}
	t.Skip("no Chromium in PATH")
	return ""
}

// listen notes whatever goes wrong in a page; probe tells the answer of a
// script, once the page has drawn its timeline.
const (
	listen = `<script>
window.wrong = [];
for (const kind of ["error", "unhandledrejection", "securitypolicyviolation"]) addEventListener(kind, (e) => wrong.push(kind + ": " + (e.message || e.reason || e.violatedDirective)), true);
console.error = (...words) => wrong.push(words.join(" "));
</script>`
	probe = `<script>(async () => {
const frame = () => new Promise(requestAnimationFrame), until = async (f) => { for (let i = 0; i < 2000 && !f(); i++) await frame(); };
const settle = async () => { await frame(); await frame(); await new Promise((done) => setTimeout(done, 250)); };
const all = (q) => [...document.querySelectorAll(q)], chart = () => document.querySelector("svg.live");
const shown = (node) => node && getComputedStyle(node).display !== "none" && node.getClientRects().length > 0;
const key = async (key) => { chart().dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true })); await settle(); };
const out = {};
try {
  await until(() => document.documentElement.classList.contains("has-chart"));
  await (async () => { %s })();
} catch (e) { wrong.push(String(e)); }
out.wrong = wrong; out.requests = performance.getEntriesByType("resource").map((e) => e.name);
console.log("probe:" + btoa(String.fromCharCode(...new TextEncoder().encode(JSON.stringify(out)))) + ":");
})()</script>`
)

// browse opens a page in a real browser, runs a script in it and reads what the
// script has put into out. A width that is not 0 is that of a frame which the
// page is shown in.
func browse(t *testing.T, page, hash string, width int, script string, out any, flags ...string) {
	t.Helper()
	browser := chromium(t)
	dir, err := os.MkdirTemp("", "lockchaos-browser-") //nolint:usetesting // the browser's last child may still write there when it is removed
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	page = strings.Replace(page, "<title>", listen+"<title>", 1)
	page = strings.Replace(page, "</body>", fmt.Sprintf(probe, script)+"</body>", 1)
	file := filepath.Join(dir, "report.html")
	require.NoError(t, os.WriteFile(file, []byte(page), 0o600))
	address := (&url.URL{Scheme: "file", Path: file}).String() + hash
	if width > 0 {
		outer := fmt.Sprintf(`<!doctype html><iframe src="%s" width="%d" height="900"></iframe>`, address, width)
		file = filepath.Join(dir, "outer.html")
		require.NoError(t, os.WriteFile(file, []byte(outer), 0o600))
		address = (&url.URL{Scheme: "file", Path: file}).String()
	}

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
	defer cancel()
	args := append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--window-size=1120,900",
		"--remote-debugging-port=0", "--enable-logging=stderr", "--user-data-dir=" + filepath.Join(dir, "profile"),
	}, flags...)
	cmd := exec.CommandContext(ctx, browser, append(args, address)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that its children end with it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	said, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() {
		cancel()
		_ = cmd.Wait() // it was killed
	}()
	lines := bufio.NewScanner(said)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		_, answer, found := strings.Cut(lines.Text(), `"probe:`)
		if !found {
			continue
		}
		answer, _, _ = strings.Cut(answer, ":")
		got, err := base64.StdEncoding.DecodeString(answer)
		require.NoError(t, err)
		t.Logf("%s", got)
		require.NoError(t, json.Unmarshal(got, out))
		var common struct{ Wrong, Requests []string }
		require.NoError(t, json.Unmarshal(got, &common))
		require.Empty(t, common.Wrong)
		require.Empty(t, common.Requests, "a report needs no network")
		return
	}
	t.Fatal("the page did not answer")
}

// What a reader does with a report: read the verdict, look at the violation,
// see the whole run, zoom, step through the moments, send a link.
func TestBrowserReport(t *testing.T) {
	t.Parallel()
	chromium(t)
	var got struct {
		Verdict, Headline, Whole, Zoomed, Hash, Before, Shown string
		Wheeled, Dragged, Clicked, Reset, Linked              string
		Static, Focus                                         bool
		Lanes                                                 int
		Now, Then                                             map[string]string
		Paper                                                 string
		Reached                                               []string
	}
	browse(t, htmlOf(t, failover()), "", 0, `
out.verdict = document.querySelector(".verdict").textContent; out.headline = document.querySelector("h1").textContent;
out.static = shown(document.querySelector(".static"));
const words = () => document.querySelector("[data-window]").textContent;
const map = () => Object.fromEntries(all(".scroll .map-server").map((g) => [g.querySelector(".map-name").textContent, g.getAttribute("class").match(/is-(\w+)/)[1] + ": " + (g.querySelector(".map-grant")?.textContent ?? "")]));
out.lanes = all(".live .t-lane").length; out.now = map();
document.querySelector('[data-do="whole"]').click(); await settle(); out.whole = words();
chart().focus(); out.focus = document.activeElement === chart();
await key("+"); out.zoomed = words(); out.hash = location.hash;
await key("v"); await key(","); out.before = document.querySelector("[data-moment]").textContent;
location.hash = "#t=0.1-0.2&at=0.15"; await settle(); out.shown = words(); out.then = map();
const at = (type, share, more) => { const r = chart().getBoundingClientRect(); chart().dispatchEvent(new (type === "wheel" ? WheelEvent : PointerEvent)(type, { clientX: r.left + r.width * share, clientY: r.top + 60, bubbles: true, cancelable: true, ...more })); };
at("wheel", 0.5, { deltaY: -300, ctrlKey: true }); await settle(); out.wheeled = words();
document.querySelector('[data-do="whole"]').click(); await settle();
at("pointerdown", 0.3); at("pointermove", 0.5); at("pointerup", 0.6); await settle(); out.dragged = words();
at("pointerdown", 0.5); at("pointerup", 0.5); await settle(); out.clicked = document.querySelector("[data-moment]").textContent;
chart().dispatchEvent(new MouseEvent("dblclick", { bubbles: true })); await settle(); out.reset = words();
document.querySelector(".story .violation a").click(); await settle(); out.linked = document.querySelector("[data-moment]").textContent;
out.paper = getComputedStyle(document.documentElement).backgroundColor;
out.reached = all("button,summary,a[href],[tabindex]").filter((n) => n.tabIndex < 0).map((n) => n.outerHTML);
`, &got)
	require.Contains(t, got.Verdict, "invalid")
	require.Equal(t, "Two clients held the lock orders at the same time (1,240 ms of it observed)", got.Headline)
	require.False(t, got.Static, "the drawings for readers without scripts make room")
	require.Equal(t, 3, got.Lanes, "a, b and the resource")
	require.Equal(t, map[string]string{"redis-1": "down: granted to a", "redis-2": "master: granted to b", "redis-3": "replica: "}, got.Now)
	require.Equal(t, "the whole run", got.Whole)
	require.NotEqual(t, got.Whole, got.Zoomed)
	require.Regexp(t, `^#t=[0-9.]+-[0-9.]+&at=1\.716$`, got.Hash)
	require.Equal(t, "1.713 s", got.Before, "the change before is the promotion")
	require.Equal(t, "0.100 s to 0.200 s", got.Shown)
	require.Equal(t, "master: granted to b", got.Then["redis-1"])
	require.Regexp(t, `^0\.1[0-9]+ s to 0\.1[0-9]+ s$`, got.Wheeled)
	require.Regexp(t, `^0\.[0-9]+ s to 1\.[0-9]+ s$`, got.Dragged)
	require.Regexp(t, `^1\.[0-9]+ s$`, got.Clicked)
	require.Equal(t, "the whole run", got.Reset)
	require.Equal(t, "1.716 s", got.Linked)
	require.True(t, got.Focus)
	require.Empty(t, got.Reached, "all can be reached by keyboard")
	require.Equal(t, "rgb(255, 255, 255)", got.Paper)
}

// On a telephone, in the dark: nothing sticks out, and lanes have their names.
func TestBrowserNarrow(t *testing.T) {
	t.Parallel()
	chromium(t)
	var got struct {
		Width, Wide int
		Paper       string
		Names       []string
		Inside      bool
	}
	browse(t, htmlOf(t, valid()), "#t=0.2-0.4", 400, `
out.width = innerWidth; out.wide = document.documentElement.scrollWidth;
out.paper = getComputedStyle(document.documentElement).backgroundColor;
out.names = all(".live .t-label").map((n) => n.firstChild.textContent);
out.inside = all(".live .t-label").every((n) => { const r = n.getBoundingClientRect(); return r.left >= 0 && r.right <= innerWidth; });
`, &got, "--force-dark-mode")
	require.Equal(t, 400, got.Width)
	require.LessOrEqual(t, got.Wide, got.Width)
	require.NotEqual(t, "rgb(255, 255, 255)", got.Paper)
	require.Contains(t, got.Names, "zone-a.1")
	require.True(t, got.Inside)
}

// Names that try to leave their place stay text, also where a script draws
// them.
func TestBrowserHostileNames(t *testing.T) {
	t.Parallel()
	chromium(t)
	var got struct{ Images, Alerts int }
	browse(t, strings.Replace(htmlOf(t, hostile(leaves)), "<title>", `<script>window.alerts = 0; window.alert = () => alerts++;</script><title>`, 1), "", 0, `
document.querySelector('[data-do="whole"]').click(); await settle();
for (let i = 0; i < 12; i++) await key(i % 2 ? "." : ",");
out.images = all("img").length; out.alerts = alerts;
`, &got)
	require.Zero(t, got.Images)
	require.Zero(t, got.Alerts)
}

// A long run: the page opens, and no zoom draws so much that it would stutter.
func TestBrowserLargeRun(t *testing.T) {
	t.Parallel()
	chromium(t)
	var got struct {
		Most         int
		Opened, Slow float64 // milliseconds, for the log
		Last         string
	}
	browse(t, htmlOf(t, large(100_000)), "", 0, `
out.opened = performance.now(); out.most = 0; out.slow = 0;
const step = async (what) => {
  const from = performance.now();
  document.querySelector('[data-do="' + what + '"]').click();
  await frame(); await frame();
  out.slow = Math.max(out.slow, performance.now() - from);
  out.most = Math.max(out.most, all(".live *").length);
};
await step("whole");
for (let i = 0; i < 16; i++) await step("in");
for (let i = 0; i < 16; i++) await step("out");
await settle();
out.last = document.querySelector("[data-window]").textContent;
`, &got)
	require.Less(t, got.Most, 5000, "elements")
	require.Equal(t, "the whole run", got.Last)
}
