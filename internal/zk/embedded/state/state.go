package state

import (
	"cmp"
	"fmt"

	"lockkeeper/internal/zk/wire"
)

// Config is what a State cannot know by itself.
type Config struct {
	// MaxData is jute.maxbuffer, the length of the longest request with its header. A longer one closes the connection.
	// 0 is ZooKeeper's default, 0xfffff.
	MaxData int
	// MaxReply is about how long the reply to a multiRead may get, the one reply that can be far longer than what it tells
	// of. A longer one closes the connection. 0 is 64 MiB.
	MaxReply int
}

// State is the tree, the sessions and the watches of one server.
type State struct {
	maxData, maxReply int

	zxid    int64
	tree    tree
	owners  owners
	watches watches

	// Of the multi at hand: memory that is used again.
	ops     []op
	results []wire.MultiResult
}

// New returns the state of a server that has never run: /, /zookeeper, /zookeeper/quota and /zookeeper/config.
func New(config Config) *State {
	s := newState(config)
	acls := s.tree.acls
	named := func(name string, acl []wire.ACL) *node {
		n := &node{acl: acls.hold(acl)}
		n.set(name, []byte{})
		return n
	}
	s.tree.root = named("", everyone)
	proc, quota := named("zookeeper", everyone), named("quota", everyone)
	// Only the server itself may write the configuration. The version of its ACL is one too low in ZooKeeper, too.
	configNode := named("config", []wire.ACL{{Perms: wire.PermRead, Scheme: "world", ID: "anyone"}})
	configNode.makeRarest().aversion = -1
	s.tree.root.link(proc)
	proc.link(quota)
	proc.link(configNode)
	s.tree.nodes = 4
	s.tree.dataSize = int64(len(procPath) + len(quotaPath) + len(configPath) + len("/"))
	return s
}

// newState is a state without any node.
func newState(config Config) *State {
	acls := newACLTable()
	return &State{
		maxData:  cmp.Or(config.MaxData, 0xfffff),
		maxReply: cmp.Or(config.MaxReply, 64<<20),
		tree:     tree{acls: acls, shapes: shapes{ids: make(map[string]uint64)}},
		owners:   owners{sessions: make(map[int64]*session)},
		watches:  watches{acls: acls, data: newWatchTable(dataKind), childs: newWatchTable(childKind)},
	}
}

// Conn is one client connection as the state machine sees it: its identities, its watches, and where its events go.
type Conn struct {
	// Session is the session that the connection carries.
	Session int64
	// Unlisted says that the tree does not know the session: it is one of ZooKeeper's local sessions, of which no transaction
	// tells. It can read and leave watches, but it has no ephemeral nodes to ask for.
	Unlisted bool
	// Deliver is called with each watch event of this connection, before the reply of any request that shows the change.
	// It must not block, and it must not call the State; the event is the callee's.
	Deliver func(wire.WatcherEvent)

	ip       string
	who      []identity
	super    bool // passes every ACL; only NewSuper sets it
	attached bool
	watches  [watchKinds]map[string]watchMode
	round    uint64 // the last change of which it has an event
}

// NewConn returns a connection from an address, which is its identity of the scheme "ip".
func NewConn(remoteIP string) *Conn {
	return &Conn{ip: remoteIP, who: []identity{{schemeIP, remoteIP}}}
}

// NewSuper returns a connection that passes every ACL, as ZooKeeper's super user does. It is for the process that owns the
// store. No request gives a connection this right.
func NewSuper(remoteIP string) *Conn {
	c := NewConn(remoteIP)
	c.super, c.who = true, addIdentity(c.who, identity{scheme: schemeSuper})
	return c
}

// Attach makes c get events from now on.
func (s *State) Attach(c *Conn) { s.watches.attach(c) }

// Detach forgets c's watches. Its session lives on.
func (s *State) Detach(c *Conn) { s.watches.detach(c) }

// Reply is the outcome of a request.
type Reply struct {
	Header wire.ReplyHeader
	// Body is nil when there is none, and must not be used after the next request. In one case (a multiRead of writes) it
	// stands behind a header with an error.
	Body wire.Record
	// None says that nothing is answered at all.
	None bool
	// Close says that the server closes the connection, after the reply if there is one.
	Close bool
	// Txn is what a log must keep. It is nil for a read. A write that failed has one too: it uses up a zxid.
	Txn *Txn
}

// LastZxid is the newest transaction's.
func (s *State) LastZxid() int64 { return s.zxid }

// Counts are sizes of the state, for monitoring.
type Counts struct {
	// Nodes counts the root twice, as ZooKeeper does.
	Nodes      int
	Ephemerals int
	Sessions   int
	Conns      int
	// Watches are those of both kinds: a persistent watch is two. WatchedPaths and Watchers (connections) count the data
	// watches only: what ZooKeeper tells of its watches.
	Watches, DataWatches, WatchedPaths, Watchers int
	// DataSize is the length of all paths and all data together.
	DataSize int64
}

// Counts returns the sizes of the state. It takes time in proportion to the sessions.
func (s *State) Counts() Counts {
	w := &s.watches
	c := Counts{
		Nodes: s.tree.nodes + 1, Sessions: len(s.owners.sessions), Conns: w.conns,
		Watches: w.data.count + w.childs.count, DataWatches: w.data.count, WatchedPaths: len(w.data.byPath),
		Watchers: w.data.watchers, DataSize: s.tree.dataSize,
	}
	for _, session := range s.owners.sessions {
		c.Ephemerals += session.ephemerals.len()
	}
	return c
}

// transact applies and commits changes that are decided already, as one transaction of the server's own.
func (s *State) transact(now int64, ops []TxnOp) *Txn {
	s.zxid++
	for i := range ops {
		s.tree.mustApply(&ops[i], s.zxid, now)
	}
	s.commit()
	return &Txn{Zxid: s.zxid, Time: now, Ops: ops}
}

// Apply replays a transaction of a log: no connection, no reply, no event unless a connection watches. Zxids must rise by one.
// After an error the state is of no use.
func (s *State) Apply(t *Txn) error {
	if t.Zxid != s.zxid+1 {
		return fmt.Errorf("state: transaction %#x cannot follow %#x", t.Zxid, s.zxid)
	}
	if t.Err != wire.OK && len(t.Ops) > 0 {
		return fmt.Errorf("state: transaction %#x failed and has changes", t.Zxid)
	}
	ends := false
	for i := range t.Ops {
		switch op := &t.Ops[i]; op.Kind {
		case TxnOpenSession:
			s.owners.open(t.Session, op.Timeout)
		case TxnCloseSession:
			ends = true
		default:
			if op.Kind == TxnCreate && isEphemeral(op.Owner) && !s.HasSession(op.Owner) {
				return fmt.Errorf("state: transaction %#x: no session %#x for %q", t.Zxid, op.Owner, op.Path)
			}
			if _, err := s.tree.apply(op, t.Zxid, t.Time); err != nil {
				return fmt.Errorf("transaction %#x: %w", t.Zxid, err)
			}
		}
	}
	s.zxid = t.Zxid
	s.commit()
	if ends {
		delete(s.owners.sessions, t.Session) // not sooner: its roster is needed for its nodes to go
	}
	return nil
}
