package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
)

var origin = time.Now()

// gateway answers the requests of a Client as a fleet does that has one lock. It is used in virtual time.
type gateway struct {
	mu       sync.Mutex
	requests []string // "METHOD host path"
	keys     []string // of the acquires
	headers  []http.Header

	down   map[string]bool // hosts that do not answer
	status int             // what a heartbeat is answered with, if not 0
	frozen chan struct{}   // closed: heartbeats are answered at once with status
	slow   time.Duration   // how late an acquire is answered
	queued int             // looks at a ticket that still waits
	ttl    time.Duration
	waited *int64

	released int
	onBeat   func(n int) // called for each heartbeat
	beats    int
}

func (g *gateway) client(t *testing.T, urls ...string) *Client {
	t.Helper()
	if urls == nil {
		urls = []string{"http://one"}
	}
	c, err := New(Config{URLs: urls, Token: "secret", HTTP: &http.Client{Transport: g}})
	assert.NoError(t, err)
	c.now = func() time.Duration { return time.Since(origin) }
	return c
}

func (g *gateway) RoundTrip(r *http.Request) (*http.Response, error) {
	g.mu.Lock()
	g.requests = append(g.requests, r.Method+" "+r.URL.Host+" "+r.URL.Path)
	g.headers = append(g.headers, r.Header)
	down := g.down[r.URL.Host]
	g.mu.Unlock()
	if down {
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/heartbeat"):
		return g.heartbeat(r)
	case r.Method == "DELETE":
		g.mu.Lock()
		g.released++
		g.mu.Unlock()
		return answer(204, nil)
	case r.Method == "POST":
		g.mu.Lock()
		g.keys = append(g.keys, r.Header.Get("Idempotency-Key"))
		g.mu.Unlock()
		if err := sleep(r.Context(), g.slow); err != nil {
			return nil, err
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.queued > 0 {
			return answer(202, map[string]any{"lease_id": "L", "token": "T", "state": "waiting", "position": g.queued, "rev": "1", "ttl_ms": g.ttl.Milliseconds()})
		}
		return answer(201, map[string]any{"lease_id": "L", "token": "T", "state": "held", "fencing_token": 7, "ttl_ms": g.ttl.Milliseconds(), "waited_ms": g.waited})
	case strings.HasPrefix(r.URL.Path, "/v1/leases/"):
		return g.look(r)
	}
	return answer(200, map[string]any{"holders": []Holder{{Owner: "other"}}, "queue_length": 3})
}

// look answers a poll: the ticket moves up once a second.
func (g *gateway) look(r *http.Request) (*http.Response, error) {
	if err := sleep(r.Context(), time.Second); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.queued--; g.queued > 0 {
		return answer(200, map[string]any{"lease_id": "L", "state": "waiting", "position": g.queued, "rev": "1", "ttl_ms": g.ttl.Milliseconds()})
	}
	return answer(200, map[string]any{"lease_id": "L", "state": "held", "fencing_token": 7, "rev": "2", "ttl_ms": g.ttl.Milliseconds()})
}

func (g *gateway) heartbeat(r *http.Request) (*http.Response, error) {
	g.mu.Lock()
	g.beats++
	n, status := g.beats, g.status
	g.mu.Unlock()
	if g.onBeat != nil {
		g.onBeat(n)
	}
	if status != 0 {
		return problem(status)
	}
	if hold, err := time.ParseDuration(r.URL.Query().Get("wait")); err == nil {
		timer := time.NewTimer(hold)
		defer timer.Stop()
		select {
		case <-r.Context().Done():
			return nil, context.Cause(r.Context())
		case <-g.frozen:
			g.mu.Lock()
			defer g.mu.Unlock()
			return problem(g.status)
		case <-timer.C:
		}
	}
	return answer(200, map[string]any{"lease_id": "L", "state": "held", "ttl_ms": g.ttl.Milliseconds()})
}

// end answers the open heartbeat, and all later ones, with status.
func (g *gateway) end(status int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.status = status
	close(g.frozen)
}

func answer(status int, body any) (*http.Response, error) {
	text, err := json.Marshal(body)
	if status == 204 {
		text = nil
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(string(text)))}, err
}

func problem(status int) (*http.Response, error) {
	codes := map[int]string{410: "lease_ended", 404: "lease_not_found", 403: "lease_token_wrong", 503: "zookeeper_unavailable", 409: "held_by_other"}
	body := map[string]any{"status": status, "code": codes[status]}
	if status == 410 {
		body["reason"], body["by"], body["detail"] = "revoked", "token:ops", "the lease has ended: revoked: maintenance"
	}
	return answer(status, body)
}

// lostOf gives the LeaseLost in err.
func lostOf(t *testing.T, err error) *LeaseLost {
	t.Helper()
	var lost *LeaseLost
	if !errors.As(err, &lost) {
		t.Fatalf("no LeaseLost: %v", err)
	}
	return lost
}

func refusedWith(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("the error is %v, not one with %q", err, text)
	}
}
