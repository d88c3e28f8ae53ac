package httpapi

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"lockkeeper/internal/auth"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/ratelimit"
	"lockkeeper/internal/traces"
)

// exchange is one request and its answer, and what the log line will say about them.
type exchange struct {
	s *Server
	incoming
	outgoing
	line logLine
	span traces.Request // none unless the gateway exports traces

	// Values of headers. net/http copies the header when it is written, which is before the exchange is used again.
	idHeader, location [1]string

	started   time.Time
	caller    auth.Caller
	acquiring *acquiring      // nil until it is used for an acquire
	place     ratelimit.Place // what it counts for its principal
	lapsed    *auth.Error     // what is wrong with the session of a page's visitor; nil for nothing
	cut       *problem        // why the caller's wait was ended; nil when it was not
	unproved  *problem        // what is wrong with the credential of a request that a lease token lets in; nil when nothing is
	operation string          // of openapi.yaml; "" when no route matched
	route     string          // the operation's pattern
	requestID string
	wait      time.Duration // how long it asks to wait
	hijacked  net.Conn      // the connection, once it is no longer net/http's
	endPage   context.CancelCauseFunc
	forgetEnd func() bool // undoes what Hijack arranged for a drain
}

func newExchange(s *Server) *exchange {
	x := &exchange{s: s}
	x.json = json.NewEncoder(&x.out)
	x.json.SetEscapeHTML(false) // no page renders this as HTML
	return x
}

func (x *exchange) begin(w http.ResponseWriter, r *http.Request) {
	x.w, x.r, x.started = w, r, time.Now()
	x.requestID = requestID(r.Header)
	h := w.Header()
	x.idHeader[0] = x.requestID
	h["Lockkeeper-Request-Id"] = x.idHeader[:]
	h["Cache-Control"] = noStore
	h["X-Content-Type-Options"] = noSniff
	h["Content-Security-Policy"] = noFrames
	h["Cross-Origin-Resource-Policy"] = sameOrigin
}

// requestID is the id that a client or a proxy has given the request, when it is well formed, else a new one.
func requestID(h http.Header) string {
	const most = 64
	given := h["X-Request-Id"]
	if len(given) != 1 || given[0] == "" || len(given[0]) > most {
		return newRequestID()
	}
	for i := range len(given[0]) {
		switch c := given[0][i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '.', c == '_', c == ':', c == '@', c == '/', c == '+', c == '~', c == '-':
		default:
			return newRequestID() // it stands in logs and in headers
		}
	}
	return given[0]
}

// newRequestID is unique among the requests of a log, and no secret.
func newRequestID() string {
	const digits = "0123456789abcdef"
	var id [16]byte
	for i, n := 0, rand.Uint64(); i < len(id); i++ {
		id[i] = digits[n&15]
		n >>= 4
	}
	return string(id[:])
}

// maxKept is the size of buffers that wait for the next request; larger ones are left to the garbage collector.
const maxKept = 16 << 10

// end runs when the handler has returned or panicked. A hijacked exchange may still be in use by the handler of the socket
// and is not used again.
func (x *exchange) end() {
	if v := recover(); v != nil {
		x.panicked(v)
	}
	if x.status == 0 {
		x.WriteHeader(http.StatusOK) // what net/http answers for a handler that wrote nothing
	}
	x.place.Leave()
	if byGuard(x.line.code, x.line.cause) {
		x.s.refused(x.line.code)
	}
	x.log()
	x.endSpan()
	x.audit()
	x.s.metrics.Request(x.operation, x.status)
	switch {
	case x.hijacked != nil:
		x.left()
	case x.buffer.Cap() <= maxKept && x.out.Cap() <= maxKept:
		if x.acquiring != nil {
			*x.acquiring = acquiring{} // it has secrets
		}
		*x = exchange{s: x.s, acquiring: x.acquiring, incoming: incoming{buffer: x.buffer}, outgoing: outgoing{out: x.out, json: x.json}, line: logLine{text: x.line.text}}
		x.s.pool.Put(x)
	}
}

// panicked answers with a problem, or cuts the connection when half an answer is out: no client may take it for a whole one.
func (x *exchange) panicked(v any) {
	if x.hijacked != nil {
		_ = x.hijacked.Close() // net/http leaves it alone
		defer x.left()
	}
	if v == http.ErrAbortHandler {
		x.endSpan()
		panic(v)
	}
	x.line.cause = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
	if x.status != 0 {
		x.line.code = codeInternal
		x.log()
		x.endSpan()
		panic(http.ErrAbortHandler)
	}
	x.problem(internal(x.line.cause))
}

// Hijack implements http.Hijacker, which WebSocket libraries ask for. From here on the exchange is its caller's: it is used
// for no other request.
func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	x.hijacked, x.status = conn, http.StatusSwitchingProtocols
	x.s.sockets.entered()
	if x.endPage != nil {
		x.forgetEnd = context.AfterFunc(x.s.drained, func() { x.endPage(errDraining) })
	}
	return conn, rw, nil
}

