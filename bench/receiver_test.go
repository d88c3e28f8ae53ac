package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
)

// slowBody takes a while to be read.
type slowBody struct {
	io.Reader
	takes time.Duration
}

func (s *slowBody) Read(p []byte) (int, error) {
	time.Sleep(s.takes)
	s.takes = 0
	return s.Reader.Read(p)
}

// deliver has the receiver read a message for takes.
func deliver(r *receiver, kind, lease string, takes time.Duration) int {
	body := fmt.Sprintf(`{"type":%q,"data":{"lease_id":%q}}`, kind, lease)
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/hook", &slowBody{strings.NewReader(body), takes}))
	return w.Code
}

func TestTellingLastsFromTheReleaseUntilTheRequestIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReceiver()
		r.releases("a")
		time.Sleep(4 * time.Millisecond)
		r.releases("b")
		go func() {
			time.Sleep(time.Millisecond)
			assert.Equal(t, deliver(r, "lease.released", "a", 2*time.Millisecond), http.StatusNoContent, "answered")
			deliver(r, "lease.released", "a", 0) // comes twice
			time.Sleep(time.Millisecond)
			deliver(r, "lease.released", "b", 0)
		}()
		took, last, err := r.allTold(t.Context(), time.Minute)
		if err != nil || len(took) != 2 || took[0] != 7*time.Millisecond || took[1] != 4*time.Millisecond || !last.Equal(time.Now()) {
			t.Errorf("told after %v, the last at %v: %v", took, last, err)
		}
		r.begin()
		took, _, err = r.allTold(t.Context(), time.Minute)
		assert.That(t, err == nil && len(took) == 0, "a new turn begins with %v, %v", took, err)
	})
}

func TestAReleaseWithoutAMessageEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReceiver()
		r.releases("a")
		r.releases("b")
		deliver(r, "lease.released", "b", 0)
		_, _, err := r.allTold(t.Context(), time.Minute)
		assert.That(t, errors.Is(err, errUntold) && strings.Contains(err.Error(), "1 of 2"), "the run ended with %v", err)
	})
}

func TestAnUnexpectedMessageEndsTheRun(t *testing.T) {
	for name, message := range map[string]struct{ kind, lease string }{
		"of another lease": {"lease.released", "b"},
		"of another type":  {"lease.expired", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReceiver()
				r.releases("a")
				go deliver(r, message.kind, message.lease, time.Millisecond)
				begun := time.Now()
				_, _, err := r.allTold(t.Context(), time.Minute)
				assert.That(t, err != nil && !errors.Is(err, errUntold), "the run ended with %v", err)
				took := time.Since(begun)
				assert.That(t, took <= time.Millisecond, "after %v", took)
			})
		})
	}
}
