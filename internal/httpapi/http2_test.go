package httpapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"lockkeeper/internal/events"
	"lockkeeper/internal/httpapi/connlimit"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

// multiplexed is a server and one connection of HTTP/2 to it, in virtual time. What the client sends is made frame by frame.
type multiplexed struct {
	t      *testing.T
	server *Server
	http   *http.Server
	served chan error
	fake   *fake
	hub    *events.Hub

	conn    net.Conn
	framer  *http2.Framer
	headers bytes.Buffer
	encoder *hpack.Encoder
	out     chan func(*http2.Framer) error // frames to write

	mu       sync.Mutex
	read     bool // what comes is read
	acks     bool // pings are answered
	settings map[http2.SettingID]uint32
	answers  map[uint32]*streamAnswer
	goAway   *http2.ErrCode
	over     bool // the server has closed the connection
}

// streamAnswer is what came on one stream.
type streamAnswer struct {
	header map[string]string
	body   bytes.Buffer
	ended  bool
	reset  *http2.ErrCode
}

// pipes is a listener for connections within the process.
type pipes struct {
	next chan net.Conn
	once sync.Once
	done chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.next:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// overHTTP2 runs a test in virtual time with a connection that has said hello with these settings.
func overHTTP2(t *testing.T, do func(m *multiplexed), settings ...http2.Setting) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := &multiplexed{t: t, fake: newFake(), hub: events.New(events.Options{}), read: true, acks: true, settings: map[http2.SettingID]uint32{}, answers: map[uint32]*streamAnswer{}, served: make(chan error, 1)}
		hub, stop := context.WithCancel(t.Context())
		go func() { _ = m.hub.Run(hub) }()
		defer stop()
		m.server = New(Options{Locks: m.fake, Events: m.hub, Logger: slog.New(slog.DiscardHandler)})
		m.http = &http.Server{Handler: m.server, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
		Configure(m.http)
		limiter := connlimit.New(connlimit.Limits{Connections: 10, PerAddress: 10}, slog.New(slog.DiscardHandler))
		limiter.Bound(m.http)
		on := &pipes{next: make(chan net.Conn), done: make(chan struct{})}
		go func() { m.served <- m.http.Serve(limiter.Listener(on)) }()
		here, there := net.Pipe()
		on.next <- there
		m.conn, m.framer = here, http2.NewFramer(here, here)
		m.encoder = hpack.NewEncoder(&m.headers)
		m.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		go m.receive()
		m.out = make(chan func(*http2.Framer) error, 1<<16)
		go func() {
			for write := range m.out {
				_ = write(m.framer) // fails when the connection has ended, which receive notices
			}
		}()
		defer close(m.out)
		m.send(func(f *http2.Framer) error {
			_, err := io.WriteString(here, http2.ClientPreface)
			return errors.Join(err, f.WriteSettings(settings...))
		})
		synctest.Wait()
		defer func() {
			m.server.Drain()
			_ = m.conn.Close()
			_ = m.http.Close()
			m.do(func() { m.read = true })
			assert.Equal(t, <-m.served, http.ErrServerClosed)
			time.Sleep(2 * time.Second) // a connection that was told why it ends lives that long
			synctest.Wait()
			assert.Equal(t, m.server.waiting.taken.Load(), int64(0), "places of requests that wait")
			assert.Equal(t, m.server.streams.open.taken.Load(), int64(0), "places of streams")
		}()
		do(m)
	})
}

// receive reads frames until the connection ends.
func (m *multiplexed) receive() {
	for {
		m.awaitReading()
		frame, err := m.framer.ReadFrame()
		m.mu.Lock()
		if err != nil {
			m.over = true
			m.mu.Unlock()
			return
		}
		m.take(frame)
		m.mu.Unlock()
	}
}

// awaitReading returns while what comes is read.
func (m *multiplexed) awaitReading() {
	for {
		m.mu.Lock()
		read := m.read
		m.mu.Unlock()
		if read {
			return
		}
		time.Sleep(time.Second)
	}
}

// send writes a frame behind those before it.
func (m *multiplexed) send(write func(*http2.Framer) error) { m.out <- write }

