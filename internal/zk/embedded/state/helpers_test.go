package state

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/wire"
)

// rig is a State with clients, and everything that it has ever said.
type rig struct {
	t    testing.TB
	s    *State
	now  int64
	said strings.Builder // replies and events, in order, as bytes
	txns []*Txn
}

// client is one connection with a session of its own.
type client struct {
	*rig
	conn   *Conn
	events []string
}

func newRig(t testing.TB) *rig { return &rig{t: t, s: New(Config{}), now: 1_000_000} }

func (r *rig) client(session int64) *client {
	if !r.s.HasSession(session) {
		r.log(r.s.OpenSession(r.now, session, 10_000))
	}
	c := &client{rig: r, conn: NewConn("127.0.0.1")}
	c.conn.Session = session
	c.conn.Deliver = func(e wire.WatcherEvent) {
		fmt.Fprintf(&r.said, "event %#x %d %s\n", session, e.Type, e.Path)
		c.events = append(c.events, fmt.Sprintf("%s %s", eventNames[e.Type], e.Path))
	}
	r.s.Attach(c.conn)
	return c
}

var eventNames = map[wire.EventType]string{
	wire.EventCreated: "created", wire.EventDeleted: "deleted", wire.EventDataChanged: "data", wire.EventChildrenChanged: "children",
}

func (r *rig) log(txns ...*Txn) {
	r.t.Helper()
	for _, t := range txns {
		if t == nil {
			continue
		}
		if want := int64(len(r.txns)) + 1; t.Zxid != want || r.s.LastZxid() < t.Zxid {
			r.t.Fatalf("transaction %d, want %d (last of the state %d)", t.Zxid, want, r.s.LastZxid())
		}
		r.txns = append(r.txns, t)
	}
}

// raw is a body as it stands.
type raw []byte

func (b raw) AppendTo(to []byte) []byte { return append(to, b...) }
func (raw) Decode(*wire.Decoder)        {}

// do carries out a request.
func (c *client) do(op wire.Op, body wire.Record) Reply {
	c.t.Helper()
	var b []byte
	if body != nil {
		b = body.AppendTo(nil)
	}
	r := c.s.Request(c.conn, c.now, wire.RequestHeader{Xid: 7, Op: op}, b)
	c.log(r.Txn)
	// The state must not keep the request.
	for i := range b {
		b[i] = 0xee
	}
	answer := []byte{}
	if r.Body != nil {
		answer = r.Body.AppendTo(answer)
	}
	fmt.Fprintf(&c.said, "reply %#x op %d zxid %d err %d none %v close %v %x\n", c.conn.Session, op, r.Header.Zxid, r.Header.Err, r.None, r.Close, answer)
	return r
}

// must is do for a request that has to succeed.
func (c *client) must(op wire.Op, body wire.Record) Reply {
	c.t.Helper()
	r := c.do(op, body)
	assert.Must(c.t, r.Header.Err == wire.OK && !r.None, "operation %d %+v: %v", op, body, r.Header.Err)
	return r
}

func (c *client) create(path string, flags int32) string {
	c.t.Helper()
	return c.must(wire.OpCreate, creation(path, flags)).Body.(*wire.PathRecord).Path
}

func (c *client) delete(path string) {
	c.t.Helper()
	c.must(wire.OpDelete, &wire.VersionRequest{Path: path, Version: -1})
}

func (c *client) set(path, data string) {
	c.t.Helper()
	c.must(wire.OpSetData, &wire.SetDataRequest{Path: path, Data: []byte(data), Version: -1})
}

func (c *client) data(path string) string {
	c.t.Helper()
	return string(c.must(wire.OpGetData, &wire.ReadRequest{Path: path}).Body.(*wire.DataReply).Data)
}

func (c *client) stat(path string) wire.Stat {
	c.t.Helper()
	return c.must(wire.OpExists, &wire.ReadRequest{Path: path}).Body.(*wire.StatReply).Stat
}

func (c *client) childrenOf(path string) []string {
	c.t.Helper()
	return c.must(wire.OpGetChildren, &wire.ReadRequest{Path: path}).Body.(*wire.ChildrenReply).Children
}

func (c *client) login(user string) {
	c.t.Helper()
	c.must(wire.OpAuth, &wire.AuthRequest{Scheme: "digest", Auth: []byte(user + ":pw")})
}

// took is the events since the last call.
func (c *client) took() []string {
	events := c.events
	c.events = nil
	return events
}

func (c *client) expect(events ...string) {
	c.t.Helper()
	assert.MustSlices(c.t, c.took(), events, "events")
}

func creation(path string, flags int32) *wire.CreateRequest {
	return &wire.CreateRequest{Path: path, Data: []byte{}, ACL: everyone, Flags: flags}
}

