package netfault

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

// Direction is one of the two ways through a proxy.
type Direction int

// The two directions. Replies are everything the server sends, watch events too.
const (
	Requests Direction = iota // from the client to the server
	Replies                   // from the server to the client
)

func (d Direction) String() string {
	if d == Requests {
		return "request"
	}
	return "reply"
}

// mode is what happens to bytes of one direction.
type mode int

const (
	pass mode = iota
	hold
	swallow
)

// maxLinks bounds the connections through one proxy; further ones are refused.
const maxLinks = 4096

// Proxy listens on a loopback port and passes what it accepts on to its target.
type Proxy struct {
	target   string
	framed   bool
	preamble func(from, to net.Conn) error
	patience time.Duration // how long a target may refuse
	listener net.Listener
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu        sync.Mutex
	modes     [2]mode
	delays    [2]time.Duration
	refuse    bool
	closed    bool
	heals     int           // how often Heal was called; a held frame waits for the next one
	changed   chan struct{} // closed and replaced with every change of the above
	links     map[*link]struct{}
	accepted  int64
	observers []*Observer // replaced, never changed in place
}

// Option changes what a proxy understands of what it carries.
type Option func(*Proxy)

// Framed makes the proxy read ZooKeeper's client protocol: it passes on whole frames and shows them to observers. A
// connection that does not speak it (a four-letter word) is passed on as it is.
func Framed() Option { return func(p *Proxy) { p.framed = true } }

// WithPreamble lets f pass on, and change, the first bytes that a client sends; what follows is passed on as it is.
func WithPreamble(f func(from, to net.Conn) error) Option { return func(p *Proxy) { p.preamble = f } }

// WithPatience keeps trying to reach a target that refuses, for d, before the client is refused in turn. Without it the
// client of a target that is about to listen sees its connection accepted and reset, where the target would have refused
// it; some programs retry after the one and give up after the other.
func WithPatience(d time.Duration) Option { return func(p *Proxy) { p.patience = d } }

// New starts a proxy before target ("host:port") on a free port of 127.0.0.1. The target need not listen yet.
func New(target string, opts ...Option) (*Proxy, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy before %s: %w", target, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{
		target: target, listener: l, ctx: ctx, cancel: cancel,
		changed: make(chan struct{}), links: make(map[*link]struct{}),
	}
	for _, o := range opts {
		o(p)
	}
	p.running.Go(p.accept)
	return p, nil
}

// NewT is New for one test, which closes the proxy when it ends.
func NewT(t testing.TB, target string, opts ...Option) *Proxy {
	t.Helper()
	p := assert.Value(New(target, opts...))(t)
	t.Cleanup(p.Close)
	return p
}

// Addr is where the proxy listens, "127.0.0.1:port".
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Target is where it leads.
func (p *Proxy) Target() string { return p.target }

// Connections is how many connections go through the proxy now.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Held is how many reads (or frames) of one direction are in the proxy now: taken from the sender, not yet passed on.
func (p *Proxy) Held(dir Direction) int {
	n := int64(0)
	for _, l := range p.current() {
		n += l.waiting[dir].Load()
	}
	return int(n)
}

// Cut ends every connection at both ends and refuses new ones until Heal.
func (p *Proxy) Cut() {
	p.change(func() { p.refuse = true })
	p.Reset()
}

// Reset ends every connection at both ends; new ones are welcome.
func (p *Proxy) Reset() {
	for _, l := range p.current() {
		l.close()
	}
}

// CutClients ends every connection at the client's end only. What the client had sent and the proxy holds goes to the
// server when it may (Heal), and only then the server sees the end.
func (p *Proxy) CutClients() {
	for _, l := range p.current() {
		l.closeClient()
	}
}

// Stall holds everything in both directions, ends of connections too. New connections are accepted and held.
func (p *Proxy) Stall() { p.change(func() { p.modes = [2]mode{hold, hold} }) }

// StallRequests holds what clients send; replies and events go through.
func (p *Proxy) StallRequests() { p.change(func() { p.modes[Requests] = hold }) }

// StallReplies holds what the server sends; requests go through and are executed.
func (p *Proxy) StallReplies() { p.change(func() { p.modes[Replies] = hold }) }

// DropRequests swallows what clients send. The connections stay open; those that lost bytes are reset by Heal.
func (p *Proxy) DropRequests() { p.change(func() { p.modes[Requests] = swallow }) }

// DropReplies swallows what the server sends. The connections stay open; those that lost bytes are reset by Heal.
func (p *Proxy) DropReplies() { p.change(func() { p.modes[Replies] = swallow }) }

// SetDelay makes each read (or frame) of one direction arrive d after it was sent. Order is kept and throughput hardly
// suffers. It holds until it is set again; Heal does not end it.
func (p *Proxy) SetDelay(dir Direction, d time.Duration) { p.change(func() { p.delays[dir] = d }) }

// Heal ends every fault: what was held is delivered, connections with a hole are reset, new connections are welcome.
func (p *Proxy) Heal() {
	var holed []*link
	p.change(func() {
		p.modes = [2]mode{}
		p.refuse = false
		p.heals++
		for l := range p.links {
			if l.holed != [2]bool{} {
				holed = append(holed, l)
			}
		}
	})
	for _, l := range holed {
		l.close()
	}
}

// Close ends the proxy and everything that goes through it, and waits until it is gone.
func (p *Proxy) Close() {
	p.change(func() { p.closed = true })
	p.cancel()
	_ = p.listener.Close() // the only error is that it is closed
	p.Reset()
	p.running.Wait()
}

// change applies f to the state and wakes all that wait for a change.
func (p *Proxy) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) current() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	links := make([]*link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
	}
	return links
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			if p.ctx.Err() != nil {
				return
			}
			select { // out of descriptors, or a connection that ended before it was accepted
			case <-time.After(10 * time.Millisecond):
			case <-p.ctx.Done():
			}
			continue
		}
		l := newLink(p, conn.(*net.TCPConn))
		if !p.admit(l) {
			l.close()
			continue
		}
		p.running.Go(func() {
			l.run()
			p.mu.Lock()
			delete(p.links, l)
			p.mu.Unlock()
		})
	}
}

func (p *Proxy) admit(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse || p.closed || len(p.links) >= maxLinks {
		return false
	}
	p.accepted++
	l.id = p.accepted
	p.links[l] = struct{}{}
	return true
}

// noHeal is for await: no heal is waited for.
const noHeal = -1

// await blocks while a direction is held, and until there have been more than heals heals. It returns false when the link
// ends first, and when it has to end because what comes now would follow a hole.
func (p *Proxy) await(l *link, dir Direction, heals int) (mode, bool) {
	for {
		p.mu.Lock()
		m, healed, changed := p.modes[dir], p.heals > heals, p.changed
		if m == swallow {
			l.holed[dir] = true
		}
		hole := l.holed[dir]
		p.mu.Unlock()
		if m != hold && healed {
			return m, m == swallow || !hole
		}
		select {
		case <-changed:
		case <-l.done:
			return pass, false
		}
	}
}

// delayOf is the delay now in force.
func (p *Proxy) delayOf(dir Direction) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delays[dir]
}
