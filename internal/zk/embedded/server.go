package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/internal/zk/wire"
)

// Server is one ZooKeeper server. Its methods are safe for concurrent use.
type Server struct {
	cfg  Config
	core *core
	acls [][]wire.ACL // see ACLs

	// queue carries what readers hand to the core. Each connection has at most one thing in it at a time and one more at its
	// end, so no reader waits for a place.
	queue   chan item
	closing chan struct{} // closed by Close: end now
	stopped chan struct{} // closed when the core has stopped: nothing is taken from queue any more

	mu        sync.Mutex
	state     runState
	listeners map[net.Listener]struct{}
	addr      net.Addr
	conns     map[*conn]struct{}
	perIP     map[netip.Addr]int
	local     int           // how many of conns are local
	ended     chan struct{} // closed when Run has returned; nil before Run

	rejected atomic.Int64   // connections above a bound
	unread   atomic.Int64   // output that clients have not read, in bytes
	served   atomic.Bool    // Run got as far as carrying out requests
	serving  sync.WaitGroup // connections and accept loops
}

type runState int

const (
	notRun runState = iota
	running
	over
)

// ErrClosed is what Run returns after Close.
var ErrClosed = errors.New("embedded ZooKeeper: closed")

// New loads what the storage has. The server answers once Run is called.
func New(cfg Config) (*Server, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg:       cfg,
		queue:     make(chan item, 2*(cfg.MaxConns+maxLocalConns)),
		closing:   make(chan struct{}),
		stopped:   make(chan struct{}),
		listeners: make(map[net.Listener]struct{}),
		conns:     make(map[*conn]struct{}),
		perIP:     make(map[netip.Addr]int),
	}
	var err error
	if s.core, err = newCore(s); err != nil {
		return nil, err
	}
	s.acls = s.core.state.ACLs()
	return s, nil
}

// ACLs are the lists that nodes had when the storage was loaded, each once, but for ZooKeeper's own nodes. The caller must not
// write to them.
func (s *Server) ACLs() [][]wire.ACL { return s.acls }

// Run serves until ctx ends or Close is called, once in a Server's life. When ctx ends, what has reached the server is carried
// out and answered first. All connections and listeners are closed when it returns: with nil after ctx, ErrClosed after
// Close, or the storage's error.
func (s *Server) Run(ctx context.Context) error {
	s.mu.Lock()
	if s.state != notRun {
		s.mu.Unlock()
		return fmt.Errorf("%w: it runs once", ErrClosed)
	}
	s.state = running
	s.ended = make(chan struct{})
	s.mu.Unlock()
	defer close(s.ended)

	err := s.core.loop(ctx)
	s.stop(err == nil)
	return err
}

// Close ends the server at once, as pulling the plug does: unsent output is dropped. It returns when everything has stopped.
func (s *Server) Close() {
	s.mu.Lock()
	select {
	case <-s.closing:
	default:
		close(s.closing)
	}
	ended, never := s.ended, s.state == notRun
	if never {
		s.state = running // so that Run refuses
	}
	s.mu.Unlock()
	if never {
		s.stop(false)
		return
	}
	if ended != nil {
		<-ended
	}
}

// stop ends listeners, connections and their goroutines. With drain, released output still leaves.
func (s *Server) stop(drain bool) {
	s.mu.Lock()
	s.state = over
	close(s.stopped)
	for l := range s.listeners {
		_ = l.Close() // it is going away
	}
	for c := range s.conns {
		if drain {
			c.out.finish(s.cfg.DrainTimeout)
		} else {
			c.out.close()
		}
	}
	s.mu.Unlock()
	s.serving.Wait()
}

// Served says whether Run has got as far as carrying out requests: what is left of another process is over then, if that was
// asked for.
func (s *Server) Served() bool { return s.served.Load() }

// Unread is how many bytes of output clients have not taken yet.
func (s *Server) Unread() int { return int(s.unread.Load()) }

// Addr is the address of the listener that was served first; nil before.
func (s *Server) Addr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr
}

// Serve accepts connections until the server stops, and then returns nil; or until the listener fails for good. It closes
// the listener.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	s.mu.Lock()
	if s.state == over {
		s.mu.Unlock()
		return nil
	}
	s.listeners[l] = struct{}{}
	if s.addr == nil {
		s.addr = l.Addr()
	}
	s.serving.Add(1)
	s.mu.Unlock()
	defer s.serving.Done()
	defer func() {
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
	}()
	const longest = time.Second
	pause := 5 * time.Millisecond
	for {
		nc, err := l.Accept()
		if err == nil {
			pause = 5 * time.Millisecond
			s.start(nc)
			continue
		}
		select {
		case <-s.stopped:
			return nil
		default:
		}
		if errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("embedded ZooKeeper: accept: %w", err)
		}
		// Out of descriptors, most likely: it passes when connections end.
		s.cfg.Logger.Warn("cannot accept", "error", err, "pause", pause)
		select {
		case <-time.After(pause):
		case <-s.stopped:
			return nil
		}
		pause = min(2*pause, longest)
	}
}

// ServeConn serves one connection and returns when it is over. The connection is closed then.
func (s *Server) ServeConn(nc net.Conn) {
	if c := s.admit(nc, false); c != nil {
		s.serve(c)
	}
}

// ServeLocal is ServeConn for a connection that this process made to itself. Its session is a local one, and it
// passes every ACL: see doc.go. Remote connections cannot keep it out, because it does not count among MaxConns; there may
// be maxLocalConns of it.
func (s *Server) ServeLocal(nc net.Conn) {
	if c := s.admit(nc, true); c != nil {
		s.serve(c)
	}
}

// start is ServeConn on a goroutine of its own.
func (s *Server) start(nc net.Conn) {
	if c := s.admit(nc, false); c != nil {
		go s.serve(c)
	}
}

func (s *Server) serve(c *conn) {
	defer s.serving.Done()
	var writer sync.WaitGroup
	writer.Go(c.out.write)
	c.read()
	writer.Wait()
	s.dismiss(c)
}

// admit registers a connection, or closes it when there are too many or the server is over.
func (s *Server) admit(nc net.Conn, local bool) *conn {
	c := newConn(s, nc, local)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.state == over:
	case local && s.local >= maxLocalConns:
		s.cfg.Logger.Warn("too many connections within the process", "limit", maxLocalConns)
	case !local && len(s.conns)-s.local >= s.cfg.MaxConns:
		s.cfg.Logger.Warn("too many connections", "remote", c.remote, "limit", s.cfg.MaxConns)
	case c.ip.IsValid() && s.cfg.MaxConnsPerIP > 0 && s.perIP[c.ip] >= s.cfg.MaxConnsPerIP:
		s.cfg.Logger.Warn("too many connections from one address", "remote", c.remote, "limit", s.cfg.MaxConnsPerIP)
	default:
		s.conns[c] = struct{}{}
		if local {
			s.local++
		}
		if c.ip.IsValid() {
			s.perIP[c.ip]++
		}
		s.serving.Add(1)
		return c
	}
	s.rejected.Add(1)
	_ = nc.Close() // nothing was promised to it
	return nil
}

func (s *Server) dismiss(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if c.local {
		s.local--
	}
	if c.ip.IsValid() {
		if s.perIP[c.ip]--; s.perIP[c.ip] == 0 {
			delete(s.perIP, c.ip)
		}
	}
}

// connections is a copy of the list of connections.
func (s *Server) connections() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		all = append(all, c)
	}
	return all
}
