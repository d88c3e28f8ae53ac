package connlimit

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"lockkeeper/internal/ratelimit"
)

const (
	// grace is how long a connection may be open without having had a request before it counts as quiet, and how long a
	// request's body may take before its connection does.
	grace = time.Second
	// logEvery bounds how often refusals are logged.
	logEvery = time.Minute
	// watchAfter is how long a request may take, at most twice, before its connection is watched for a client that goes away.
	watchAfter = 20 * time.Millisecond
)

// Limits are the bounds on open connections.
type Limits struct {
	Connections int // in all
	PerAddress  int // of one address
}

// Limiter bounds the connections of one server. Make one with New.
type Limiter struct {
	limits Limits
	log    *slog.Logger
	shared func(net.Addr) bool // addresses that stand for many clients; nil: none

	mu        sync.Mutex
	open      int
	addresses map[origin]*address
	quiet     quiet
	displaced uint64
	refused   [2]uint64 // by scope
	unlogged  int
	logged    time.Time
	unwatched list        // connections with a request of HTTP/1 that has arrived whole and may not take long
	looks     *time.Timer // at unwatched; nil while it is empty
}

// address is where connections come from.
type address struct {
	open   int
	shared bool // the bound on one address does not hold
	quiet  quiet
}

// state of a connection.
type state uint8

const (
	fresh   state = iota // no request has arrived whole, or the body of the current one has not
	idle                 // it has had requests, and none is being answered
	serving              // a request that has arrived whole is being answered, or it was hijacked
	closed
)

// conn is a connection that is counted. All but the connection itself is guarded by the limiter's lock.
type conn struct {
	lazyConn
	limiter *Limiter
	from    origin
	state   state
	since   time.Time // when it became quiet
	links   [3]link   // by scope
	begun   time.Time // when its request had arrived
	body    body      // of the current request of HTTP/1; the goroutine that serves it owns this

	// multiplexed: it speaks HTTP/2, and may have several requests at the same time. asking are its requests under way, and
	// awaiting those of them whose body has not arrived whole.
	multiplexed      bool
	asking, awaiting int
}

// New makes a limiter. Refusals are logged to log.
func New(limits Limits, log *slog.Logger) *Limiter {
	return &Limiter{limits: limits, log: log, addresses: map[origin]*address{}}
}

// Share exempts addresses from the bound on one address: those of proxies, which stand for many clients. Call it before the
// first connection comes.
func (l *Limiter) Share(shared func(net.Addr) bool) { l.shared = shared }

// Bound makes a server keep to the limits when it serves what Listener returns. Call it before the server is started, when
// its handler and its ConnContext are set.
func (l *Limiter) Bound(server *http.Server) {
	next := server.Handler
	before := server.ConnContext
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if before != nil {
			ctx = before(ctx, c)
		}
		counted := counted(c)
		if counted != nil {
			ctx, counted.gone = context.WithCancel(ctx)
		}
		return context.WithValue(ctx, connKey{}, counted)
	}
	server.ConnState = func(c net.Conn, to http.ConnState) {
		if counted := counted(c); counted != nil {
			_, direct := c.(*conn)
			counted.became(to, direct)
		}
	}
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _ := r.Context().Value(connKey{}).(*conn)
		if c == nil {
			next.ServeHTTP(w, r)
			return
		}
		awaits := r.Body != nil && r.Body != http.NoBody
		if !c.asked(r.ProtoMajor == 2, awaits, time.Now()) {
			panic(http.ErrAbortHandler) // closed at this very moment: the client cannot read an answer
		}
		switch {
		case r.ProtoMajor == 2:
			own := &body{ReadCloser: r.Body, conn: c, read: !awaits}
			r.Body = own
			defer func() { c.finished(own.read, time.Now()) }()
		case awaits:
			c.body = body{ReadCloser: r.Body, conn: c}
			r.Body = &c.body
			// net/http finishes the request by the type of its own body.
			defer func() { r.Body = c.body.ReadCloser }()
		}
		next.ServeHTTP(w, r)
	})
}

type connKey struct{}

