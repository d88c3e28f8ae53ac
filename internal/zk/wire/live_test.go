package wire

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/test/zkreal"
)

func TestMain(m *testing.M) { zkreal.Main(m) }

// client speaks to a real server with nothing but this package.
type client struct {
	t      *testing.T
	nc     net.Conn
	frames *FrameReader
	xid    int32
}

func dial(t *testing.T, addr string) *client {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, nc: nc, frames: NewFrameReader(nc, 1<<20)}
	c.send(&ConnectRequest{TimeoutMs: 10_000, Passwd: make([]byte, 16), HasReadOnly: true})
	var reply ConnectReply
	c.receive(&reply)
	if reply.SessionID == 0 || reply.TimeoutMs != 10_000 || len(reply.Passwd) != 16 || !reply.HasReadOnly {
		t.Fatalf("connect reply %+v", reply)
	}
	return c
}

func (c *client) send(records ...Record) {
	c.t.Helper()
	if _, err := c.nc.Write(AppendFrame(nil, records...)); err != nil {
		c.t.Fatal(err)
	}
}

// receive decodes the next frame, which must hold these records exactly; what
// follows a reply's header is left out when the header tells an error.
func (c *client) receive(records ...Record) {
	c.t.Helper()
	frame, err := c.frames.Next()
	if err != nil {
		c.t.Fatal(err)
	}
	d := NewDecoder(frame)
	for _, r := range records {
		r.Decode(d)
		if h, ok := r.(*ReplyHeader); ok && h.Err != OK {
			break
		}
	}
	if err := d.Finish(); err != nil {
		c.t.Fatalf("%T: %v in %x", records[len(records)-1], err, frame)
	}
}

// call makes a request and checks the code it is answered with.
func (c *client) call(op Op, want ErrCode, request, reply Record) {
	c.t.Helper()
	c.xid++
	c.send(&RequestHeader{Xid: c.xid, Op: op}, request)
	h := &ReplyHeader{}
	if reply == nil {
		c.receive(h)
	} else {
		c.receive(h, reply)
	}
	if h.Xid != c.xid || h.Err != want || h.Zxid <= 0 {
		c.t.Fatalf("operation %d %+v: reply %+v, want %v", op, request, h, want)
	}
}