func multi(ops ...wire.MultiOp) *wire.MultiRequest { return &wire.MultiRequest{Ops: ops} }

// dump writes down everything that a State holds but its watches.
func dump(s *State) string {
	var b strings.Builder
	fmt.Fprintf(&b, "zxid %d nodes %d size %d newest %x\n", s.zxid, s.tree.nodes, s.tree.dataSize, s.owners.newest)
	var walk func(n *node)
	walk = func(n *node) {
		fmt.Fprintf(&b, "%s %q null %v acl %v c%d m%d p%d t%d/%d owner %#x v%d/%d/%d\n", n.path(), s.tree.data(n), n.null, s.tree.acls.list(n.acl),
			n.czxid, n.mzxid(), n.pzxid(), n.ctime, n.mtime(), n.owner(), n.version(), n.cversion(), n.aversion())
		var kids []*node
		n.each(func(c *node) {
			if c.parent != n {
				fmt.Fprintf(&b, "%s has another parent\n", c.name())
			}
			kids = append(kids, c)
		})
		slices.SortFunc(kids, func(a, b *node) int { return cmp.Compare(a.name(), b.name()) })
		for _, c := range kids {
			walk(c)
		}
	}
	walk(s.tree.root)
	roster := func(name string, r *roster) {
		fmt.Fprintf(&b, "%s:", name)
		for i, n := range r.nodes {
			if n != nil {
				fmt.Fprintf(&b, " %s", n.path())
				if int(n.slot()) != i {
					fmt.Fprintf(&b, " WRONG SLOT %d", n.slot())
				}
			}
		}
		b.WriteByte('\n')
	}
	roster("containers", &s.owners.containers)
	roster("ttls", &s.owners.ttls)
	for id, timeout := range s.Sessions() {
		roster(fmt.Sprintf("session %#x %d", id, timeout), &s.owners.sessions[id].ephemerals)
	}
	for _, key := range slices.Sorted(maps.Keys(s.tree.acls.ids)) {
		fmt.Fprintf(&b, "acl %q used %d\n", key, s.tree.acls.lists[s.tree.acls.ids[key]].uses)
	}
	return b.String()
}

// check finds what must never be: sizes that do not fit the tree.
func check(t testing.TB, s *State) {
	t.Helper()
	nodes, size := 0, int64(0)
	uses, clients := make(map[aclID]int), make(map[aclID]bool)
	shaped := make(map[uint64]int)
	var walk func(n *node)
	walk = func(n *node) {
		nodes++
		uses[n.acl]++
		clients[n.acl] = clients[n.acl] || !special(n.path())
		if s.tree.snapshot == nil && !s.tree.written(n) {
			t.Fatalf("%s has the mark of another snapshot", n.path())
		}
		size += int64(len(n.path()) + n.dataLength())
		if n.packed {
			_, rest := cutUvarint(n.stored())
			id, _ := cutUvarint(rest)
			shaped[id]++
		}
		n.each(walk)
	}
	walk(s.tree.root)
	assert.Must(t, nodes == s.tree.nodes && size == s.tree.dataSize,
		"%d nodes of %d bytes, counted %d of %d", nodes, size, s.tree.nodes, s.tree.dataSize)
	for id, list := range s.tree.acls.lists {
		want := uses[aclID(id)]
		if aclID(id) == openACL {
			want++ // the table's own
		}
		assert.Must(t, list.uses == want, "ACL %v is used %d times, counted %d", list.acl, want, list.uses)
	}
	for id, shape := range s.tree.shapes.list {
		assert.Must(t, shape.uses == shaped[uint64(id)], "shape %q is used %d times, counted %d", shape.text, shaped[uint64(id)], shape.uses)
	}
	var inUse [][]wire.ACL
	for id, list := range s.tree.acls.lists {
		if clients[aclID(id)] {
			inUse = append(inUse, list.acl)
		}
	}
	assert.Must(t, slices.EqualFunc(s.ACLs(), inUse, slices.Equal), "the ACLs of nodes are told as %v, and are %v", s.ACLs(), inUse)
	for _, table := range []*watchTable{&s.watches.data, &s.watches.childs} {
		count, watchers := 0, make(map[*Conn]int)
		for _, list := range table.byPath {
			count += len(list)
			for _, w := range list {
				watchers[w.conn]++
			}
		}
		assert.Must(t, count == table.count && len(watchers) == table.watchers,
			"%d watches of %d connections, counted %d of %d", count, len(watchers), table.count, table.watchers)
		for c, n := range watchers {
			assert.Must(t, len(c.watches[table.kind]) == n,
				"a connection with %d watches has %d on its list", n, len(c.watches[table.kind]))
		}
	}
	assert.Must(t, len(s.tree.changes) == 0 && len(s.ops) == 0, "a transaction was left behind")
}
