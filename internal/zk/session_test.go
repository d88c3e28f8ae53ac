package zk

import (
	"errors"
	"testing"
)

func TestALockIsTakenAndGivenBack(t *testing.T) {
	cfg := testConfig(t)
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	dir := DefaultRoot + "/locks/deploy"
	mustBeDone(t, write(t, s, Op{Kind: OpCreate, Path: dir}))
	got := mustBeDone(t, write(t, s, Op{Kind: OpCreate, Path: dir + "/write-x-lock-", Data: []byte("{}"), Sequential: true}))
	if want := dir + "/write-x-lock-0000000000"; got.Paths[0] != want {
		t.Fatalf("path %s, want %s", got.Paths[0], want)
	}
	gone := mustBeDone(t, write(t, s, Op{Kind: OpDelete, Path: got.Paths[0], Version: 0}))
	if gone.Zxid <= got.Zxid {
		t.Fatalf("the delete's zxid %#x is not after the create's %#x", gone.Zxid, got.Zxid)
	}
	again := write(t, s, Op{Kind: OpDelete, Path: got.Paths[0], Version: 0})
	if again.Outcome != NotDone || !errors.Is(again.Err, ErrNoNode) || again.Culprit != 0 {
		t.Fatalf("deleting it again: %+v", again)
	}
	if err := s.Close(testContext(t)); err != nil {
		t.Fatalf("Close: %v", err)
	}
}
