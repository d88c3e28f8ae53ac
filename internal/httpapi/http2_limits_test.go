package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

// waits has each acquire of a lock wait until its client leaves, and counts those that wait.
func (m *multiplexed) waits() (now, most *atomic.Int64) {
	now, most = new(atomic.Int64), new(atomic.Int64)
	m.fake.acquire = func(ctx context.Context, req locks.AcquireRequest) (locks.AcquireResult, error) {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		if req.Wait == 0 {
			return locks.AcquireResult{Lease: held()}, nil
		}
		<-ctx.Done()
		return locks.AcquireResult{}, &locks.Error{Code: locks.CodeCancelled, Err: context.Cause(ctx)}
	}
	return now, most
}

func (m *multiplexed) reset(stream uint32) {
	m.send(func(f *http2.Framer) error { return f.WriteRSTStream(stream, http2.ErrCodeCancel) })
	synctest.Wait()
}

const aWait = "/v1/locks/a/leases?wait=1h"

func TestOverHTTP2AResetEndsAWaitAndFreesItsPlace(t *testing.T) {
	overHTTP2(t, func(m *multiplexed) {
		now, _ := m.waits()
		m.ask(1, "POST", aWait)
		m.ask(3, "POST", aWait)
		m.reset(1)
		assert.That(t, now.Load() == 1 && m.server.waiting.taken.Load() == 1, "%d wait, %d places", now.Load(), m.server.waiting.taken.Load())
		m.ask(5, "POST", "/v1/locks/a/leases")
		m.wantStatus(5, "201")
	})
}

func TestOverHTTP2AConnectionHasOneHundredRequestsAtATime(t *testing.T) {
	overHTTP2(t, func(m *multiplexed) {
		assert.Equal(t, m.settings[http2.SettingMaxConcurrentStreams], uint32(maxRequests))
		now, _ := m.waits()
		for i := range uint32(maxRequests) {
			m.ask(2*i+1, "POST", aWait)
		}
		m.ask(1001, "POST", "/v1/locks/a/leases")
		m.wantReset(1001, http2.ErrCodeProtocol) // the client has confirmed the bound
		m.reset(1)
		m.ask(1003, "POST", "/v1/locks/a/leases")
		m.wantStatus(1003, "201")
		assert.Equal(t, now.Load(), int64(maxRequests-1))
	})
}

// CVE-2023-44487: requests that are given up at once must not run without bound.
func TestOverHTTP2RequestsThatAreGivenUpAtOnceAreBounded(t *testing.T) {
	overHTTP2(t, func(m *multiplexed) {
		now, most := m.waits()
		for i := range uint32(2000) {
			stream, block := 2*i+1, m.block("POST", aWait)
			m.send(func(f *http2.Framer) error {
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block, EndStream: true, EndHeaders: true})
				return f.WriteRSTStream(stream, http2.ErrCodeCancel)
			})
		}
		synctest.Wait()
		assert.That(t, now.Load() == 0 && most.Load() <= maxRequests, "%d wait, at most %d at a time", now.Load(), most.Load())
		assert.Equal(t, m.server.waiting.taken.Load(), int64(0), "places")
	})
	t.Run("handlers that do not end", func(t *testing.T) {
		overHTTP2(t, func(m *multiplexed) {
			free, running := make(chan bool), new(atomic.Int64)
			defer close(free)
			m.fake.acquire = func(context.Context, locks.AcquireRequest) (locks.AcquireResult, error) {
				running.Add(1)
				<-free
				return locks.AcquireResult{Lease: held()}, nil
			}
			for i := range uint32(6 * maxRequests) {
				stream, block := 2*i+1, m.block("POST", "/v1/locks/a/leases")
				m.send(func(f *http2.Framer) error {
					_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block, EndStream: true, EndHeaders: true})
					return f.WriteRSTStream(stream, http2.ErrCodeCancel)
				})
			}
			synctest.Wait()
			assert.Equal(t, running.Load(), int64(maxRequests), "handlers")
			time.Sleep(2 * time.Second) // for the goodbye
			assert.That(t, m.closed() && m.goodbye() == "ENHANCE_YOUR_CALM", "closed %v, %s", m.closed(), m.goodbye())
		})
	})
}

