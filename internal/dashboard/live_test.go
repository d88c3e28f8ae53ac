package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
)

const soon = 30 * time.Second // for what comes at once: a bound for a loaded machine

// server is a rig behind a real listener.
type server struct {
	*rig
	http *httptest.Server
	sent atomic.Int64 // bytes, over all connections
}

func newServer(t *testing.T, change ...func(*Dashboard)) *server {
	t.Helper()
	testkit.NoLeaks(t)
	r := newRig(t)
	for _, c := range change {
		c(r.Dashboard)
	}
	s := &server{rig: r, http: httptest.NewUnstartedServer(r)}
	s.http.Listener = countingListener{s.http.Listener, &s.sent}
	s.http.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		_ = c.(sentConn).Conn.(*net.TCPConn).SetWriteBuffer(16 << 10) // so that who does not read is noticed soon
		return ctx
	}
	s.http.Start()
	t.Cleanup(func() { r.stop(); s.http.Close() })
	testkit.Eventually(t, soon, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.running != nil
	}, "the dashboard runs")
	return s
}

// countingListener counts what its connections send.
type countingListener struct {
	net.Listener
	sent *atomic.Int64
}

func (l countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return sentConn{conn, l.sent}, nil
}

type sentConn struct {
	net.Conn
	sent *atomic.Int64
}

func (c sentConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sent.Add(int64(n))
	return n, err
}

// dial opens a page's socket.
func (s *server) dial(v page, change ...func(*websocket.Dialer, http.Header)) (*websocket.Conn, *http.Response, error) {
	dialer, header := &websocket.Dialer{HandshakeTimeout: soon}, http.Header{}
	for _, c := range change {
		c(dialer, header)
	}
	return dialer.Dial("ws"+strings.TrimPrefix(s.http.URL, "http")+liveURL(v), header)
}

// browserTab is a page in a browser, as far as the socket goes.
type browserTab struct {
	t    *testing.T
	conn *websocket.Conn
}

func (s *server) open(t *testing.T, v page) *browserTab {
	t.Helper()
	conn, _, err := s.dial(v)
	assert.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &browserTab{t, conn}
}

// read is the next message.
func (p *browserTab) read() (string, error) {
	_ = p.conn.SetReadDeadline(time.Now().Add(soon))
	kind, html, err := p.conn.ReadMessage()
	if err == nil && kind != websocket.TextMessage {
		err = fmt.Errorf("a message of kind %d", kind)
	}
	return string(html), err
}

// until reads messages until one shows what is wanted, and returns it and how many there were.
func (p *browserTab) until(want string) (html string, messages int) {
	p.t.Helper()
	for {
		html := assert.Value(p.read())(p.t, "waiting for %q", want)
		if messages++; strings.Contains(html, want) {
			return html, messages
		}
	}
}

// ends reads until the socket is closed and returns the code.
func (p *browserTab) ends() (code int) {
	for {
		if _, err := p.read(); err != nil {
			var closed *websocket.CloseError
			if errors.As(err, &closed) {
				return closed.Code
			}
			p.t.Errorf("the socket ended with %v", err)
			return 0
		}
	}
}

func TestASocketFirstBringsThePageUpToDate(t *testing.T) {
	s := newServer(t)
	s.fake.holds("somebody")
	for _, c := range []struct {
		page page
		want []string
	}{
		{overview, []string{"status", "deadlocks", "locks"}}, {deploy, []string{"status", "lock-head", "queue", "history"}}, {nodes, []string{"status", "lock-head", "nodes"}},
	} {
		p := s.open(t, c.page)
		html := assert.Value(p.read())(t)
		wantIDs(t, html, "status")
		html += assert.Value(p.read())(t)
		wantIDs(t, html, c.want...)
		assert.That(t, strings.HasPrefix(html, "<") && !strings.Contains(html, "<html"), "not fragments:\n%s", html)
	}
}