// counted is the connection that is counted, also below TLS; nil where there is none.
func counted(c net.Conn) *conn {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	found, _ := c.(*conn)
	return found
}

// Listener passes on the connections of inner for which there is room.
func (l *Limiter) Listener(inner net.Listener) net.Listener { return listener{inner, l} }

type listener struct {
	net.Listener
	limiter *Limiter
}

func (l listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if admitted := l.limiter.admit(c, time.Now()); admitted != nil {
			return admitted, nil
		}
	}
}

// admit counts a newcomer, and closes a quiet connection in its favor where there is no room. It closes the newcomer and
// returns nil when there is none.
func (l *Limiter) admit(inner net.Conn, now time.Time) net.Conn {
	c := &conn{lazyConn: lazyConn{Conn: inner}, limiter: l, from: originOf(inner.RemoteAddr()), since: now}
	victim, ok := l.enter(c, now)
	switch {
	case !ok:
		_ = inner.Close()
		l.complain(now)
		return nil
	case victim != nil:
		_ = victim.Conn.Close()
	}
	return c
}

// enter counts a newcomer; victim is the connection that has to be closed for it.
func (l *Limiter) enter(c *conn, now time.Time) (victim *conn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := l.addresses[c.from]
	full, scope := (*quiet)(nil), 0
	switch {
	case from != nil && !from.shared && from.open >= l.limits.PerAddress:
		full, scope = &from.quiet, ofAddress
	case l.open >= l.limits.Connections:
		full, scope = &l.quiet, ofAll
	}
	if full != nil {
		if victim = full.longest(now); victim == nil {
			l.refused[scope]++
			return nil, false
		}
		l.displaced++
		l.leave(victim)
		from = l.addresses[c.from] // which may have been the victim's
	}
	if from == nil {
		from = &address{shared: l.shared != nil && l.shared(c.RemoteAddr())}
		l.addresses[c.from] = from
	}
	l.open++
	from.open++
	l.place(c, fresh)
	return victim, true
}

// complain logs that newcomers were closed, unless it has done so within the last minute.
func (l *Limiter) complain(now time.Time) {
	l.mu.Lock()
	l.unlogged++
	quiet := !l.logged.IsZero() && now.Sub(l.logged) < logEvery
	n, open := l.unlogged, l.open
	if !quiet {
		l.logged, l.unlogged = now, 0
	}
	l.mu.Unlock()
	if !quiet {
		l.log.Warn("new connections were closed at once: there are as many as may be open, and each has a request under way", "closed", n,
			"open", open, "max_connections", l.limits.Connections, "max_connections_per_address", l.limits.PerAddress)
	}
}

// place puts a connection into a state, and into the lists that belong to it. mu is held.
func (l *Limiter) place(c *conn, to state) {
	from := l.addresses[c.from]
	if old := c.state; old < serving && c.listed() {
		l.quiet.remove(c, ofAll)
		from.quiet.remove(c, ofAddress)
	}
	c.state = to
	if to < serving {
		l.quiet.add(c, ofAll)
		from.quiet.add(c, ofAddress)
	}
}

// leave stops counting a connection. mu is held.
func (l *Limiter) leave(c *conn) {
	l.place(c, closed)
	l.unwatched.drop(c, ofUnwatched)
	l.open--
	from := l.addresses[c.from]
	if from.open--; from.open == 0 {
		delete(l.addresses, c.from)
	}
}

// asked begins a request: a connection whose requests all await their bodies is quiet until arrived. It is false when the
// connection has been closed in a newcomer's favor.
func (c *conn) asked(multiplexed, awaits bool, now time.Time) bool {
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	if c.state == closed {
		return false
	}
	if c.multiplexed = multiplexed; !multiplexed {
		c.asking, c.awaiting = 0, 0
	}
	c.asking++
	if awaits {
		c.awaiting++
	}
	c.replace(now)
	if !multiplexed && !awaits {
		c.limiter.watchSoon(c, now)
	}
	return true
}

