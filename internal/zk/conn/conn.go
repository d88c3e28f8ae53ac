package conn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// ConnectAttempts bounds the attempts to get a new session. An established
// session is reconnected for as long as it lives.
const ConnectAttempts = 8

// maxReads bounds the reads of one session that are under way. One more waits for its turn or for its context.
const maxReads = 256

// Conn is one Conn of go-zookeeper and therefore one session: when ZooKeeper says that the session is expired the Conn
// is closed inside the event's callback, before the library can go on and run queued requests in a new session of its
// own making. The library's watches, its AddAuth, its event channel and its host provider are not used.
type Conn struct {
	cfg    *zk.Config
	log    *slog.Logger
	hosts  *hosts
	lib    *gozk.Conn
	wake   func()        // called on each change of state, also with mu held; must not block
	ready  chan struct{} // closed once lib is set: events wait for it
	closed chan struct{} // closed when all of the library's goroutines have ended
	reads  chan struct{} // one slot per read under way
	ctx    context.Context
	cancel context.CancelFunc // ends dialing and waiting

	closing   atomic.Bool
	libClosed chan struct{} // closed when closeLib is done

	acls     [numAccess][]gozk.ACL
	wireACLs [numAccess][]wire.ACL // the same
	lastZxid atomic.Int64

	mu        sync.Mutex
	link      *link // the connection, when there is one
	connected bool
	session   int64         // 0 until there is one
	timeout   time.Duration // negotiated
	attempts  int           // since the last handshake
	lastErr   error         // of the last attempt
	err       error         // why the session is over; final
	ended     chan struct{} // closed with err
	up        chan struct{} // closed while connected
	wasUp     bool          // there was a connection when the session ended
}

// Open starts a session and waits until there is one. wake is called whenever the state changes.
func Open(ctx context.Context, cfg *zk.Config, wake func()) (*Conn, error) {
	began := time.Now()
	c := newConn(cfg, wake)
	lib, events, err := gozk.Connect(cfg.Servers, cfg.SessionTimeout,
		gozk.WithHostProvider(c.hosts),
		gozk.WithDialer(c.dial),
		gozk.WithEventCallback(c.event),
		gozk.WithLogger(libLogger{c.log}),
		gozk.WithLogInfo(false))
	if err != nil {
		c.cancel()
		return nil, &zk.FatalError{Kind: zk.KindConfig, Err: fmt.Errorf("starting the ZooKeeper client: %w", err)}
	}
	c.attach(lib)
	go c.reap(events)
	select {
	case <-c.Up():
		cfg.Metrics.Op("connect", "ok", time.Since(began))
		return c, nil
	case <-c.ended:
		err = c.Err()
	case <-ctx.Done():
		err = fmt.Errorf("%w: %w (last attempt: %w)", zk.ErrUnavailable, context.Cause(ctx), c.lastError())
	}
	cfg.Metrics.Op("connect", "unknown", time.Since(began))
	c.End(err)
	return nil, err
}

