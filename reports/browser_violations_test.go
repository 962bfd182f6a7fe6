package reports_test

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/reports"
)

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
	tab.shows(moment, at)
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
	tab.until(`document.querySelector("[data-moment]").textContent === document.querySelector("#violations tbody tr:first-child a").textContent`)
}
