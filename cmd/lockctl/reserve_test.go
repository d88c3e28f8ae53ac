package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"lockkeeper/internal/test/assert"
)

// A reservation whose token was lost on the way would take the lock for days.
func TestAReservationWithoutAnAnswerIsAskedForAgainOrEnded(t *testing.T) {
	t.Setenv("LOCKKEEPER_TOKEN", "")
	t.Setenv("LOCKKEEPER_TOKEN_FILE", "")
	for name, c := range map[string]struct {
		first func(http.ResponseWriter, *http.Request)
		code  int
		ended bool
	}{
		"the connection breaks": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 0, false},
		"no answer comes":       {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, exitUnavailable, true},
	} {
		t.Run(name, func(t *testing.T) {
			state := t.TempDir()
			t.Setenv("XDG_STATE_HOME", state)
			var mu sync.Mutex
			var keys []string
			ended := ""
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				if r.Method == http.MethodDelete {
					ended = r.Header.Get("Lease-Token")
					mu.Unlock()
					w.WriteHeader(http.StatusNoContent)
					return
				}
				keys = append(keys, r.Header.Get("Idempotency-Key"))
				n := len(keys)
				mu.Unlock()
				if n == 1 {
					_, _ = http.MaxBytesReader(w, r.Body, 1<<10).Read(make([]byte, 1<<10)) // so that the server sees its client go away
					c.first(w, r)
					return
				}
				w.WriteHeader(http.StatusCreated)
				_, _ = w.Write([]byte(`{"lease_id": "lkone", "token": "lk1.lkone", "state": "held", "ttl_ms": 3600000}`))
			}))
			defer server.Close()
			var out, complaints strings.Builder
			code := run([]string{"--url", server.URL, "--timeout", "500ms", "reserve", "staging", "--for", "1h", "--owner", "mia"}, strings.NewReader(""), &out, &complaints)
			assert.That(t, code == c.code && len(keys) == 2 && keys[0] == keys[1] && keys[0] != "", "exit code %d (%s), keys %q", code, complaints.String(), keys)
			assert.That(t, (ended == "lk1.lkone") == c.ended, "ended: %q", ended)
			_, err := os.Stat(filepath.Join(state, "lockctl", "reservations", "staging"))
			assert.That(t, os.IsNotExist(err) == c.ended, "the token's file: %v", err)
		})
	}
}
