package connlimit

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// lazyConn is a connection that spares net/http most of what it does for a request that is answered at once: eight deadlines,
// nearly all of them replaced before they are due, and a read in a goroutine of its own that notices a client that goes away.
//
// A deadline is handed to the connection only when a read or a write would otherwise outlast it. One that the connection still has from
// an earlier request may end a read or a write too soon: that goes on under the deadline that was asked for.
//
// The read that notices is of one byte. The first one of a request is answered with nothing, which ends it. When the request
// takes longer than watchAfter, watch reads in its place. The byte or the error that it gets is what the next read returns.
type lazyConn struct {
	net.Conn
	gone context.CancelFunc // ends the requests of the connection

	mu       sync.Mutex // guards what follows; not held while data is read or written
	read     deadline
	write    deadline
	readers  int // reads under way, and the watch
	writers  int
	armed    bool // the next read of one byte is the one that notices a client that goes away
	deferred bool // that read was answered with nothing, and none has come since
	watch    watch
}

// deadline is one of a connection's two. The zero time is none.
type deadline struct{ asked, set time.Time }

// late reports whether the deadline that is set comes after the one that was asked for.
func (d *deadline) late() bool {
	return !d.asked.IsZero() && (d.set.IsZero() || d.set.After(d.asked))
}

// early reports whether the deadline that is set comes before the one that was asked for.
func (d *deadline) early() bool {
	return !d.set.IsZero() && (d.asked.IsZero() || d.asked.After(d.set))
}

// watch is a read that notices when the client of a long request goes away.
type watch struct {
	on, stopping bool
	over         chan struct{} // closed when it is over
	some         bool          // it has read a byte:
	ahead        [1]byte
	err          error // the connection has ended
}

// past is a deadline that ends what is under way.
var past = time.Unix(1, 0)

func (c *lazyConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *lazyConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read.asked = t
	if c.readers > 0 && c.read.late() {
		return c.setRead(t)
	}
	return nil
}

func (c *lazyConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.write.asked = t
	if c.writers > 0 && c.write.late() {
		return c.setWrite(t)
	}
	return nil
}

// setRead hands a deadline to the connection. mu is held.
func (c *lazyConn) setRead(t time.Time) error {
	c.read.set = t
	return c.Conn.SetReadDeadline(t)
}

func (c *lazyConn) setWrite(t time.Time) error {
	c.write.set = t
	return c.Conn.SetWriteDeadline(t)
}

func (c *lazyConn) Read(p []byte) (n int, err error) {
	if n, err, done := c.beginRead(p); done {
		return n, err
	}
	for {
		n, err = c.Conn.Read(p)
		if !c.readAgain(n, err) {
			return n, err
		}
	}
}

// beginRead is done when the read need not reach the connection. It ends the watch: the next read gets what that has read.
func (c *lazyConn) beginRead(p []byte) (n int, err error, done bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(p) == 1 && c.armed {
		c.armed, c.deferred = false, true
		return 0, nil, true
	}
	c.endWatch()
	switch {
	case c.watch.some && len(p) > 0:
		c.watch.some = false
		return copy(p, c.watch.ahead[:]), nil, true
	case c.watch.err != nil:
		return 0, c.watch.err, true
	}
	c.deferred = false // net/http reads: two reads at a time could take each other's bytes
	c.readers++
	if c.read.late() {
		_ = c.setRead(c.read.asked) // the read tells what is wrong with the connection
	}
	return 0, nil, false
}

// readAgain ends a read, unless a deadline has ended it too soon.
func (c *lazyConn) readAgain(n int, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && c.read.early() && c.setRead(c.read.asked) == nil {
		return true
	}
	c.readers--
	return false
}

func (c *lazyConn) Write(p []byte) (written int, err error) {
	c.mu.Lock()
	c.writers++
	if c.write.late() {
		_ = c.setWrite(c.write.asked) // the write tells what is wrong with the connection
	}
	c.mu.Unlock()
	for {
		n, err := c.Conn.Write(p[written:])
		written += n
		if !c.writeAgain(err) {
			return written, err
		}
	}
}

// writeAgain ends a write, unless a deadline has ended it too soon.
func (c *lazyConn) writeAgain(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(err, os.ErrDeadlineExceeded) && c.write.early() && c.setWrite(c.write.asked) == nil {
		return true
	}
	c.writers--
	return false
}

// arm has the next read of one byte answered with nothing, if net/http reads from this very connection: with TLS in between no
// read is of one byte.
func (c *lazyConn) arm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = true
}

// disarm has no watch begin any more: the request has been answered, or its connection was hijacked. The next read ends one that is on.
func (c *lazyConn) disarm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed, c.deferred = false, false
}

// startWatch takes the place of the read that was answered with nothing. When that has not come yet, it will read itself.
func (c *lazyConn) startWatch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = false
	if w := &c.watch; c.deferred && !w.on && !w.some && w.err == nil {
		c.deferred, w.on, w.over = false, true, make(chan struct{})
		c.readers++
		go c.runWatch(w.over)
	}
}

// runWatch reads until there is a byte, the connection ends, or endWatch ends it.
func (c *lazyConn) runWatch(over chan struct{}) {
	defer close(over)
	var b [1]byte
	for {
		n, err := c.Conn.Read(b[:])
		if c.watched(b[:n], err) {
			return
		}
	}
}

// watched keeps what the watch has read. It reports whether the watch is over.
func (c *lazyConn) watched(b []byte, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := &c.watch
	timeout := errors.Is(err, os.ErrDeadlineExceeded)
	if len(b) == 0 && (err == nil || timeout && !w.stopping && c.read.early() && c.setRead(c.read.asked) == nil) {
		return false
	}
	c.readers--
	w.on = false
	switch {
	case len(b) > 0:
		w.some, w.ahead[0] = true, b[0]
	case !timeout:
		w.err = err
		c.gone()
	}
	return true
}

// endWatch returns when no watch is under way. mu is held.
func (c *lazyConn) endWatch() {
	if !c.watch.on {
		return
	}
	c.watch.stopping = true
	_ = c.setRead(past)
	over := c.watch.over
	c.mu.Unlock()
	<-over
	c.mu.Lock()
	c.watch.stopping = false
}