// askInParts sends a header in several frames.
func (m *multiplexed) askInParts(stream uint32, block []byte) {
	const most = 16 << 10
	m.send(func(f *http2.Framer) error {
		first, rest := block[:min(most, len(block))], block[min(most, len(block)):]
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: first, EndStream: true, EndHeaders: len(rest) == 0})
		for len(rest) > 0 {
			part := rest[:min(most, len(rest))]
			rest = rest[len(part):]
			_ = f.WriteContinuation(stream, len(rest) == 0, part)
		}
		return nil
	})
	synctest.Wait()
}

func TestOverHTTP2AHeaderIsBounded(t *testing.T) {
	overHTTP2(t, func(m *multiplexed) {
		limit := m.settings[http2.SettingMaxHeaderListSize]
		assert.That(t, limit >= maxHeader && limit <= maxHeader+4<<10, "%d bytes are announced", limit)
		m.ask(1, "GET", "/v1/info", "x-a", strings.Repeat("a", 12<<10))
		m.wantStatus(1, "200")
		var fields []string
		for i := range 24 {
			fields = append(fields, fmt.Sprintf("x-%d", i), strings.Repeat("a", 1<<10))
		}
		m.askInParts(3, m.block("GET", "/v1/info", fields...))
		m.wantStatus(3, "431")
		m.ask(5, "GET", "/v1/info")
		m.wantStatus(5, "200")
		m.askInParts(7, m.block("GET", "/v1/info", "x-a", strings.Repeat("~", 30<<10))) // one field
		time.Sleep(2 * time.Second)
		assert.That(t, m.closed() && m.got(7).header[":status"] == "", "a field of 48 KiB: %v", m.got(7).header)
	})
	t.Run("continued without end", func(t *testing.T) { // CVE-2023-45288
		overHTTP2(t, func(m *multiplexed) {
			block := m.block("GET", "/v1/info", "x-a", strings.Repeat("~", 12<<10))
			m.send(func(f *http2.Framer) error {
				err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndStream: true})
				for range 1000 {
					if err == nil {
						err = f.WriteContinuation(1, false, bytes.Repeat([]byte{0}, 16<<10))
					}
				}
				return err
			})
			time.Sleep(2 * time.Second)
			assert.That(t, m.closed(), "the connection is open")
		})
	})
}

func TestOverHTTP2AHeaderThatComesSlowlyKeepsNoConnection(t *testing.T) {
	for name, trickle := range map[string]bool{"never": false, "byte by byte": true} {
		t.Run(name, func(t *testing.T) {
			overHTTP2(t, func(m *multiplexed) {
				m.do(func() { m.acks = false }) // no frame may come between the parts of a header
				block := m.block("GET", "/v1/info")
				m.send(func(f *http2.Framer) error {
					return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:1], EndStream: true})
				})
				for i := 1; i < len(block) && trickle; i++ {
					time.Sleep(5 * time.Second)
					part := block[i : i+1]
					m.send(func(f *http2.Framer) error { return f.WriteContinuation(1, false, part) })
				}
				time.Sleep(2*silentWithin + 5*time.Second)
				assert.That(t, m.closed() && m.got(1).header[":status"] == "", "the connection is open")
			})
		})
	}
}

func TestOverHTTP2TheWaitOfAClientThatIsGoneEnds(t *testing.T) {
	overHTTP2(t, func(m *multiplexed) {
		now, _ := m.waits()
		m.ask(1, "POST", aWait)
		time.Sleep(10 * time.Minute) // pings are answered
		assert.That(t, now.Load() == 1 && !m.closed(), "%d wait", now.Load())
		m.do(func() { m.acks = false })
		time.Sleep(2*silentWithin + 5*time.Second)
		assert.That(t, now.Load() == 0 && m.closed(), "%d wait; closed %v", now.Load(), m.closed())
	})
}

func TestOverHTTP2AnIdleConnectionEnds(t *testing.T) {
	overHTTP2(t, func(m *multiplexed) {
		m.ask(1, "GET", "/v1/info")
		time.Sleep(idleTimeout - time.Second)
		assert.That(t, !m.closed(), "it has ended early")
		time.Sleep(5 * time.Second)
		assert.That(t, m.closed() && m.goodbye() == "NO_ERROR", "closed %v, %s", m.closed(), m.goodbye())
	})
}

