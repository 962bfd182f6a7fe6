package reports_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	defer func() { endBrowser() }()
	m.Run()
}

var (
	// browser starts the one browser that all tests share. It talks through a
	// pipe, and ends when that does: also where a test panics.
	browser = sync.OnceValues(startBrowser)
	// endBrowser ends it, if it was started.
	endBrowser = func() {}
)

// browserTimeout bounds what one test does in the browser, its start included.
const browserTimeout = 5 * time.Minute

var errNoBrowser = errors.New("no Chromium in PATH")

func startBrowser() (context.Context, error) {
	path := "" // the one without windows first: it takes half of the processor's time
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		return nil, errNoBrowser
	}
	ctx, endProcess := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(wideScreen, 900))...)
	ctx, endFirst := chromedp.NewContext(ctx)
	endBrowser = func() {
		endFirst()
		endProcess()
	}
	return ctx, chromedp.Do(ctx) // it starts with the first action, also with none
}

// The widths of the screens that a report is read on, in CSS pixels.
const (
	wideScreen   = 1120
	narrowScreen = 400
)

// A tab shows one page in the browser. What goes wrong in it, and whatever it
// asks the network for, fails its test at the end.
type tab struct {
	testing.TB

	ctx context.Context //nolint:containedctx // a tab lasts as long as its context

	mu       sync.Mutex
	address  string
	before   string // the address before it, whose page may load itself again until it is left
	wrong    []string
	requests []string
}

// newTab opens an empty tab, or skips the test: most machines that test have no
// browser.
func newTab(tb testing.TB) *tab {
	tb.Helper()
	if testing.Short() {
		tb.Skip("starts a browser")
	}
	ctx, err := browser()
	if errors.Is(err, errNoBrowser) {
		if os.Getenv("LOCKCHAOS_TEST_REQUIRE") == "1" && os.Getenv("LOCKCHAOS_TEST_BROWSER") == "1" {
			tb.Fatalf("%v, and LOCKCHAOS_TEST_BROWSER=1 wants one", err)
		}
		tb.Skip(err)
	}
	require.NoError(tb, err, "start the browser")
	ctx, cancel := context.WithTimeout(ctx, browserTimeout)
	ctx, closeTab := chromedp.NewContext(ctx)
	t := &tab{TB: tb, ctx: ctx}
	tb.Cleanup(func() {
		closeTab()
		cancel()
		t.mu.Lock()
		defer t.mu.Unlock()
		if len(t.wrong) > 0 {
			tb.Errorf("the page complains: %q", t.wrong)
		}
		if len(t.requests) > 0 {
			tb.Errorf("a report needs no network, and asks for %q", t.requests)
		}
	})
	require.NoError(tb, chromedp.Listen(ctx, t.note))
	t.screen(wideScreen, 900, "light")
	return t
}

// note keeps what a page should not do.
func (t *tab) note(event any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			words := "console." + string(e.Type)
			for _, a := range e.Args {
				words += " " + a.Description + string(a.Value)
			}
			t.wrong = append(t.wrong, words)
		}
	case *runtime.EventExceptionThrown:
		words := e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			words += " " + e.ExceptionDetails.Exception.Description
		}
		t.wrong = append(t.wrong, words)
	case *log.EventEntryAdded:
		if !strings.Contains(e.Entry.Text, networkChanged) {
			t.wrong = append(t.wrong, e.Entry.Text)
		}
	case *page.EventJavascriptDialogOpening:
		t.wrong = append(t.wrong, "a dialog: "+e.Message)
	case *network.EventRequestWillBeSent:
		asked, _, _ := strings.Cut(e.Request.URL, "#")
		if asked != t.address && asked != t.before && !strings.HasPrefix(asked, "data:") {
			t.requests = append(t.requests, asked)
		}
	}
}

// do does something in the tab.
func (t *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	require.NoError(t, chromedp.Do(t.ctx, steps...))
}

// eval is the value of an expression in the tab's page, of its promise if it is
// one.
func eval[T any](t *tab, expression string) T {
	t.Helper()
	value, err := chromedp.Run(t.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(t, err, expression)
	return value
}

// screen sets the size of the screen and the theme, light or dark.
func (t *tab) screen(width, height int64, theme string) {
	t.Helper()
	t.do(chromedp.EmulateViewport(width, height))
	t.media("screen", theme)
	t.until(fmt.Sprintf("innerWidth === %d", width))
	t.drawn()
}

// media sets what the page is shown on, screen or print, and the theme.
func (t *tab) media(kind, theme string) {
	t.Helper()
	_, err := chromedp.Call(t.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Media: kind, Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}},
	})
	require.NoError(t, err)
}

