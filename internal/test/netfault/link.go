package netfault

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	queueUnits = 256      // reads or frames that wait in one direction of one connection; then the kernel holds the rest
	readSize   = 32 << 10 // one read of a connection without frames
	maxFrame   = 16 << 20 // a longer "frame" is none: the connection is passed on as bytes
)

// unit is one read or one frame on its way; end says that the stream ends here, with data before it or not.
type unit struct {
	data  []byte
	frame bool
	at    time.Time
	end   bool
}

// link is one connection through a proxy.
type link struct {
	p      *Proxy
	id     int64
	client *net.TCPConn
	done   chan struct{} // closed with the link
	holed  [2]bool       // bytes of this direction were swallowed; guarded by p.mu

	waiting [2]atomic.Int64 // reads or frames of each direction that are here

	mu     sync.Mutex
	server *net.TCPConn // nil until dialed
	closed bool
}

func newLink(p *Proxy, client *net.TCPConn) *link {
	return &link{p: p, client: client, done: make(chan struct{})}
}

// close ends both sides now. The client sees a reset, so that it cannot take the end for an orderly one.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	close(l.done)
	_ = l.client.SetLinger(0) // errors of a connection that is being thrown away
	_ = l.client.Close()
	if l.server != nil {
		_ = l.server.Close()
	}
}

// closeClient ends the client's side only, or all when there is no other side yet.
func (l *link) closeClient() {
	l.mu.Lock()
	if l.server == nil {
		l.mu.Unlock()
		l.close()
		return
	}
	defer l.mu.Unlock()
	_ = l.client.SetLinger(0)
	_ = l.client.Close()
}

// run dials, carries both directions and returns when both have ended.
func (l *link) run() {
	defer l.close()
	if _, ok := l.p.await(l, Requests, noHeal); !ok { // a held connection does not reach the server either
		return
	}
	conn, err := l.dial()
	if err != nil {
		return
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		_ = conn.Close()
		return
	}
	l.server = conn.(*net.TCPConn)
	l.mu.Unlock()
	if l.p.preamble != nil {
		if err := l.p.preamble(l.client, l.server); err != nil {
			return
		}
	}
	var flows sync.WaitGroup
	for _, f := range []*flow{
		{link: l, dir: Requests, from: l.client, to: l.server, queue: make(chan unit, queueUnits)},
		{link: l, dir: Replies, from: l.server, to: l.client, queue: make(chan unit, queueUnits)},
	} {
		flows.Go(f.read)
		flows.Go(f.write)
	}
	flows.Wait()
}

func (l *link) dial() (net.Conn, error) {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	deadline := time.Now().Add(l.p.patience)
	for {
		conn, err := dialer.DialContext(l.p.ctx, "tcp", l.p.target)
		if err == nil || !time.Now().Before(deadline) {
			return conn, err
		}
		again := time.NewTimer(10 * time.Millisecond)
		select {
		case <-again.C:
		case <-l.done:
			again.Stop()
			return nil, errLinkEnds
		}
	}
}

// flow is one direction of a link.
type flow struct {
	*link
	dir      Direction
	from, to *net.TCPConn
	queue    chan unit
	index    int // frames so far; the writer's
}

// read fills the queue. An error counts as the end of the stream: what was read before it is still passed on.
func (f *flow) read() {
	next := f.nextRead
	if f.p.framed {
		next = f.frames()
	}
	for {
		u := next()
		u.at = time.Now()
		if len(u.data) > 0 {
			f.waiting[f.dir].Add(1)
		}
		select {
		case f.queue <- u:
		case <-f.done:
			return
		}
		if u.end {
			return
		}
	}
}

func (f *flow) nextRead() unit {
	buf := make([]byte, readSize)
	n, err := f.from.Read(buf)
	return unit{data: buf[:n], end: err != nil}
}

// frames returns a function that reads frame by frame, until something is no frame; from there on it passes on bytes.
func (f *flow) frames() func() unit {
	r := bufio.NewReaderSize(f.from, readSize)
	bytesOnly := false
	return func() unit {
		if !bytesOnly {
			head, err := r.Peek(4)
			if err == nil {
				if size := binary.BigEndian.Uint32(head); size <= maxFrame {
					data := make([]byte, 4+size)
					n, err := io.ReadFull(r, data)
					return unit{data: data[:n], frame: err == nil, end: err != nil}
				}
			}
			bytesOnly = true
		}
		buf := make([]byte, readSize)
		n, err := r.Read(buf)
		return unit{data: buf[:n], end: err != nil}
	}
}

var errLinkEnds = errors.New("the link ends")

// write empties the queue. Once the far side cannot be written to, the rest is thrown away: the other direction may
// still have something to deliver, and ends by itself.
func (f *flow) write() {
	deaf := false
	for {
		var u unit
		select {
		case u = <-f.queue:
		case <-f.done:
			return
		}
		data, err := f.passOn(u)
		if err != nil {
			f.close()
			return
		}
		if len(u.data) > 0 {
			f.waiting[f.dir].Add(-1) // before the far side can see that it is held no more
		}
		if !deaf && len(data) > 0 {
			_, err := f.to.Write(data)
			deaf = err != nil
		}
		if u.end {
			_ = f.to.CloseWrite() // fails when the far side is gone, which is what it is to learn
			return
		}
	}
}

// passOn waits as long as the unit has to, shows it to the observers and returns what of it is to be written. An error
// means that the link ends.
func (f *flow) passOn(u unit) ([]byte, error) {
	if d := f.p.delayOf(f.dir) - time.Since(u.at); d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-f.done:
			return nil, errLinkEnds
		}
	}
	m, ok := f.p.await(f.link, f.dir, noHeal)
	if !ok {
		return nil, errLinkEnds
	}
	index := f.index
	if u.frame {
		f.index++
	}
	if m == swallow {
		return nil, nil
	}
	if !u.frame {
		return u.data, nil
	}
	action, heals := f.p.observe(Frame{Conn: f.id, Dir: f.dir, Index: index, Raw: u.data})
	switch action {
	case Forward:
		return u.data, nil
	case Swallow:
		return nil, nil
	case Hold:
		if _, ok := f.p.await(f.link, f.dir, heals); !ok {
			return nil, errLinkEnds
		}
		return u.data, nil
	case Cut:
		return nil, errLinkEnds
	}
	panic("netfault: unknown action")
}