// replace puts a connection into the state of its requests. mu is held.
func (c *conn) replace(now time.Time) {
	to := serving
	switch {
	case c.asking == 0:
		to = idle
	case c.asking == c.awaiting:
		to = fresh
	}
	if to != serving && (to != c.state || !c.multiplexed) { // further requests whose bodies never come buy no time
		c.since = now
	}
	if to != c.state || to != serving && c.since == now {
		c.limiter.place(c, to)
	}
}

// arrived says that a request's body is there. It is false when the connection has been closed in a newcomer's favor.
func (c *conn) arrived() bool {
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	if c.state == closed {
		return false
	}
	c.awaiting--
	c.limiter.place(c, serving)
	if !c.multiplexed {
		c.limiter.watchSoon(c, time.Now())
	}
	return true
}

// finished ends a request of HTTP/2; arrived tells whether its body had come.
func (c *conn) finished(arrived bool, now time.Time) {
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	if c.asking--; !arrived {
		c.awaiting--
	}
	if c.state != closed {
		c.replace(now)
	}
}

// answered ends a request of HTTP/1, whose body a handler need not have read. A connection of HTTP/2 is idle for net/http
// before its first request, too, and when a client has given up a request that is still being served.
func (c *conn) answered() {
	now := time.Now()
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	if c.state != closed && c.asking > 0 && !c.multiplexed {
		c.asking, c.awaiting = 0, 0
		c.since = now
		c.limiter.place(c, idle)
		c.limiter.unwatched.drop(c, ofUnwatched)
	}
}

// became follows what net/http does with a connection. direct: it reads from this very one, with no TLS in between.
func (c *conn) became(state http.ConnState, direct bool) {
	switch state {
	case http.StateActive:
		if direct {
			c.arm()
		}
	case http.StateIdle:
		c.disarm()
		c.answered()
	case http.StateHijacked:
		c.disarm()
	}
}

// watchSoon has a connection watched if its request takes longer than watchAfter. mu is held.
func (l *Limiter) watchSoon(c *conn, now time.Time) {
	l.unwatched.drop(c, ofUnwatched)
	c.begun = now
	l.unwatched.push(c, ofUnwatched)
	if l.looks == nil {
		l.looks = time.AfterFunc(watchAfter, func() { l.watchOld(time.Now()) })
	}
}

// watchOld has the connections watched whose requests have taken too long for it to be spared.
func (l *Limiter) watchOld(now time.Time) {
	var old []*conn
	l.mu.Lock()
	for c := l.unwatched.first; c != nil && now.Sub(c.begun) >= watchAfter; c = l.unwatched.first {
		l.unwatched.remove(c, ofUnwatched)
		old = append(old, c)
	}
	if l.unwatched.first != nil {
		l.looks.Reset(watchAfter)
	} else {
		l.looks = nil
	}
	l.mu.Unlock()
	for _, c := range old {
		c.startWatch() // at a request that has begun meanwhile it does no harm
	}
}

// Close closes the connection and stops counting it.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	if c.state != closed {
		c.limiter.leave(c)
	}
	return err
}

// origin is what connections are counted by: an IP address, or what the remote address says where it is none. At a Unix
// socket that is the user at the other end.
type origin struct {
	ip   netip.Addr
	name string
}

func originOf(remote net.Addr) origin {
	tcp, ok := remote.(*net.TCPAddr)
	if !ok {
		return origin{name: remote.String()}
	}
	return origin{ip: ratelimit.Network(tcp.AddrPort().Addr())}
}

// NetConn is the connection below.
func (c *conn) NetConn() net.Conn { return c.Conn }

// State is what is shown of the connections.
type State struct {
	Limits
	Open, MostOfOneAddress       int
	Displaced                    uint64 // quiet connections that were closed in a newcomer's favor
	Refused, RefusedOfOneAddress uint64 // newcomers that were closed
}

// State reads the counts.
func (l *Limiter) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := State{Limits: l.limits, Open: l.open, Displaced: l.displaced, Refused: l.refused[ofAll], RefusedOfOneAddress: l.refused[ofAddress]}
	for _, from := range l.addresses {
		if !from.shared {
			s.MostOfOneAddress = max(s.MostOfOneAddress, from.open)
		}
	}
	return s
}
