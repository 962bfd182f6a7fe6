package reports_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/reports"
)

func quoted(s string) string { return strconv.Quote(s) }

// The parts of the page that a reader acts on, and what they answer.
const (
	chart  = "svg.live"
	shown  = "[data-window]" // the part of the time that is drawn
	moment = "[data-moment]" // that the topology is drawn at
)

// shows waits until an element says something.
func (t *tab) shows(selector, want string) {
	t.Helper()
	t.drawn()
	require.Equal(t, want, t.text(selector))
}

// window is the part of the time that is drawn, in seconds.
func (t *tab) window() (from, to float64) {
	t.Helper()
	t.drawn()
	words := t.text(shown)
	_, err := fmt.Sscanf(words, "%f s to %f s", &from, &to)
	require.NoError(t, err, words)
	return from, to
}

// servers are the boxes of the topology: what each is, and whom it granted the
// lock to.
func (t *tab) servers() map[string]string {
	t.Helper()
	return eval[map[string]string](t, `Object.fromEntries([...document.querySelectorAll(".scroll .map-server")].map((g) => [
	g.querySelector(".map-name").textContent,
	g.getAttribute("class").match(/is-(\w+)/)[1] + ": " + (g.querySelector(".map-grant")?.textContent ?? ""),
]))`)
}

// hash waits until the page's address ends as a pattern says.
func (t *tab) hash(pattern string) {
	t.Helper()
	t.until(`new RegExp(` + quoted(pattern) + `).test(location.hash)`)
}

// What a reader does with a report, by mouse: read the verdict, look at the
// violation, see the whole run, zoom, choose a moment, follow a link.
func TestBrowserMouse(t *testing.T) {
	t.Parallel()
	tab := newTab(t)
	tab.openReport(htmlOf(t, failover()), "")

	require.Contains(t, tab.text(".verdict"), "invalid")
	tab.shows("h1", "Two clients held the lock orders at the same time (1,240 ms of it observed)")
	require.Equal(t, "none", eval[string](tab, `getComputedStyle(document.querySelector(".static")).display`), "the words for readers without scripts make room")
	require.Equal(t, 4, eval[int](tab, `document.querySelectorAll(".live .t-lane").length`), "a, b, the resource and the key that was seen")
	require.Equal(t, map[string]string{"redis-1": "down: granted to a", "redis-2": "master: granted to b", "redis-3": "replica: "}, tab.servers())

	tab.click(`[data-do="whole"]`)
	tab.shows(shown, "the whole run")

	tab.drag(chart, 0.3, 0.6)
	from, to := tab.window()
	require.Greater(t, from, 0.0)
	require.Less(t, to, 2.0)
	require.Greater(t, to, from)
	tab.drag(chart, 0.6, 0.4, chromedp.ModifierShift)
	later, end := tab.window()
	require.Greater(t, later, from, "with shift it moves")
	require.InDelta(t, to-from, end-later, 0.01)

	tab.click(chart)
	tab.until(`document.querySelector("[data-moment]").textContent !== "1.716 s"`)
	require.Regexp(t, `^[01]\.[0-9]{3} s$`, tab.text(moment))

	// With the chart in focus the wheel zooms. A double click undoes it.
	before, after := tab.window()
	words := tab.text(shown)
	tab.wheel(chart, -300)
	tab.until(`document.querySelector("[data-window]").textContent !== ` + quoted(words))
	from, to = tab.window()
	require.Less(t, to-from, after-before)
	tab.doubleClick(chart)
	tab.until(`document.querySelector("[data-window]").textContent === "the whole run"`)

	// Without focus it scrolls the page, and zooms with Ctrl.
	eval[bool](tab, `(document.activeElement.blur(), true)`)
	tab.spot(chart, 0.5)
	top := eval[float64](tab, `scrollY`)
	tab.wheel(chart, 300)
	tab.until(fmt.Sprintf(`scrollY > %f`, top))
	require.Equal(t, "the whole run", tab.text(shown))
	tab.wheel(chart, -300, chromedp.ModifierCtrl)
	tab.until(`document.querySelector("[data-window]").textContent !== "the whole run"`)
	require.InDelta(t, 1, eval[float64](tab, `visualViewport.scale`), 0.001, "the page itself keeps its size")

	tab.click(".story .violation a")
	tab.until(`document.querySelector("[data-moment]").textContent === "1.716 s"`)

	tab.click("[data-copy=command]")
	tab.until(`document.querySelector("[data-copy=command]").textContent === "Copied" || String(getSelection()) === "lockchaos reproduce failover-double-grant"`)
}

