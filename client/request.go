package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// maxAnswer bounds what is read of an answer. A lease of 64 locks takes some 20 KiB.
const maxAnswer = 1 << 20

// request is one request to a gateway. It may be sent more than once.
type request struct {
	method string
	path   string // with its query, escaped
	body   any    // sent as JSON unless nil

	once    bool          // the answer may be that the work is done already, and so no lease
	lease   string        // the lease token; a request without one carries the client's own token
	key     string        // the idempotency key, if any
	timeout time.Duration // of each attempt

	header http.Header // of a Request
	most   int64       // how much is read of the answer to a Request; 0 is maxAnswer
	pages  int         // of a Request: how many answers of others than gateways end it; those of 5xx do not count
}

// once sends the request to one gateway. The error is a *Problem, or says that no answer came.
func (c *Client) once(ctx context.Context, r request, answer any) error {
	return c.atNext(ctx, func(base *url.URL) error {
		ctx, cancel := context.WithTimeout(ctx, r.timeout)
		defer cancel()
		return c.send(ctx, base, r, answer)
	})
}

// atNext asks one gateway. After an error that another gateway may not have, the next request goes to the next gateway. The end of
// ctx is no error of the gateway.
func (c *Client) atNext(ctx context.Context, ask func(base *url.URL) error) error {
	at := c.next.Load()
	err := ask(c.bases[int(at)%len(c.bases)])
	if p := asProblem(err); err != nil && ctx.Err() == nil && (p == nil || p.temporary()) {
		c.next.CompareAndSwap(at, (at+1)%uint32(len(c.bases)))
	}
	return err
}

func (c *Client) send(ctx context.Context, base *url.URL, r request, answer any) error {
	resp, err := c.open(ctx, base, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, cmp.Or(r.most, maxAnswer)))
	if err != nil {
		return err
	}
	lease, isLease := answer.(*leaseAnswer)
	switch {
	case r.method == "DELETE" && r.most == 0 && resp.StatusCode != http.StatusNoContent:
		return problemOf(resp, nil) // a page, where a gateway says nothing
	case answer == nil, len(text) == 0 && !isLease:
		return nil
	}
	if isLease {
		*lease = leaseAnswer{} // an answer that was refused before may have left something
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("lockkeeper: the answer to %s %s cannot be read: %w", r.method, r.path, err)
	}
	if isLease {
		return lease.check(&r)
	}
	return nil
}

// open sends the request, and returns an answer that is a success, whose body is unread, or a *Problem.
func (c *Client) open(ctx context.Context, base *url.URL, r request) (*http.Response, error) {
	var body io.Reader
	if r.body != nil {
		text, err := json.Marshal(r.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, base.String()+r.path, body)
	if err != nil {
		return nil, err
	}
	if err := c.headers(req.Header, r); err != nil {
		return nil, err
	}
	socket, isSocket := socketOf(base)
	if isSocket {
		req.Host = "localhost" // a gateway answers to no other names than it is given
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var failed *url.Error
		if isSocket && errors.As(err, &failed) {
			failed.URL = "unix:" + socket + r.path
		}
		return nil, err
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	return nil, problemOf(resp, text)
}

// headers sets what the request needs. A request with a lease token needs no other credential: the token that took the lease
// may have expired since.
func (c *Client) headers(h http.Header, r request) error {
	h.Set("User-Agent", "lockkeeper-go")
	for name, values := range r.header {
		h[http.CanonicalHeaderKey(name)] = values
	}
	if r.body != nil {
		h.Set("Content-Type", "application/json")
	}
	if r.key != "" {
		h.Set("Idempotency-Key", r.key)
	}
	if r.lease != "" {
		h.Set("Lease-Token", r.lease)
		return nil
	}
	token, err := c.token()
	if err != nil {
		return fmt.Errorf("lockkeeper: reading the token: %w", err)
	}
	if token != "" {
		h.Set("Authorization", "Bearer "+token)
	}
	return nil
}

func problemOf(resp *http.Response, text []byte) *Problem {
	p := &Problem{}
	if json.Unmarshal(text, p) != nil || p.Code == "" {
		p = &Problem{Code: unexpectedAnswer, Title: http.StatusText(resp.StatusCode)}
	}
	p.Status = resp.StatusCode
	if s, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 16); err == nil {
		p.retryAfter = time.Duration(s) * time.Second
	}
	return p
}

// Repeats wait for these times: the gateway's Retry-After, or the least time, twice as long after each failure up to the most.
const (
	leastPause = 50 * time.Millisecond
	mostPause  = time.Second
)

// repeated sends the request until a gateway answers it with success or with a refusal that a repeat does not change, or until
// ctx is over. sent is when it was sent last.
func (c *Client) repeated(ctx context.Context, r request, answer any) (sent time.Duration, err error) {
	err = repeat(ctx, r, func() error {
		sent = c.now()
		return c.once(ctx, r, answer)
	})
	return sent, err
}

func repeat(ctx context.Context, r request, once func() error) error {
	pages := 0
	for pause := leastPause; ; pause = min(2*pause, mostPause) {
		err := once()
		if err == nil {
			return nil
		}
		p := asProblem(err)
		if p != nil && p.Code == unexpectedAnswer && p.Status < 500 {
			if pages++; pages == r.pages {
				return err
			}
		}
		if p != nil && !p.temporary() || ctx.Err() != nil || !r.harmless(err) {
			return err
		}
		wait := pause
		if p != nil {
			wait = max(wait, p.retryAfter)
		}
		if sleep(ctx, jitter(wait)) != nil {
			return err
		}
	}
}

// jitter spreads the repeats of many clients.
func jitter(d time.Duration) time.Duration { return d + rand.N(d/4+1) }

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
