package session

import (
	"errors"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/zk"
)

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
