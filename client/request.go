package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
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

	lease   string        // the lease token; a request without one carries the client's own token
	key     string        // the idempotency key, if any
	timeout time.Duration // of each attempt
}

// once sends the request to one gateway. The error is a *Problem, or says that no answer came. After an error that another
// gateway may not have, the next request goes to the next gateway.
func (c *Client) once(ctx context.Context, r request, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	at := c.next.Load()
	err := c.send(ctx, int(at)%len(c.bases), r, answer)
	if p := asProblem(err); err != nil && (p == nil || p.temporary()) {
		c.next.CompareAndSwap(at, (at+1)%uint32(len(c.bases)))
	}
	return err
}

func (c *Client) send(ctx context.Context, gateway int, r request, answer any) error {
	var body io.Reader
	if r.body != nil {
		text, err := json.Marshal(r.body)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, c.bases[gateway].String()+r.path, body)
	if err != nil {
		return err
	}
	if err := c.headers(req.Header, r); err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return problemOf(resp, text)
	}
	if answer == nil || len(text) == 0 {
		return nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("lockkeeper: the answer to %s %s cannot be read: %w", r.method, req.URL.Path, err)
	}
	return nil
}

// headers sets what the request needs. A request with a lease token needs no other credential: the token that took the lease
// may have expired since.
func (c *Client) headers(h http.Header, r request) error {
	h.Set("User-Agent", "lockkeeper-go")
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
	for pause := leastPause; ; pause = min(2*pause, mostPause) {
		sent = c.now()
		if err = c.once(ctx, r, answer); err == nil {
			return sent, nil
		}
		p := asProblem(err)
		if p != nil && !p.temporary() || ctx.Err() != nil {
			return sent, err
		}
		wait := pause
		if p != nil {
			wait = max(wait, p.retryAfter)
		}
		if sleep(ctx, jitter(wait)) != nil {
			return sent, err
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
