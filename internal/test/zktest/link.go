package zktest

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"lockkeeper/internal/zk/wire"
)

// Link is one connection: two pipes.
type Link struct {
	Client, Server string
	Nth            int // the how-manieth of these two it is, from 1

	way      string    // see DialBy
	dialed   time.Time // when
	n        *Network
	up, down *pipe        // requests and replies
	closed   atomic.Int32 // how many of the two ends are
}

func newLink(n *Network, client, server, way string, nth int) *Link {
	l := &Link{Client: client, Server: server, Nth: nth, way: way, dialed: time.Now(), n: n}
	l.up, l.down = newPipe(l, "up"), newPipe(l, "down")
	l.up.inspect = &inspector{link: l, sent: make(map[wire.Op]int)}
	return l
}

// Sent counts the requests of a kind that the client has written.
func (l *Link) Sent(op wire.Op) int { return l.up.inspect.count(op) }

func (l *Link) clientEnd() net.Conn { return newEnd(l, l.down, l.up, l.Client, l.Server) }
func (l *Link) serverEnd() net.Conn { return newEnd(l, l.up, l.down, l.Server, l.Client) }

// Cut breaks the connection at once. What is under way is lost, and both sides see it.
func (l *Link) Cut() {
	l.up.fail(syscall.ECONNRESET)
	l.down.fail(syscall.ECONNRESET)
	l.n.forget(l)
}

// CutClient breaks the connection for the client at once. What is under way to the server arrives there after late, all the
// same, and then the server sees the end. This is how the bytes of an old connection come after those of a new one.
func (l *Link) CutClient(late time.Duration) {
	l.down.fail(syscall.ECONNRESET)
	l.up.lastWords(late)
	l.n.forget(l)
}

// CutServer breaks the connection for the server at once; the client notices nothing until it is told, or tired of waiting.
func (l *Link) CutServer() {
	l.up.fail(syscall.ECONNRESET)
	l.down.hole()
	l.n.forget(l)
}

// Stall holds everything that is under way, in both directions, until Resume. Neither side notices. A connection that was stalled
// several times goes on at the last Resume.
func (l *Link) Stall() {
	l.up.stall(true)
	l.down.stall(true)
}

// StallReplies holds what the server says; requests arrive.
func (l *Link) StallReplies() { l.down.stall(true) }

// Resume lets go what Stall held.
func (l *Link) Resume() {
	l.up.stall(false)
	l.down.stall(false)
}

// chunk is what one Write gave, until it arrives.
type chunk struct {
	data []byte
	due  time.Time
}

// pipe is one direction of a connection. What is written arrives whole, in order, after a delay.
type pipe struct {
	link    *Link
	seed    uint64
	inspect *inspector // of requests; nil for replies

	mu      sync.Mutex
	flight  []chunk
	timer   *time.Timer
	last    time.Time // when the newest chunk is due
	written time.Time // when it was written
	stalls  int       // how often it was stalled, and not resumed
	lost    bool      // what is written goes nowhere
	arrived []byte
	over    error         // what the reader is told once arrived is empty
	broken  bool          // writing fails
	changed chan struct{} // closed and replaced when arrived or over change
}

func newPipe(l *Link, direction string) *pipe {
	return &pipe{link: l, seed: hash(l.Client, l.Server, l.Nth, l.way+direction), changed: make(chan struct{})}
}

// write takes data. It never blocks.
func (p *pipe) write(data []byte) (int, error) {
	fate := passes
	if p.inspect != nil {
		fate = p.inspect.look(data)
	}
	delay := p.link.n.delay(p.link.Client, p.link.Server)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken {
		return 0, syscall.EPIPE
	}
	switch {
	case p.lost || len(data) == 0:
		return len(data), nil
	case fate == swallowsRequest:
		return len(data), nil
	case fate == losesRequest:
		p.link.cutAt(time.Now().Add(p.draw(delay)))
		return len(data), nil
	}
	at := p.push(bytes.Clone(data), delay)
	if fate == losesReply {
		p.link.down.hole()
		p.link.cutAt(at.Add(p.draw(delay)))
	}
	return len(data), nil
}

