package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"lockkeeper/internal/fleet"
	"lockkeeper/internal/locks"
)

// exchange is one request and its answer, and what the log line will say about
// them. It is the http.ResponseWriter that handlers see, pages and WebSocket
// libraries included.
type exchange struct {
	request

	s    *Server
	body bytes.Buffer // of the request
	out  bytes.Buffer // of the answer
	json *json.Encoder
	// attrs is the log line's, kept for the next request.
	attrs []slog.Attr
}

// request is what an exchange knows about one request.
type request struct {
	w       http.ResponseWriter
	r       *http.Request
	started time.Time

	operation string // of openapi.yaml; "" when no route matched
	requestID string
	status    int // 0 until the header is written
	code      code
	cause     error
	quiet     bool     // it comes all the time and says little
	streamed  bool     // events were sent, so many:
	events    int      //
	hijacked  net.Conn // the connection, once it is no longer net/http's

	endPage context.CancelCauseFunc // ends the request's context; nil where it is not a page
	forget  func() bool             // takes back what Hijack arranged for a drain

	bodyRead bool          // body is this request's
	wait     time.Duration // how long it asks to wait
	to       string        // the gateway that it was sent on to
	peer     *fleet.Seal   // what the gateway says that has sent it here; nil: a client has
	keys     *fleet.Keys   // for the seal on the answer, until it is made

	// For the log, once they are known to be what they claim to be.
	lock, ns, leaseID, owner string
}

func newExchange(s *Server) *exchange {
	x := &exchange{s: s}
	x.json = json.NewEncoder(&x.out)
	x.json.SetEscapeHTML(false) // nobody renders this as HTML
	return x
}

// Header values that every answer shares. They are never written to.
var (
	noStore     = []string{"no-store"}
	noSniff     = []string{"nosniff"}
	sameOrigin  = []string{"same-origin"}
	noFrames    = []string{"default-src 'none'; frame-ancestors 'none'"} // pages replace it by their own
	typeJSON    = []string{"application/json"}
	typeProblem = []string{"application/problem+json"}
	typeText    = []string{"text/plain; charset=utf-8"}
	typeYAML    = []string{"application/yaml"}
)

