package templates

import (
	"context"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/browsertest"
	"lockkeeper/internal/test/testkit"
)

func TestMain(m *testing.M) { os.Exit(browsertest.Wrap(m).Run()) }

// browse opens a sample page in Chromium, from a server that stop takes away.
func browse(t *testing.T, path string) (page *browser, stop func()) {
	t.Helper()
	return browseWith(t, path, new(fakeAPI))
}

// browseWith has a JSON API of the test's own.
func browseWith(t *testing.T, path string, api *fakeAPI) (page *browser, stop func()) {
	t.Helper()
	if testing.Short() {
		t.Skip("a browser takes seconds")
	}
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Skip("there is no chromium; internal/test/e2e needs one")
	}
	server := httptest.NewUnstartedServer(previewHandler(api))
	var mu sync.Mutex
	var conns []net.Conn // those of sockets, too, which the server forgets
	server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		mu.Lock()
		defer mu.Unlock()
		conns = append(conns, c)
		return ctx
	}
	server.Start()
	stop = sync.OnceFunc(func() {
		_ = server.Listener.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		server.Close()
	})
	t.Cleanup(stop)
	page = &browser{t, browsertest.Tab(t)}
	run(page, chromedp.Navigate(server.URL+path))
	page.until(`document.documentElement.dataset.link === "live"`, "the page is live")
	return page, stop
}

// browser shows a page.
type browser struct {
	t   *testing.T
	ctx context.Context
}

const patience = time.Minute

func run[T any](b *browser, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v := assert.Value(chromedp.Run(ctx, action))(b.t)
	return v
}

func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	return run(b, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

func (b *browser) until(expression, what string) {
	b.t.Helper()
	testkit.Eventually(b.t, patience, func() bool { return eval[bool](b, "Boolean("+expression+")") }, "%s", what)
}

func (b *browser) text(selector string) string {
	b.t.Helper()
	return eval[string](b, `document.querySelector("`+selector+`").innerText`)
}

// The rows stay those of the filter before, and the page must say so.
func TestAFilterThatIsRefusedSaysSo(t *testing.T) {
	page, stop := browse(t, "/")
	shown := eval[string](page, "location.href")
	write := func(q string) {
		eval[int](page, `(q.value = "`+q+`", q.dispatchEvent(new Event("input", {bubbles: true})), 1)`)
	}
	write("refuse")
	page.until(`!document.querySelector("#refused").hidden`, "it says so")
	got := page.text("#refused")
	assert.That(t, strings.Contains(got, "No page shows this.") && strings.Contains(got, "the previous filter"), "it says %q", got)
	assert.Equal(t, eval[string](page, "location.href"), shown, "the address is that of the refused filter")
	assert.That(t, eval[int](page, `document.querySelectorAll("#locks tbody tr").length`) != 0, "the rows are gone")
	write("x")
	page.until(`document.querySelector("#refused").hidden && location.search === "?q=x"`, "the next filter is obeyed")
	stop()
	write("y")
	page.until(`!document.querySelector("#refused").hidden`, "a filter that the gateway does not answer")
}

// An hour in the background, and the gateway is gone: what is shown is an hour old.
func TestATabThatComesBackDoesNotMakeOldDataYoung(t *testing.T) {
	page, stop := browse(t, "/lock-free")
	set := func(hidden string) {
		eval[int](page, `(Object.defineProperty(document, "hidden", {value: `+hidden+`, configurable: true}), document.dispatchEvent(new Event("visibilitychange")), 1)`)
	}
	set("true")
	stop()
	eval[int](page, `(Date.now = ((now) => () => now() + 3600e3)(Date.now), 1)`)
	set("false")
	page.until(`document.documentElement.dataset.link === "away"`, "the gateway is missed")
	got := page.text("#away")
	assert.That(t, strings.Contains(got, "1h 00m ago"), "it says %q", got)
}

// A clock that is set back must not keep a dead connection alive.
func TestAClockThatIsSetBackHidesNoOutage(t *testing.T) {
	page, stop := browse(t, "/lock-free")
	eval[int](page, `(Date.now = ((now) => () => now() - 3600e3)(Date.now), 1)`)
	stop()
	page.until(`document.documentElement.dataset.link === "away"`, "the gateway is missed")
}

func TestTheKeyboardPassesALongQueueQuickly(t *testing.T) {
	page, _ := browse(t, "/lock-shared")
	const stops = `[...document.querySelectorAll("#queue :is(a, button, [tabindex='0'])")].filter((e) => e.tabIndex >= 0 && e.checkVisibility({visibilityProperty: true})).length`
	rows, n := eval[int](page, `document.querySelectorAll("#queue [data-row]").length`), eval[int](page, stops)
	assert.That(t, rows >= 100 && n <= 10, "%d stops of the Tab key in %d rows", n, rows)
	eval[int](page, `(document.querySelector("#queue .waiter").focus(), 1)`)
	got := eval[string](page, "document.activeElement.className")
	assert.That(t, strings.Contains(got, "waiter"), "the focus is on %q", got)
	n = eval[int](page, `[...document.activeElement.querySelectorAll("button")].filter((e) => e.checkVisibility({visibilityProperty: true})).length`)
	assert.That(t, n >= 2, "the row with the focus has %d buttons", n)
	n = eval[int](page, `document.querySelectorAll("#queue .waiter[tabindex='0'], #queue .holder[tabindex='0']").length`)
	assert.That(t, n == 2, "the Tab key comes to %d rows", n)
}

// What a newer gateway pushes is meant for newer styles and scripts, also when both call themselves "(devel)".
func TestAPageThatIsOlderThanItsGatewayIsLoadedAgain(t *testing.T) {
	page, _ := browse(t, "/lock-free")
	push := func(build string) string {
		return `htmx.swap({sourceElement: live, target: live, swap: "none",
			text: pushed.replace(/data-build="[^"]*"/, 'data-build="` + build + `"')}).then(() => true)`
	}
	eval[bool](page, `(performance.now = () => 61000, pushed = document.querySelector("#status").outerHTML, document.documentElement.dataset.mark = "old") === "old"`)
	eval[bool](page, push(eval[string](page, `document.querySelector("#status").dataset.build`)))
	assert.Must(t, eval[string](page, "document.documentElement.dataset.mark") == "old",
		"a page of its gateway's own build was loaded again")
	eval[bool](page, "("+push("newer")+", true)") // not awaited: the page that would answer goes
	testkit.Eventually(t, patience, func() bool {
		ctx, cancel := context.WithTimeout(page.ctx, patience)
		defer cancel()
		again, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`document.documentElement?.dataset.mark !== "old"`))
		return err == nil && again // an error: between the old page and the new one
	}, "it is loaded again")
}

