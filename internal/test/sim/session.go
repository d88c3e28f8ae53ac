package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"lockkeeper/internal/test/zktest"
	"lockkeeper/internal/zk/wire"
)

// session is a small ZooKeeper client for programs that are no gateways. It reconnects never: when something goes wrong its
// user opens another one.
type session struct {
	name   string
	nc     net.Conn
	frames *wire.FrameReader
	xid    int32
	id     int64
}

// foreignTimeout is the session timeout of programs that are no gateways.
const foreignTimeout = 4 * time.Second

var everyone = []wire.ACL{{Perms: wire.PermAll, Scheme: "world", ID: "anyone"}}

// openSession connects with a server.
func (w *world) openSession(name, server string) (*session, error) {
	nc, err := w.zk.Dialer(name)(context.Background(), "tcp", server)
	if err != nil {
		return nil, err
	}
	s := &session{name: name, nc: nc, frames: wire.NewFrameReader(nc, 1<<20)}
	hello := &wire.ConnectRequest{TimeoutMs: int32(foreignTimeout.Milliseconds()), Passwd: make([]byte, 16)}
	reply := new(wire.ConnectReply)
	err = nc.SetDeadline(time.Now().Add(foreignTimeout))
	if err == nil {
		_, err = nc.Write(wire.AppendFrame(nil, hello))
	}
	var frame []byte
	if err == nil {
		frame, err = s.frames.Next()
	}
	if err == nil {
		d := wire.NewDecoder(frame)
		reply.Decode(d)
		err = d.Err()
	}
	if err == nil && reply.SessionID == 0 {
		err = errors.New("refused")
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	s.id = reply.SessionID
	return s, nil
}

// call sends a request and waits for its reply.
func (s *session) call(op wire.Op, body, reply wire.Record) error {
	s.xid++
	xid := s.xid
	records := []wire.Record{&wire.RequestHeader{Xid: xid, Op: op}}
	if body != nil {
		records = append(records, body)
	}
	if err := s.nc.SetDeadline(time.Now().Add(foreignTimeout / 2)); err != nil {
		return err
	}
	if _, err := s.nc.Write(wire.AppendFrame(nil, records...)); err != nil {
		return err
	}
	frame, err := s.frames.Next()
	if err != nil {
		return err
	}
	d := wire.NewDecoder(frame)
	var h wire.ReplyHeader
	h.Decode(d)
	if d.Err() != nil || h.Xid != xid {
		return fmt.Errorf("a reply to %d, not to %d: %w", h.Xid, xid, d.Err())
	}
	if h.Err != wire.OK {
		return h.Err
	}
	if reply != nil {
		reply.Decode(d)
	}
	return d.Err()
}

func (s *session) create(path string, data string, flags int32) (string, error) {
	var reply wire.PathRecord
	err := s.call(wire.OpCreate, &wire.CreateRequest{Path: path, Data: []byte(data), ACL: everyone, Flags: flags}, &reply)
	return reply.Path, err
}

func (s *session) delete(path string) error {
	return s.call(wire.OpDelete, &wire.VersionRequest{Path: path, Version: -1}, nil)
}

func (s *session) set(path, data string) error {
	return s.call(wire.OpSetData, &wire.SetDataRequest{Path: path, Data: []byte(data), Version: -1}, nil)
}

func (s *session) children(path string) ([]string, error) {
	var reply wire.ChildrenReply
	err := s.call(wire.OpGetChildren, &wire.ReadRequest{Path: path}, &reply)
	return reply.Children, err
}

// close ends the session in good order.
func (s *session) close() {
	_ = s.call(wire.OpCloseSession, nil, nil) // it expires otherwise
	s.nc.Close()
}

// administer does something with a session of its own at the leader.
func (w *world) administer(what func(*session)) {
	s, err := w.openSession("administrator", zktest.LeaderName)
	if err != nil {
		return // the leader is away
	}
	defer s.close()
	what(s)
}
