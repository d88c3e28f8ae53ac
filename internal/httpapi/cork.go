package httpapi

import (
	"bufio"
	"net"
	"sync"
	"time"
)

// corked is a connection that can hold back what is written to it, so that the messages of a batch leave in one system
// call: gorilla/websocket writes each message by itself. To 1,000 sockets a message of a burst of 10 costs 1.5 µs of
// processor time in place of 2.4, of a burst of 100 0.9 in place of 3 (BenchmarkStreams, its clients included).
type corked struct {
	net.Conn

	// mu is held while writing: it is what makes writes come one by one, as the
	// library's own lock does, which does not know of release.
	mu       sync.Mutex
	deadline time.Time // of the next write
	held     *[]byte   // nil: nothing is held back
	until    time.Time // deadline of what is held back
}

// maxHeld is how much is held back. Buffers are shared by all sockets.
const maxHeld = 32 << 10

var heldPool = sync.Pool{New: func() any { return new(make([]byte, 0, maxHeld)) }}

// hold begins to hold back. What is held back has to be written by the deadline.
func (c *corked) hold(deadline time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held, c.until = heldPool.Get().(*[]byte), deadline
}

// release ends what hold began and writes what is left.
func (c *corked) release() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.write(*c.held, c.until)
	*c.held = (*c.held)[:0]
	heldPool.Put(c.held)
	c.held = nil
	return err
}

// SetWriteDeadline is for the next Write: on the connection itself it would
// change the deadline of a write that is under way.
func (c *corked) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	return nil
}

func (c *corked) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		return len(b), c.write(b, c.deadline)
	}
	if len(*c.held)+len(b) > maxHeld {
		err := c.write(*c.held, c.until)
		*c.held = (*c.held)[:0]
		if err != nil {
			return 0, err
		}
	}
	if len(b) > maxHeld {
		return len(b), c.write(b, c.until)
	}
	*c.held = append(*c.held, b...)
	return len(b), nil
}

func (c *corked) write(b []byte, deadline time.Time) error {
	if len(b) == 0 {
		return nil
	}
	if err := c.Conn.SetWriteDeadline(deadline); err != nil {
		return err
	}
	_, err := c.Conn.Write(b)
	return err
}

// corkingWriter hands the WebSocket library a connection that can be corked.
type corkingWriter struct {
	*exchange
	conn *corked // once it is hijacked
}

// Hijack implements http.Hijacker.
func (w *corkingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.exchange.Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.conn = &corked{Conn: conn}
	return w.conn, rw, nil
}