// Messages are compressed for browsers that can; what is made for one viewer is not.
func TestASocketIsCompressedForBrowsersThatAcceptIt(t *testing.T) {
	s := newServer(t)
	s.fake.manyRows()
	for _, accepts := range []bool{true, false} {
		read := &counted{}
		conn, resp, err := s.dial(overview, func(d *websocket.Dialer, _ http.Header) {
			d.EnableCompression = accepts
			d.NetDialContext = read.dial
		})
		assert.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		extensions := resp.Header.Get("Sec-WebSocket-Extensions")
		assert.That(t, strings.Contains(extensions, "permessage-deflate") == accepts && (!accepts || strings.Contains(extensions, "server_no_context_takeover")), "accepted %v: %q", accepts, extensions)
		p := &browserTab{t, conn}
		before := read.n.Load()
		p.until("status")
		html, _ := p.until("job-39")
		took := int(read.n.Load() - before)
		assert.That(t, accepts == (took < len(html)/3), "compressed %v: %d bytes came for %d", accepts, took, len(html))
	}
}

// counted counts what a connection reads.
type counted struct{ n atomic.Int64 }

func (c *counted) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	return countedConn{conn, c}, err
}

type countedConn struct {
	net.Conn
	read *counted
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.n.Add(int64(n))
	return n, err
}

// A writer of permessage-deflate takes hundreds of kilobytes: viewers must not have one each. All of them are sent the same message,
// which is compressed once.
func TestAThousandViewersShareOneCompression(t *testing.T) {
	s := newServer(t)
	s.fake.manyRows()
	const viewers = DefaultMaxViewers
	memory := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc + m.StackInuse)
	}
	before := memory()
	pages := make([]*browserTab, viewers)
	for i := range pages {
		conn, _, err := s.dial(overview, func(d *websocket.Dialer, _ http.Header) {
			d.EnableCompression, d.ReadBufferSize, d.WriteBufferSize = true, 256, 256
		})
		assert.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		pages[i] = &browserTab{t, conn}
	}
	var read sync.WaitGroup
	for round := range 3 {
		mark := fmt.Sprint("round", round, ".")
		s.fake.holds(mark)
		s.happen("deploy")
		for i := range 8 { // so many read at a time
			read.Go(func() {
				for _, p := range pages[i*viewers/8 : (i+1)*viewers/8] {
					p.until(mark)
				}
			})
		}
		read.Wait()
	}
	each := (memory() - before) / viewers
	t.Logf("%d bytes for each viewer, both ends", each)
	assert.That(t, each <= 64<<10, "a viewer takes %d bytes", each)
}

func TestAChangeReachesAnIdlePageQuickly(t *testing.T) {
	s := newServer(t)
	best := map[string]time.Duration{}
	for i := range 5 { // the best of some: the machine may be busy
		for _, v := range []page{overviewPage{ns: "default", query: fmt.Sprint(i)}, lockPage{ns: "default", lock: fmt.Sprint(i), tab: tabQueue}} {
			p := s.open(t, v)
			p.until("status")
			owner := fmt.Sprint("owner", i, v.name())
			s.fake.holds(owner)
			began := time.Now()
			subject, _ := v.own()
			s.happen(subject)
			p.until(owner)
			if took := time.Since(began); best[v.name()] == 0 || took < best[v.name()] {
				best[v.name()] = took
			}
		}
	}
	t.Logf("a change reached the sockets within %v", best)
	for page, took := range best {
		assert.That(t, took <= 50*time.Millisecond, "%s: a change took %v", page, took)
	}
}

func TestASocketForAnotherOriginIsRefused(t *testing.T) {
	s := newServer(t)
	for origin, ok := range map[string]bool{"https://evil.example": false, "null": false, s.http.URL: true} {
		conn, resp, err := s.dial(overview, func(_ *websocket.Dialer, h http.Header) { h.Set("Origin", origin) })
		if err == nil {
			_ = conn.Close()
		}
		assert.That(t, (err == nil) == ok && (ok || resp != nil && resp.StatusCode == http.StatusForbidden),
			"origin %s: %v, %+v", origin, err, resp)
	}
}

