package httpapi

import (
	"bufio"
	"encoding/binary"
	"net"
	"sync"
	"time"

	"lockkeeper/internal/events"
)

// appendFrames appends each event as a WebSocket frame with one text message (RFC 6455, section 5.2). The WebSocket library
// can prepare one message for many connections, and writes each by itself; here a batch of hundreds is made once, and leaves
// for each connection in one write.
func appendFrames(b []byte, batch []*events.Event) []byte {
	const finalText, length16, length64 = 0x81, 126, 127
	b = grown(b, batch)
	for _, e := range batch {
		doc := jsonOf(e.Encoded(encodeEvent))
		doc = doc[:len(doc)-1] // without the line's end
		switch n := len(doc); {
		case n < length16:
			b = append(b, finalText, byte(n))
		case n < 1<<16:
			b = binary.BigEndian.AppendUint16(append(b, finalText, length16), uint16(n))
		default:
			b = binary.BigEndian.AppendUint64(append(b, finalText, length64), uint64(n))
		}
		b = append(b, doc...)
	}
	return b
}

// framedConn is the connection of a WebSocket to which whole frames are written beside the library. What is
// written in one call is not cut by another writer.
type framedConn struct {
	net.Conn
	mu       sync.Mutex
	deadline time.Time // of the library's next write
}

// SetWriteDeadline is for the next Write: on the connection itself it would
// change the deadline of a write that is under way.
func (c *framedConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	return nil
}

// Write implements net.Conn, for the library.
func (c *framedConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.Conn.SetWriteDeadline(c.deadline); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// writeFrames writes frames of our own. Each maxPiece bytes may take the time within.
func (c *framedConn) writeFrames(b []byte, within time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(b) > 0 {
		if err := c.Conn.SetWriteDeadline(time.Now().Add(within)); err != nil {
			return err
		}
		n, err := c.Conn.Write(b[:min(len(b), maxPiece)])
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// framingWriter hands the WebSocket library a connection to which frames can be written.
type framingWriter struct {
	*exchange
	conn *framedConn // once it is hijacked
}

// Hijack implements http.Hijacker.
func (w *framingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.exchange.Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.conn = &framedConn{Conn: conn}
	return w.conn, rw, nil
}
