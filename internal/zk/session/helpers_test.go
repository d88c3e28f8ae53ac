package session

import (
	"context"
	"errors"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

func openLayout(t testing.TB, cfg zk.Config) *layout.Layout {
	t.Helper()
	layout := assert.Value(layout.Open(fixture.Context(t), cfg))(t, "OpenLayout")
	return layout
}

func openSession(t testing.TB, cfg zk.Config, layout *layout.Layout, n int) *Session {
	t.Helper()
	s := assert.Value(Open(fixture.Context(t), cfg, layout, fixture.GatewayID(n), []byte("here")))(t, "OpenSession")
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
	case <-time.After(fixture.Limit):
		t.Error("the session's goroutines did not end")
	}
}

// write submits and waits.
func write(t testing.TB, s *Session, ops ...zk.Op) zk.Result {
	t.Helper()
	return fixture.Await(t, submit(t, s, &zk.Write{Ops: ops}))
}

func submit(t testing.TB, s *Session, w *zk.Write) <-chan zk.Result {
	t.Helper()
	result := make(chan zk.Result, 2) // a second answer would be found by mustBeDone
	w.Done = func(r zk.Result) { result <- r }
	assert.NoError(t, s.Submit(w), "Submit")
	return result
}

// attempt is submit and await for goroutines that are not the test's own.
func attempt(s *Session, w *zk.Write) zk.Result {
	result := make(chan zk.Result, 1)
	w.Done = func(r zk.Result) { result <- r }
	if err := s.Submit(w); err != nil {
		return zk.Result{Outcome: zk.NotDone, Err: err}
	}
	select {
	case r := <-result:
		return r
	case <-time.After(fixture.Limit):
		return zk.Result{Err: errors.New("waited too long")}
	}
}

func mustBeDone(t testing.TB, r zk.Result) zk.Result {
	t.Helper()
	assert.Must(t, r.Outcome == zk.Done, "outcome %d, error %v, culprit %d; want Done", r.Outcome, r.Err, r.Culprit)
	return r
}
