package embedded_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/zk/wire"
)

// patience is for what must happen; a loaded machine may take its time. In a bubble it costs nothing.
const patience = 30 * time.Second

var everyone = []wire.ACL{{Perms: wire.PermAll, Scheme: "world", ID: "anyone"}}

// raw is a client that sends and receives frames and does nothing by itself.
type raw struct {
	t      testing.TB
	nc     net.Conn
	frames *wire.FrameReader
	xid    int32
	id     int64
	passwd []byte
}

func dialRaw(t testing.TB, s *embeddedtest.Server) *raw {
	t.Helper()
	nc, err := s.Dial(context.Background(), "tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return &raw{t: t, nc: nc, frames: wire.NewFrameReader(nc, 64<<20)}
}

// openRaw is a client with a new session.
func openRaw(t testing.TB, s *embeddedtest.Server, timeout time.Duration) *raw {
	t.Helper()
	r := dialRaw(t, s)
	reply, err := r.connect(&wire.ConnectRequest{TimeoutMs: int32(timeout.Milliseconds()), Passwd: make([]byte, 16)})
	if err != nil || reply.SessionID == 0 {
		t.Fatalf("no session: %+v, %v", reply, err)
	}
	return r
}

func (r *raw) connect(request *wire.ConnectRequest) (reply wire.ConnectReply, err error) {
	r.t.Helper()
	if err := r.write(wire.AppendFrame(nil, request)); err != nil {
		return reply, err
	}
	frame, err := r.next()
	if err != nil {
		return reply, err
	}
	d := wire.NewDecoder(frame)
	reply.Decode(d)
	r.id, r.passwd = reply.SessionID, append([]byte(nil), reply.Passwd...)
	return reply, d.Finish()
}

// again connects anew with the session of r.
func (r *raw) again(s *embeddedtest.Server, timeout time.Duration) (*raw, wire.ConnectReply, error) {
	r.t.Helper()
	n := dialRaw(r.t, s)
	reply, err := n.connect(&wire.ConnectRequest{TimeoutMs: int32(timeout.Milliseconds()), SessionID: r.id, Passwd: r.passwd})
	return n, reply, err
}

func (r *raw) write(b []byte) error {
	if err := r.nc.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, err := r.nc.Write(b)
	return err
}

func (r *raw) next() ([]byte, error) {
	if err := r.nc.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	return r.frames.Next()
}

// ended waits for the server to close the connection, and fails when it sends something or nothing.
func (r *raw) ended(why string) {
	r.t.Helper()
	frame, err := r.next()
	var timeout net.Error
	if err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		r.t.Fatalf("%s: want the end of the connection, got %x, %v", why, frame, err)
	}
}

// got is one frame from the server.
type got struct {
	header wire.ReplyHeader
	body   []byte
}

func (r *raw) receive() got {
	r.t.Helper()
	frame, err := r.next()
	if err != nil {
		r.t.Fatalf("receive: %v", err)
	}
	d := wire.NewDecoder(frame)
	var g got
	g.header.Decode(d)
	if d.Err() != nil {
		r.t.Fatalf("reply of %d bytes", len(frame))
	}
	g.body = append(g.body, frame[16:]...)
	return g
}

func (g got) event(t testing.TB) wire.WatcherEvent {
	t.Helper()
	var e wire.WatcherEvent
	d := wire.NewDecoder(g.body)
	if e.Decode(d); g.header.Xid != wire.XidWatcherEvent || d.Finish() != nil {
		t.Fatalf("no event: %+v", g)
	}
	return e
}

func request(xid int32, op wire.Op, body wire.Record) []byte {
	header := &wire.RequestHeader{Xid: xid, Op: op}
	if body == nil {
		return wire.AppendFrame(nil, header)
	}
	return wire.AppendFrame(nil, header, body)
}

// send sends a request and does not wait.
func (r *raw) send(op wire.Op, body wire.Record) int32 {
	r.t.Helper()
	r.xid++
	if err := r.write(request(r.xid, op, body)); err != nil {
		r.t.Fatalf("send: %v", err)
	}
	return r.xid
}

// call sends a request and returns its reply, which must be the next frame.
func (r *raw) call(op wire.Op, body wire.Record) got {
	r.t.Helper()
	xid := r.send(op, body)
	g := r.receive()
	if g.header.Xid != xid {
		r.t.Fatalf("operation %d: a frame with xid %d before the reply %d", op, g.header.Xid, xid)
	}
	return g
}

// must is call for what succeeds.
func (r *raw) must(op wire.Op, body wire.Record) got {
	r.t.Helper()
	g := r.call(op, body)
	if g.header.Err != wire.OK {
		r.t.Fatalf("operation %d: %v", op, g.header.Err)
	}
	return g
}

func (r *raw) create(path string, data []byte, flags int32) {
	r.t.Helper()
	r.must(wire.OpCreate, &wire.CreateRequest{Path: path, Data: data, ACL: everyone, Flags: flags})
}

func (r *raw) exists(path string) bool {
	r.t.Helper()
	switch g := r.call(wire.OpExists, &wire.ReadRequest{Path: path}); g.header.Err {
	case wire.OK:
		return true
	case wire.ErrNoNode:
		return false
	default:
		r.t.Fatalf("exists %s: %v", path, g.header.Err)
		return false
	}
}

func (r *raw) ping() {
	r.t.Helper()
	if err := r.write(request(wire.XidPing, wire.OpPing, nil)); err != nil {
		r.t.Fatal(err)
	}
	if g := r.receive(); g.header.Xid != wire.XidPing || g.header.Err != wire.OK {
		r.t.Fatalf("ping answered by %+v", g)
	}
}

func (r *raw) close() {
	r.t.Helper()
	r.must(wire.OpCloseSession, nil)
	r.ended("the session is closed")
}