func newConn(cfg *zk.Config, wake func()) *Conn {
	c := &Conn{
		libClosed: make(chan struct{}),
		cfg:       cfg, log: cfg.Logger, hosts: newHosts(cfg.Random), wake: wake,
		ready: make(chan struct{}), closed: make(chan struct{}), ended: make(chan struct{}), up: make(chan struct{}),
		reads: make(chan struct{}, maxReads),
	}
	if cfg.Certificate == nil || cfg.Certificate.Name() != "" {
		c.giveACLs()
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// giveACLs makes the ACLs of the nodes to come. With Config.Certificate that is when a server has said its name, and before the
// library hears of the session.
func (c *Conn) giveACLs() {
	c.acls = ACLs(c.cfg)
	for who, acls := range c.acls {
		c.wireACLs[who] = nil
		for _, a := range acls {
			c.wireACLs[who] = append(c.wireACLs[who], wire.ACL{Perms: a.Perms, Scheme: a.Scheme, ID: a.ID})
		}
	}
}

// attach lets the events through that came before the constructor returned.
func (c *Conn) attach(lib *gozk.Conn) {
	c.lib = lib
	close(c.ready)
}

// event is go-zookeeper's callback. It is ordered and lossless, unlike the library's channel. It runs on the library's
// main goroutine, and may do so before Connect has returned.
func (c *Conn) event(ev gozk.Event) {
	if ev.Type != gozk.EventSession {
		return
	}
	<-c.ready
	switch ev.State {
	case gozk.StateHasSession:
		c.online()
	case gozk.StateDisconnected:
		c.offline()
	case gozk.StateExpired:
		c.End(fmt.Errorf("%w: ZooKeeper has expired it", zk.ErrSessionGone))
		// Must happen before this function returns: see conn.
		c.closeLib()
	}
}

func (c *Conn) online() {
	c.mu.Lock()
	id := c.lib.SessionID()
	fresh := c.session == 0
	if !c.connected && c.err == nil && (fresh || c.session == id) {
		c.connected, c.session, c.attempts = true, id, 0
		c.wake() // before Open returns: nothing of the opening wakes the session later
		close(c.up)
	}
	replaced := !fresh && c.session != id
	c.mu.Unlock()
	if replaced {
		c.End(fmt.Errorf("%w: the client library has replaced it", zk.ErrSessionGone))
		c.closeLib()
		return
	}
	if fresh {
		c.log.Debug("zookeeper session established", "session", fmt.Sprintf("%#x", id))
	} else {
		c.log.Info("zookeeper connection is back", "session", fmt.Sprintf("%#x", id))
	}
}

func (c *Conn) offline() {
	c.mu.Lock()
	lost := c.connected
	if lost {
		c.connected = false
		c.up = make(chan struct{})
	}
	id := c.session
	c.mu.Unlock()
	if lost { // not when it was closed on purpose: then it no longer counts as connected
		c.log.Warn("zookeeper connection lost", "session", fmt.Sprintf("%#x", id))
	}
	c.wake()
}

// closeLib closes the library and returns when it is closed. The library has a sync.Once for it, but closing takes
// time, and waiting for that mutex would stop the clock of a test in virtual time.
func (c *Conn) closeLib() {
	if c.closing.CompareAndSwap(false, true) {
		c.lib.Close()
		close(c.libClosed)
	}
	<-c.libClosed
}

// End closes the session for the given reason, of which the first stays, and returns at once. Every request that is
// under way is answered soon; closed tells when all is over.
func (c *Conn) End(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
		c.wasUp = c.connected
		close(c.ended)
		if c.connected {
			c.connected = false
			c.up = make(chan struct{})
		}
	}
	c.mu.Unlock()
	c.wake()
}

// reap closes the library when the session is over, waits for its goroutines and frees what they used. It is this
// conn's own goroutine and ends within a few seconds of the session: the server has closeGrace to answer the close
// request, the library never waits more than three seconds for it.
func (c *Conn) reap(events <-chan gozk.Event) {
	defer close(c.closed)
	defer c.cancel()
	<-c.ended
	c.hosts.quit()
	c.mu.Lock()
	wasUp, l := c.wasUp, c.link
	c.mu.Unlock()
	if l != nil {
		l.abandon()
	}
	if !wasUp {
		// No server can be told: do not let a dial or a backoff keep the library.
		c.cancel()
	}
	libClosed := make(chan struct{})
	go func() {
		defer close(libClosed)
		c.closeLib()
	}()
	grace := time.NewTimer(closeGrace)
	defer grace.Stop()
	for events != nil || libClosed != nil {
		select {
		case _, more := <-events:
			if !more {
				events = nil
			}
		case <-libClosed:
			libClosed = nil
		case <-grace.C:
			c.cancel()
			c.Cut()
		}
	}
}

// closeGrace is how long the server has to answer the close request.
const closeGrace = time.Second

// Cut breaks the present connection; a living session reconnects.
func (c *Conn) Cut() {
	c.mu.Lock()
	l := c.link
	c.mu.Unlock()
	if l != nil {
		_ = l.Conn.Close() // the reading side abandons its transactions: the caller may hold a lock that they take
	}
}

// Over is closed when the session has ended; Err tells why.
func (c *Conn) Over() <-chan struct{} { return c.ended }

// Gone is closed when nothing of the session is left.
func (c *Conn) Gone() <-chan struct{} { return c.closed }

// Context ends with the session.
func (c *Conn) Context() context.Context { return c.ctx }

// LastZxid is the highest zxid that any answer has carried.
func (c *Conn) LastZxid() int64 { return c.lastZxid.Load() }

// Connected reports whether there is a connection at this moment.
func (c *Conn) Connected() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.connected
}

// Up is closed while there is a connection.
func (c *Conn) Up() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.up
}

// Err is why the session has ended; nil while it lives.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *Conn) lastError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lastErr == nil {
		return errors.New("no answer yet")
	}
	return c.lastErr
}

func (c *Conn) failed(err error) {
	c.mu.Lock()
	c.lastErr = err
	c.mu.Unlock()
}

// SessionID is ZooKeeper's number of the session.
func (c *Conn) SessionID() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// Timeout is the negotiated timeout, or what was asked for before the first handshake.
func (c *Conn) Timeout() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timeout == 0 {
		return c.cfg.SessionTimeout
	}
	return c.timeout
}

// handshakeLimit is how long a server may take to accept the connection and
// to answer the handshake before the next one is tried.
func (c *Conn) handshakeLimit() time.Duration { return max(time.Second, c.Timeout()/3) }

// dial is go-zookeeper's Dialer; its timeout of one second is replaced.
func (c *Conn) dial(network, addr string, _ time.Duration) (net.Conn, error) {
	if err := c.hosts.wait(c.ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.attempts++
	spent := c.session == 0 && c.attempts > ConnectAttempts
	c.mu.Unlock()
	if spent {
		err := fmt.Errorf("%w after %d attempts: %w", zk.ErrUnavailable, ConnectAttempts, c.lastError())
		c.End(err)
		return nil, err
	}
	limit := c.handshakeLimit()
	ctx, cancel := context.WithTimeout(c.ctx, limit)
	defer cancel()
	deadline := time.Now().Add(limit)
	raw, err := c.cfg.Dial(ctx, network, addr)
	if err != nil {
		c.failed(fmt.Errorf("connecting to %s: %w", addr, err))
		return nil, err
	}
	l := newLink(c, raw, addr, deadline)
	c.mu.Lock()
	c.link = l
	c.mu.Unlock()
	if c.ctx.Err() != nil { // the session ended during the dial: only this can close the connection
		_ = l.Close()
	}
	return l, nil
}

// handshaken is told by the link what the server granted.
func (c *Conn) handshaken(timeout time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if timeout > 0 {
		c.timeout = timeout
	}
}

// seen notes the zxid in the head of a reply.
func (c *Conn) seen(zxid int64) {
	for {
		old := c.lastZxid.Load()
		if zxid <= old || c.lastZxid.CompareAndSwap(old, zxid) {
			return
		}
	}
}

// libLogger makes go-zookeeper's messages debug records: what matters in them is reported by us, with a reason.
type libLogger struct{ log *slog.Logger }

func (l libLogger) Printf(format string, args ...any) {
	l.log.Debug("zookeeper client library", "detail", fmt.Sprintf(format, args...))
}
