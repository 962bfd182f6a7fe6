package reports_test

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/history"
)

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

	// A busy lane shows what was refused as one that is not busy does.
	tab.openReport(htmlOf(t, busyLanes()), "")
	require.Equal(t, []int{1, 1}, eval[[]int](tab, `[...document.querySelectorAll(".live .t-lane")].slice(0, 2).map((lane) => [...document.querySelectorAll(".live .t-fail")].filter((n) => Math.abs(n.getBBox().y + n.getBBox().height / 2 - lane.y.baseVal.value - 13) < 2).length)`))
	require.Zero(t, eval[int](tab, `document.querySelectorAll(".live rect.t-hold").length`), "no lane is drawn hold by hold beside one that is not")
}