// Long names, owners and labels included.
func TestNoPageIsWiderThanItsWindow(t *testing.T) {
	page, _ := browse(t, "/")
	origin := eval[string](page, "location.origin")
	for _, path := range []string{"/", "/evil-list", "/lock-past", "/lock-shared", "/lock-free", "/lock-permits", "/lock-group", "/lock-asked", "/nodes", "/problem", "/namespaces", "/evil-spaces", "/gateways", "/evil-fleet", "/activity", "/evil-activity", "/activity-empty", "/busy", "/evil-busy", "/wall", "/evil-wall", "/pinned", "/webhooks", "/webhook", "/evil-webhooks", "/evil-webhook"} {
		run(page, chromedp.Navigate(origin+path))
		for _, width := range []int64{320, 390, 500, 640, 735, 740, 780, 860, 960, 1023, 1030, 1280, 1920} {
			_, err := chromedp.Call(page.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 800, DeviceScaleFactor: 1})
			assert.NoError(t, err)
			wide := eval[int64](page, "document.documentElement.scrollWidth")
			assert.That(t, wide <= width, "%s is %d wide in a window of %d", path, wide, width)
		}
	}
}

// On a phone the mark, how the page hears of changes, and the buttons stand in one line, whatever that says.
func TestTheHeaderOfAPhoneHasOneLineAboveItsLinks(t *testing.T) {
	page, _ := browse(t, "/lock-free")
	_, err := chromedp.Call(page.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 390, Height: 800, DeviceScaleFactor: 1})
	assert.NoError(t, err)
	for _, says := range []string{"Live", "Connecting", "Polling", "Disconnected", "Session ended", "Live, not serving", "Polling, not serving"} {
		lines := eval[int](page, `(document.querySelector(".link-text").textContent = "`+says+`", new Set([...document.querySelectorAll(".top > .brand, .top > .link, .top > .tools")].map((e) => e.getBoundingClientRect()).map((r) => Math.round((r.top + r.bottom) / 2))).size)`)
		assert.Equal(t, lines, 1, "with %q", says)
		assert.That(t, eval[bool](page, `document.querySelector(".link").getBoundingClientRect().height < 30 && document.documentElement.scrollWidth <= 390`), "%q is broken or wide", says)
	}
}