func (x *exchange) begin(w http.ResponseWriter, r *http.Request) {
	x.w, x.r, x.started = w, r, time.Now()
	x.requestID = newRequestID()
	h := w.Header()
	h["Lockkeeper-Request-Id"] = []string{x.requestID}
	h["Cache-Control"] = noStore
	h["X-Content-Type-Options"] = noSniff
	h["Content-Security-Policy"] = noFrames
	h["Cross-Origin-Resource-Policy"] = sameOrigin
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

// maxKept is the size of buffers that wait for the next request; larger ones
// are left to the garbage collector.
const maxKept = 16 << 10

// end runs when the handler has returned or panicked.
func (x *exchange) end() {
	if v := recover(); v != nil {
		if x.hijacked != nil {
			_ = x.hijacked.Close() // net/http leaves it alone
			defer x.left()
		}
		if v == http.ErrAbortHandler {
			panic(v)
		}
		x.cause = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		if x.status != 0 {
			// Half an answer is out: cutting the connection is all that is
			// left, so that nobody takes it for a whole one.
			x.code = codeInternal
			x.log()
			panic(http.ErrAbortHandler)
		}
		x.problem(&problem{code: codeInternal, detail: "the log tells more under this request's id", cause: x.cause})
	}
	if x.status == 0 {
		x.status = http.StatusOK // what net/http answers for a handler that wrote nothing
	}
	if byGuard(x.code, x.cause) {
		x.s.refused(x.code)
	}
	x.log()
	x.s.metrics.Request(x.operation, x.status)
	if x.hijacked != nil {
		x.left()
		return // whoever has the socket may have kept the exchange
	}
	if x.body.Cap() > maxKept || x.out.Cap() > maxKept {
		return
	}
	x.request = request{}
	x.s.pool.Put(x)
}

// Header implements http.ResponseWriter.
func (x *exchange) Header() http.Header { return x.w.Header() }

// Write implements http.ResponseWriter.
func (x *exchange) Write(b []byte) (int, error) {
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	return x.w.Write(b)
}

// WriteHeader implements http.ResponseWriter.
func (x *exchange) WriteHeader(status int) {
	if x.keys != nil {
		x.seal(status, nil)
	}
	if x.status == 0 {
		x.status = status
	}
	x.w.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the connection.
func (x *exchange) Unwrap() http.ResponseWriter { return x.w }

// Hijack implements http.Hijacker, which WebSocket libraries ask for. From here
// on the exchange is its caller's: it is used for no other request.
func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	x.hijacked, x.status = conn, http.StatusSwitchingProtocols
	x.s.sockets.entered()
	if x.endPage != nil {
		x.forget = context.AfterFunc(x.s.drained, func() { x.endPage(errDraining) })
	}
	return conn, rw, nil
}

// left is called when the request of a hijacked connection is over.
func (x *exchange) left() {
	if x.forget != nil {
		x.forget()
	}
	x.s.sockets.left()
}

// encode puts v into the answer's buffer; nothing is written yet.
func (x *exchange) encode(v any) {
	x.out.Reset()
	if err := x.json.Encode(v); err != nil {
		panic(fmt.Errorf("encoding an answer: %w", err)) // our own types; only a defect gets here
	}
	x.escape()
}

// escape makes the JSON in the answer's buffer inert.
func (x *exchange) escape() {
	if doc := x.out.Bytes(); hazard(doc) < len(doc) {
		escaped := appendInert(make([]byte, 0, len(doc)+len(doc)/8+64), doc)
		x.out.Reset()
		x.out.Write(escaped)
	}
}

// send writes the buffer.
func (x *exchange) send(status int, contentType []string) {
	if x.out.Len() > smallAnswer && status < http.StatusBadRequest {
		counted, refused := x.tooLarge()
		if refused {
			return
		}
		defer x.s.answers.give(counted)
	}
	h := x.Header()
	h["Content-Type"] = contentType
	h["Content-Length"] = []string{strconv.Itoa(x.out.Len())}
	if x.keys != nil {
		x.seal(status, x.out.Bytes())
	}
	x.WriteHeader(status)
	// An error means that the client is gone: there is nobody left to tell.
	_, _ = x.w.Write(x.out.Bytes())
}

// answer encodes v and sends it.
func (x *exchange) answer(status int, v any) {
	x.encode(v)
	x.send(status, typeJSON)
}

// problem is the one place that writes problems: as JSON, or as shell lines where those were asked for.
func (x *exchange) problem(p *problem) {
	x.code = p.code
	if p.cause != nil {
		x.cause = p.cause
	}
	doc := p.document()
	doc.RequestID = x.requestID
	h := x.Header()
	if wait, ok := p.retry(); ok {
		h["Retry-After"] = []string{strconv.FormatInt(retrySeconds(wait), 10)}
	}
	if doc.Status == http.StatusUnauthorized {
		h["Www-Authenticate"] = []string{`Lease-Token realm="lockkeeper"`} // RFC 9110, section 15.5.2
	}
	if x.forShell(p) {
		x.send(x.encodeShell(shellFailure(p.code, doc.Status)), typeText)
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
	x.send(doc.Status, typeProblem)
}

// fail answers with what an error of the manager means. What is another gateway's to
// answer is sent there.
func (x *exchange) fail(err error) {
	if to := ownerIn(err); to != nil && x.forward(to) {
		return
	}
	p := problemOf(err)
	// While the server drains, whatever was not done is another gateway's to do,
	// at once: the manager's own words are about waiting for ZooKeeper.
	if x.s.drained.Err() != nil && (p.code == code(locks.CodeCancelled) || p.code == code(locks.CodeUnavailable)) {
		p = draining()
	}
	x.problem(p)
}

func draining() *problem {
	return &problem{code: codeDraining, detail: "repeat the request: another gateway, or this one's successor, goes on with it"}
}

// log writes the request's line. Neither the query nor the raw path is in it,
// for people put secrets where they do not belong.
func (x *exchange) log() {
	level := slog.LevelInfo
	switch {
	case x.code == codeInternal:
		level = slog.LevelError
	case x.status < 400 && (x.quiet || quiet(x.operation)), byGuard(x.code, x.cause):
		level = slog.LevelDebug
	case x.status >= 500:
		level = slog.LevelWarn
	}
	ctx := x.r.Context()
	if !x.s.log.Enabled(ctx, level) {
		return
	}
	attrs := x.attrs[:0]
	add := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, value))
		}
	}
	add("request_id", x.requestID)
	add("operation", x.operation)
	add("method", loggable(x.r.Method))
	attrs = append(attrs, slog.Int("status", x.status))
	add("code", x.code)
	add("lock", x.lock)
	add("ns", x.ns)
	add("lease_id", x.leaseID)
	add("owner", x.owner)
	if x.streamed {
		attrs = append(attrs, slog.Int("events", x.events))
	}
	attrs = append(attrs, slog.String("principal", "anonymous"))
	attrs = append(attrs, slog.Float64("duration_ms", float64(time.Since(x.started).Microseconds())/1000))
	add("client_ip", x.client())
	add("forwarded_to", x.to)
	if x.peer != nil {
		add("forwarded_by", x.peer.From)
	}
	add("traceparent", traceparent(x.r.Header))
	if x.cause != nil {
		add("error", x.cause.Error())
	}
	// One nameless group: its members stand in the line as if they had been given
	// one by one, and the record need not copy them.
	x.s.log.LogAttrs(ctx, level, "request", slog.Attr{Value: slog.GroupValue(attrs...)})
	clear(attrs)
	x.attrs = attrs
}

// quiet are operations that come all the time and say little.
func quiet(operation string) bool {
	switch operation {
	case "Heartbeat", "HeartbeatMany", "Healthz", "Readyz", "Metrics",
		"GetFence", "CheckFence", "CheckFencePost", "CheckFencePut", "CheckFencePatch", "CheckFenceDelete":
		return true
	}
	return false
}

// loggable is a method that HTTP knows; anything else is the client's words.
func loggable(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}

// traced is the request's context, which tells of which trace it is a part: whoever is told of a
// lease that it ends is told that, too.
func (x *exchange) traced() context.Context {
	return locks.WithTraceParent(x.r.Context(), traceparent(x.r.Header))
}

// traceparent is the request's W3C trace context, when it is well formed.
func traceparent(h http.Header) string {
	values := h["Traceparent"]
	if len(values) != 1 {
		return ""
	}
	v := values[0]
	if len(v) != 55 || v[2] != '-' || v[35] != '-' || v[52] != '-' {
		return ""
	}
	for i := range len(v) {
		if i != 2 && i != 35 && i != 52 && !isHex(v[i]) {
			return ""
		}
	}
	return v
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' }
