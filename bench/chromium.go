package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/systeminfo"
	"github.com/chromedp/chromedp"

	"lockkeeper/internal/test/browsertest"
)

// answersWithin is how long the browser may take for anything.
const answersWithin = 30 * time.Second

// chromium is a browser without a window on a screen.
type chromium struct {
	ctx     context.Context
	version string
	stop    func() error
	meters  []*meter
}

func startChromium(ctx context.Context) (c *chromium, err error) {
	c = &chromium{}
	if c.ctx, c.stop, err = browsertest.Launch(); err != nil {
		return nil, err
	}
	about, err := asked(ctx, c.ctx, func(ctx context.Context) (browser.GetVersionResult, error) {
		return chromedp.CallBrowser(ctx, browser.GetVersion, cdp.Empty{})
	})
	if err != nil {
		c.end()
		return nil, fmt.Errorf("chromium: %w", err)
	}
	c.version = strings.Replace(strings.Replace(about.Product, "Headless", "", 1), "/", " ", 1)
	return c, nil
}

// end ends the browser. A failure here does not change the figures, so it is ignored.
func (c *chromium) end() {
	_ = c.stop()
	for _, m := range c.meters {
		m.close()
	}
}

// asked asks the browser, until ctx ends or the time is over. in is the tab or the browser.
func asked[T any](ctx, in context.Context, ask func(context.Context) (T, error)) (T, error) {
	in, cancel := context.WithTimeout(in, answersWithin)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	return ask(in)
}

// tab shows pages of one gateway, through a meter. It is as large as a window on a desk.
type tab struct {
	*meter
	ctx     context.Context
	process int64 // that renders it
}

// open opens a tab in a browser context of its own, so in processes of its own.
func (c *chromium) open(ctx context.Context, base string) (*tab, error) {
	m, err := startMeter(strings.TrimPrefix(base, "http://"))
	if err != nil {
		return nil, err
	}
	c.meters = append(c.meters, m)
	t := &tab{meter: m}
	t.ctx, _ = chromedp.NewContext(c.ctx, chromedp.WithNewBrowserContext()) // ends with the browser
	if err := chromedp.Do(t.ctx); err != nil {                              // the tab lives as long as this context
		return nil, fmt.Errorf("open a tab: %w", err)
	}
	_, err = asked(ctx, t.ctx, func(ctx context.Context) (cdp.Empty, error) {
		window := emulation.SetDeviceMetricsOverrideParams{Width: 1440, Height: 900, DeviceScaleFactor: 1}
		return chromedp.Call(ctx, emulation.SetDeviceMetricsOverride, window)
	})
	if err != nil {
		err = fmt.Errorf("size of the window: %w", err)
	}
	return t, err
}

func evalIn[T any](ctx context.Context, t *tab, expression string) (T, error) {
	v, err := asked(ctx, t.ctx, func(ctx context.Context) (T, error) {
		return chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	})
	if err != nil {
		err = fmt.Errorf("in the browser, %.60s: %w", expression, err)
	}
	return v, err
}

// watchShifts adds up how far the page jumps, from its load on.
const watchShifts = `(() => {
	window.shift = 0;
	new PerformanceObserver((list) => {
		for (const e of list.getEntries()) if (!e.hadRecentInput) window.shift += e.value;
	}).observe({type: "layout-shift", buffered: true});
	return 1;
})()`

// untilLive resolves when the page is live.
const untilLive = `new Promise((done) => {
	const live = () => document.readyState === "complete" && document.documentElement.dataset.link === "live";
	const look = () => live() ? done(1) : setTimeout(look, 20);
	look();
})`

// transferred is what has come for the page and the files that it loads.
const transferred = `[...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
	.reduce((sum, e) => sum + e.transferSize, 0)`

// occupy keeps the page's process busy for a moment.
const occupy = `(() => { for (const end = performance.now() + 150; performance.now() < end;); return 1; })()`

// visit opens a page and waits until it is live. It finds out which process renders it.
func (t *tab) visit(ctx context.Context, path string) error {
	_, err := asked(ctx, t.ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, chromedp.Do(ctx, chromedp.Navigate("http://"+t.addr+path))
	})
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	for _, expression := range []string{watchShifts, untilLive} {
		if _, err := evalIn[int](ctx, t, expression); err != nil {
			return err
		}
	}
	return t.findProcess(ctx)
}

// findProcess finds out which process renders the page: the one that is busiest while the page is kept busy, twice in a row. Once it may be
// another one that has just begun, which the browser keeps for the next page.
func (t *tab) findProcess(ctx context.Context) error {
	const tries = 20
	last := int64(0)
	for range tries {
		before, err := t.renderers(ctx)
		if err != nil {
			return err
		}
		if _, err := evalIn[int](ctx, t, occupy); err != nil {
			return err
		}
		after, err := t.renderers(ctx)
		if err != nil {
			return err
		}
		most := 0.0
		for id, spent := range after {
			if spent -= before[id]; spent > most {
				most, t.process = spent, id
			}
		}
		if t.process == last {
			return nil
		}
		last = t.process
	}
	return errors.New("it cannot be found out which process of the browser renders the page")
}

