package httpapi

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"lockkeeper/internal/events"
	"lockkeeper/internal/test/assert"
)

// What is no WebSocket frame, or none that a client may send, is answered with
// the close code of RFC 6455, section 7.4.1, and ends this stream alone.
func TestGarbageOnASocketEndsIt(t *testing.T) {
	w := watch(t, events.Options{})
	other := w.open(t, "socket")
	const mask = "\x00\x00\x00\x00"
	for name, c := range map[string]struct {
		frame string
		code  int // 0: the connection ends without one
	}{
		"a frame without a mask":         {"\x81\x03abc", websocket.CloseProtocolError},
		"reserved bits":                  {strings.Repeat("\xff", 16), websocket.CloseProtocolError},
		"a reserved opcode":              {"\x83\x80" + mask, websocket.CloseProtocolError},
		"the end of nothing":             {"\x80\x81" + mask + "a", websocket.CloseProtocolError},
		"a ping of 256 bytes":            {"\x89\xfe\x01\x00" + mask + strings.Repeat("a", 256), websocket.CloseProtocolError},
		"a request":                      {"GET / HTTP/1.1\r\n\r\n", websocket.CloseProtocolError},
		"a close frame that is no UTF-8": {"\x88\x84" + mask + "\x03\xe8\xff\xff", websocket.CloseProtocolError},
		"a message of 2^63-1 bytes":      {"\x81\xff\x7f" + strings.Repeat("\xff", 7) + mask, websocket.CloseMessageTooBig},
		"a message without an end":       {"\x01\x81" + mask + "a", websocket.CloseUnsupportedData},
		"half a frame":                   {"\x81", 0},
	} {
		conn, answer := upgraded(t, w)
		_, _ = io.WriteString(conn, c.frame)
		if c.code == 0 {
			_ = conn.(*net.TCPConn).CloseWrite()
		}
		got, err := io.ReadAll(answer)
		_ = conn.Close()
		switch {
		case err != nil:
			t.Errorf("%s: the connection stays: %v", name, err)
		case c.code == 0 && len(got) > 0, c.code != 0 && (len(got) < 4 || got[0] != 0x88 || int(binary.BigEndian.Uint16(got[2:])) != c.code):
			t.Errorf("%s: %q, want close %d", name, got, c.code)
		}
		waitFor(t, func() bool { return w.server.open.taken.Load() == 1 })
	}
	w.hub.Publish(numbered(1))
	expect(t, other, 1, 1)
}

// Each ping has to be answered: who sends them without end and reads nothing is not waited for.
func TestAFloodOfPingsEndsItsStream(t *testing.T) {
	w := watch(t, events.Options{})
	conn, _ := upgraded(t, w)
	defer conn.Close()
	flood := strings.Repeat("\x89\xfd\x00\x00\x00\x00"+strings.Repeat("a", 125), 500)
	for {
		if _, err := io.WriteString(conn, flood); err != nil {
			break
		}
	}
	waitFor(t, func() bool { return w.server.open.taken.Load() == 0 })
}

// upgraded is a connection after its handshake, which is written by hand.
func upgraded(t *testing.T, w *watched) (net.Conn, *bufio.Reader) {
	t.Helper()
	addr := strings.TrimPrefix(w.url, "http://")
	conn, err := net.Dial("tcp", addr)
	assert.NoError(t, err)
	_ = conn.SetDeadline(time.Now().Add(within))
	_, _ = fmt.Fprintf(conn, "GET /v1/events/ws HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", addr)
	answer := bufio.NewReader(conn)
	response, err := http.ReadResponse(answer, nil)
	assert.Must(t, err == nil && response.StatusCode == http.StatusSwitchingProtocols, "%v %+v", err, response)
	return conn, answer
}
