package zk

import (
	"context"
	"errors"
	"testing"
	"time"
)

func openLayout(t testing.TB, cfg Config) *Layout {
	t.Helper()
	layout, err := OpenLayout(testContext(t), cfg)
	if err != nil {
		t.Fatalf("OpenLayout: %v", err)
	}
	return layout
}

func openSession(t testing.TB, cfg Config, layout *Layout, n int) *Session {
	t.Helper()
	s, err := OpenSession(testContext(t), cfg, layout, gatewayID(n), []byte("here"))
	if err != nil {
		t.Fatalf("OpenSession: %v", err)
	}
	t.Cleanup(func() { closeSession(t, s) })
	return s
}

// closeSession ends a session and waits until nothing of it is left.
func closeSession(t testing.TB, s *Session) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	_ = s.Close(ctx) // a session that the test has broken does not close in good order
	select {
	case <-s.released:
	case <-time.After(testLimit):
		t.Error("the session's goroutines did not end")
	}
}

// write submits and waits.
func write(t testing.TB, s *Session, ops ...Op) Result {
	t.Helper()
	return await(t, submit(t, s, &Write{Ops: ops}))
}

func submit(t testing.TB, s *Session, w *Write) <-chan Result {
	t.Helper()
	result := make(chan Result, 2) // a second answer would be found by mustBeDone
	w.Done = func(r Result) { result <- r }
	if err := s.Submit(w); err != nil {
		t.Fatalf("Submit: %v", err)
	}
	return result
}

// attempt is submit and await for goroutines that are not the test's own.
func attempt(s *Session, w *Write) Result {
	result := make(chan Result, 1)
	w.Done = func(r Result) { result <- r }
	if err := s.Submit(w); err != nil {
		return Result{Outcome: NotDone, Err: err}
	}
	select {
	case r := <-result:
		return r
	case <-time.After(testLimit):
		return Result{Err: errors.New("waited too long")}
	}
}

func mustBeDone(t testing.TB, r Result) Result {
	t.Helper()
	if r.Outcome != Done {
		t.Fatalf("outcome %d, error %v, culprit %d; want Done", r.Outcome, r.Err, r.Culprit)
	}
	return r
}