func TestTooManyViewersGet503AndRetryAfter(t *testing.T) {
	s := newServer(t, func(d *Dashboard) { d.opt.MaxViewers = 2 })
	first := s.open(t, overview)
	s.open(t, deploy)
	_, resp, err := s.dial(overview)
	assert.Must(t, err != nil && resp != nil && resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "",
		"%v, %+v", err, resp)
	if poll, err := s.http.Client().Get(s.http.URL + pollURL(overview)); err != nil || poll.StatusCode != http.StatusOK {
		t.Errorf("polling: %v, %+v", err, poll)
	} else {
		_ = poll.Body.Close()
	}
	_ = first.conn.Close()
	testkit.EventuallyNil(t, soon, func() error {
		conn, _, err := s.dial(overview)
		if err == nil {
			_ = conn.Close()
		}
		return err
	}, "there is room again")
	s.http.Client().CloseIdleConnections()
}

func TestARequestThatIsNoSocketIsRefused(t *testing.T) {
	s := newServer(t)
	if w := s.get(t, liveURL(overview)); w.Code != http.StatusUpgradeRequired || w.Header().Get("Upgrade") != "websocket" {
		t.Errorf("%d, Upgrade %q", w.Code, w.Header().Get("Upgrade"))
	}
	_, viewers := s.inUse()
	assert.That(t, viewers == 0, "it was counted as a viewer")
}

func TestAPageThatSaysSomethingIsClosed(t *testing.T) {
	s := newServer(t)
	for said, want := range map[string]int{"hello": websocket.ClosePolicyViolation} {
		p := s.open(t, overview)
		assert.NoError(t, p.conn.WriteMessage(websocket.TextMessage, []byte(said)))
		assert.Equal(t, p.ends(), want, "closed with")
	}
}

func TestThePageThatClosesIsGone(t *testing.T) {
	s := newServer(t)
	p := s.open(t, overview)
	err := p.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(soon))
	assert.NoError(t, err)
	testkit.Eventually(t, soon, func() bool { _, viewers := s.inUse(); return viewers == 0 }, "the viewer is forgotten")
}

func TestAPageThatAnswersNoPingIsClosed(t *testing.T) {
	s := newServer(t, func(d *Dashboard) { d.pongTimeout = 300 * time.Millisecond })
	dead, alive := s.open(t, deploy), s.open(t, overview)
	dead.conn.SetPingHandler(func(string) error { return nil })
	pinged := make(chan struct{}, 100)
	answer := alive.conn.PingHandler()
	alive.conn.SetPingHandler(func(data string) error {
		pinged <- struct{}{}
		return answer(data)
	})
	go func() {
		for {
			if _, _, err := alive.conn.ReadMessage(); err != nil {
				return
			}
		}
	}()
	for {
		if _, err := dead.read(); err != nil {
			break
		}
	}
	for range 5 { // well past the timeout
		testkit.Receive(t, soon, pinged, "a ping to who answers")
	}
	_, viewers := s.inUse()
	assert.That(t, viewers == 1, "%d viewers are left", viewers)
	_ = alive.conn.Close()
}

func TestDrainClosesEverySocketAndRefusesNewOnes(t *testing.T) {
	s := newServer(t)
	pages := []*browserTab{s.open(t, overview), s.open(t, deploy), s.open(t, deploy)}
	s.Drain()
	s.Drain()
	for _, p := range pages {
		assert.Equal(t, p.ends(), websocket.CloseGoingAway, "closed with")
	}
	_, resp, err := s.dial(overview)
	assert.That(t, err != nil && resp.StatusCode == http.StatusServiceUnavailable, "a new socket: %v, %+v", err, resp)
	assert.Equal(t, s.get(t, "/").Code, http.StatusOK, "a page")
}

// wide makes pages so big that a connection that is not read is soon full.
func (s *server) wide(mark string) {
	s.fake.set(func() {
		s.fake.lock = func(r locks.LockRequest) (locks.Lock, error) {
			l := locks.Lock{NS: r.NS, Name: r.Lock, State: locks.LockHeld}
			for i := range 30 {
				l.Holders = append(l.Holders, locks.Contender{Znode: fmt.Sprint("/l/deploy/", i), Owner: mark, Mode: locks.Shared, Metadata: strings.Repeat("m", 4096)})
			}
			return l, nil
		}
	})
}

// deaf is a page that never reads; its side of the connection buffers little.
func (s *server) deaf(t *testing.T, v page) {
	t.Helper()
	conn, _, err := s.dial(v, func(d *websocket.Dialer, _ http.Header) {
		d.NetDialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetReadBuffer(4096)
			}
			return c, err
		}
	})
	assert.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
}