// take notes a frame, and answers it where that has to be. m.mu is held.
func (m *multiplexed) take(frame http2.Frame) {
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			_ = f.ForeachSetting(func(s http2.Setting) error { m.settings[s.ID] = s.Val; return nil })
			m.send((*http2.Framer).WriteSettingsAck)
		}
	case *http2.PingFrame:
		if data := f.Data; !f.IsAck() && m.acks {
			m.send(func(f *http2.Framer) error { return f.WritePing(true, data) })
		}
	case *http2.MetaHeadersFrame:
		a := m.answer(f.StreamID)
		for _, field := range f.Fields {
			a.header[field.Name] = field.Value
		}
		a.ended = a.ended || f.StreamEnded()
	case *http2.DataFrame:
		a := m.answer(f.StreamID)
		a.body.Write(f.Data())
		a.ended = a.ended || f.StreamEnded()
	case *http2.RSTStreamFrame:
		code := f.ErrCode
		m.answer(f.StreamID).reset = &code
	case *http2.GoAwayFrame:
		code := f.ErrCode
		m.goAway = &code
	}
}

func (m *multiplexed) answer(stream uint32) *streamAnswer {
	if m.answers[stream] == nil {
		m.answers[stream] = &streamAnswer{header: map[string]string{}}
	}
	return m.answers[stream]
}

// block encodes the header of a request.
func (m *multiplexed) block(method, path string, more ...string) []byte {
	m.headers.Reset()
	all := append([]string{":method", method, ":scheme", "http", ":authority", "localhost", ":path", path}, more...)
	for i := 0; i < len(all); i += 2 {
		assert.NoError(m.t, m.encoder.WriteField(hpack.HeaderField{Name: all[i], Value: all[i+1]}))
	}
	return bytes.Clone(m.headers.Bytes())
}

// ask sends a request without a body.
func (m *multiplexed) ask(stream uint32, method, path string, more ...string) {
	block := m.block(method, path, more...)
	m.send(func(f *http2.Framer) error {
		return f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block, EndStream: true, EndHeaders: true})
	})
	synctest.Wait()
}

// got is a copy of what has come on a stream.
func (m *multiplexed) got(stream uint32) (a streamAnswer) {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	return *m.answer(stream)
}

func (m *multiplexed) wantStatus(stream uint32, status string) {
	m.t.Helper()
	a := m.got(stream)
	assert.That(m.t, a.header[":status"] == status && a.ended && a.reset == nil, "stream %d: %v, ended %v, reset %v, %s", stream, a.header, a.ended, a.reset, a.body.String())
}

func (m *multiplexed) wantReset(stream uint32, code http2.ErrCode) {
	m.t.Helper()
	a := m.got(stream)
	assert.That(m.t, a.reset != nil && *a.reset == code, "stream %d: %v, reset %v, want %v", stream, a.header, a.reset, code)
}

// closed reports whether the server has closed the connection.
func (m *multiplexed) closed() bool {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.over
}

// goodbye is the reason for which the server wants no more requests, "" as long as it does.
func (m *multiplexed) goodbye() string {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.goAway == nil {
		return ""
	}
	return m.goAway.String()
}