// left is called when the request of a hijacked connection is over.
func (x *exchange) left() {
	if x.forgetEnd != nil {
		x.forgetEnd()
	}
	x.s.sockets.left()
}

// mostBuffered is the size of an answer of which net/http itself tells the length.
const mostBuffered = 2048

// send writes the buffer, if the budget of large answers has room for it.
func (x *exchange) send(status int, contentType []string) error {
	if status == http.StatusOK && x.fresh() {
		x.WriteHeader(http.StatusNotModified)
		return nil
	}
	if counted := int64(x.out.Len()); counted > smallAnswer && status < http.StatusBadRequest && x.reads() && x.status == 0 {
		if !x.s.answers.take(counted) {
			return tooManyAnswers()
		}
		defer x.s.answers.give(counted)
	}
	h := x.Header()
	h["Content-Type"] = contentType
	body, ok := x.compressed()
	if !ok {
		body = x.out.Bytes()
	}
	if len(body) >= mostBuffered || x.r.Method == http.MethodHead {
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	x.close(status, body)
	x.WriteHeader(status)
	_, _ = x.w.Write(body) // an error means that the client is gone
	return nil
}

// answer encodes v and sends it.
func (x *exchange) answer(v any) error {
	x.encode(v)
	return x.send(http.StatusOK, typeJSON)
}

// done answers an operation that has nothing to say.
func (x *exchange) done(err error) error {
	if err == nil {
		x.WriteHeader(http.StatusNoContent)
	}
	return err
}

// confirmed sends a success that gives a client time. It is encoded by now; what it says is true only while the trust window
// is open, so that is looked at last.
func (x *exchange) confirmed(term locks.Term, status int, contentType []string) error {
	if !x.s.locks.StillValid(term) {
		return x.notConfirmed()
	}
	return x.send(status, contentType)
}

// notConfirmed is the refusal when the gateway is not trusted and the request may have been done.
func (x *exchange) notConfirmed() error {
	p := &problem{code: code(locks.CodeUnavailable), detail: "the gateway is cut off from ZooKeeper and cannot answer for the lease: repeat the request"}
	switch x.operation {
	case "Acquire", "AcquireSeveral":
		p = &problem{code: code(locks.CodeOutcomeUnknown), detail: "the gateway was cut off from ZooKeeper when the answer was ready: repeat the request, with its idempotency key"}
	case "UpdateLease", "Downgrade":
		p = &problem{code: code(locks.CodeOutcomeUnknown), detail: "the gateway was cut off from ZooKeeper when the answer was ready: repeat the request"}
	}
	return p
}

// fail answers a request that a handler has refused. What is another gateway's to answer is sent there. While the server
// drains, what ZooKeeper or the wait prevented is another gateway's to do, at once.
func (x *exchange) fail(err error) {
	if to := ownerIn(err); x.s.forwarder.may(x, to) {
		if err = x.s.forwarder.forward(x, to); err == nil {
			return
		}
	}
	p := problemOf(err)
	switch {
	case x.cut != nil && p.code == code(locks.CodeCancelled):
		p = x.cut
	case p.code == codeForbidden && x.unproved != nil:
		p = x.unproved
	case p.code == codeForbidden && x.s.auth != nil && x.caller.Kind == auth.Anonymous && x.peer == nil:
		p = credentialMissing(x)
	}
	if x.s.drained.Err() != nil && (p.code == code(locks.CodeCancelled) || p.code == code(locks.CodeUnavailable)) {
		p = draining()
	}
	x.problem(p)
}

// problem is the one place that writes problems: as JSON, or as shell lines where those were asked for.
func (x *exchange) problem(p *problem) {
	x.forget()
	x.line.code = p.code
	if p.cause != nil {
		x.line.cause = p.cause
	}
	doc := p.document()
	doc.RequestID = x.requestID
	h := x.Header()
	if p.code == codeUnauthenticated {
		x.challenge()
	}
	if wait, ok := p.retry(); ok {
		h["Retry-After"] = []string{strconv.FormatInt(retrySeconds(wait), 10)}
	}
	if x.forShell(p) {
		_ = x.send(x.encodeShell(shellFailure(p.code, doc.Status)), typeText)
		return
	}
	if x.inFleetLock() {
		x.encode(&fleetLockProblem{Kind: kindOf(p), Value: cmp.Or(doc.Detail, doc.Title), Problem: doc})
		_ = x.send(doc.Status, typeProblem)
		return
	}
	x.encode(&doc)
	if x.out.Len() > smallAnswer { // at most locks' sixteen holders: who they are stays
		for i := range doc.Holders {
			c := &doc.Holders[i]
			c.Metadata, c.Holds, c.Group = "", nil, nil
			if c.Foreign != nil {
				c.Foreign.Data, c.Foreign.Decoded = nil, nil
			}
		}
		x.encode(&doc)
	}
	_ = x.send(doc.Status, typeProblem) // a problem is always sent
}
