package httpapi

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"
)

// Deadlines of a connection; Configure sets them. The one for writing counts anew when a request has waited.
const (
	readHeaderTimeout = 10 * time.Second
	readTimeout       = 30 * time.Second // header and body
	writeTimeout      = 30 * time.Second // the answer
	idleTimeout       = 5 * time.Minute  // clients heartbeat on kept connections
	maxHeader         = 16 << 10
	maxRequests       = 100 // of one connection of HTTP/2 at the same time
	// A connection of HTTP/2 from which nothing has come for silentWithin gets a ping, and is closed without an answer for as long:
	// its client is gone, or sends a header that does not end.
	silentWithin = 30 * time.Second
	// stuckWithin is how long such a connection may take no byte of what is written. Deadlines of its requests do not end that.
	stuckWithin = 20 * time.Second
	// lingerWithin is how long a connection stays open for the body of a request that was refused before it was read. A
	// connection that is closed while its client still sends is reset, and a reset may destroy the answer.
	lingerWithin = 500 * time.Millisecond
)

// Configure sets the limits of an http.Server that serves this package. The package's own handling of requests that wait
// counts on them.
func Configure(srv *http.Server) {
	srv.ReadHeaderTimeout = readHeaderTimeout
	srv.ReadTimeout = readTimeout
	// Counted by net/http from when the header has been read: a body that came slowly, or not at all, must leave time for
	// its answer.
	srv.WriteTimeout = readTimeout + writeTimeout
	srv.IdleTimeout = idleTimeout
	srv.MaxHeaderBytes = maxHeader
	srv.ConnContext = withConnection
	srv.DisableGeneralOptionsHandler = true // OPTIONS * is guarded like the rest
	// HTTP/2 without TLS is for clients that know it (prior knowledge). Requests of one connection count like others where
	// they wait; what a connection may hold back in memory is bounded here.
	srv.Protocols = new(http.Protocols)
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetHTTP2(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	srv.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: maxRequests, MaxReceiveBufferPerConnection: largeBody, MaxReceiveBufferPerStream: maxBody,
		SendPingTimeout: silentWithin, PingTimeout: silentWithin,
		WriteByteTimeout: stuckWithin}
}

// places bounds what there may be of one kind at the same time.
type places struct {
	limit int64
	taken atomic.Int64
}

// take reports whether there was a place; give gives it back.
func (p *places) take() bool {
	if p.taken.Add(1) > p.limit {
		p.taken.Add(-1)
		return false
	}
	return true
}

func (p *places) give() { p.taken.Add(-1) }

// refuse answers before the body of a client is read. If there is a body, the connection is closed soon, also when the body
// never comes: net/http itself would wait for it until readTimeout.
func (x *exchange) refuse(p *problem) {
	if x.peer == nil && !x.bodyRead && x.r.Body != nil && x.r.Body != http.NoBody {
		x.endConnection()
		_ = http.NewResponseController(x.w).SetReadDeadline(time.Now().Add(lingerWithin)) // a recorder in a test has none
	}
	x.problem(p)
}

// endConnection closes the connection behind the answer. Over HTTP/2 only the request ends: other requests of the client are
// on their way over the same connection.
func (x *exchange) endConnection() {
	if x.r.ProtoMajor == 1 {
		x.Header()["Connection"] = []string{"close"}
	}
}

// takePlace gives a request that is about to wait for span one of the bounded places. ctx ends when the client goes away
// (net/http watches the connection, without a deadline, from when the body has been read) or the server drains. end must
// be called when the wait is over, before the answer is written. A request that does not wait takes no place.
func (x *exchange) takePlace(span time.Duration) (ctx context.Context, end func(), err error) {
	if x.wait = span; span <= 0 {
		return x.r.Context(), func() {}, nil
	}
	return x.park()
}

func (x *exchange) park() (ctx context.Context, end func(), err error) {
	if err := x.takeWaiting(); err != nil {
		return nil, nil, err
	}
	x.noDeadline()
	ctx, unheed := x.heed()
	ctx, cut := context.WithCancelCause(ctx)
	remove := func() {}
	if !byLeaseToken(x.r) { // its right does not end with the credential
		remove = x.s.rechecks.add(&recheck{caller: x.caller, end: func(why *problem) { cut(why) }})
	}
	return ctx, func() {
		remove()
		x.cut = cutBy(ctx)
		cut(nil)
		unheed()
		x.giveWaiting()
	}, nil
}

// noDeadline takes the deadline for writing away while nothing is written. Over HTTP/2 it would reset the request when it passes;
// over HTTP/1 it holds for writes alone. A recorder in a test has none.
func (x *exchange) noDeadline() {
	if x.r.ProtoMajor > 1 {
		_ = http.NewResponseController(x.w).SetWriteDeadline(time.Time{})
	}
}

// heed is for what is done elsewhere while the client waits, for seconds at most: it takes no place. ctx ends as that of
// park does, and end must be called, too.
func (x *exchange) heed() (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(x.r.Context())
	forget := context.AfterFunc(x.s.drained, func() { cancel(errDraining) })
	return ctx, func() {
		forget()
		cancel(nil)
		x.allowTime()
	}
}
