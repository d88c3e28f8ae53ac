package apitest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"lockkeeper/internal/test/assert"
)

// read lets a client read a stream to its end, and returns the events, what it complained about and the error.
func read(t *testing.T, contentType, body string) (n int, complaints []string, err error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", contentType)
		h.Set("Lockkeeper-Request-Id", anID)
		h.Set("Cache-Control", "no-store")
		h.Set("X-Accel-Buffering", "no")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()
	rec := &recorder{TB: t}
	s, _, err := New(rec, server.URL).Events(t.Context())
	assert.NoError(t, err)
	defer s.Close()
	for {
		if _, err := s.Next(); err != nil {
			return n, rec.errors, err
		}
		n++
	}
}

func TestAStreamIsHeldAgainstTheSpecification(t *testing.T) {
	const event = `{"id":"a-1","time":"2026-11-21T09:30:00.123456Z","type":"lease.queued","foreign":{}}`
	for what, c := range map[string]struct {
		contentType, body string
		events            int
		good              bool
	}{
		"server-sent events":         {"text/event-stream", "retry: 1\nid: a-0\n\n: keepalive\nid: a-0\n\nid: a-1\nevent: lease.queued\ndata: " + event + "\n\n", 1, true},
		"lines":                      {"application/jsonl", "\n" + event + "\n\n" + event + "\n", 2, true},
		"another id":                 {"text/event-stream", "id: a-2\nevent: lease.queued\ndata: " + event + "\n\n", 0, false},
		"another type":               {"text/event-stream", "id: a-1\nevent: resync\ndata: " + event + "\n\n", 0, false},
		"data twice":                 {"text/event-stream", "id: a-1\nevent: lease.queued\ndata: " + event + "\ndata: " + event + "\n\n", 0, false},
		"half an event":              {"text/event-stream", "id: a-1\nevent: lease.queued\ndata: " + event + "\n", 0, false},
		"half a line":                {"application/jsonl", event, 0, false},
		"an unknown member":          {"application/jsonl", `{"id":"a","time":"2026-11-21T09:30:00.123456Z","type":"resync","x":1}` + "\n", 1, false},
		"a time without its seconds": {"application/jsonl", `{"id":"a","time":"2026-11-21T09:30Z","type":"resync"}` + "\n", 1, false},
		"an unknown type":            {"application/jsonl", `{"id":"a","time":"2026-11-21T09:30:00.123456Z","type":"lease.lost"}` + "\n", 1, false},
		"another content type":       {"text/html", "", 0, false},
	} {
		n, complaints, err := read(t, c.contentType, c.body)
		if good := len(complaints) == 0 && err == io.EOF; n != c.events || good != c.good {
			t.Errorf("%s: %d events, %q, %v", what, n, complaints, err)
		}
	}
}
