package reports_test

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

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
