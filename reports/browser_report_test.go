package reports_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/reports"
)

func quoted(s string) string { return strconv.Quote(s) }

// The parts of the page that a reader acts on, and what they answer.
const (
	chart = "svg.live"
	shown = "[data-window]" // the part of the time that is drawn
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
	require.Equal(t, []string{"key of b"}, eval[[]string](tab, `[...document.querySelectorAll(".live .t-key + text.t-small")].map((n) => n.textContent)`))

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
	tab.until(`/at=[01]\.[0-9]+$/.test(location.hash) && !location.hash.endsWith("at=1.716")`)

	// With the chart in focus the wheel zooms. A double click undoes it.
	before, after := tab.window()
	words := tab.text(shown)
	tab.wheel(chart, -300)
	tab.until(`document.querySelector("[data-window]").textContent !== ` + quoted(words))
	from, to = tab.window()
	require.Less(t, to-from, after-before)
	x, y := tab.spot(chart, 0.5)
	tab.do(chromedp.MouseClickXY(x, y), chromedp.MouseClickXY(x, y, chromedp.ClickCount(2)))
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
	tab.hash(`at=1\.716$`)

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

	// Also while the page is open.
	tab.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#t=1.8-2&at=1.9&lock=orders"`))
	tab.until(`document.querySelector("[data-window]").textContent === "1.800 s to 2.000 s"`)
	for _, at := range []string{"#at=0.05", "#t=0.05"} {
		tab.openReport(html, at)
		tab.until(`document.querySelectorAll(".live .t-moment").length === 1`)
	}
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
			require.Contains(t, eval[[]string](tab, `[...document.querySelectorAll(".live .t-label")].map((n) => n.firstChild.textContent)`), "zone-a.0")
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

// Without scripts there are the verdict and the story.
func TestBrowserWithoutScripts(t *testing.T) {
	t.Parallel()
	tab := newTab(t)
	tab.scripts(false)
	tab.open(htmlOf(t, failover()), "")
	tab.unfold()
	require.False(t, eval[bool](tab, `document.documentElement.classList.contains("has-js")`))
	require.Empty(t, eval[[]string](tab, hidden+`("header *:not(button):not(nav *):not(nav),.story *,#h-story ~ p,.cures *,.static,.property > .head *,.property > p,details.fold td,dl *:not(details *)")`))
	require.Equal(t, len(reports.Summarize(failover()).Story.Events), eval[int](tab, `document.querySelectorAll(".story li").length`))
	require.Contains(t, eval[string](tab, `document.querySelector(".story .violation").innerText`), "client b was granted orders by redis-2")
	require.Zero(t, eval[int](tab, `[...document.querySelectorAll("button")].filter((n) => n.checkVisibility()).length`), "no button that does nothing")

	// What is told is open, and folds.
	require.Empty(t, eval[[]string](tab, hidden+`(".property.invalid details[open] > pre")`))
	require.True(t, eval[bool](tab, `document.querySelector(".property.invalid details").open`))
	x, y := tab.spot(".property.invalid details summary", 0.2)
	tab.do(chromedp.MouseClickXY(x, y))
	require.False(t, eval[bool](tab, `document.querySelector(".property.invalid details").open`))
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
		require.Zero(t, eval[int](tab, `document.querySelectorAll("img").length`))
		require.Equal(t, 1, eval[int](tab, `document.scripts.length`))
	}
}

// The picture is drawn as PNG when it is asked for, and what is copied as an issue is there.
func TestBrowserShares(t *testing.T) {
	t.Parallel()
	tab := newTab(t)
	tab.openReport(htmlOf(t, failover()), "")
	eval[bool](tab, `(HTMLAnchorElement.prototype.click = function () {}, true)`) // what it downloads is of no use here
	tab.click("[data-png]")
	tab.until(`document.querySelector("[data-png]").dataset.done === "data:image/png;base64,"`)
	tab.click(`[data-copy="issue"]`)
	tab.until(`document.querySelector('[data-copy="issue"]').textContent === "Copied" || String(getSelection()).includes("INVALID")`)
}