// scripts switches the page's scripts on or off; those of the test run anyway.
func (t *tab) scripts(on bool) {
	t.Helper()
	_, err := chromedp.Call(t.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
	require.NoError(t, err)
}

// open shows a page, with what follows the # of its address.
func (t *tab) open(html, hash string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.html")
	require.NoError(t, os.WriteFile(file, []byte(html), 0o600))
	t.visit((&url.URL{Scheme: "file", Path: file}).String(), hash)
}

// networkChanged is how Chromium breaks off a load, of a loopback address too, when
// the machine gets or loses an address, as it does with each container of a test
// beside this one. It says nothing of the page.
const networkChanged = "net::ERR_NETWORK_CHANGED"

// visit shows the page of an address, and loads it again when the machine's
// addresses changed meanwhile.
func (t *tab) visit(address, hash string) {
	t.Helper()
	t.mu.Lock()
	t.before, t.address = t.address, address
	t.mu.Unlock()
	for {
		err := chromedp.Do(t.ctx, chromedp.Navigate(address+hash))
		if err == nil || !strings.Contains(err.Error(), networkChanged) {
			require.NoError(t, err)
			return
		}
	}
}

// brokenOff tells that the tab shows the browser's own page of a load that failed: a
// page that loads itself again has nothing left to do so then.
func (t *tab) brokenOff() bool {
	broken, err := chromedp.Run(t.ctx, chromedp.Evaluate[bool](`location.protocol === "chrome-error:"`))
	return err == nil && broken
}

// forgive forgets what the page did that it should not do, and returns its complaints.
func (t *tab) forgive() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	wrong := t.wrong
	t.wrong, t.requests = nil, nil
	return wrong
}

// openReport shows a report, and waits until its script has drawn it.
func (t *tab) openReport(html, hash string) {
	t.Helper()
	t.open(html, hash)
	t.untilReport()
}

// untilReport waits until the script of a report has drawn it.
func (t *tab) untilReport() {
	t.Helper()
	t.until(`document.documentElement?.classList.contains("has-chart")`)
	t.unfold()
	t.drawn()
}

// unfold opens what is folded on the page.
func (t *tab) unfold() {
	t.Helper()
	eval[bool](t, `([...document.querySelectorAll("details.fold")].forEach((d) => d.open = true), true)`)
}

// drawn waits until the page has drawn what it was told to: a new width is seen at the end of
// one frame, and drawn in the next.
func (t *tab) drawn() {
	t.Helper()
	eval[bool](t, `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(() => done(true)))))`)
}

// until waits for a condition of the page.
func (t *tab) until(condition string) {
	t.Helper()
	eval[bool](t, `new Promise((done, fail) => {
	const from = performance.now();
	const look = () => (`+condition+`) ? done(true) : performance.now() - from > 120000 ? fail("not so within two minutes") : requestAnimationFrame(look);
	look();
})`)
}

// text is what an element says.
func (t *tab) text(selector string) string {
	t.Helper()
	return eval[string](t, `document.querySelector(`+quoted(selector)+`).textContent`)
}

// spot is a place in the middle of an element's height, brought into view: so
// far from its left edge, as a share of its width.
func (t *tab) spot(selector string, share float64) (x, y float64) {
	t.Helper()
	box := eval[[]float64](t, `(() => {
	const node = document.querySelector(`+quoted(selector)+`);
	node.scrollIntoView({ block: "center", behavior: "instant" });
	const r = node.getBoundingClientRect();
	return [r.left, r.top + r.height / 2, r.width];
})()`)
	return box[0] + box[2]*share, box[1]
}

// click clicks the middle of an element with the mouse.
func (t *tab) click(selector string) {
	t.Helper()
	x, y := t.spot(selector, 0.5)
	t.do(chromedp.MouseClickXY(x, y))
	t.drawn()
}

// drag moves the mouse over an element with its button down, between shares of
// its width.
func (t *tab) drag(selector string, from, to float64, modifiers ...chromedp.Modifier) {
	t.Helper()
	a, y := t.spot(selector, from)
	b, _ := t.spot(selector, to)
	with := chromedp.ButtonModifiers(modifiers...)
	t.do(
		chromedp.MouseEvent(chromedp.MousePressed, a, y, chromedp.ButtonLeft, chromedp.ClickCount(1), with),
		chromedp.MouseEvent(chromedp.MouseMoved, (a+b)/2, y, chromedp.ButtonLeft, with),
		chromedp.MouseEvent(chromedp.MouseMoved, b, y, chromedp.ButtonLeft, with),
		chromedp.MouseEvent(chromedp.MouseReleased, b, y, chromedp.ButtonLeft, chromedp.ClickCount(1), with),
	)
	t.drawn()
}

// wheel turns the mouse's wheel over the middle of an element.
func (t *tab) wheel(selector string, by float64, modifiers ...chromedp.Modifier) {
	t.Helper()
	x, y := t.spot(selector, 0.5)
	t.do(chromedp.MouseEvent(chromedp.MouseWheel, x, y, chromedp.ButtonModifiers(modifiers...), func(p *input.DispatchMouseEventParams) {
		p.DeltaX, p.DeltaY = 0.01, by // the browser wants both, and zeros are not sent
	}))
	t.drawn()
}

// keys presses keys one after another.
func (t *tab) keys(keys string) {
	t.Helper()
	t.do(chromedp.KeyEvent(keys))
	t.drawn()
}
