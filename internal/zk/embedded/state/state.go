package state

import (
	"cmp"

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

	root     *node
	acls     aclTable
	sessions map[int64]*session
	zxid     int64
	newest   []int64 // session ids; see NewestSession

	containers, ttls roster
	nodes            int
	dataSize         int64

	snapshot *Snapshot // the one under way, or nil
	mark     uint32    // markBit or 0: what the nodes have that it does not want any more, and all while there is none

	data, childs watchTable
	round        uint64 // of telling connections; see tell
	conns        int

	// Memory that is used again: what the transaction at hand has changed, and its operations.
	changes []change
	ops     []op
}

// New returns the state of a server that has never run: /, /zookeeper, /zookeeper/quota and /zookeeper/config.
func New(config Config) *State {
	s := &State{
		maxData:  cmp.Or(config.MaxData, 0xfffff),
		maxReply: cmp.Or(config.MaxReply, 64<<20),
		acls:     newACLTable(),
		sessions: make(map[int64]*session),
		data:     newWatchTable(dataKind),
		childs:   newWatchTable(childKind),
	}
	s.root = &node{data: []byte{}, acl: s.acls.hold(everyone)}
	proc := &node{name: "zookeeper", data: []byte{}, acl: s.acls.hold(everyone)}
	quota := &node{name: "quota", data: []byte{}, acl: s.acls.hold(everyone)}
	// Only the server itself may write the configuration. The version of its ACL is one too low in ZooKeeper, too.
	configNode := &node{name: "config", data: []byte{}, aversion: -1}
	configNode.acl = s.acls.hold([]wire.ACL{{Perms: wire.PermRead, Scheme: "world", ID: "anyone"}})
	s.root.link(proc)
	proc.link(quota)
	proc.link(configNode)
	s.nodes = 4
	s.dataSize = int64(len(procPath) + len(quotaPath) + len(configPath) + len("/"))
	return s
}

// Conn is one client connection as the state machine sees it: who it is, what it watches, and where its events go.
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
	round    uint64 // the last one in which it was told something
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
func (s *State) Attach(c *Conn) {
	if !c.attached {
		c.attached = true
		s.conns++
	}
}

// Detach forgets c's watches. Its session lives on.
func (s *State) Detach(c *Conn) {
	if !c.attached {
		return
	}
	s.data.removeAll(c)
	s.childs.removeAll(c)
	c.attached = false
	s.conns--
}

// Reply is the outcome of a request.
type Reply struct {
	Header wire.ReplyHeader
	// Body is nil when there is none. In one case (a multiRead of writes) it stands behind a header with an error.
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
	c := Counts{
		Nodes: s.nodes + 1, Sessions: len(s.sessions), Conns: s.conns,
		Watches: s.data.count + s.childs.count, DataWatches: s.data.count, WatchedPaths: len(s.data.byPath),
		Watchers: s.data.watchers, DataSize: s.dataSize,
	}
	for _, session := range s.sessions {
		c.Ephemerals += session.ephemerals.len()
	}
	return c
}