// A reader walks through all violations by button and by key, in order of time, and
// through those only that a filter shows.
func TestBrowserViolations(t *testing.T) {
	t.Parallel()
	in := twoFaults()
	found := reports.Summarize(in).Counts.Total
	require.Greater(t, found, 3)
	tab := newTab(t)
	tab.openReport(htmlOf(t, in), "")
	tab.drawn()
	rows := func() int {
		return eval[int](tab, `[...document.querySelectorAll("#violations tbody tr")].filter((n) => n.checkVisibility()).length`)
	}
	now := func() int {
		return eval[int](tab, `[...document.querySelectorAll("#violations tbody tr")].findIndex((n) => n.classList.contains("now"))`)
	}
	require.Equal(t, found, rows())
	told := now()
	require.True(t, eval[bool](tab, `document.querySelector("#violations tr.now").classList.contains("told")`), "the walk begins where the story is")
	require.Equal(t, 1, eval[int](tab, `document.querySelectorAll("#violations tr.told").length`))
	require.Equal(t, 1, eval[int](tab, `[...document.querySelectorAll(".property > details[open]")].length`), "with its evidence open")

	tab.click(`#all [data-do="before"]`)
	require.Equal(t, told-1, now())
	at := eval[string](tab, `document.querySelector("#violations tr.now a").textContent`)
	tab.hash(`at=` + regexp.QuoteMeta(strings.TrimSuffix(at, " s")))
	tab.keys("n")
	require.Equal(t, told, now())
	tab.keys("p")
	require.Equal(t, told-1, now())

	// The filter shows the failover's alone, and the walk keeps to them.
	tab.do(chromedp.Focus("#filter"), chromedp.KeyEvent("premature"))
	losses := rows()
	require.Less(t, losses, found)
	require.Positive(t, losses)
	tab.keys(kb.Tab)
	for range found {
		eval[bool](tab, `(document.activeElement.blur(), true)`)
		tab.keys("p")
	}
	require.Contains(t, eval[string](tab, `document.querySelector("#violations tr.now").textContent`), "premature loss")
	require.Equal(t, fmt.Sprintf("1 of %d", losses), tab.text("[data-count]"))

	// All of them are marked on the whole run, those of the failover too.
	tab.keys("v")
	tab.click(`[data-do="whole"]`)
	tab.drawn()
	require.Equal(t, found, eval[int](tab, `[...document.querySelectorAll(".live .t-hit")].reduce((n, g) => n + Number(g.querySelector("text")?.textContent ?? 1), 0) + document.querySelectorAll(".live .t-violation").length`))

	require.True(t, eval[bool](tab, `(() => { const flag = document.querySelector(".live .t-flag").getBoundingClientRect(); return [...document.querySelectorAll(".live .t-hit .t-bad-mark")].every((n) => n.getBoundingClientRect().top >= flag.bottom); })()`), "the flag covers none")

	// A row leads to its place.
	eval[bool](tab, `(document.querySelector("#filter").value = "", document.querySelector("#filter").dispatchEvent(new Event("input")), true)`)
	require.Equal(t, found, rows())
	tab.do(chromedp.Click("#violations tbody tr:first-child a"))
	tab.until(`location.hash === document.querySelector("#violations tbody tr:first-child a").hash`)
}

