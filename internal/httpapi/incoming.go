package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-chi/chi/v5"

	"lockkeeper/internal/fleet"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/unixsock"
)

// incoming is the request as it is read.
type incoming struct {
	r        *http.Request
	direct   bool         // it did not go through the router
	lock     string       // which lock its path names, when it is direct
	buffer   bytes.Buffer // the body, once it is read
	bodyRead bool         // buffer is this request's
	form     bool         // and is a form
	peer     *fleet.Seal  // what the gateway says that has sent it here; nil: a client has
	from     string       // the client's address where a trusted proxy has sent the request, else ""
}

// segment is a parameter of the path, decoded once: chi routes on the raw path where there is one.
func (in *incoming) segment(name string) (string, error) {
	if in.direct {
		if name == "id" {
			return self, nil
		}
		return in.lock, nil
	}
	segment := chi.URLParam(in.r, name)
	if segment == "" && name == "id" {
		return self, nil // the path without a parameter (Server.mount)
	}
	if in.r.URL.RawPath == "" {
		return segment, nil
	}
	decoded, err := url.PathUnescape(segment)
	if err != nil {
		return "", malformed("the path is not percent-encoded")
	}
	return decoded, nil
}

// single reads a header that may be given once. The name is in the canonical form.
func (in *incoming) single(name string) (s string, given bool, err error) {
	switch values := in.r.Header[http.CanonicalHeaderKey(name)]; len(values) {
	case 0:
		return "", false, nil
	case 1:
		return values[0], true, nil
	}
	return "", false, &problem{code: codeRepeatedField, field: name, detail: name + " must be given once"}
}

// readBody reads the whole body, so that net/http notices from then on when the client goes away. The bytes belong to the
// exchange.
func (x *exchange) readBody(limit int64) ([]byte, error) {
	tooLarge := &problem{code: codeBodyTooLarge, detail: fmt.Sprintf("at most %d KiB", limit>>10)}
	if x.r.ContentLength > limit {
		x.endConnection() // not a byte of it is read
		return nil, tooLarge
	}
	x.buffer.Reset()
	x.bodyRead = true
	_, err := x.buffer.ReadFrom(http.MaxBytesReader(x.w, x.r.Body, limit))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, tooLarge
	case err != nil:
		return nil, &problem{code: codeMalformed, detail: "the body did not arrive whole", cause: err}
	}
	return x.buffer.Bytes(), nil
}

// isForm reports whether the body says that it is a form. It refuses one that says neither that nor that it is JSON.
func isForm(r *http.Request) (form bool, err error) {
	if coding := r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return false, &problem{code: codeUnsupportedType, field: "Content-Encoding", detail: "send the body as it is"}
	}
	if types := r.Header["Content-Type"]; len(types) == 1 {
		if types[0] == "application/json" {
			return false, nil
		}
		mediaType, params, err := mime.ParseMediaType(types[0])
		if charset := params["charset"]; err == nil && (charset == "" || strings.EqualFold(charset, "utf-8")) {
			switch {
			case mediaType == "application/json", mediaType == "application/merge-patch+json" && r.Method == http.MethodPatch:
				return false, nil
			case mediaType == "application/x-www-form-urlencoded":
				return true, nil
			}
		}
	}
	return false, &problem{code: codeUnsupportedType, field: "Content-Type",
		detail: "send the body as application/json (curl -H 'Content-Type: application/json' -d '{...}'), as a form (curl -d ttl=30s), or the fields in the query"}
}

// reads reports whether the request asks for no change.
func (in *incoming) reads() bool {
	return in.r.Method == http.MethodGet || in.r.Method == http.MethodHead
}

// client is the address that the request came from, or the user at the other end of a Unix socket (uid:1000); "" when
// neither is known.
func (in *incoming) client() string {
	if in.peer != nil {
		return in.peer.Client
	}
	if in.from != "" {
		return in.from
	}
	if _, isUser := unixsock.UID(in.r.RemoteAddr); isUser {
		return in.r.RemoteAddr
	}
	host, _, _ := net.SplitHostPort(in.r.RemoteAddr)
	return host
}

// traced is the request's context, with the trace of which it is a part: the events and deliveries of what it ends are
// parts of it, too. A request with a span of its own has it from the beginning.
func (x *exchange) traced() context.Context {
	if x.span.Is() {
		return x.r.Context()
	}
	return locks.WithTraceParent(x.r.Context(), traceparent(x.r.Header))
}

// traceparent is the request's W3C trace context, when it is well formed.
func traceparent(h http.Header) string {
	values := h["Traceparent"]
	if len(values) != 1 {
		return ""
	}
	return locks.TraceParent(values[0])
}
