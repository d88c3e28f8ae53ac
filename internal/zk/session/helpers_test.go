package session

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
)

func openLayout(t testing.TB, cfg zk.Config) *layout.Layout {
	t.Helper()
	layout := assert.Value(layout.Open(fixture.Context(t), cfg))(t, "OpenLayout")
	return layout
}

// faulty is a root with its layout, a way to it through a proxy, and another program that reaches it directly.
func faulty(t testing.TB) (through zk.Config, proxy *netfault.Proxy, made *layout.Layout, p *fixture.Probe) {
	t.Helper()
	direct, through, proxy := fixture.Faulty(t)
	return through, proxy, openLayout(t, direct), fixture.NewProbe(t, direct)
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

// TestMain ends the shared ZooKeeper and refuses tests that leave goroutines
// behind. zkreal ends its own with the server.
func TestMain(m *testing.M) {
	embeddedtest.StandIn()
	os.Exit(testkit.Run(zkreal.Wrap(m)))
}

func TestALockIsTakenAndGivenBack(t *testing.T) {
	cfg := fixture.Config(t)
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	dir := zk.DefaultRoot + "/locks/deploy"
	mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: dir}))
	got := mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: dir + "/write-x-lock-", Data: []byte("{}"), Sequential: true}))
	want := dir + "/write-x-lock-0000000000"
	assert.Must(t, got.Paths[0] == want, "path %s, want %s", got.Paths[0], want)
	gone := mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpDelete, Path: got.Paths[0], Version: 0}))
	assert.Must(t, gone.Zxid > got.Zxid, "the delete's zxid %#x is not after the create's %#x", gone.Zxid, got.Zxid)
	again := write(t, s, zk.Op{Kind: zk.OpDelete, Path: got.Paths[0], Version: 0})
	assert.Must(t, again.Outcome == zk.NotDone && errors.Is(again.Err, zk.ErrNoNode) && again.Culprit == 0, "deleting it again: %+v", again)
	assert.NoError(t, s.Close(fixture.Context(t)), "Close")
}