// All of it goes by keyboard too.
func TestBrowserKeyboard(t *testing.T) {
	t.Parallel()
	tab := newTab(t)
	tab.openReport(htmlOf(t, failover()), "")
	require.Empty(t, eval[[]string](tab, `[...document.querySelectorAll("button,summary,a[href],[tabindex]")].filter((n) => n.tabIndex < 0).map((n) => n.outerHTML)`))

	for presses := 0; !eval[bool](tab, `document.activeElement?.matches("svg.live") ?? false`); presses++ {
		require.Less(t, presses, 40, "Tab does not lead to the chart")
		tab.do(chromedp.KeyEvent(kb.Tab))
	}
	require.NotEqual(t, "none", eval[string](tab, `getComputedStyle(document.activeElement).outlineStyle`), "it is seen which part has the focus")

	tab.keys(kb.Home)
	tab.shows(shown, "the whole run")
	tab.keys("+")
	from, to := tab.window()
	tab.hash(`^#t=[0-9.]+-[0-9.]+&at=1\.716$`)
	tab.keys(kb.ArrowLeft)
	earlier, _ := tab.window()
	require.Less(t, earlier, from)
	tab.keys(kb.ArrowRight)
	again, _ := tab.window()
	require.InDelta(t, from, again, 0.002)
	tab.keys("+")
	nearFrom, nearTo := tab.window()
	require.Less(t, nearTo-nearFrom, to-from)
	tab.keys("-")
	wideFrom, wideTo := tab.window()
	require.InDelta(t, to-from, wideTo-wideFrom, 0.01)

	tab.keys("v")
	tab.hash(`^$`)
	tab.shows(moment, "1.716 s")
	tab.keys(",")
	tab.shows(moment, "1.713 s") // the promotion
	tab.keys(".")
	tab.shows(moment, "1.716 s")
	tab.keys("0")
	tab.shows(shown, "the whole run")

	// The evidence of what is told is open; it folds by keyboard, and leads to the
	// timeline.
	require.True(t, eval[bool](tab, `document.querySelector(".property.invalid details").open`))
	for presses := 0; !eval[bool](tab, `document.activeElement?.matches(".property.invalid summary") ?? false`); presses++ {
		require.Less(t, presses, 60, "Tab does not lead to the evidence")
		tab.do(chromedp.KeyEvent(kb.Tab))
	}
	tab.keys(kb.Enter)
	tab.until(`!document.querySelector(".property.invalid details").open`)
	tab.keys(kb.Enter)
	tab.until(`document.querySelector(".property.invalid details").open`)
	tab.keys(kb.Tab)
	tab.keys(kb.Enter)
	tab.hash(`^#t=.*&at=1\.716&lock=orders$`)
	from, to = tab.window()
	require.Less(t, from, 1.716)
	require.Greater(t, to, 1.716)
}

// The address leads to what was shown.
func TestBrowserLink(t *testing.T) {
	t.Parallel()
	html := htmlOf(t, failover())
	tab := newTab(t)
	tab.openReport(html, "#t=0.1-0.2&at=0.15")
	tab.shows(shown, "0.100 s to 0.200 s")
	tab.shows(moment, "0.150 s")
	require.Equal(t, "master: granted to b", tab.servers()["redis-1"])

	// Also while the page is open.
	tab.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#t=1.8-2&at=1.9&lock=orders"`))
	tab.until(`document.querySelector("[data-moment]").textContent === "1.900 s"`)
	tab.shows(shown, "1.800 s to 2.000 s")
	require.Equal(t, "master: granted to b", tab.servers()["redis-2"])

	tab.openReport(html, "#at=0.05")
	tab.shows(moment, "0.050 s")
	tab.openReport(html, "#t=0.4")
	tab.shows(moment, "0.400 s")
}

