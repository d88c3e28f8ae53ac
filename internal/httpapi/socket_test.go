package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"lockkeeper/internal/events"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// dialSocket connects a WebSocket client without checks of its messages. The client reads nothing by itself.
func dialSocket(t *testing.T, g *gateway, path string, header http.Header) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	conn, response, err := websocket.DefaultDialer.DialContext(g.ctx, "ws"+strings.TrimPrefix(g.url, "http")+path, header)
	if conn != nil {
		t.Cleanup(func() { _ = conn.Close() })
	}
	return conn, response, err
}

func TestNothingIsExpectedFromTheClientOfASocket(t *testing.T) {
	// The library sends 4 KiB at a time: the first part of a long message may be refused before its length is known.
	for message, want := range map[string][]int{"hello": {websocket.CloseUnsupportedData}, strings.Repeat("x", 10*socketRead): {websocket.CloseUnsupportedData, websocket.CloseMessageTooBig}} {
		for _, kind := range []int{websocket.TextMessage, websocket.BinaryMessage} {
			w := watch(t, events.Options{})
			conn, _, err := dialSocket(t, w.gateway, "/v1/events/ws", nil)
			assert.NoError(t, err)
			for range 3 { // what follows the first is thrown away, and does not cut the goodbye
				_ = conn.WriteMessage(kind, []byte(message))
			}
			if _, m, err := conn.ReadMessage(); !websocket.IsCloseError(err, want...) {
				t.Errorf("after %d bytes: %v %s, want close %d", len(message), err, m, want)
			}
			waitFor(t, func() bool { return w.server.open.taken.Load() == 0 })
		}
	}
}

func TestAClientOfASocketThatDoesNotAnswerPingsIsGone(t *testing.T) {
	w := watch(t, events.Options{})
	w.server.keepalive, w.server.pong = 5*time.Millisecond, 5*time.Millisecond
	if _, _, err := dialSocket(t, w.gateway, "/v1/events/ws", nil); err != nil { // reads nothing, so it sends no pong
		t.Fatal(err)
	}
	waitFor(t, func() bool { return w.server.open.taken.Load() == 1 })
	waitFor(t, func() bool { return w.server.open.taken.Load() == 0 })
	// One that answers stays, for many spans.
	w.server.pong = 500 * time.Millisecond
	s := w.open(t, "socket")
	done := make(chan error, 1)
	go func() {
		_, err := s.Next()
		done <- err
	}()
	waitFor(t, func() bool { return s.Keepalives.Load() > 150 })
	w.hub.Publish(numbered(1))
	assert.Nil(t, <-done)
}

func TestAPingOfTheClientIsAnswered(t *testing.T) {
	w := watch(t, events.Options{})
	conn, _, err := dialSocket(t, w.gateway, "/v1/events/ws", nil)
	assert.NoError(t, err)
	pong := make(chan string, 1)
	conn.SetPongHandler(func(data string) error { pong <- data; return nil })
	assert.NoError(t, conn.WriteControl(websocket.PingMessage, []byte("are you there"), time.Now().Add(within)))
	w.hub.Publish(numbered(1))
	go func() {
		for {
			if _, _, err := conn.ReadMessage(); err != nil {
				return
			}
		}
	}()
	assert.Equal(t, <-pong, "are you there")
}

