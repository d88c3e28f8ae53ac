package sim

import (
	"context"
	"time"

	"lockkeeper/internal/test/rawzk"
	"lockkeeper/internal/test/zktest"
	"lockkeeper/internal/zk/wire"
)

// session is a ZooKeeper client for programs that are no gateways. It never reconnects: after an error its user opens
// another one.
type session struct{ *rawzk.Client }

// foreignTimeout is the session timeout of programs that are no gateways.
const foreignTimeout = 4 * time.Second

var everyone = []wire.ACL{{Perms: wire.PermAll, Scheme: "world", ID: "anyone"}}

// openSession connects with a server.
func (w *world) openSession(name, server string) (*session, error) {
	nc, err := w.zk.Dialer(name)(context.Background(), "tcp", server)
	if err != nil {
		return nil, err
	}
	c, err := rawzk.Open(nc, foreignTimeout, foreignTimeout)
	if err != nil {
		return nil, err
	}
	c.Patience = foreignTimeout / 2
	return &session{c}, nil
}

func (s *session) create(path string, data string, flags int32) (string, error) {
	var reply wire.PathRecord
	err := s.Must(wire.OpCreate, &wire.CreateRequest{Path: path, Data: []byte(data), ACL: everyone, Flags: flags}, &reply)
	return reply.Path, err
}

func (s *session) delete(path string) error {
	return s.Must(wire.OpDelete, &wire.VersionRequest{Path: path, Version: -1}, nil)
}

func (s *session) set(path, data string) error {
	return s.Must(wire.OpSetData, &wire.SetDataRequest{Path: path, Data: []byte(data), Version: -1}, nil)
}

func (s *session) children(path string) ([]string, error) {
	var reply wire.ChildrenReply
	err := s.Must(wire.OpGetChildren, &wire.ReadRequest{Path: path}, &reply)
	return reply.Children, err
}

// close ends the session in good order.
func (s *session) close() {
	_ = s.Must(wire.OpCloseSession, nil, nil) // it expires otherwise
	s.Conn.Close()
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