func TestAPageThatNeverReadsIsClosedAndDelaysNoOther(t *testing.T) {
	const patience = 500 * time.Millisecond
	s := newServer(t, func(d *Dashboard) { d.writeTimeout = patience })
	s.wide("first.")
	s.deaf(t, deploy)
	good := s.open(t, deploy)
	good.until("first.")
	began := time.Now()
	for i := 0; ; i++ {
		mark := fmt.Sprint("mark", i, ".")
		s.wide(mark)
		s.happen("deploy")
		good.until(mark)
		if _, viewers := s.inUse(); viewers == 1 {
			break
		}
		assert.Must(t, time.Since(began) <= 30*time.Second, "the stuck page is still there")
	}
}

func TestDrainDoesNotWaitForAPageThatNeverReads(t *testing.T) {
	s := newServer(t) // writeTimeout is 10 s
	s.wide("first.")
	s.deaf(t, deploy)
	good := s.open(t, deploy)
	for i := range 5 { // each of more than a hundred kilobytes
		mark := fmt.Sprint("mark", i, ".")
		s.wide(mark)
		s.happen("deploy")
		good.until(mark)
	}
	began := time.Now()
	s.stop()
	took := time.Since(began)
	assert.That(t, took <= writeTimeout/2, "stopping took %v", took)
}

func TestTenThousandEventsNeitherFreezeNorGrowAPage(t *testing.T) {
	s := newServer(t)
	pages := []*browserTab{s.open(t, overview), s.open(t, deploy), s.open(t, nodes)}
	for _, p := range pages {
		p.until("status")
	}
	began := time.Now()
	const n = 10_000
	for i := range n {
		s.hub.Publish(&events.Event{Type: events.LeaseGranted, NS: "default", Lock: "deploy", Owner: fmt.Sprint("owner", i, "."), Dir: "/l/deploy", Name: fmt.Sprint("n", i, ".")})
		s.hub.Publish(&events.Event{Type: events.NodeCreated, NS: "default", Lock: "deploy", Dir: "/l/deploy", Name: fmt.Sprint("n", i, ".")})
	}
	s.fake.holds("the last")
	s.happen("deploy")
	for i, want := range []string{"the last", fmt.Sprint("owner", n-1, "."), fmt.Sprint("n", n-1, ".")} {
		html, messages := pages[i].until(want)
		assert.That(t, messages <= (int(time.Since(began)/lockPause)+3), "page %d: %d messages in %v", i, messages, time.Since(began))
		assert.That(t, len(html) <= 200_000, "page %d: a message of %d bytes", i, len(html))
	}
	t.Logf("all pages show the last state %v after the first event", time.Since(began))
}

func TestManyViewersComeAndGo(t *testing.T) {
	s := newServer(t)
	s.fake.holds("me")
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			v := []page{overview, deploy, nodes}[i%3]
			for range 5 {
				conn, _, err := s.dial(v)
				if err != nil {
					t.Errorf("dial: %v", err)
					return
				}
				_ = conn.SetReadDeadline(time.Now().Add(soon))
				_, _, err = conn.ReadMessage()
				assert.Nil(t, err, "read")
				s.happen("deploy")
				_ = conn.Close()
			}
		})
	}
	wg.Wait()
	testkit.Eventually(t, soon, func() bool { _, viewers := s.inUse(); return viewers == 0 }, "all are gone")
	testkit.Eventually(t, soon, func() bool { topics, _ := s.inUse(); return topics == 0 }, "and nothing is rendered any more")
}

func TestALateViewerGetsThePresentClock(t *testing.T) {
	withRig(t, func(t *testing.T, r *rig) {
		topic := r.watch(t, deploy)
		time.Sleep(clockEvery - tick)
		synctest.Wait()
		snap := topic.latest.Load()
		assert.Must(t, snap.seq == 1, "seq %d", snap.seq)
		got := assert.Value(snap.message(t.Context()))(t)
		want := assert.Value(renderStatus(t.Context(), snap.status, time.Now()))(t)
		assert.That(t, strings.HasPrefix(string(got), string(want)), "got\n%s\nwant first\n%s", got, want)
	})
}
