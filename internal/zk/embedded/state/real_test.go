package state

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"

	"lockkeeper/internal/zk/wire"
	"lockkeeper/internal/zk/zkreal"
)

func TestMain(m *testing.M) { zkreal.Main(m) }

// real is a connection to a real ZooKeeper.
type real struct {
	t      *testing.T
	nc     net.Conn
	frames *wire.FrameReader
	events []string
}

func dialReal(t *testing.T, addr string) *real {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	c := &real{t: t, nc: nc, frames: wire.NewFrameReader(nc, 1<<20)}
	c.send(&wire.ConnectRequest{TimeoutMs: 30_000, Passwd: make([]byte, 16)})
	if _, err := c.frames.Next(); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *real) send(records ...wire.Record) {
	if _, err := c.nc.Write(wire.AppendFrame(nil, records...)); err != nil {
		c.t.Fatal(err)
	}
}

// do returns the body of the reply to a request that has to succeed.
func (c *real) do(op wire.Op, body wire.Record) *wire.Decoder {
	c.t.Helper()
	reply, err := c.try(op, body)
	if err != wire.OK {
		c.t.Fatalf("operation %d %+v: %v", op, body, err)
	}
	return wire.NewDecoder(reply)
}

func (c *real) try(op wire.Op, body wire.Record) ([]byte, wire.ErrCode) {
	c.t.Helper()
	c.send(&wire.RequestHeader{Xid: 7, Op: op}, body)
	for {
		frame, err := c.frames.Next()
		if err != nil {
			c.t.Fatal(err)
		}
		d := wire.NewDecoder(frame)
		var h wire.ReplyHeader
		h.Decode(d)
		if h.Xid != wire.XidWatcherEvent {
			return slices.Clone(frame[len(frame)-d.Len():]), h.Err
		}
		var e wire.WatcherEvent
		e.Decode(d)
		c.events = append(c.events, fmt.Sprintf("%s %s", eventNames[e.Type], e.Path))
	}
}

func (c *real) names(op wire.Op, body wire.Record) []string {
	c.t.Helper()
	var reply wire.ChildrenReply
	reply.Decode(c.do(op, body))
	return reply.Children
}

// Java's hash tables decide in what order children and ephemeral nodes are listed, in what order the nodes of a session
// go, and in what order a connection's identities are asked. These tests hold the orders of this package against them.

func TestChildrenAreListedInZooKeepersOrder(t *testing.T) {
	addr, root := zkreal.SharedT(t)
	theirs, ours := dialReal(t, addr), newRig(t).client(1)
	dir := root + "/children"
	for _, path := range parents(dir) {
		ours.create(path, 0)
	}
	theirs.do(wire.OpCreate, creation(dir, 0))
	random := rand.New(rand.NewPCG(1, 2))
	var there []string
	for i := range 400 {
		if len(there) > 0 && random.IntN(3) == 0 {
			at := random.IntN(len(there))
			gone := &wire.VersionRequest{Path: dir + "/" + there[at], Version: -1}
			theirs.do(wire.OpDelete, gone)
			ours.must(wire.OpDelete, gone)
			there = slices.Delete(there, at, at+1)
		} else {
			name := []string{fmt.Sprintf("n%d", random.IntN(1_000_000)), fmt.Sprintf("0123456789abcdef-%010d", i), fmt.Sprintf("größe-%d-日本", i)}[random.IntN(3)]
			if slices.Contains(there, name) {
				continue
			}
			theirs.do(wire.OpCreate, creation(dir+"/"+name, 0))
			ours.create(dir+"/"+name, 0)
			there = append(there, name)
		}
		want := theirs.names(wire.OpGetChildren, &wire.ReadRequest{Path: dir})
		if got := ours.childrenOf(dir); !slices.Equal(got, want) {
			t.Fatalf("%d children:\n got %q\nwant %q", len(there), got, want)
		}
	}
}