// What the timeline draws is about what it lies over, has its name, and is reached by key.
func TestBrowserMarks(t *testing.T) {
	t.Parallel()
	s := &script{}
	s.declare("orders")
	s.acquire(1, "orders", "a#1", "redis-1", 10, 11, 9000)
	s.acquire(2, "orders", "b#1", "redis-1", 40, 41, 9000)
	s.release(2, "orders", "b#1", "redis-1", 6000, 6001)
	s.acquire(3, "orders", "c#1", "redis-1", 7000, 7001, 300)
	for i := range 14 { // as many at a time as a long run has
		at := 300 + 600*float64(i)
		target := fmt.Sprintf("zone-a>redis-%d", i%3+1)
		s.fault(history.Inject, "hold-reply", target, at, at+5, history.OK, "", "")
		s.fault(history.Heal, "hold-reply", target, at+400, at+405, history.OK, "", "")
	}
	tab := newTab(t)
	tab.openReport(htmlOf(t, judged(run(), s.history())), "")
	tab.click(`[data-do="whole"]`)

	// The grant to a and c is no business of b, whose lane lies between theirs.
	require.Equal(t, []string{"a", "b", "c"}, eval[[]string](tab, `[...document.querySelectorAll(".live .t-label")].slice(0, 3).map((n) => n.firstChild.textContent)`))
	framed := func(violation string) []bool {
		return eval[[]bool](tab, `(() => {
	const frame = [...document.querySelectorAll(".live .t-violation")].find((n) => n.textContent.includes(`+quoted(violation)+`));
	const right = frame.getBBox().x + frame.getBBox().width / 2;
	return [...document.querySelectorAll(".live .t-lane")].slice(0, 3).map((n) => frame.isPointInFill(new DOMPoint(right, n.y.baseVal.value + 13)));
})()`)
	}
	require.Equal(t, []bool{true, true, false}, framed("(owner b#1) was granted"))
	require.Equal(t, []bool{true, false, true}, framed("(owner c#1) was granted"))

	// Each fault has its name, where it is no other's, and on a narrow screen its number at least.
	named := `(() => {
	const texts = [...document.querySelectorAll(".live .t-fault ~ text")].filter((n) => /^(hold-reply|#\d+$)/.test(n.textContent));
	const boxes = texts.map((n) => n.getBoundingClientRect());
	const apart = boxes.every((a, i) => boxes.every((b, j) => i === j || a.right <= b.left || b.right <= a.left || a.bottom <= b.top + 2 || b.bottom <= a.top + 2));
	return apart ? texts.map((n) => n.textContent) : ["one covers another"];
})()`
	whole := eval[[]string](tab, named)
	require.Len(t, whole, 14)
	for _, words := range whole {
		require.Regexp(t, `^hold-reply zone-a>redis-\d$`, words)
	}
	tab.click(`[data-do="in"]`)
	require.NotContains(t, eval[[]string](tab, named), "one covers another")
	for _, width := range []int64{800, narrowScreen} {
		tab.screen(width, 900, "light")
		tab.click(`[data-do="whole"]`)
		require.Len(t, eval[[]string](tab, named), 14, "%d wide", width)
		require.LessOrEqual(t, eval[int](tab, `document.documentElement.scrollWidth`), int(width))
	}
	tab.screen(wideScreen, 900, "light")

	// The arrow keys stand on one mark after another, and say what a pointer would read.
	tab.do(chromedp.Focus(chart))
	said := func() string {
		tab.drawn()
		return eval[string](tab, `(() => {
	const words = document.querySelector("[data-mark]").textContent, mark = document.getElementById(document.querySelector("svg.live").getAttribute("aria-activedescendant"));
	return mark && mark.matches(".t-now") && mark.getAttribute("aria-label") === words && document.querySelectorAll(".live .t-now").length === 1 ? words : "not so";
})()`)
	}
	tab.keys(kb.ArrowDown)
	first := said()
	require.Contains(t, first, "a holds orders from 0.011 s")
	tab.keys(kb.ArrowDown)
	require.Contains(t, said(), "b holds orders from 0.041 s")
	tab.keys(kb.ArrowUp)
	require.Equal(t, first, said())
	tab.keys("+")
	require.Empty(t, tab.text("[data-mark]"), "another part has other marks")
}

// The names of the rows of locks, with the sign that they unfold, and of clients.
const rowNames = `[...document.querySelectorAll(".live .t-label")].map((n) => n.firstChild.textContent).filter((s) => /^(. lock|zone)-/.test(s))`