// On every screen and in both themes nothing sticks out, lanes have their
// names, and all words can be told from what is behind them.
func TestBrowserScreens(t *testing.T) {
	t.Parallel()
	papers := map[string]string{}
	for name, fixture := range map[string]func() reports.Input{"invalid": failover, "valid": valid, "unknown": undecided} {
		html := htmlOf(t, fixture())
		tab := newTab(t)
		for _, theme := range []string{"light", "dark"} {
			for _, width := range []int64{1280, wideScreen, 800, narrowScreen} {
				tab.screen(width, 900, theme)
				tab.openReport(html, "#t=0.02-0.4")
				where := fmt.Sprintf("%s, %s, %d wide", name, theme, width)
				require.Equal(t, int(width), eval[int](tab, `innerWidth`), where)
				require.LessOrEqual(t, eval[int](tab, `document.documentElement.scrollWidth`), int(width), where)
				require.NotEmpty(t, eval[[]string](tab, `[...document.querySelectorAll(".live .t-label")].map((n) => n.firstChild.textContent)`), where)
				require.True(t, eval[bool](tab, `[...document.querySelectorAll(".live .t-label")].every((n) => { const r = n.getBoundingClientRect(); return r.left >= 0 && r.right <= innerWidth; })`), where)
				require.Empty(t, eval[[]string](tab, faint), where)
				papers[theme] = eval[string](tab, `getComputedStyle(document.documentElement).backgroundColor`)
			}
		}
		if name == "valid" {
			require.Contains(t, eval[[]string](tab, `[...document.querySelectorAll(".live .t-label")].map((n) => n.firstChild.textContent)`), "zone-a.1")
		}
	}
	require.Equal(t, "rgb(255, 255, 255)", papers["light"])
	require.NotEqual(t, papers["light"], papers["dark"])
}

// faint lists the words that have less than 4.5 times the light of what is
// behind them, or the other way round: what WCAG 2.2 (1.4.3) wants at least.
const faint = `(() => {
const colour = (s) => s.match(/[0-9.]+/g).map(Number);
const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const behind = (n) => { for (; n; n = n.parentElement) { const c = colour(getComputedStyle(n).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
const words = [...document.querySelectorAll("body :not(svg *):not(script):not(style)")].filter((n) => [...n.childNodes].some((c) => c.nodeType === 3 && c.data.trim()) && n.checkVisibility());
return words.filter((n) => {
  const a = light(colour(getComputedStyle(n).color)), b = light(behind(n));
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5;
}).map((n) => n.outerHTML.slice(0, 120));
})()`

// hidden lists the elements with words that a reader can't see: not drawn, or
// cut off by their box.
const hidden = `((within) => [...document.querySelectorAll(within)].filter((n) => [...n.childNodes].some((c) => c.nodeType === 3 && c.data.trim())).filter((n) => {
  const r = n.getBoundingClientRect();
  return !n.checkVisibility({ visibilityProperty: true, opacityProperty: true }) || r.width < 1 || r.height < 1 || r.left < -0.5 || r.right > innerWidth + 0.5;
}).map((n) => n.outerHTML.slice(0, 120)))`

