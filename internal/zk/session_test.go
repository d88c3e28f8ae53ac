package zk

import (
	"context"
	"fmt"
	"testing"
	"time"

	"lockkeeper/internal/zk/zkreal"
)

// within is the limit of every wait in these tests. It is only reached by failures.
const testLimit = 30 * time.Second

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testLimit)
	t.Cleanup(cancel)
	return ctx
}

// testConfig is a root of its own on the shared ZooKeeper.
func testConfig(t testing.TB) Config {
	addr, chroot := zkreal.SharedT(t)
	return Config{Servers: []string{addr}, Chroot: chroot, CreateRoot: true, SessionTimeout: 10 * time.Second}
}

func openLayout(t testing.TB, cfg Config) *Layout {
	t.Helper()
	layout, err := OpenLayout(testContext(t), cfg)
	if err != nil {
		t.Fatalf("OpenLayout: %v", err)
	}
	return layout
}

func gatewayID(n int) string { return fmt.Sprintf("gateway%06d", n) }

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
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
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
	result := make(chan Result, 2)
	w.Done = func(r Result) { result <- r }
	if err := s.Submit(w); err != nil {
		t.Fatalf("Submit: %v", err)
	}
	return result
}

func await[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(testLimit):
		t.Fatal("waited too long")
		panic("unreachable")
	}
}

func TestALockIsTakenAndGivenBackOnARealZooKeeper(t *testing.T) {
	cfg := testConfig(t)
	layout := openLayout(t, cfg)
	s := openSession(t, cfg, layout, 1)
	dir := DefaultRoot + "/locks/deploy"
	made := write(t, s, Op{Kind: OpCreate, Path: dir})
	if made.Outcome != Done {
		t.Fatalf("creating the directory: %+v", made)
	}
	got := write(t, s, Op{Kind: OpCreate, Path: dir + "/write-x-lock-", Data: []byte("{}"), Sequential: true})
	if got.Outcome != Done || got.Paths[0] != dir+"/write-x-lock-0000000000" {
		t.Fatalf("creating the contender: %+v", got)
	}
	stat, err := s.Exists(testContext(t), got.Paths[0])
	if err != nil || stat == nil || stat.Czxid != got.Zxid {
		t.Fatalf("Exists: %+v %v, want czxid %#x", stat, err, got.Zxid)
	}
	gone := write(t, s, Op{Kind: OpDelete, Path: got.Paths[0], Version: 0})
	if gone.Outcome != Done || gone.Zxid <= got.Zxid {
		t.Fatalf("deleting the contender: %+v", gone)
	}
	again := write(t, s, Op{Kind: OpDelete, Path: got.Paths[0], Version: 0})
	if again.Outcome != NotDone || again.Err != ErrNoNode || again.Culprit != 0 {
		t.Fatalf("deleting it again: %+v", again)
	}
	if err := s.Close(testContext(t)); err != nil {
		t.Fatalf("Close: %v", err)
	}
}
