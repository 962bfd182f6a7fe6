package reports_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The reader sees the messages between clients and servers, can fold it, and finds down to the events why.
func TestBrowserMechanism(t *testing.T) {
	t.Parallel()
	tab := newTab(t)
	tab.openReport(htmlOf(t, failover()), "")
	tab.screen(1280, 900, "light")
	require.Equal(t, 1, eval[int](tab, `document.querySelectorAll(".diagram .t-flag").length`))
	require.True(t, eval[bool](tab, `[...document.querySelectorAll(".diagram text")].every((t) => { const b = t.getBBox(), v = t.ownerSVGElement.viewBox.baseVal; return b.x >= -1 && b.x + b.width <= v.width + 1; })`), "a text leaves the diagram")
	require.True(t, eval[bool](tab, `(() => { const ys = [...document.querySelectorAll(".diagram .t-tick")].map((n) => n.getAttribute("y")); return new Set(ys).size === ys.length; })()`), "two times in one row")
	tab.click(".diagram > summary")
	require.False(t, eval[bool](tab, `document.querySelector(".diagram").open`))

	// Which server had whose key.
	require.Equal(t, []string{"key of b"}, eval[[]string](tab, `[...document.querySelectorAll(".live .t-key + text.t-small")].map((n) => n.textContent)`))
	tab.openReport(htmlOf(t, twoMajorities("a#1", "a#1", "b#1", "b#1", "b#1")), "")
	require.Equal(t, 6, eval[int](tab, `document.querySelectorAll(".live .t-key").length`), "three votes for each")

	// Without scripts and on paper there are the messages.
	tab.scripts(false)
	tab.open(htmlOf(t, twoMajorities("a#1", "a#1", "b#1", "b#1", "b#1")), "")
	tab.unfold()
	require.Equal(t, 6, eval[int](tab, `[...document.querySelectorAll(".diagram text")].filter((n) => n.textContent === "acquire orders").length`))
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
	tab.until(`document.querySelector('[data-copy="issue"]').textContent === "Copied" || String(getSelection()).includes("sequenceDiagram")`)

	// On paper the events are no JSON, and the story comes with its drawings.
	tab.media("print", "light")
	require.Zero(t, eval[int](tab, `[...document.querySelectorAll(".raw")].filter((n) => n.checkVisibility()).length`))
	require.True(t, eval[bool](tab, `document.querySelector(".diagram svg").checkVisibility()`))
}