// Without scripts there are the verdict, the story, the messages, and the topology at the violation.
func TestBrowserWithoutScripts(t *testing.T) {
	t.Parallel()
	tab := newTab(t)
	tab.scripts(false)
	tab.open(htmlOf(t, failover()), "")
	tab.unfold()
	require.False(t, eval[bool](tab, `document.documentElement.classList.contains("has-js")`))
	require.Empty(t, eval[[]string](tab, hidden+`("header *:not(button):not(nav *):not(nav),.story *,#h-story ~ p,.cures *,.static,.map-node text:not(:empty),figure .legend li,.property > .head *,.property > p,details.fold td,dl *:not(details *)")`))
	require.Equal(t, len(reports.Summarize(failover()).Story.Events), eval[int](tab, `document.querySelectorAll(".story li").length`))
	require.Contains(t, eval[string](tab, `document.querySelector(".story .violation").innerText`), "client b was granted orders by redis-2")
	require.Positive(t, eval[int](tab, `document.querySelector(".diagram svg").getBoundingClientRect().width`))
	require.Zero(t, eval[int](tab, `[...document.querySelectorAll("button")].filter((n) => n.checkVisibility()).length`), "no button that does nothing")
	require.Equal(t, map[string]string{"redis-1": "down: granted to a", "redis-2": "master: granted to b", "redis-3": "replica: "}, tab.servers())

	// What is told is open, and what is folded unfolds.
	require.Empty(t, eval[[]string](tab, hidden+`(".property.invalid details[open] > pre")`))
	require.True(t, eval[bool](tab, `document.querySelector(".property.invalid details").open`))
	x, y := tab.spot(".property.invalid details details summary", 0.2)
	tab.do(chromedp.MouseClickXY(x, y))
	require.Empty(t, eval[[]string](tab, hidden+`(".property.invalid details details[open] pre")`))
	require.True(t, eval[bool](tab, `document.querySelector(".property.invalid details details").open`))
}

// On paper nothing is cut off, nothing stays folded, and the theme is light.
func TestBrowserPrint(t *testing.T) {
	t.Parallel()
	const paper = 718 // A4 with margins of 1 cm, at 96 dots per inch
	for name, fixture := range map[string]func() reports.Input{"invalid": failover, "valid": valid} {
		tab := newTab(t)
		tab.screen(paper, 1000, "dark")
		tab.openReport(htmlOf(t, fixture()), "#t=0.02-0.4")
		tab.media("print", "dark")
		tab.drawn()
		require.Equal(t, "rgb(255, 255, 255)", eval[string](tab, `getComputedStyle(document.documentElement).backgroundColor`), name)
		require.Empty(t, eval[[]string](tab, faint), name)
		require.LessOrEqual(t, eval[int](tab, `document.documentElement.scrollWidth`), paper, name)
		require.Empty(t, eval[[]string](tab, `[...document.querySelectorAll("body *:not(svg *)")].filter((n) => n.checkVisibility() && getComputedStyle(n).overflowX !== "visible" && n.scrollWidth > n.clientWidth + 1).map((n) => n.outerHTML.slice(0, 120))`), "%s: cut off", name)
		require.NotZero(t, eval[int](tab, `document.querySelectorAll("details pre").length`), name)
		require.Empty(t, eval[[]string](tab, hidden+`("header *:not(button),.story *,main p:not(.live-only *):not(.static):not(.js):not(.property > details:not(.told) *),details:not(.raw):not(.property > details:not(.told)) > pre,details:not(.raw):not(.live-only *):not(.property > details:not(.told)) > summary,table td,table th,dl dd,footer").filter((n) => !/^<nav|^<a href="#(h-|timeline)/.test(n))`), name)
		require.Zero(t, eval[int](tab, `[...document.querySelectorAll(".controls")].filter((n) => n.checkVisibility()).length`), "%s: what a mouse is for", name)
		require.True(t, eval[bool](tab, `document.querySelector("svg.live").checkVisibility()`), name)
	}
}

// Names that try to leave their place stay text, also where a script draws
// them.
func TestBrowserHostileNames(t *testing.T) {
	t.Parallel()
	tab := newTab(t)
	for _, in := range []reports.Input{hostile(leaves), poisoned(leaves)} {
		tab.openReport(htmlOf(t, in), "")
		tab.click(`[data-do="whole"]`)
		for range 4 {
			tab.click(`[data-do="back"]`)
			tab.click(`[data-do="back"]`)
			tab.click(`[data-do="on"]`)
		}
		require.Zero(t, eval[int](tab, `document.querySelectorAll("img").length`))
		require.Equal(t, 1, eval[int](tab, `document.scripts.length`))
	}
}
