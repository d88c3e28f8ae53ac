package embedded

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// unreadSoft is how much unread output a connection may have before its further requests have to wait.
const unreadSoft = 1 << 20

// writeChunk is how much is written at a time: so it is noticed that a slow client reads.
const writeChunk = 64 << 10

// maxKept is the largest buffer that an idle connection holds on to.
const maxKept = 16 << 10

// outbox is what a connection is still to be sent. The core puts in, the connection's writer takes out, its reader waits for
// room. Order is kept; nothing is dropped but by the end of the connection.
type outbox struct {
	conn  net.Conn
	total *atomic.Int64 // what is unread on all connections; this one's part is pending and writing

	mu       sync.Mutex
	changed  sync.Cond
	pending  []byte
	writing  int  // bytes that the writer has taken and not yet written
	written  int  // how many times the writer has got on
	finished bool // nothing more is put in: the connection ends when all is written
	closed   bool // nothing more is written
}

func newOutbox(conn net.Conn, total *atomic.Int64) *outbox {
	o := &outbox{conn: conn, total: total}
	o.changed.L = &o.mu
	return o
}

// put adds output and tells how much is unread now. b becomes the outbox's; the core goes on with spare.
func (o *outbox) put(b []byte) (spare []byte, unread int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.finished || o.closed:
		spare = b[:0]
	case len(o.pending) == 0:
		spare, o.pending = o.pending, b
		o.total.Add(int64(len(b)))
	default:
		spare, o.pending = b[:0], append(o.pending, b...)
		o.total.Add(int64(len(b)))
	}
	o.changed.Broadcast()
	return spare, len(o.pending) + o.writing
}

// finish closes the connection once everything put so far is written, or when that has taken longer than within.
func (o *outbox) finish(within time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.finished || o.closed {
		return
	}
	o.finished = true
	// A connection that cannot take a deadline is broken: its writer will notice.
	_ = o.conn.SetWriteDeadline(time.Now().Add(within))
	o.changed.Broadcast()
}

// close closes the connection at once. What is unwritten is dropped.
func (o *outbox) close() {
	o.mu.Lock()
	first := !o.closed
	o.closed = true
	o.total.Add(-int64(len(o.pending)))
	o.pending = nil
	o.changed.Broadcast()
	o.mu.Unlock()
	if first {
		_ = o.conn.Close() // nothing could be done about it
	}
}

// unread is how many bytes wait.
func (o *outbox) unread() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.pending) + o.writing
}

// awaitRoom waits until less than unreadSoft is unread, or something has been read. open is false when the connection is
// closed.
func (o *outbox) awaitRoom() (room, open bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for before := o.written; ; o.changed.Wait() {
		room = len(o.pending)+o.writing < unreadSoft
		if o.closed || room || o.written != before {
			return room, !o.closed
		}
	}
}

// awaitClosed waits for the end of the connection.
func (o *outbox) awaitClosed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.closed {
		o.changed.Wait()
	}
}

// write is the connection's writer. It returns when the connection is closed, and closes it when it cannot be written to.
func (o *outbox) write() {
	defer o.close()
	var spare []byte
	for {
		o.mu.Lock()
		for len(o.pending) == 0 && !o.finished && !o.closed {
			o.changed.Wait()
		}
		if o.closed || len(o.pending) == 0 {
			o.mu.Unlock()
			return
		}
		b := o.pending
		o.pending, o.writing = spare[:0], len(b)
		o.mu.Unlock()

		for left := b; len(left) > 0; {
			part := left[:min(len(left), writeChunk)]
			left = left[len(part):]
			_, err := o.conn.Write(part)
			if err != nil {
				left = nil
			}
			o.mu.Lock()
			o.total.Add(int64(len(left) - o.writing))
			o.writing = len(left)
			o.written++
			o.changed.Broadcast()
			o.mu.Unlock()
			if err != nil {
				return
			}
		}
		if spare = b; cap(spare) > maxKept {
			spare = nil
		}
	}
}