func (m *multiplexed) do(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

// A deadline for writing resets a stream of HTTP/2 when it passes, also when nothing is being written.
func TestOverHTTP2ARequestWaitsAsLongAsOverHTTP1(t *testing.T) {
	for name, path := range map[string]string{"acquire": "/v1/locks/a/leases?wait=1h", "lock": "/v1/locks/a?wait=5m&since=x", "lease": "/v1/leases/" + someID + "?wait=5m&since=x"} {
		t.Run(name, func(t *testing.T) {
			overHTTP2(t, func(m *multiplexed) {
				method := "GET"
				const span = 4*time.Minute + time.Second
				m.fake.lock = func(context.Context, locks.LockRequest) (locks.Lock, error) {
					time.Sleep(span)
					return locks.Lock{NS: "default", Name: "a", State: locks.LockFree, Rev: "0"}, nil
				}
				m.fake.lease = func(context.Context, locks.LeaseRequest) (locks.Lease, error) {
					time.Sleep(span)
					return held(), nil
				}
				if name == "acquire" {
					method = "POST"
					m.fake.acquire = func(context.Context, locks.AcquireRequest) (locks.AcquireResult, error) {
						time.Sleep(span)
						return locks.AcquireResult{Lease: held()}, nil
					}
				}
				m.ask(1, method, path)
				time.Sleep(span + time.Second)
				m.wantStatus(1, map[bool]string{true: "201", false: "200"}[method == "POST"])
			})
		})
	}
}

// After a wait the answer has a deadline again.
func TestOverHTTP2AnAnswerThatIsNotReadEndsAfterAWait(t *testing.T) {
	overHTTP2(t, func(m *multiplexed) {
		ended := make(chan bool)
		m.fake.acquire = func(context.Context, locks.AcquireRequest) (locks.AcquireResult, error) {
			time.Sleep(5 * time.Second)
			go func() { time.Sleep(writeTimeout + time.Second); close(ended) }()
			return locks.AcquireResult{Lease: held()}, nil
		}
		m.ask(1, "POST", "/v1/locks/a/leases?wait=1h")
		<-ended
		m.wantReset(1, http2.ErrCodeInternal)
	}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
}

func TestOverHTTP2AStreamLivesWhileNothingHappens(t *testing.T) {
	for _, format := range []string{"sse", "jsonl"} {
		overHTTP2(t, func(m *multiplexed) {
			m.ask(1, "GET", "/v1/events?format="+format)
			time.Sleep(4*time.Minute + time.Second)
			m.hub.Publish(&events.Event{Type: events.LeaseQueued, NS: "default", Lock: "late-one"})
			time.Sleep(time.Second)
			a := m.got(1)
			assert.That(t, a.header[":status"] == "200" && a.reset == nil && !a.ended && strings.Contains(a.body.String(), "late-one"), "%s: %v %v %s", format, a.header, a.reset, a.body.String())
			m.server.Drain()
			if a = m.got(1); format == "sse" {
				assert.That(t, strings.Contains(a.body.String(), gatewayStops), "%s", a.body.String())
			}
			assert.That(t, a.ended && a.reset == nil, "%s: the end: %v %v", format, a.ended, a.reset)
		})
	}
}

func TestOverHTTP2AStreamEndsWhoseClientReadsNothing(t *testing.T) {
	t.Run("by flow control", func(t *testing.T) {
		overHTTP2(t, func(m *multiplexed) {
			m.ask(1, "GET", "/v1/events")
			m.ask(3, "GET", "/v1/info")
			time.Sleep(11 * time.Second)
			m.wantReset(1, http2.ErrCodeInternal)
			assert.That(t, !m.closed() && m.server.streams.open.taken.Load() == 0, "the other requests of the connection go on")
		}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	})
	t.Run("by the connection", func(t *testing.T) {
		overHTTP2(t, func(m *multiplexed) {
			m.ask(1, "GET", "/v1/events")
			m.do(func() { m.read = false })
			time.Sleep(2*15*time.Second + stuckWithin + time.Second) // the second sign of life is not read
			synctest.Wait()
			assert.Equal(t, m.server.streams.open.taken.Load(), int64(0), "streams")
			m.do(func() { m.read = true })
			time.Sleep(2 * time.Second)
			assert.That(t, m.closed(), "the connection is open")
		})
	})
}

func TestD26HTTP2WithPriorKnowledge(t *testing.T) {
	g := serve(t)
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	response, err := client.Get(g.url + "/v1/info")
	assert.Must(t, err == nil && response.ProtoMajor == 2 && response.StatusCode == 200, "%v %+v", err, response)
	response.Body.Close()
	// A client that goes away gives its wait up, as over HTTP/1.
	asked, gone := make(chan bool, 1), make(chan bool, 1)
	g.lock = func(ctx context.Context, _ locks.LockRequest) (locks.Lock, error) {
		asked <- true
		<-ctx.Done()
		gone <- true
		return locks.Lock{}, &locks.Error{Code: locks.CodeCancelled}
	}
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "GET", g.url+"/v1/locks/x?wait=5m&since=a", nil)
	answered := make(chan error, 1)
	go func() {
		_, err := client.Do(req)
		answered <- err
	}()
	<-asked
	cancel()
	<-gone
	if err := <-answered; err == nil {
		t.Error("a request that was given up was answered")
	}
	req, _ = http.NewRequestWithContext(t.Context(), "GET", g.url+"/v1/locks", nil)
	req.Host = "evil.example"
	if response, err = client.Do(req); err != nil || response.StatusCode != 421 {
		t.Fatalf("%v %+v", err, response)
	}
	response.Body.Close()
}

// A refusal before the body is read ends the request, not the connection that other requests of the client share.
func TestARefusalEndsNoConnectionOfHTTP2(t *testing.T) {
	g := serve(t)
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	for i, path := range []string{"/v1/nothing", "/v1/locks/x/leases", "/v1/nothing", "/v1/locks/x/leases"} {
		trace := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) { assert.Equal(t, got.Reused, i > 0, path) }}
		req, _ := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), "POST", g.url+path, strings.NewReader(strings.Repeat("x", 1<<20)))
		response := assert.Value((&http.Client{Transport: transport}).Do(req))(t)
		assert.That(t, response.ProtoMajor == 2 && response.StatusCode >= 400, "%s: %+v", path, response)
		assert.NoError(t, response.Body.Close())
	}
}
