package httpapi

import (
	"context"
	"net/http"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
)

// Deadlines of a connection; Configure sets them. The one for writing counts
// anew when a request has waited.
const (
	readHeaderTimeout = 10 * time.Second
	readTimeout       = 30 * time.Second // header and body
	writeTimeout      = 30 * time.Second // the answer
	idleTimeout       = 5 * time.Minute  // clients heartbeat on kept connections
	maxHeader         = 16 << 10
	// lingerWithin is how long a connection stays open for the body of a request that was refused before it was read. A
	// connection that is closed while its client still sends is reset, and a reset may destroy the answer.
	lingerWithin = 500 * time.Millisecond
)

// Configure sets the limits of an http.Server that serves this package. The
// package's own handling of requests that wait counts on them.
func Configure(srv *http.Server) {
	srv.ReadHeaderTimeout = readHeaderTimeout
	srv.ReadTimeout = readTimeout
	// Counted by net/http from when the header has been read: a body that came
	// slowly, or not at all, must leave time for its answer.
	srv.WriteTimeout = readTimeout + writeTimeout
	srv.IdleTimeout = idleTimeout
	srv.MaxHeaderBytes = maxHeader
	srv.DisableGeneralOptionsHandler = true // OPTIONS * is guarded like the rest
}

// refuse answers before the body of a client is read. If there is a body, the connection is closed soon, also when the body never
// comes: net/http itself would wait for it until readTimeout.
func (x *exchange) refuse(p *problem) {
	if x.peer == nil && !x.bodyRead && x.r.Body != nil && x.r.Body != http.NoBody {
		x.Header()["Connection"] = []string{"close"}
		_ = http.NewResponseController(x.w).SetReadDeadline(time.Now().Add(lingerWithin)) // a recorder in a test has none
	}
	x.problem(p)
}

// park prepares a request that is about to wait: it takes one of the bounded
// places. ctx ends when the client goes away (net/http watches the connection,
// without a deadline, from when the body has been read) or the server drains.
// unpark must be called when the wait is over, before the answer is written.
func (x *exchange) park() (ctx context.Context, unpark func(), p *problem) {
	s := x.s
	if s.drained.Err() != nil {
		return nil, nil, draining()
	}
	if s.waiting.Add(1) > s.maxWaiting {
		s.waiting.Add(-1)
		return nil, nil, &problem{code: codeTooManyWaiting, detail: "ask again without wait, or later"}
	}
	s.metrics.Waiting(1)
	ctx, unheed := x.heed()
	return ctx, func() {
		unheed()
		s.waiting.Add(-1)
		s.metrics.Waiting(-1)
	}, nil
}

// heed is for what is done elsewhere while the client waits, for seconds at most: it takes no place. ctx ends as
// that of park does, and unheed must be called, too.
func (x *exchange) heed() (ctx context.Context, unheed func()) {
	ctx, cancel := context.WithCancelCause(x.r.Context())
	forget := context.AfterFunc(x.s.drained, func() { cancel(errDraining) })
	return ctx, func() {
		forget()
		cancel(nil)
		// The deadline of the request's arrival may be long past. A recorder in
		// a test has none; on a connection this cannot fail.
		_ = http.NewResponseController(x.w).SetWriteDeadline(time.Now().Add(writeTimeout))
	}
}

// confirmed sends a success that gives a client time. It is encoded by now;
// what it says is true only while the fence is open, so that is looked at last.
func (x *exchange) confirmed(term locks.Term, status int, contentType []string) {
	if !x.s.locks.StillValid(term) {
		x.notConfirmed()
		return
	}
	x.send(status, contentType)
}

// notConfirmed is the answer when something was done and cannot be vouched for.
func (x *exchange) notConfirmed() {
	h := x.Header()
	delete(h, "Location")
	delete(h, "Etag")
	delete(h, "Idempotency-Replayed")
	p := &problem{code: string(locks.CodeUnavailable), detail: "the gateway is cut off from ZooKeeper and cannot vouch for the lease: repeat the request"}
	switch x.operation {
	case "Acquire", "AcquireSeveral":
		p = &problem{code: string(locks.CodeOutcomeUnknown), detail: "the gateway was cut off from ZooKeeper when the answer was ready: repeat the request, with its idempotency key"}
	case "UpdateLease", "Downgrade":
		p = &problem{code: string(locks.CodeOutcomeUnknown), detail: "the gateway was cut off from ZooKeeper when the answer was ready: repeat the request"}
	}
	x.problem(p)
}

// millis is a span in whole milliseconds, rounded down: nobody is told more
// time than there is.
func millis(d time.Duration) int64 { return max(d, 0).Milliseconds() }

var statusOK = api.Status{Status: "ok"}