func TestWhatIsNoHandshakeIsAProblem(t *testing.T) {
	w := watch(t, events.Options{})
	upgrade := func(more ...apitest.Option) []apitest.Option {
		return append(opt(apitest.Header("Connection", "Upgrade"), apitest.Header("Upgrade", "websocket"),
			apitest.Header("Sec-WebSocket-Version", "13"), apitest.Header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")), more...)
	}
	for what, c := range map[string]struct {
		method  string
		options []apitest.Option
		status  int
		code    string
	}{
		"no upgrade":      {"GET", nil, 426, "upgrade_required"},
		"another upgrade": {"GET", upgrade(apitest.Header("Upgrade", "h2c")), 426, "upgrade_required"},
		"an old version":  {"GET", upgrade(apitest.Header("Sec-WebSocket-Version", "8")), 426, "upgrade_required"},
		"HEAD":            {"HEAD", upgrade(), 426, ""},
		"no key":          {"GET", upgrade(apitest.Header("Sec-WebSocket-Key", "")), 400, "malformed_request"},
		"a short key":     {"GET", upgrade(apitest.Header("Sec-WebSocket-Key", "abc")), 400, "malformed_request"},
		"another origin":  {"GET", upgrade(apitest.Header("Origin", "http://evil.example")), 403, "cross_origin"},
		"another host":    {"GET", upgrade(host("evil.example")), 421, "host_not_allowed"},
	} {
		a := w.send(t, c.method, "/v1/events/ws", c.options...)
		assert.That(t, a.Status == c.status && a.Code() == c.code, "%s: %d %s", what, a.Status, a.Body)
		assert.That(t, a.Status != 426 || a.Header.Get("Upgrade") == "websocket" && a.Header.Get("Sec-WebSocket-Version") == "13",
			"%s: %v", what, a.Header)
	}
	assert.Equal(t, w.server.open.taken.Load(), 0, "places are still taken")
}

// The upgrader looks at the origin, too: a second lock behind the guard.
func TestASocketOfAnotherOriginIsRefusedWithoutTheGuard(t *testing.T) {
	w := watch(t, events.Options{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NoError(t, err)
	srv := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		x := newExchange(w.server)
		x.begin(rw, r)
		if err := w.server.watchEventsSocket(x); err != nil {
			x.fail(err)
		}
	})}
	go func() { _ = srv.Serve(listener) }()
	defer srv.Close()
	header := http.Header{"Origin": {"http://evil.example"}}
	_, response, err := websocket.DefaultDialer.Dial("ws://"+listener.Addr().String()+"/v1/events/ws", header)
	if err == nil || response == nil || response.StatusCode != 403 || response.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%v %+v", err, response)
	}
}

func TestAClientThatGoesAwayEndsItsStream(t *testing.T) {
	eachForm(t, func(t *testing.T, form string) {
		w := watch(t, events.Options{})
		s := w.open(t, form)
		waitFor(t, func() bool { return w.server.open.taken.Load() == 1 })
		s.Close()
		waitFor(t, func() bool { return w.server.open.taken.Load() == 0 })
	})
}

// One that never reads is dropped; neither another subscriber nor the publisher waits for it.
func TestASubscriberThatNeverReadsDelaysNoOther(t *testing.T) {
	for form, request := range map[string]string{
		"sse":    "GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"jsonl":  "GET /v1/events?format=jsonl HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"socket": "GET /v1/events/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
	} {
		t.Run(form, func(t *testing.T) {
			log := new(lines)
			w := watch(t, events.Options{}, logTo(t, log, slog.LevelInfo))
			w.server.streams.write = 2 * time.Second
			stuck, err := net.Dial("tcp", w.url[len("http://"):])
			assert.NoError(t, err)
			defer stuck.Close()
			_ = stuck.(*net.TCPConn).SetReadBuffer(4 << 10)
			if _, err := io.WriteString(stuck, request); err != nil {
				t.Fatal(err)
			}
			if _, err := bufio.NewReaderSize(stuck, 16).ReadByte(); err != nil {
				t.Fatal(err)
			}
			const n = 50
			other := w.open(t, form)
			waitFor(t, func() bool { return w.server.open.taken.Load() == 2 })
			big := strings.Repeat("x", 100<<10) // together more than the system takes for one connection
			var slowest time.Duration
			for i := range n {
				e := numbered(i)
				e.Dir = big
				began := time.Now()
				w.hub.Publish(e)
				slowest = max(slowest, time.Since(began))
				got := next(t, other)
				assert.Must(t, got.Owner == fmt.Sprint(i), "got %s, want %d", got.Owner, i)
			}
			assert.That(t, slowest < w.server.streams.write, "the publisher waited for %s", slowest)
			waitFor(t, func() bool { return w.server.open.taken.Load() == 1 })
			line := log.next(t)
			assert.That(t, line["error"] != nil, "the log does not tell why it ended: %v", line)
			w.hub.Publish(numbered(n))
			expect(t, other, n, n)
		})
	}
}