// A run with a thousand locks and 256 clients: the whole run has a row for each of some
// locks, the violated one first; a row unfolds to the clients that acted in the window;
// a name finds any lock or client; and the address leads there again.
func TestBrowserCrowd(t *testing.T) {
	t.Parallel()
	html := htmlOf(t, crowded(1000, 256, 15_000))
	require.Less(t, len(html), 1_200_000)
	tab := newTab(t)
	tab.openReport(html, "")
	require.Contains(t, eval[[]string](tab, rowNames), "zone-a.intruder", "the violation comes first")

	tab.click(`[data-do="whole"]`)
	rows := eval[[]string](tab, rowNames)
	require.Equal(t, "▸ lock-999", rows[0], "what is violated stands first")
	require.Len(t, rows, 24)
	require.Equal(t, "▸ lock-0", rows[1])
	require.Equal(t, "▸ lock-2", rows[3], "in the order of the numbers")
	require.Less(t, eval[int](tab, `document.querySelectorAll(".live *").length`), 5000)
	require.Regexp(t, `976 more locks`, tab.text(".live"))
	require.Regexp(t, `^lock-999: [0-9]+ % held · [0-9]+ clients; [0-9]+ granted, [0-9]+ refused, 0 without a known outcome; 1 in a violation$`,
		eval[string](tab, `document.querySelector("[data-fold='lock-999']").getAttribute("aria-label")`))
	require.True(t, eval[bool](tab, `[...document.querySelectorAll(".live .t-fail")].some((n) => n.getTotalLength() > 0)`), "refusals are seen")

	// By mouse and by keyboard.
	tab.click(`[data-fold="lock-2"] .t-label`)
	tab.until(`document.querySelector("[data-fold='lock-2']").ariaExpanded === "true"`)
	require.Greater(t, len(eval[[]string](tab, rowNames)), 24)
	eval[bool](tab, `(document.querySelector("[data-fold='lock-2']").focus(), true)`)
	tab.keys(kb.Enter)
	tab.until(`document.querySelector("[data-fold='lock-2']").ariaExpanded === "false"`)
	require.Equal(t, "lock-2", eval[string](tab, `document.activeElement.dataset.fold`), "the focus stays")
	tab.click(`[data-fold=""]`)
	require.Len(t, eval[[]string](tab, rowNames), 48, "more on demand")

	// A name finds a lock or client that is among no rows so far.
	tab.do(chromedp.Focus("#lanes"))
	tab.do(chromedp.KeyEvent("lock-777"))
	tab.drawn()
	require.Equal(t, "lock-777", eval[string](tab, `document.querySelector(".live .t-group").textContent`))
	require.NotContains(t, eval[[]string](tab, rowNames), "zone-a.intruder")
	tab.do(chromedp.KeyEvent(" zone-b"))
	tab.drawn()
	for _, name := range eval[[]string](tab, rowNames) {
		require.Regexp(t, `^zone-b\.`, name)
	}
	tab.hash(`&find=lock-777%20zone-b$`)
	tab.openReport(html, "#t=0-60&find=intruder")
	require.Equal(t, []string{"zone-a.intruder"}, eval[[]string](tab, rowNames))
	tab.openReport(html, "#t=0-60&find=%3Cimg%20src%3Dx%3E")
	require.Empty(t, eval[[]string](tab, rowNames))
	require.Contains(t, tab.text(".live"), "no lock or client of that name")
}

// A crowded run that is too long for every operation has those around the violation, and says so.
func TestBrowserLongCrowd(t *testing.T) {
	t.Parallel()
	html := htmlOf(t, crowded(40, 64, 90_000))
	require.Less(t, len(html), 1_200_000)
	tab := newTab(t)
	tab.openReport(html, "")
	tab.click(`[data-do="whole"]`)
	for range 16 { // no zoom draws so much that it would stutter
		require.Less(t, eval[int](tab, `document.querySelectorAll(".live *").length`), 5000)
		tab.click(`[data-do="in"]`)
	}
	tab.click(`[data-do="whole"]`)
	require.True(t, eval[bool](tab, `document.querySelector("[data-coarse]").checkVisibility()`))
	tab.click(`[data-do="violation"]`)
	require.Contains(t, eval[[]string](tab, rowNames), "zone-a.intruder")
}
