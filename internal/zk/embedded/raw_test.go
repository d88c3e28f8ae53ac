package embedded_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/rawzk"
	"lockkeeper/internal/zk/wire"
)

// patience is for what must happen; a loaded machine may take its time. In a bubble it costs nothing.
const patience = 30 * time.Second

var everyone = []wire.ACL{{Perms: wire.PermAll, Scheme: "world", ID: "anyone"}}

// raw is a client that fails its test when something goes wrong.
type raw struct {
	*rawzk.Client
	t testing.TB
}

func dialRaw(t testing.TB, s *embeddedtest.Server) *raw {
	t.Helper()
	nc := assert.Value(s.Dial(context.Background(), "tcp", s.Addr()))(t)
	t.Cleanup(func() { nc.Close() })
	return &raw{rawzk.New(nc, patience), t}
}

// openRaw is a client with a new session.
func openRaw(t testing.TB, s *embeddedtest.Server, timeout time.Duration) *raw {
	t.Helper()
	r := dialRaw(t, s)
	reply, err := r.Connect(&wire.ConnectRequest{TimeoutMs: int32(timeout.Milliseconds()), Passwd: make([]byte, 16)})
	assert.Must(t, err == nil && reply.SessionID != 0, "no session: %+v, %v", reply, err)
	return r
}

// again connects anew with the session of r.
func (r *raw) again(s *embeddedtest.Server, timeout time.Duration) (*raw, wire.ConnectReply, error) {
	r.t.Helper()
	n := dialRaw(r.t, s)
	reply, err := n.Connect(&wire.ConnectRequest{TimeoutMs: int32(timeout.Milliseconds()), SessionID: r.ID, Passwd: r.Passwd})
	return n, reply, err
}

// ended waits for the server to close the connection, and fails when it sends something or nothing.
func (r *raw) ended(why string) {
	r.t.Helper()
	frame, err := r.Next()
	var timeout net.Error
	assert.Must(r.t, err != nil && (!errors.As(err, &timeout) || !timeout.Timeout()),
		"%s: want the end of the connection, got %x, %v", why, frame, err)
}

func (r *raw) receive() rawzk.Frame {
	r.t.Helper()
	f := assert.Value(r.Receive())(r.t, "receive")
	return f
}

// event is the next frame, which must be an event.
func (r *raw) event() (e wire.WatcherEvent) {
	r.t.Helper()
	f := r.receive()
	d := wire.NewDecoder(f.Body)
	if e.Decode(d); f.Xid != wire.XidWatcherEvent || d.Finish() != nil {
		r.t.Fatalf("no event: %+v", f)
	}
	return e
}

// send sends a request and does not wait.
func (r *raw) send(op wire.Op, body wire.Record) {
	r.t.Helper()
	assert.Value(r.Send(op, body))(r.t, "send")
}

// call sends a request and returns its reply, which must be the next frame.
func (r *raw) call(op wire.Op, body wire.Record) rawzk.Frame {
	r.t.Helper()
	f := assert.Value(r.Call(op, body, nil))(r.t)
	return f
}

// must is call for what succeeds.
func (r *raw) must(op wire.Op, body wire.Record) rawzk.Frame {
	r.t.Helper()
	f := r.call(op, body)
	assert.Must(r.t, f.Err == wire.OK, "operation %d: %v", op, f.Err)
	return f
}

func (r *raw) create(path string, data []byte, flags int32) {
	r.t.Helper()
	r.must(wire.OpCreate, &wire.CreateRequest{Path: path, Data: data, ACL: everyone, Flags: flags})
}

func (r *raw) exists(path string) bool {
	r.t.Helper()
	switch f := r.call(wire.OpExists, &wire.ReadRequest{Path: path}); f.Err {
	case wire.OK:
		return true
	case wire.ErrNoNode:
		return false
	default:
		r.t.Fatalf("exists %s: %v", path, f.Err)
		return false
	}
}

func (r *raw) ping() {
	r.t.Helper()
	r.must(wire.OpPing, nil)
}

func (r *raw) close() {
	r.t.Helper()
	r.must(wire.OpCloseSession, nil)
	r.ended("the session is closed")
}