// In virtual time, with the deadlines that the gateway really has: a stream of hours is not cut.
func TestAStreamOutlivesTheConnectionsDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := events.New(events.Options{})
		ctx, cancel := context.WithCancel(context.Background())
		go func() { _ = hub.Run(ctx) }()
		listener := pipe()
		server := New(Options{Locks: newFake(), Events: hub})
		srv := &http.Server{Handler: server}
		Configure(srv)
		go func() { _ = srv.Serve(listener) }()
		conn := listener.dial()
		reader := bufio.NewReader(conn)
		if _, err := io.WriteString(conn, "GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(reader, nil)
		assert.NoError(t, err)
		began := time.Now()
		time.AfterFunc(5*time.Hour, func() { hub.Publish(numbered(1)) })
		body := bufio.NewReader(response.Body)
		signs := 0
		for {
			line, err := body.ReadString('\n')
			assert.Must(t, err == nil, "cut after %s: %v", time.Since(began), err)
			if line == ": keepalive\n" {
				signs++
			}
			if line == "event: lease.granted\n" {
				break
			}
		}
		want := int(5 * time.Hour / (15 * time.Second))
		assert.That(t, signs >= want-1 && signs <= want, "%d signs of life in 5h, want %d", signs, want)
		got := time.Since(began)
		assert.That(t, got >= 5*time.Hour && got <= 5*time.Hour+2*events.WakePause, "the event came after %s", got)
		// It does not read any more: one write may take 10 s, not more.
		hub.Publish(numbered(2))
		time.Sleep(10*time.Second + time.Second)
		assert.That(t, server.open.taken.Load() == 0, "who does not read is still there")
		_ = conn.Close()
		cancel()
		_ = srv.Close()
		synctest.Wait()
	})
}

// Frames leave in as few writes as a deadline for each allows.
func TestABatchLeavesInOneWrite(t *testing.T) {
	for n, want := range map[int]string{0: "[]", 60: "[60]", maxPiece: fmt.Sprint([]int{maxPiece}), 2*maxPiece + 1: fmt.Sprint([]int{maxPiece, maxPiece, 1})} {
		writes := []int{}
		c := &framedConn{Conn: &countingConn{writes: &writes}}
		assert.NoError(t, c.writeFrames(make([]byte, n), within))
		assert.Equal(t, fmt.Sprint(writes), want, "%d bytes", n)
	}
	c := &framedConn{Conn: &countingConn{writes: new([]int), err: io.ErrShortWrite}}
	assert.ErrorIs(t, c.writeFrames(make([]byte, 3), within), io.ErrShortWrite, "an error is lost")
}

// The lengths of a frame have three forms. The library, as the client, is the judge.
func TestAnEventOfAnyLengthIsOneMessage(t *testing.T) {
	w := watch(t, events.Options{})
	conn, _, err := dialSocket(t, w.gateway, "/v1/events/ws", nil)
	assert.NoError(t, err)
	for n := 1; n < 1<<16; n++ {
		if n == 100 { // one member is as long as that; from here on to the other edge
			n = 1<<16 - 200
		}
		name := strings.Repeat("g", n)
		w.hub.Publish(&events.Event{Type: events.GatewayLeft, Gateway: name})
		kind, message, err := conn.ReadMessage()
		assert.NoError(t, err)
		var got struct{ Gateway string }
		assert.NoError(t, json.Unmarshal(message, &got))
		assert.That(t, kind == websocket.TextMessage && got.Gateway == name, "a message of kind %d with %d bytes of %d", kind, len(got.Gateway), n)
	}
}

// countingConn notes the sizes of writes.
type countingConn struct {
	net.Conn
	writes *[]int
	err    error
}

func (c *countingConn) Write(b []byte) (int, error) {
	*c.writes = append(*c.writes, len(b))
	return len(b), c.err
}
func (c *countingConn) SetWriteDeadline(time.Time) error { return nil }