func TestOverHTTP2ABodyIsBounded(t *testing.T) {
	open := func(m *multiplexed, stream uint32, length string, data []byte, end bool) {
		block := m.block("POST", "/v1/locks/a/leases", "content-type", "application/json", "content-length", length)
		m.send(func(f *http2.Framer) error {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block, EndHeaders: true})
			for len(data) > 16<<10 {
				_ = f.WriteData(stream, false, data[:16<<10])
				data = data[16<<10:]
			}
			return f.WriteData(stream, end, data)
		})
		synctest.Wait()
	}
	overHTTP2(t, func(m *multiplexed) {
		open(m, 1, fmt.Sprint(maxBody+1), nil, false)
		a := m.got(1)
		assert.That(t, a.header[":status"] == "413" && strings.Contains(a.body.String(), "body_too_large"), "one that says so: %v", a.header)
		assert.That(t, m.settings[http2.SettingInitialWindowSize] <= maxBody, "a stream may send %d bytes that no handler reads", m.settings[http2.SettingInitialWindowSize])
		open(m, 3, "20", []byte(`{"ttl":`), false)
		time.Sleep(readTimeout + time.Second)
		a = m.got(3)
		assert.That(t, a.header[":status"] == "400", "one that does not come: %v %v", a.header, a.reset)
		open(m, 5, "13", []byte(`{"ttl":"30s"}`), true)
		m.wantStatus(5, "201")
	})
}

// RFC 8441 is not offered, and the headers of HTTP/1.1 for it have no place here (RFC 9113, section 8.2.2).
func TestOverHTTP2ThereAreNoWebSockets(t *testing.T) {
	overHTTP2(t, func(m *multiplexed) {
		_, offered := m.settings[http2.SettingEnableConnectProtocol]
		assert.That(t, !offered || m.settings[http2.SettingEnableConnectProtocol] == 0, "extended CONNECT is offered")
		m.ask(1, "GET", "/v1/events/ws", "sec-websocket-version", "13", "sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
		a := m.got(1)
		assert.That(t, a.header[":status"] == "426" && strings.Contains(a.body.String(), "upgrade_required"), "a plain GET: %v %s", a.header, a.body.String())
		for _, name := range []string{"connection", "upgrade", "keep-alive", "transfer-encoding"} {
			assert.That(t, a.header[name] == "", "the answer has %s: %q", name, a.header[name])
		}
		m.ask(3, "GET", "/v1/events/ws", "upgrade", "websocket", "connection", "Upgrade")
		three := m.got(3)
		assert.That(t, three.reset != nil || three.header[":status"] >= "400", "with the headers of HTTP/1.1: %v", three.header)
		m.ask(5, "CONNECT", "/v1/events/ws", ":protocol", "websocket")
		five := m.got(5)
		assert.That(t, five.reset != nil || five.header[":status"] >= "400" || m.closed(), "extended CONNECT: %v", five.header)
		assert.Equal(t, m.server.streams.open.taken.Load(), int64(0))
	})
}

// Each request that was begun is answered, the client is told to come no more, and the connection ends.
func TestOverHTTP2AShutdownLosesNoAnswer(t *testing.T) {
	overHTTP2(t, func(m *multiplexed) {
		release := make(chan bool)
		m.fake.acquire = func(ctx context.Context, req locks.AcquireRequest) (locks.AcquireResult, error) {
			select {
			case <-release:
				return locks.AcquireResult{Lease: held()}, nil
			case <-ctx.Done():
				return locks.AcquireResult{}, &locks.Error{Code: locks.CodeCancelled, Err: context.Cause(ctx)}
			}
		}
		m.ask(1, "POST", aWait)
		m.ask(3, "GET", "/v1/events")
		for stream := uint32(5); stream < 45; stream += 2 {
			m.ask(stream, "POST", "/v1/locks/a/leases") // writes under way
		}
		m.server.Drain()
		m.wantStatus(1, "503")
		m.wantStatus(3, "200")
		ended := make(chan error)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
			defer cancel()
			ended <- m.http.Shutdown(ctx)
		}()
		time.Sleep(3 * time.Second)
		assert.That(t, m.goodbye() == "NO_ERROR" && !m.closed(), "%s, closed %v", m.goodbye(), m.closed())
		m.ask(101, "POST", "/v1/locks/a/leases")
		assert.Equal(t, m.got(101).header[":status"], "", "a request after the goodbye")
		close(release)
		for stream := uint32(5); stream < 45; stream += 2 {
			m.wantStatus(stream, "201")
		}
		assert.NoError(t, <-ended)
		time.Sleep(2 * time.Second)
		assert.That(t, m.closed(), "the connection is open")
	})
}
