package httpapi

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/metrics"
	"lockkeeper/internal/test/assert"
)

// sink is a ResponseWriter that costs nothing, so that the figures are ours.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }

// BenchmarkHotAnswers measures what this package adds to a request: net/http and the manager are not in it.
func BenchmarkHotAnswers(b *testing.B) {
	f := newFake()
	s := New(Options{Locks: quietLocks{f}, Metrics: metrics.New("bench"), Access: accessLogTo(b, io.Discard)})
	for _, c := range []struct {
		name, method, path string
		status             int
	}{
		{"acquire", "POST", "/v1/locks/deploy/leases?ttl=10s&owner=me", 201},
		{"heartbeat", "POST", "/v1/leases/self/heartbeat", 200},
		{"release", "DELETE", "/v1/leases/self", 204},
	} {
		b.Run(c.name, func(b *testing.B) {
			r, err := http.NewRequest(c.method, "http://localhost:8080"+c.path, nil)
			if err != nil {
				b.Fatal(err)
			}
			r.Body, r.RemoteAddr = http.NoBody, "127.0.0.1:1234"
			if c.name != "acquire" { // there it would ask for a hold
				r.Header.Set("Lease-Token", someToken)
			}
			w := &sink{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				s.ServeHTTP(w, r)
				if w.status != c.status {
					b.Fatal(w.status)
				}
			}
		})
	}
}

// BenchmarkCycle measures what this package adds to an acquire and the release of its lease.
func BenchmarkCycle(b *testing.B) {
	s := New(Options{Locks: quietLocks{newFake()}, Metrics: metrics.New("bench"), Access: accessLogTo(b, io.Discard)})
	var requests []*http.Request
	for _, line := range []string{"POST /v1/locks/deploy/leases?ttl=30s&wait=60s&owner=me", "DELETE /v1/leases/self"} {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(line + " HTTP/1.1\r\nHost: localhost:8080\r\nUser-Agent: bench\r\nContent-Length: 0\r\n\r\n")))
		assert.NoError(b, err)
		r.RemoteAddr = "127.0.0.1:1234"
		requests = append(requests, r.WithContext(withConnection(b.Context(), nil))) // as net/http does
	}
	requests[1].Header.Set("Lease-Token", someToken)
	w := &sink{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		for _, r := range requests {
			clear(w.header)
			s.ServeHTTP(w, r)
		}
		assert.Must(b, w.status == http.StatusNoContent, "answered %d", w.status)
	}
}

// quietLocks does not remember what it was asked.
type quietLocks struct{ *fake }

func (q quietLocks) Acquire(ctx context.Context, req locks.AcquireRequest) (locks.AcquireResult, error) {
	return q.acquire(ctx, req)
}

func (q quietLocks) Heartbeat(_ context.Context, _ locks.Principal, id, token string, ttl time.Duration) (locks.Heartbeat, error) {
	return q.heartbeat(id, token, ttl)
}

func (q quietLocks) Release(_ context.Context, _ locks.Principal, id, token string) error {
	return q.release(id, token)
}