func TestASessionsNodesGoInZooKeepersOrder(t *testing.T) {
	addr, root := zkreal.SharedT(t)
	for _, count := range []int{3, 12, 13, 30, 120} {
		rig := newRig(t)
		theirs, ours := dialReal(t, addr), rig.client(1)
		watcher, witness := dialReal(t, addr), rig.client(2)
		dir := fmt.Sprintf("%s/session-%d", root, count)
		for _, path := range parents(dir) {
			ours.create(path, 0)
		}
		theirs.do(wire.OpCreate, creation(dir, 0))
		for i := range count {
			path := fmt.Sprintf("%s/e-%d", dir, i*i)
			theirs.do(wire.OpCreate, creation(path, wire.FlagEphemeral))
			ours.create(path, wire.FlagEphemeral)
		}
		for i := 0; i < count; i += 3 {
			gone := &wire.VersionRequest{Path: fmt.Sprintf("%s/e-%d", dir, i*i), Version: -1}
			theirs.do(wire.OpDelete, gone)
			ours.must(wire.OpDelete, gone)
		}
		want := theirs.names(wire.OpGetEphemerals, &wire.PathRecord{Path: "/"})
		got := ours.must(wire.OpGetEphemerals, &wire.PathRecord{Path: "/"}).Body.(*wire.ChildrenReply).Children
		if !slices.Equal(got, want) {
			t.Fatalf("%d ephemerals:\n got %q\nwant %q", count, got, want)
		}
		watch := &wire.AddWatchRequest{Path: dir, Mode: wire.WatchRecursive}
		watcher.do(wire.OpAddWatch, watch)
		witness.must(wire.OpAddWatch, watch)
		theirs.do(wire.OpCloseSession, raw{})
		ours.must(wire.OpCloseSession, nil)
		watcher.do(wire.OpPing, raw{})
		if !slices.Equal(witness.events, watcher.events) || len(witness.events) != count-(count+2)/3 {
			t.Fatalf("%d nodes go:\n got %q\nwant %q", count, witness.events, watcher.events)
		}
	}
}

func TestIdentitiesAreInZooKeepersOrder(t *testing.T) {
	addr, root := zkreal.SharedT(t)
	theirs, ours := dialReal(t, addr), newRig(t).client(1)
	for i := range 8 {
		auth := &wire.AuthRequest{Scheme: "digest", Auth: fmt.Appendf(nil, "user-%d:secret", i)}
		theirs.do(wire.OpAuth, auth)
		ours.must(wire.OpAuth, auth)
		var want wire.WhoAmIReply
		want.Decode(theirs.do(wire.OpWhoAmI, raw{}))
		got := ours.must(wire.OpWhoAmI, nil).Body.(*wire.WhoAmIReply)
		if !slices.Equal(got.Clients, want.Clients) {
			t.Fatalf("got %v\nwant %v", got.Clients, want.Clients)
		}
	}
	path := root + "/acl"
	for _, parent := range parents(root) {
		ours.create(parent, 0)
	}
	mine := &wire.CreateRequest{Path: path, ACL: []wire.ACL{{Perms: wire.PermAll, Scheme: "auth"}}}
	theirs.do(wire.OpCreate, mine)
	ours.must(wire.OpCreate, mine)
	var want wire.ACLReply
	want.Decode(theirs.do(wire.OpGetACL, &wire.PathRecord{Path: path}))
	if got := ours.must(wire.OpGetACL, &wire.PathRecord{Path: path}).Body.(*wire.ACLReply); !slices.Equal(got.ACL, want.ACL) {
		t.Fatalf("got %v\nwant %v", got.ACL, want.ACL)
	}
}

// parents are the paths from below the root to path itself.
func parents(path string) (paths []string) {
	for i := 1; i < len(path); i++ {
		if path[i] == '/' {
			paths = append(paths, path[:i])
		}
	}
	return append(paths, path)
}
