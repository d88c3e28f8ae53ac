package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Request is a request of the API for which the package has no method of its own (docs/http.md, openapi.yaml).
type Request struct {
	Method string // GET unless given
	Path   string // with its query, escaped: /v1/locks?prefix=team
	Body   any    // sent as JSON unless nil

	// Hold is how long the gateway may hold the answer back, as the request's wait asks it to.
	Hold time.Duration

	// LeaseToken is sent instead of the client's own token, with requests that act for a lease.
	LeaseToken string

	// Header has further headers, such as Accept or If-Match. With an Idempotency-Key the request can be repeated.
	Header http.Header
}

// heartbeatPath is that of a heartbeat: a repeat begins the TTL anew, and does nothing else.
const heartbeatPath = "/v1/leases/self/heartbeat"

const (
	callTimeout   = time.Minute // for a change, which may end a long queue
	maxCallAnswer = 32 << 20    // a page of a list
)

// Call sends the request to the gateways of the fleet until one answers, and reads the answer's JSON into answer, unless that is
// nil. The error is a *Problem when a gateway refuses, or says that none answered.
//
// A request is repeated until ctx is over, at most for Config.TryFor. What is no GET, HEAD, PUT or DELETE, no heartbeat, and has no
// Idempotency-Key is repeated only while it is certain that nothing was done: no connection came about, or the gateway says so.
// After any other failure the request may have been done.
func (c *Client) Call(ctx context.Context, r Request, answer any) error {
	trying, stop := context.WithTimeout(ctx, c.try)
	defer stop()
	asking := trying
	if r.Hold > 0 {
		asking = ctx // an attempt may outlast the time for repeats
	}
	q := c.request(r, requestTimeout+r.Hold)
	if q.method != http.MethodGet {
		q.timeout = callTimeout
	}
	if q.repeatable() && r.Hold == 0 {
		q.timeout = c.perGateway(q.timeout)
	}
	return repeat(trying, q, func() error { return c.once(asking, q, answer) })
}

// Open sends the request like Call, and returns the answer as soon as its headers are there, for what is read as it comes, such as
// /v1/events. The end of ctx ends the answer; the caller closes its body.
func (c *Client) Open(ctx context.Context, r Request) (*http.Response, error) {
	trying, done := context.WithTimeout(ctx, c.try)
	defer done()
	until, _ := trying.Deadline()
	var answer *http.Response
	err := repeat(trying, c.request(r, 0), func() error {
		return c.atNext(ctx, func(base *url.URL) (err error) {
			// The attempt's context lives as long as the answer: only a late one ends it.
			attempt, stop := context.WithCancelCause(ctx)
			late := time.AfterFunc(min(requestTimeout, time.Until(until)), func() { stop(fmt.Errorf("lockkeeper: %s does not answer", base.Redacted())) })
			defer late.Stop()
			if answer, err = c.open(attempt, base, c.request(r, 0)); err != nil {
				if attempt.Err() != nil {
					err = context.Cause(attempt)
				}
				stop(nil)
				return err
			}
			answer.Body = &openBody{answer.Body, stop}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// openBody ends the request with its body.
type openBody struct {
	io.ReadCloser
	stop context.CancelCauseFunc
}

func (b *openBody) Close() error {
	b.stop(nil)
	return b.ReadCloser.Close()
}

func (r Request) method() string { return cmp.Or(r.Method, http.MethodGet) }

// request is the Request as it is sent. Where each address has a page that is no gateway's, the URLs are wrong, and a person waits.
func (c *Client) request(r Request, timeout time.Duration) request {
	return request{pages: len(c.bases), method: r.method(), path: r.Path, body: r.Body, lease: r.LeaseToken, header: r.Header, timeout: timeout, most: maxCallAnswer}
}

// repeatable says that the request can be sent again although it may have been done. An acquire has its key; what the package
// itself sends is safe to repeat.
func (r *request) repeatable() bool {
	if r.method != http.MethodPatch && (r.method != http.MethodPost || r.most == 0) || r.header.Get("Idempotency-Key") != "" {
		return true
	}
	path, _, _ := strings.Cut(r.path, "?")
	return path == heartbeatPath
}

// harmless says that the request can be sent again after err.
func (r *request) harmless(err error) bool {
	if r.repeatable() {
		return true
	}
	if p := asProblem(err); p != nil {
		return p.Code != unexpectedAnswer && p.Code != "outcome_unknown" && p.Code != "internal"
	}
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial"
}