// TestARealServerUnderstandsEveryRecord sends each operation that clients use
// to ZooKeeper and decodes what it answers, to the last byte.
func TestARealServerUnderstandsEveryRecord(t *testing.T) {
	addr, root := zkreal.SharedT(t)
	c := dial(t, addr)
	open := []ACL{{PermAll, "world", "anyone"}}

	c.send(&RequestHeader{XidAuth, OpAuth}, &AuthRequest{Scheme: "digest", Auth: []byte("u:p")})
	var h ReplyHeader
	if c.receive(&h); h.Xid != XidAuth || h.Err != OK {
		t.Fatalf("auth: %+v", h)
	}
	c.send(&RequestHeader{XidPing, OpPing})
	if c.receive(&h); h.Xid != XidPing || h.Err != OK {
		t.Fatalf("ping: %+v", h)
	}

	a := root + "/a"
	var path PathRecord
	c.call(OpCreate, OK, &CreateRequest{a, []byte("one"), open, FlagPersistent}, &path)
	if path.Path != a {
		t.Errorf("created %q", path.Path)
	}
	c.call(OpCreate, ErrNodeExists, &CreateRequest{a, nil, open, FlagPersistent}, nil)
	c.call(OpCreate, ErrInvalidACL, &CreateRequest{a + "/x", nil, nil, FlagPersistent}, nil)
	var created Create2Reply
	c.call(OpCreate2, OK, &CreateRequest{a + "/s-", nil, open, FlagEphemeralSequential}, &created)
	if !strings.HasSuffix(created.Path, "/s-0000000000") || created.Stat.EphemeralOwner == 0 || created.Stat.Czxid == 0 {
		t.Errorf("created %+v", created)
	}
	c.call(OpCreateContainer, OK, &CreateRequest{a + "/c", nil, open, FlagContainer}, &created)
	c.call(OpCreateTTL, OK, &CreateTTLRequest{CreateRequest{a + "/t", nil, open, FlagPersistentTTL}, 600_000}, &created)
	c.call(OpDelete, OK, &VersionRequest{created.Path, 0}, nil)

	var stat StatReply
	c.call(OpExists, OK, &ReadRequest{a, false}, &stat)
	c.call(OpExists, ErrNoNode, &ReadRequest{a + "/none", false}, nil)
	var data DataReply
	c.call(OpGetData, OK, &ReadRequest{a, false}, &data)
	if string(data.Data) != "one" || data.Stat != stat.Stat || data.Stat.Created() != 3 || data.Stat.NumChildren != 2 {
		t.Errorf("data %q %+v", data.Data, data.Stat)
	}
	c.call(OpSetData, OK, &SetDataRequest{a, []byte("two"), 0}, &stat)
	c.call(OpSetData, ErrBadVersion, &SetDataRequest{a, []byte("two"), 0}, nil)
	var acl ACLReply
	c.call(OpSetACL, OK, &SetACLRequest{a, []ACL{{PermAll, "auth", ""}}, -1}, &stat)
	c.call(OpGetACL, OK, &PathRecord{a}, &acl)
	if len(acl.ACL) != 1 || acl.ACL[0].Scheme != "digest" || !strings.HasPrefix(acl.ACL[0].ID, "u:") {
		t.Errorf("ACL %+v", acl.ACL)
	}
	var children ChildrenReply
	var children2 Children2Reply
	c.call(OpGetChildren, OK, &ReadRequest{a, false}, &children)
	c.call(OpGetChildren2, OK, &ReadRequest{a, false}, &children2)
	if len(children.Children) != 2 || len(children2.Children) != 2 || children2.Stat.NumChildren != 2 {
		t.Errorf("children %v and %+v", children.Children, children2)
	}
	var number IntReply
	c.call(OpCountChildren, OK, &PathRecord{a}, &number)
	c.call(OpGetEphemerals, OK, &PathRecord{root}, &children)
	if number.Value != 2 || len(children.Children) != 1 {
		t.Errorf("%d children, ephemerals %v", number.Value, children.Children)
	}
	c.call(OpSync, OK, &PathRecord{a}, &path)

	var multi MultiReply
	c.call(OpMulti, OK, &MultiRequest{[]MultiOp{
		{OpCheck, &VersionRequest{a, 1}},
		{OpSetData, &SetDataRequest{a, []byte("three"), 1}},
		{OpCreate, &CreateRequest{a + "/m-", nil, open, FlagSequential}},
		{OpCreate2, &CreateRequest{a + "/m-", nil, open, FlagSequential}},
		{OpDelete, &VersionRequest{a + "/c", -1}},
	}}, &multi)
	if r := multi.Results; len(r) != 5 || r[1].Stat.Version != 2 || !strings.HasSuffix(r[2].Path, "/m-0000000003") || r[3].Op != OpCreate {
		// (3.8.0 answers a create2 in a multi as a create, without its stat.)
		t.Errorf("multi %+v", multi)
	}
	c.call(OpMulti, OK, &MultiRequest{[]MultiOp{
		{OpSetData, &SetDataRequest{a, nil, -1}},
		{OpCheck, &VersionRequest{a, 77}},
		{OpDelete, &VersionRequest{a + "/none", -1}},
	}}, &multi)
	for i, want := range []ErrCode{OK, ErrBadVersion, ErrRuntimeInconsistency} {
		if r := multi.Results; len(r) != 3 || r[i].Op != OpError || !errors.Is(r[i].Err, want) {
			t.Errorf("failed multi %+v, want %v at %d", multi, want, i)
		}
	}
	c.call(OpMultiRead, OK, &MultiRequest{[]MultiOp{
		{OpGetData, &ReadRequest{a, false}},
		{OpGetChildren, &ReadRequest{root, false}},
		{OpGetData, &ReadRequest{a + "/none", false}},
	}}, &multi)
	if r := multi.Results; len(r) != 3 || string(r[0].Data) != "three" || len(r[1].Children) != 1 || r[2].Err != ErrNoNode {
		t.Errorf("multiRead %+v", multi)
	}

	// A watch event stands before the reply of the write that causes it.
	c.call(OpAddWatch, OK, &AddWatchRequest{root, WatchRecursive}, &number)
	c.call(OpCheckWatches, ErrNoWatcher, &WatchTypeRequest{a + "/none", 1}, nil)
	c.send(&RequestHeader{99, OpDelete}, &VersionRequest{a + "/m-0000000003", -1})
	var e WatcherEvent
	if c.receive(&h, &e); h.Xid != XidWatcherEvent || h.Zxid != -1 || e != (WatcherEvent{EventDeleted, StateSyncConnected, a + "/m-0000000003"}) {
		t.Errorf("event %+v %+v", h, e)
	}
	if c.receive(&h); h.Xid != 99 || h.Err != OK {
		t.Errorf("delete %+v", h)
	}
	c.call(OpRemoveWatches, OK, &WatchTypeRequest{root, 3}, nil)
	c.send(&RequestHeader{XidSetWatches, OpSetWatches2}, &SetWatches2Request{
		SetWatchesRequest: SetWatchesRequest{RelativeZxid: h.Zxid, Data: []string{a}, Exist: []string{a + "/none"}, Child: []string{root}},
		Persistent:        []string{root}, Recursive: []string{a + "/none"},
	})
	if c.receive(&h); h.Xid != XidSetWatches || h.Err != OK {
		t.Errorf("setWatches2 %+v", h)
	}
	c.call(OpCloseSession, OK, &nothing{}, nil)
}

// nothing is an empty record.
type nothing struct{}

func (*nothing) AppendTo(b []byte) []byte { return b }
func (*nothing) Decode(*Decoder)          {}
