package embedded

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"lockkeeper/internal/zk/embedded/state"
	"lockkeeper/internal/zk/wire"
)

// conn is one connection. Its reader runs read, its writer runs out.write.
type conn struct {
	s      *Server
	nc     net.Conn
	ip     netip.Addr // invalid for a pipe
	remote string
	local  bool // it was made by this process: see ServeLocal
	out    *outbox
	// back brings each burst back to the reader once it is carried out. It has one place, and one burst is out at a time.
	back chan burst

	received, sent atomic.Int64 // frames, for stat

	// The core's.
	peer    *state.Conn
	session *session // nil before the handshake and after the end
	over    bool     // nothing that still comes from it counts
	batch   []byte   // output of the present batch
	ending  ending
	touched bool // it is among the batch's dirty connections
	flooded bool // the events of one batch alone were more than it may leave unread: it gets nothing more and is closed
}

// ending says what becomes of a connection when the present batch is released.
type ending int

const (
	staysOpen ending = iota
	endsAfterOutput
	endsAtOnce
)

// tellEvery is how often the core is told that a client reads whose requests wait.
const tellEvery = 100 * time.Millisecond

// burst is a run of whole frames, each behind its length.
type burst struct {
	whole []byte // the buffer, to be read into again
	rest  []byte // what is still to be carried out
}

// item is what a reader hands to the core.
type item struct {
	c  *conn
	at int64 // when it came, in milliseconds of the core's monotonic time
	// One of these; none means that the connection is gone.
	frames  burst
	connect *wire.ConnectRequest
	word    string
	alive   bool // the client reads
}

func newConn(s *Server, nc net.Conn, local bool) *conn {
	c := &conn{s: s, nc: nc, local: local, out: newOutbox(nc, &s.unread), back: make(chan burst, 1), remote: nc.RemoteAddr().String()}
	if addr, err := netip.ParseAddrPort(c.remote); err == nil {
		c.ip = addr.Addr().Unmap().WithZone("")
	}
	identity := "127.0.0.1" // what is in this process is on this machine
	if c.ip.IsValid() {
		identity = c.ip.String()
	}
	c.peer = state.NewConn(identity)
	if local {
		c.peer = state.NewSuper(identity) // the process owns the store
	}
	c.peer.Deliver = func(event wire.WatcherEvent) { s.core.event(c, event) }
	return c
}

// read is the connection's reader, from its first byte to its end.
func (c *conn) read() {
	defer c.out.close()
	if err := c.nc.SetReadDeadline(time.Now().Add(c.s.cfg.HandshakeTimeout)); err != nil {
		return
	}
	var first [4]byte
	if _, err := io.ReadFull(c.nc, first[:]); err != nil {
		return
	}
	if isWord(first[:]) {
		if c.submit(item{word: string(first[:])}) {
			c.out.awaitClosed() // by the writer, when the answer is out; the client may have closed its side by now
		}
		return
	}
	frames := wire.NewFrameReader(io.MultiReader(bytes.NewReader(first[:]), c.nc), c.s.cfg.MaxFrame)
	frame, err := frames.Next()
	if err != nil {
		c.note(err)
		return
	}
	request := new(wire.ConnectRequest)
	d := wire.NewDecoder(frame)
	if request.Decode(d); d.Err() != nil {
		c.note(d.Err())
		return
	}
	request.Passwd = bytes.Clone(request.Passwd) // it was a view into what is read next
	if err := c.nc.SetReadDeadline(time.Time{}); err != nil {
		return
	}
	if !c.submit(item{connect: request}) {
		return
	}
	defer c.submit(item{}) // gone
	c.requests(frames)
}

// requests hands over bursts, one at a time, until the connection ends.
func (c *conn) requests(frames *wire.FrameReader) {
	var spare []byte
	for c.settle(&spare) { // first the connect request: it comes back like a burst
		next, err := frames.Burst(spare)
		if err != nil {
			c.note(err)
			return
		}
		if !c.submit(item{frames: burst{next, next}}) {
			return
		}
	}
}

// settle waits until the burst that is out is carried out to its end, handing in what was put off when there is room for its
// replies. It is false when the connection or the server ends first.
func (c *conn) settle(spare *[]byte) bool {
	for {
		var b burst
		select {
		case b = <-c.back:
		case <-c.s.stopped:
			return false
		}
		if len(b.rest) == 0 {
			*spare = b.whole
			return true
		}
		if !c.awaitRoom() || !c.submit(item{frames: b}) {
			return false
		}
	}
}

// awaitRoom waits until the client has read enough, and lets the core know that it reads: its pings are waiting, too.
func (c *conn) awaitRoom() bool {
	told := c.s.core.elapsed()
	for {
		room, open := c.out.awaitRoom()
		if room || !open {
			return open
		}
		if now := c.s.core.elapsed(); now-told >= tellEvery.Milliseconds() {
			told = now
			if !c.submit(item{alive: true}) {
				return false
			}
		}
	}
}

// submit hands something to the core. It is false when the server has stopped.
func (c *conn) submit(it item) bool {
	it.c, it.at = c, c.s.core.elapsed()
	select {
	case c.s.queue <- it:
		return true
	case <-c.s.stopped:
		return false
	}
}

// note logs why a connection is given up, unless it just ended.
func (c *conn) note(err error) {
	if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.ErrClosedPipe) {
		c.s.cfg.Logger.Debug("connection given up", "remote", c.remote, "error", err)
	}
}

// isWord says whether a connection's first four bytes are a four-letter word that ZooKeeper knows, and not a length.
func isWord(first []byte) bool {
	_, known := words[binary.BigEndian.Uint32(first)]
	return known
}
