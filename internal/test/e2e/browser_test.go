package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/browsertest"
)

// tab is a page in a real browser. What goes wrong in it fails the test: an exception, a refusal of the content security
// policy, an error in the console, a request to any other host.
type tab struct {
	t    testing.TB
	ctx  context.Context
	host string
	also string // another host that it may go to

	mu         sync.Mutex
	complaints []string
	away       bool // the gateway is down on purpose: requests that fail are no news
	soFar      int  // how often soFar has come by
	listening  sync.WaitGroup
}

// window is a size of a browser's window.
type window struct {
	width, height int64
	phone         bool
}

var (
	desktop = window{width: 1280, height: 860}
	tall    = window{width: 1280, height: 1060}
	phone   = window{width: 390, height: 844, phone: true}
)

// openBrowser opens a tab that shows nothing yet. It ends with the test.
func openBrowser(t testing.TB, base string) *tab {
	t.Helper()
	address := assert.Value(url.Parse(base))(t)
	b := newTab(t, browsertest.Tab)
	b.host = address.Host
	b.listen()
	return b
}

// newTab opens a tab, and checks what it has noted when the test ends.
func newTab(t testing.TB, open func(testing.TB) context.Context) *tab {
	t.Helper()
	b := &tab{t: t}
	t.Cleanup(func() { // after the tab's end
		b.listening.Wait()
		b.check()
	})
	b.ctx = open(t)
	return b
}

// listen notes what the browser complains about, until it ends.
func (b *tab) listen() {
	console := chromedp.Console(b.ctx)
	b.listening.Go(func() {
		for m, err := range console {
			if err != nil {
				return
			}
			switch m.Type {
			case chromedp.ConsoleException:
				b.complain("exception: %s", m.Text)
			case chromedp.ConsoleDebug:
				if m.Text == soFar {
					b.mu.Lock()
					b.soFar++
					b.mu.Unlock()
				}
			case chromedp.ConsoleError, chromedp.ConsoleWarning:
				b.complainUnlessAway("%s: %s (%s)", m.Type, m.Text, m.URL)
			}
		}
	})
	requests := chromedp.Events(b.ctx, network.RequestWillBeSent)
	b.listening.Go(func() {
		for e, err := range requests {
			if err != nil {
				return
			}
			b.allow(e.Request.URL)
		}
	})
	sockets := chromedp.Events(b.ctx, network.WebSocketCreated)
	b.listening.Go(func() {
		for e, err := range sockets {
			if err != nil {
				return
			}
			b.allow(e.URL)
		}
	})
	assert.Value(chromedp.Call(b.ctx, network.Enable, network.EnableParams{}))(b.t, "watching requests")
}

// allow complains of a request to another host.
func (b *tab) allow(address string) {
	u, err := url.Parse(address)
	if err != nil || u.Host != b.host && (b.also == "" || u.Host != b.also) && u.Scheme != "data" && u.Scheme != "about" {
		b.complain("a request to another host: %s", address)
	}
}

func (b *tab) complain(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.complaints = append(b.complaints, fmt.Sprintf(format, args...))
}

func (b *tab) complainUnlessAway(format string, args ...any) {
	b.mu.Lock()
	away := b.away
	b.mu.Unlock()
	if !away {
		b.complain(format, args...)
	}
}

// soFar is what awaitComplaints writes to the console.
const soFar = "so far"

// awaitComplaints waits until the complaints of the page so far have been recorded: that comes beside what it is asked,
// and in order.
func (b *tab) awaitComplaints() {
	b.t.Helper()
	count := func() int {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.soFar
	}
	before := count()
	eval[int](b, `(console.debug(`+quoted(soFar)+`), 1)`)
	eventually(b.t, patience, func() error {
		if count() == before {
			return errors.New("not yet")
		}
		return nil
	}, "the console tells what was written to it")
}

// expectOutage says whether requests may fail from here on.
func (b *tab) expectOutage(away bool) {
	b.t.Helper()
	if !away {
		b.awaitComplaints()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away = away
}

// check fails the test with what the browser complained about.
func (b *tab) check() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.complaints {
		b.t.Errorf("the browser: %s", c)
	}
	b.complaints = nil
}

// do gives the browser something to do, within patience.
func do[T any](b *tab, what string, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v := assert.Value(chromedp.Run(ctx, action))(b.t, "%s", what)
	return v
}

// eval evaluates an expression in the page; a promise is awaited.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	return do(b, expression, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// visit loads a page.
func (b *tab) visit(address string) {
	b.t.Helper()
	do(b, "opening "+address, chromedp.Navigate(address))
}

// arrives waits until the page has gone to an address by itself. While it goes
// it cannot be asked, and another navigation would be aborted.
func (b *tab) arrives(address string) {
	b.t.Helper()
	eventually(b.t, patience, func() error {
		ctx, cancel := context.WithTimeout(b.ctx, patience)
		defer cancel()
		at, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.readyState === "complete" ? location.href : "loading"`))
		if err == nil && at != address {
			err = fmt.Errorf("it is at %s", at)
		}
		return err
	}, "the page goes to %s", address)
}

// resize gives the window a size and a colour scheme, "light" or "dark". Motion is reduced: what is looked at stands still.
func (b *tab) resize(w window, scheme string) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: w.width, Height: w.height, DeviceScaleFactor: 1, Mobile: w.phone}); err != nil {
		b.t.Fatalf("setting the window's size: %v", err)
	}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}}); err != nil {
		b.t.Fatalf("setting the colour scheme: %v", err)
	}
}

// until waits until an expression is true in the page.
func (b *tab) until(expression, what string) {
	b.t.Helper()
	eventually(b.t, patience, func() error {
		if !eval[bool](b, "Boolean("+expression+")") {
			return fmt.Errorf("the page shows:\n%s", eval[string](b, "(document.body?.innerText ?? '').slice(0, 1500)"))
		}
		return nil
	}, "%s", what)
}

// shot saves a picture of the window in the folder that LOCKKEEPER_SCREENSHOTS names, if it does.
func (b *tab) shot(name string) {
	b.t.Helper()
	if dir := os.Getenv("LOCKKEEPER_SCREENSHOTS"); dir != "" {
		b.picture(dir, name)
	}
}

func (b *tab) picture(dir, name string) {
	b.t.Helper()
	png := do(b, "taking a picture", chromedp.CaptureScreenshot())
	assert.NoError(b.t, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644))
	assert.That(b.t, len(png) >= 5000, "the picture %s has %d bytes: an empty page", name, len(png))
}