// load opens a page without a cache.
func (t *tab) load(ctx context.Context, path string) (l loaded, err error) {
	_, err = asked(ctx, t.ctx, func(ctx context.Context) (cdp.Empty, error) {
		return chromedp.Call(ctx, network.SetCacheDisabled, network.SetCacheDisabledParams{CacheDisabled: true})
	})
	if err != nil {
		return l, fmt.Errorf("without a cache: %w", err)
	}
	if err := t.visit(ctx, path); err != nil {
		return l, err
	}
	bytes, err := evalIn[float64](ctx, t, transferred)
	if err != nil {
		return l, err
	}
	if err := wait(ctx, time.Second); err != nil { // what shifts after it has been painted
		return l, err
	}
	shift, err := evalIn[float64](ctx, t, "shift")
	return loaded{bytes: []float64{bytes}, shift: []float64{shift}}, err
}

// shiftOver is how far the page jumps in that time.
func (t *tab) shiftOver(ctx context.Context, d time.Duration) (float64, error) {
	return t.shiftWhile(ctx, func() error { return wait(ctx, d) })
}

// shiftWhile is how far the page jumps while f runs.
func (t *tab) shiftWhile(ctx context.Context, f func() error) (float64, error) {
	if _, err := evalIn[int](ctx, t, `(window.shift = 0, 1)`); err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	return evalIn[float64](ctx, t, "shift")
}

// renderers are the processor times of all processes that render pages, in seconds.
func (t *tab) renderers(ctx context.Context) (map[int64]float64, error) {
	got, err := asked(ctx, t.ctx, func(ctx context.Context) (systeminfo.GetProcessInfoResult, error) {
		return chromedp.CallBrowser(ctx, systeminfo.GetProcessInfo, cdp.Empty{})
	})
	if err != nil {
		return nil, fmt.Errorf("processes of the browser: %w", err)
	}
	spent := map[int64]float64{}
	for _, p := range got.ProcessInfo {
		if p.Type == "renderer" {
			spent[p.ID] = p.CPUTime
		}
	}
	return spent, nil
}

// processor is the time, in seconds, that the process that renders the tab has spent.
func (t *tab) processor(ctx context.Context) (float64, error) {
	all, err := t.renderers(ctx)
	return all[t.process], err
}

// watchFor has the page note when its queue first shows the text; seen waits for that. painted is when the next frame has been drawn. Both
// sides read the machine's clock.
func (t *tab) watchFor(ctx context.Context, text string) error {
	_, err := evalIn[int](ctx, t, fmt.Sprintf(`(() => {
		window.seen = new Promise((resolve) => {
			const queue = document.querySelector("#queue");
			const at = () => performance.timeOrigin + performance.now();
			const observer = new MutationObserver(() => {
				if (!queue.textContent.includes(%q)) return;
				observer.disconnect();
				const shown = at();
				requestAnimationFrame(() => setTimeout(() => resolve([shown, at()])));
			});
			observer.observe(queue, {subtree: true, childList: true, characterData: true});
		});
		return 1;
	})()`, text))
	return err
}

func (t *tab) seen(ctx context.Context) (shown, painted time.Time, err error) {
	ms, err := evalIn[[]float64](ctx, t, "window.seen")
	if err != nil {
		return shown, painted, err
	}
	return time.UnixMicro(int64(ms[0] * 1e3)), time.UnixMicro(int64(ms[1] * 1e3)), nil
}

// meter passes connections on to a gateway, and counts what comes from there.
type meter struct {
	addr     string
	target   string
	listener net.Listener
	came     atomic.Int64
	passing  sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
	ended bool
}

func startMeter(target string) (*meter, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("meter: %w", err)
	}
	m := &meter{addr: l.Addr().String(), target: target, listener: l}
	m.passing.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			m.passing.Go(func() { m.pass(conn) })
		}
	})
	return m, nil
}

// sent is how many bytes have come to the browser.
func (m *meter) sent() int64 { return m.came.Load() }

// keep notes a connection that close must close; false when it has done so already.
func (m *meter) keep(conn net.Conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ended {
		m.conns = append(m.conns, conn)
	}
	return !m.ended
}

func (m *meter) pass(front net.Conn) {
	defer front.Close()
	back, err := net.Dial("tcp4", m.target)
	if err != nil {
		return // the browser says so
	}
	defer back.Close()
	if !m.keep(front) || !m.keep(back) {
		return
	}
	m.passing.Go(func() {
		_, _ = io.Copy(back, front)
		_ = back.Close()
	})
	_, _ = io.Copy(metered{front, &m.came}, back)
}

func (m *meter) close() {
	_ = m.listener.Close()
	m.mu.Lock()
	m.ended = true
	for _, conn := range m.conns {
		_ = conn.Close()
	}
	m.mu.Unlock()
	m.passing.Wait()
}

// metered counts what is written.
type metered struct {
	io.Writer
	n *atomic.Int64
}

func (c metered) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.n.Add(int64(n))
	return n, err
}