// draw is the delay of what is written now. It depends on the time, not on how many writes there were before: whether a client
// writes two messages at once or one by one is up to the scheduler.
func (p *pipe) draw(d Delay) time.Duration {
	random := rand.New(rand.NewPCG(p.link.n.seed^p.seed, uint64(time.Now().UnixNano())))
	return d.Min + time.Duration(random.Int64N(int64(d.Max-d.Min)+1))
}

// cutAt cuts the connection at a time.
func (l *Link) cutAt(at time.Time) {
	at = l.n.slot(at)
	time.AfterFunc(time.Until(at), func() {
		l.n.leave(at)
		l.Cut()
	})
}

// schedule sets the timer for what arrives next.
func (p *pipe) schedule() {
	if p.timer == nil && len(p.flight) > 0 && p.stalls == 0 {
		p.timer = time.AfterFunc(time.Until(p.flight[0].due), p.deliver)
	}
}

// deliver hands the oldest chunk to the reader.
func (p *pipe) deliver() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = nil
	if p.stalls > 0 || len(p.flight) == 0 {
		return
	}
	c := p.flight[0]
	p.flight = p.flight[1:]
	p.link.n.leave(c.due)
	if c.data == nil {
		p.finish(io.EOF)
		return
	}
	if p.over == nil {
		p.arrived = append(p.arrived, c.data...)
		p.tell()
	}
	p.schedule()
}

// tell wakes the readers.
func (p *pipe) tell() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// finish makes this the pipe's end: the reader gets what has arrived and then err, what is under way is dropped.
func (p *pipe) finish(err error) {
	p.broken = true
	if p.over == nil {
		p.over = err
	}
	for _, c := range p.flight {
		p.link.n.leave(c.due)
	}
	p.flight = nil
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	p.tell()
}

// fail breaks the pipe; what the reader has not read is lost to it.
func (p *pipe) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arrived = nil
	p.over = err
	p.finish(err)
}

// hole makes everything that is under way, and what is still written, go nowhere.
func (p *pipe) hole() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = true
	for _, c := range p.flight {
		p.link.n.leave(c.due)
	}
	p.flight = nil
}

// lastWords lets what is under way arrive after a while, whether the pipe is stalled or not, and then the end. Nothing more can
// be written.
func (p *pipe) lastWords(late time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over != nil {
		return
	}
	said := p.broken // it has been closed meanwhile, and its end is under way, too
	p.broken, p.stalls = true, 0
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	at := time.Now().Add(late)
	for i := range p.flight {
		p.link.n.leave(p.flight[i].due)
		at = p.link.n.slot(at.Add(time.Nanosecond))
		p.flight[i].due = at
	}
	if !said {
		p.flight = append(p.flight, chunk{due: p.link.n.slot(at.Add(time.Nanosecond))})
	}
	p.schedule()
}

// bye is the writer's orderly end: the reader gets everything that is under way and then the end, when it is not stalled.
func (p *pipe) bye() {
	delay := p.link.n.delay(p.link.Client, p.link.Server)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken {
		return
	}
	p.broken = true
	p.push(nil, delay)
}

// deaf is the reader's end: nothing that comes matters any more.
func (p *pipe) deaf() {
	p.hole()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arrived = nil
	if p.over == nil {
		p.over = net.ErrClosed
	}
	p.tell()
}

// push puts something on its way: data, or nil for the end. What is written at one instant arrives at one instant.
func (p *pipe) push(data []byte, delay Delay) time.Time {
	if n := len(p.flight); n > 0 && data != nil && p.written.Equal(time.Now()) {
		c := &p.flight[n-1]
		c.data = append(c.data, data...)
		return c.due
	}
	p.written = time.Now()
	at := time.Now().Add(p.draw(delay))
	if !at.After(p.last) {
		at = p.last.Add(time.Nanosecond)
	}
	at = p.link.n.slot(at)
	p.last = at
	p.flight = append(p.flight, chunk{data, at})
	p.schedule()
	return at
}

