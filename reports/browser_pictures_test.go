package reports_test

import (
	"bytes"
	"flag"
	"image/png"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/reports"
)

// The pictures of docs/reading-a-report.md and of the README are of a real run:
//
//	make reproduce BUG=failover-double-grant
//	go test ./reports -run TestBrowserPictures -pictures $PWD/reports/runs/latest
var pictures = flag.String("pictures", "", "a run directory of failover-double-grant, to take the pictures in docs of")

// numbers are the places of the numbers in docs/reading-a-report.md: an
// element, and where on it, as shares of its width and height.
var numbers = []struct {
	selector string
	x, y     float64
}{
	{".verdict", -0.02, 0.5},
	{".again", -0.015, 0.5},
	{".story li:first-child", -0.02, 0.3},
	{".story .violation", -0.02, 0.5},
	{".in-effect", -0.015, 0.5},
	{".controls", -0.015, 0.4},
	{".live .t-hold", 0.16, 0.5},
	{".live .t-violation", 0.25, 0.45},
	{".live .t-access.t-bad", 0.5, -0.5},
	{".live .t-master ~ .t-master", 0.7, 0.5},
	{".live .t-fault", 0.4, 0.5},
	{".live .t-moment-foot", -1.2, 0.4},
}

// TestBrowserPictures takes the pictures of the docs, and sees to it that each
// number finds what it is about.
func TestBrowserPictures(t *testing.T) {
	t.Parallel()
	in := failover()
	if *pictures != "" {
		var err error
		in, err = reports.ReadDir(*pictures)
		require.NoError(t, err)
		require.Equal(t, "failover-double-grant", in.Run.Scenario)
	}
	html := htmlOf(t, in)
	tab := newTab(t)
	for _, theme := range []string{"light", "dark"} {
		tab.screen(1100, 900, theme)
		tab.openReport(html, "")
		tab.picture("report-" + theme + ".png")
	}
	tab.screen(1100, 900, "light")
	tab.openReport(html, "")
	for i, n := range numbers {
		require.True(t, eval[bool](tab, `(() => {
	const node = document.querySelector(`+quoted(n.selector)+`);
	if (!node) return false;
	const r = node.getBoundingClientRect(), badge = document.createElement("b");
	badge.textContent = `+strconv.Itoa(i+1)+`;
	badge.style.cssText = "position:absolute;width:26px;height:26px;border-radius:50%;background:#0a7d62;color:#fff;font:700 13px/22px sans-serif;text-align:center;border:2px solid #fff;z-index:9";
	badge.style.left = Math.max(2, r.left + scrollX + r.width * `+share(n.x)+` - 13) + "px";
	badge.style.top = r.top + scrollY + r.height * `+share(n.y)+` - 13 + "px";
	document.body.append(badge);
	return r.width + r.height > 0;
})()`), "%d: there is no %s", i+1, n.selector)
	}
	tab.picture("report-numbered.png")
}

// picture takes a picture of the page down to the end of the timeline, and keeps it if it
// was asked for.
func (t *tab) picture(name string) {
	t.Helper()
	t.drawn()
	height := eval[float64](t, `document.querySelector("#legend").getBoundingClientRect().bottom + scrollY + 12`)
	beyond := true
	shot, err := chromedp.Call(t.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{
		CaptureBeyondViewport: &beyond, Clip: &page.Viewport{Width: 1100, Height: height, Scale: 1},
	})
	require.NoError(t, err)
	img, err := png.Decode(bytes.NewReader(shot.Data))
	require.NoError(t, err)
	require.Equal(t, 1100, img.Bounds().Dx())
	if *pictures != "" {
		require.NoError(t, os.WriteFile(filepath.Join("..", "docs", name), shot.Data, 0o644))
	}
}

func share(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
