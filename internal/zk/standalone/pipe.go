package standalone

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// pipeBuffer is how many bytes each direction of a pipe holds before a writer waits. It is a few batches of requests, or of
// replies: what is larger than that goes through in parts.
const pipeBuffer = 256 << 10

// newPipe is a connection within the process: two ends, buffered in both directions, with deadlines. net.Pipe hands every
// write over to a reader that has to be there, which costs two changes of goroutines for each, and never lets the server read
// together what was written one after the other. A socket costs system calls. The figures are in doc.go.
func newPipe() (net.Conn, net.Conn) {
	a, b := newHalf(), newHalf()
	return &pipe{in: a, out: b}, &pipe{in: b, out: a}
}

// pipe is one end.
type pipe struct{ in, out *half }

// Read implements net.Conn. What was written before the other end closed can still be read.
func (p *pipe) Read(b []byte) (int, error) { return p.in.read(b) }

// Write implements net.Conn.
func (p *pipe) Write(b []byte) (int, error) { return p.out.write(b) }

// Close implements net.Conn.
func (p *pipe) Close() error {
	p.in.close(true)
	p.out.close(false)
	return nil
}

func (p *pipe) LocalAddr() net.Addr  { return pipeAddr{} }
func (p *pipe) RemoteAddr() net.Addr { return pipeAddr{} }

// SetDeadline implements net.Conn.
func (p *pipe) SetDeadline(t time.Time) error {
	return firstError(p.SetReadDeadline(t), p.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (p *pipe) SetReadDeadline(t time.Time) error { return p.in.setDeadline(&p.in.reading, t) }

// SetWriteDeadline implements net.Conn.
func (p *pipe) SetWriteDeadline(t time.Time) error { return p.out.setDeadline(&p.out.writing, t) }

func firstError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// pipeAddr says that the other end is in this process.
type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }

// half is one direction.
type half struct {
	mu       sync.Mutex
	readable sync.Cond // wakes readers
	writable sync.Cond // wakes writers
	buf      []byte    // what is between the ends begins at off
	off      int
	eof      bool // the writing end is closed
	broken   bool // the reading end is closed
	held     bool // a write waits for room for its rest: the others stand behind it
	reading  deadline
	writing  deadline
}

// deadline is that of one side.
type deadline struct {
	at    time.Time
	timer *time.Timer // wakes the waiting calls; waking them too often does no harm
}

func newHalf() *half {
	h := new(half)
	h.readable.L, h.writable.L = &h.mu, &h.mu
	return h
}

func (h *half) read(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		switch {
		case h.broken:
			return 0, io.ErrClosedPipe
		case h.reading.passed():
			return 0, os.ErrDeadlineExceeded
		case h.off < len(h.buf):
			n := copy(b, h.buf[h.off:])
			if h.off += n; h.off == len(h.buf) {
				h.buf, h.off = h.buf[:0], 0
			}
			h.writable.Broadcast()
			return n, nil
		case h.eof:
			return 0, io.EOF
		case len(b) == 0:
			return 0, nil
		}
		h.wait(&h.readable, &h.reading)
	}
}

// write keeps the bytes of one call together, whatever other goroutines write meanwhile.
func (h *half) write(b []byte) (n int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	holds := false
	defer func() {
		if holds {
			h.held = false
			h.writable.Broadcast()
		}
	}()
	for {
		switch {
		case h.eof || h.broken:
			return n, io.ErrClosedPipe
		case h.writing.passed():
			return n, os.ErrDeadlineExceeded
		case n == len(b):
			return n, nil
		case h.held && !holds:
			h.wait(&h.writable, &h.writing)
			continue
		}
		if room := pipeBuffer - (len(h.buf) - h.off); room > 0 {
			if h.off > 0 && len(h.buf)+min(room, len(b)-n) > cap(h.buf) {
				h.buf, h.off = h.buf[:copy(h.buf, h.buf[h.off:])], 0
			}
			m := min(room, len(b)-n)
			h.buf = append(h.buf, b[n:n+m]...)
			n += m
			h.readable.Broadcast()
			if n == len(b) {
				return n, nil
			}
			continue
		}
		holds, h.held = true, true
		h.wait(&h.writable, &h.writing)
	}
}

// wait waits until something may have changed, or the deadline has passed.
func (h *half) wait(changed *sync.Cond, d *deadline) {
	if !d.at.IsZero() {
		if left := time.Until(d.at); d.timer == nil {
			d.timer = time.AfterFunc(left, func() {
				h.mu.Lock()
				defer h.mu.Unlock()
				changed.Broadcast()
			})
		} else {
			d.timer.Reset(left)
		}
	}
	changed.Wait()
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (h *half) setDeadline(d *deadline, t time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken && d == &h.reading || h.eof && d == &h.writing {
		return io.ErrClosedPipe
	}
	d.at = t
	h.readable.Broadcast() // a waiting call looks at the new one
	h.writable.Broadcast()
	return nil
}

// close closes the reading or the writing end.
func (h *half) close(reader bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if reader {
		h.broken = true
		h.buf, h.off = nil, 0
	} else {
		h.eof = true
	}
	h.readable.Broadcast()
	h.writable.Broadcast()
}