// stall holds what is under way, or lets it go.
func (p *pipe) stall(hold bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken {
		return
	}
	before := p.stalls
	if hold {
		p.stalls++
	} else {
		p.stalls = max(p.stalls-1, 0)
	}
	if (before > 0) == (p.stalls > 0) {
		return
	}
	if hold {
		if p.timer != nil {
			p.timer.Stop()
			p.timer = nil
		}
		return
	}
	now := time.Now()
	for i := range p.flight {
		if c := &p.flight[i]; !c.due.After(now) {
			p.link.n.leave(c.due)
			now = p.link.n.slot(now.Add(time.Nanosecond))
			c.due = now
		}
	}
	p.last = later(p.last, now)
	p.schedule()
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// read waits for bytes, the end, or the deadline.
func (p *pipe) read(b []byte, deadline func() (time.Time, <-chan struct{})) (int, error) {
	for {
		p.mu.Lock()
		if len(p.arrived) > 0 {
			n := copy(b, p.arrived)
			p.arrived = p.arrived[n:]
			p.mu.Unlock()
			return n, nil
		}
		over, changed := p.over, p.changed
		p.mu.Unlock()
		if over != nil {
			return 0, over
		}
		at, moved := deadline()
		if err := await(at, moved, changed); err != nil {
			return 0, err
		}
	}
}

// await waits until one of the channels is closed or the time has come.
func await(at time.Time, moved, changed <-chan struct{}) error {
	if at.IsZero() {
		select {
		case <-changed:
		case <-moved:
		}
		return nil
	}
	left := time.Until(at)
	if left <= 0 {
		return os.ErrDeadlineExceeded
	}
	t := time.NewTimer(left)
	defer t.Stop()
	select {
	case <-changed:
	case <-moved:
	case <-t.C:
		return os.ErrDeadlineExceeded
	}
	return nil
}

// end is one side of a connection, as a net.Conn.
type end struct {
	link          *Link
	in, out       *pipe
	local, remote string

	mu       sync.Mutex
	closed   bool
	deadline time.Time     // for reading; writing never waits
	moved    chan struct{} // closed and replaced when the deadline changes
}

func newEnd(l *Link, in, out *pipe, local, remote string) *end {
	return &end{link: l, in: in, out: out, local: local, remote: remote, moved: make(chan struct{})}
}

func (e *end) Read(b []byte) (int, error) {
	n, err := e.in.read(b, e.readDeadline)
	if err != nil && e.isClosed() {
		err = net.ErrClosed
	}
	return n, err
}

func (e *end) Write(b []byte) (int, error) {
	if e.isClosed() {
		return 0, net.ErrClosed
	}
	return e.out.write(b)
}

// Close ends both directions: the other side gets what is under way to it, and then the end.
func (e *end) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return net.ErrClosed
	}
	e.closed = true
	e.mu.Unlock()
	e.in.deaf()
	e.out.bye()
	if e.link.closed.Add(1) == 2 {
		e.link.n.forget(e.link)
	}
	return nil
}

func (e *end) isClosed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

func (e *end) readDeadline() (time.Time, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.deadline, e.moved
}

func (e *end) LocalAddr() net.Addr              { return address(e.local) }
func (e *end) RemoteAddr() net.Addr             { return address(e.remote) }
func (e *end) SetWriteDeadline(time.Time) error { return nil }
func (e *end) SetDeadline(t time.Time) error    { return e.SetReadDeadline(t) }
func (e *end) SetReadDeadline(t time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deadline = t
	close(e.moved)
	e.moved = make(chan struct{})
	return nil
}
