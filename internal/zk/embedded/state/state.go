package state

import (
	"errors"
	"iter"

	"lockkeeper/internal/zk/wire"
)

// Config is what a State cannot know by itself.
type Config struct {
	// MaxData is jute.maxbuffer: the longest request. Larger ones never reach the state, which only checks what it writes
	// itself. 0 means 0xfffff, as in ZooKeeper.
	MaxData int
}

// State is the tree, the sessions and the watches of one server.
type State struct {
	config Config
	zxid   int64
}

// New returns the state of a server that has never run: /, /zookeeper, /zookeeper/quota and /zookeeper/config.
func New(config Config) *State {
	return &State{config: config}
}

// Conn is one client connection as the state machine sees it: who it is, what it watches, and where its events go.
type Conn struct {
	// Session is the session that the connection carries.
	Session int64
	// Deliver is called with each watch event of this connection, before the reply of any request that shows the change.
	// It must not block; the event is the callee's.
	Deliver func(wire.WatcherEvent)
}

// NewConn returns a connection from an address, which is its identity of the scheme "ip".
func NewConn(remoteIP string) *Conn { return &Conn{} }

// Reply is the outcome of a request.
type Reply struct {
	Header wire.ReplyHeader
	// Body is nil when there is none.
	Body wire.Record
	// None says that nothing is answered at all.
	None bool
	// Close says that the server closes the connection, after the reply if there is one.
	Close bool
	// Txn is what a log must keep. It is nil for a read. A write that failed has one too: it uses up a zxid.
	Txn *Txn
}

// Request carries out one request of an attached connection whose session lives. now is in milliseconds since the Unix
// epoch; body is what follows the header.
func (s *State) Request(c *Conn, now int64, h wire.RequestHeader, body []byte) Reply {
	return Reply{Header: wire.ReplyHeader{Xid: h.Xid, Zxid: s.zxid, Err: wire.ErrUnimplemented}}
}

// Attach makes c get events from now on.
func (s *State) Attach(c *Conn) {}

// Detach forgets c's watches. Its session lives on.
func (s *State) Detach(c *Conn) {}

// OpenSession begins the session id, which the server has chosen.
func (s *State) OpenSession(now int64, id int64, timeoutMs int32) *Txn { return nil }

// CloseSession ends a session that has expired. Its ephemeral nodes go, and events are delivered.
func (s *State) CloseSession(now int64, id int64) *Txn { return nil }

// HasSession says whether the session lives.
func (s *State) HasSession(id int64) bool { return false }

// Sessions yields each living session and its timeout in milliseconds, in the order of their ids.
func (s *State) Sessions() iter.Seq2[int64, int32] { return func(func(int64, int32) bool) {} }

// Reap deletes containers that have lost their last child and nodes whose time to live is over.
func (s *State) Reap(now int64) []*Txn { return nil }

// LastZxid is the newest transaction's.
func (s *State) LastZxid() int64 { return s.zxid }

// Apply replays one transaction from a log.
func (s *State) Apply(t *Txn) error { return errors.New("state: not implemented") }

// Counts are sizes of the state, for monitoring.
type Counts struct {
	// Nodes includes the root and ZooKeeper's own.
	Nodes      int
	Ephemerals int
	Sessions   int
	// Watches counts each path that a connection watches; Watchers are connections that watch anything.
	Watches      int
	WatchedPaths int
	Watchers     int
	// DataSize is the length of all paths and all data together.
	DataSize int64
}

// Counts returns the sizes of the state.
func (s *State) Counts() Counts { return Counts{} }
