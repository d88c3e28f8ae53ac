package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	"lockkeeper/internal/fleet"
)

// outgoing is the answer as it is made and written. It is the http.ResponseWriter that handlers see.
type outgoing struct {
	w      http.ResponseWriter
	status int          // 0 until the header is written
	out    bytes.Buffer // what is to be sent
	json   *json.Encoder
	shown  string // the entity tag of a success, without quotes; "" when it has none that a look may name
	open   bool   // the answer holds no secret: it may be compressed
	seal   *seal  // that the answer to another gateway gets; nil when it has it, or for a client
}

// seal closes the answer to another gateway's request, which trusts no other proof.
type seal struct {
	keys *fleet.Keys
	peer *fleet.Seal
}

// Header values that every answer shares. They are never written to.
var (
	noStore     = []string{"no-store"}
	noCache     = []string{"no-cache"}
	noSniff     = []string{"nosniff"}
	sameOrigin  = []string{"same-origin"}
	noFrames    = []string{"default-src 'none'; frame-ancestors 'none'"} // pages replace it by their own
	typeJSON    = []string{"application/json"}
	typeProblem = []string{"application/problem+json"}
	typeText    = []string{"text/plain; charset=utf-8"}
	typeYAML    = []string{"application/yaml"}
)

// Header implements http.ResponseWriter.
func (o *outgoing) Header() http.Header { return o.w.Header() }

// Write implements http.ResponseWriter.
func (o *outgoing) Write(b []byte) (int, error) {
	if o.status == 0 {
		o.WriteHeader(http.StatusOK)
	}
	return o.w.Write(b)
}

// WriteHeader implements http.ResponseWriter.
func (o *outgoing) WriteHeader(status int) {
	o.close(status, nil)
	if o.status == 0 {
		o.status = status
	}
	o.w.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the connection.
func (o *outgoing) Unwrap() http.ResponseWriter { return o.w }

// close gives an answer to another gateway its seal.
func (o *outgoing) close(status int, body []byte) {
	if o.seal != nil {
		o.seal.keys.CloseAnswer(o.seal.peer, status, o.Header(), body)
		o.seal = nil
	}
}

// tag tells which state of a thing the answer shows. A client that has it already is answered 304.
func (o *outgoing) tag(rev string) {
	o.shown = rev
	o.Header()["Etag"] = []string{`"` + rev + `"`}
}

// tagWeakly is tag for an answer whose spans of time change while its state does not.
func (o *outgoing) tagWeakly(rev string) {
	o.shown = rev
	o.Header()["Etag"] = []string{`W/"` + rev + `"`}
}

// keep lets a client keep the answer, which it asks about each time: it is the same for as long as the gateway runs.
func (o *outgoing) keep(tag string) {
	o.tag(tag)
	o.open = true
	o.Header()["Cache-Control"] = noCache
}

// forget removes what only a success says.
func (o *outgoing) forget() {
	o.shown, o.open = "", false
	o.Header()["Cache-Control"] = noStore
	for _, name := range [...]string{"Location", "Etag", "Idempotency-Replayed", "Link", "X-Accel-Buffering"} {
		delete(o.Header(), name)
	}
}

// encode puts v into the buffer as JSON; nothing is written yet.
func (o *outgoing) encode(v any) {
	o.out.Reset()
	if err := o.json.Encode(v); err != nil {
		panic(fmt.Errorf("encoding an answer: %w", err)) // our own types; only a defect gets here
	}
	o.escape()
}

// escape makes the JSON in the buffer inert.
func (o *outgoing) escape() {
	if doc := o.out.Bytes(); hazard(doc) < len(doc) {
		escaped := appendInert(make([]byte, 0, len(doc)+len(doc)/8+64), doc)
		o.out.Reset()
		o.out.Write(escaped)
	}
}

// raw puts bytes into the buffer as they are.
func (o *outgoing) raw(b []byte) {
	o.out.Reset()
	o.out.Write(b)
}
