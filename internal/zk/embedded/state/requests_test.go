package state

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lockkeeper/internal/zk/wire"
)

// The answers in these tables are those of Debian's ZooKeeper 3.8 to the same bytes.

func TestAFreshServerHasZooKeepersOwnNodes(t *testing.T) {
	c := newRig(t).client(1)
	for path, want := range map[string]wire.Stat{
		"/":                 {Cversion: -1, NumChildren: 1},
		"":                  {Cversion: -1, NumChildren: 1},
		"/zookeeper":        {Cversion: -2, NumChildren: 2},
		"/zookeeper/quota":  {},
		"/zookeeper/config": {Aversion: -1},
	} {
		if got := c.stat(path); got != want {
			t.Errorf("%q: %+v, want %+v", path, got, want)
		}
	}
	acl := c.must(wire.OpGetACL, &wire.PathRecord{Path: "/zookeeper/config"}).Body.(*wire.ACLReply).ACL
	if want := []wire.ACL{{Perms: wire.PermRead, Scheme: "world", ID: "anyone"}}; !slices.Equal(acl, want) {
		t.Errorf("the configuration's ACL is %v", acl)
	}
	if counts := c.s.Counts(); counts.Nodes != 5 || counts.DataSize != 44 {
		t.Errorf("counts %+v", counts)
	}
}

func TestStatsTellWhatZooKeeperTells(t *testing.T) {
	c := newRig(t).client(0x77)
	c.now = 5000
	c.create("/a", 0)
	created := c.s.LastZxid()
	if got, want := c.stat("/a"), (wire.Stat{Czxid: created, Mzxid: created, Pzxid: created, Ctime: 5000, Mtime: 5000}); got != want {
		t.Errorf("created: %+v, want %+v", got, want)
	}
	c.now = 6000
	c.create("/a/x", 0)
	c.create("/a/y", 0)
	c.delete("/a/x")
	children := c.s.LastZxid()
	c.set("/a", "four")
	// Three changes of the children: two creations and a deletion.
	if got, want := c.stat("/a"), (wire.Stat{Czxid: created, Mzxid: children + 1, Pzxid: children, Ctime: 5000, Mtime: 6000,
		Version: 1, Cversion: 3, DataLength: 4, NumChildren: 1}); got != want {
		t.Errorf("changed: %+v, want %+v", got, want)
	}
	c.must(wire.OpSetACL, &wire.SetACLRequest{Path: "/a", ACL: everyone, Version: 0})
	if got := c.stat("/a"); got.Aversion != 1 || got.Mzxid != children+1 || got.Mtime != 6000 {
		t.Errorf("an ACL is no data: %+v", got)
	}
	c.create("/e", wire.FlagEphemeral)
	if owner := c.stat("/e").EphemeralOwner; owner != 0x77 {
		t.Errorf("ephemeral owner %#x", owner)
	}
	c.must(wire.OpCreateContainer, creation("/c", wire.FlagContainer))
	c.must(wire.OpCreateTTL, &wire.CreateTTLRequest{CreateRequest: *creation("/t", wire.FlagPersistentTTL), TTL: 1})
	if a, b := c.stat("/c").EphemeralOwner, c.stat("/t").EphemeralOwner; a != 0 || b != 0 {
		t.Errorf("owners of a container and a TTL node: %#x, %#x", a, b)
	}
}

func TestSequenceNumbersCountAllCreations(t *testing.T) {
	c := newRig(t).client(1)
	c.create("/s", 0)
	c.create("/s/plain", 0)
	c.delete("/s/plain")
	for _, want := range []string{"/s/a-0000000001", "/s/a-0000000002"} {
		if got := c.create("/s/a-", wire.FlagSequential); got != want {
			t.Errorf("created %s, want %s", got, want)
		}
	}
	if got := c.create("/s/", wire.FlagEphemeralSequential); got != "/s/0000000003" {
		t.Errorf("created %s", got)
	}
	c.s.tree.find("/s").cversion = math.MinInt32 + 5
	if got := c.create("/s/b", wire.FlagSequential); got != "/s/b-2147483643" {
		t.Errorf("created %s", got)
	}
}

func TestTheSequenceCounterStaysAtTheGreatestInt(t *testing.T) {
	c := newRig(t).client(1)
	c.create("/s", 0)
	c.s.tree.find("/s").cversion = math.MaxInt32
	before := c.stat("/s").Pzxid
	if got := c.create("/s/x", wire.FlagSequential); got != "/s/x2147483647" {
		t.Errorf("created %s", got)
	}
	if got := c.s.tree.find("/s").cversion; got != math.MaxInt32 {
		t.Errorf("counter %d", got)
	}
	if got := c.stat("/s").Pzxid; got != before {
		t.Errorf("pzxid %d, was %d", got, before)
	}
	if r := c.do(wire.OpCreate, creation("/s/x", wire.FlagSequential)); r.Header.Err != wire.ErrNodeExists {
		t.Errorf("the same name again: %v", r.Header.Err)
	}
}

func TestErrorsOfWrites(t *testing.T) {
	ttl := func(path string, flags int32, ttl int64) *wire.CreateTTLRequest {
		return &wire.CreateTTLRequest{CreateRequest: *creation(path, flags), TTL: ttl}
	}
	version := func(path string, v int32) *wire.VersionRequest { return &wire.VersionRequest{Path: path, Version: v} }
	set := func(path string, v int32) *wire.SetDataRequest { return &wire.SetDataRequest{Path: path, Version: v} }
	for _, test := range []struct {
		op   wire.Op
		body wire.Record
		want wire.ErrCode
	}{
		{wire.OpCreate, creation("/a", 0), wire.ErrNodeExists},
		{wire.OpCreate, creation("/", 0), wire.ErrNodeExists},
		{wire.OpCreate, creation("/none/x", 0), wire.ErrNoNode},
		{wire.OpCreate, creation("/e/x", 0), wire.ErrNoChildrenForEphemeral},
		{wire.OpCreate, creation("/e/", 0), wire.ErrBadArguments},
		{wire.OpCreate, creation("", 0), wire.ErrBadArguments},
		{wire.OpCreate, creation("x", 0), wire.ErrBadArguments},
		{wire.OpCreate, creation("x/y", 0), wire.ErrNoNode},
		{wire.OpCreate, creation("/a//b", 0), wire.ErrNoNode},
		{wire.OpCreate, creation("/.", 0), wire.ErrBadArguments},
		{wire.OpCreate, creation("/a/..", 0), wire.ErrBadArguments},
		{wire.OpCreate, creation("/x\x00", 0), wire.ErrBadArguments},
		{wire.OpCreate, creation("/x\x1f", 0), wire.ErrBadArguments},
		{wire.OpCreate, creation("/x\x7f", 0), wire.ErrBadArguments},
		{wire.OpCreate, creation("/x\u009f", 0), wire.ErrBadArguments},
		{wire.OpCreate, creation("/x\ue000", 0), wire.ErrBadArguments},
		{wire.OpCreate, creation("/x\uffff", 0), wire.ErrBadArguments},
		{wire.OpCreate, creation("/x\U0001F512", 0), wire.ErrBadArguments}, // two surrogates to Java
		{wire.OpCreate, creation("/x\xff", 0), wire.ErrBadArguments},
		{wire.OpCreate, creation("/ü", 0), wire.OK},
		{wire.OpCreate, creation("/...", 0), wire.OK},
		{wire.OpCreate, creation("/.", wire.FlagSequential), wire.OK},
		{wire.OpCreate, creation("/b", -1), wire.ErrBadArguments},
		{wire.OpCreate, creation("/b", 7), wire.ErrBadArguments},
		{wire.OpCreate, creation("/b", wire.FlagPersistentTTL), wire.ErrBadArguments},
		{wire.OpCreate, creation("/b", wire.FlagContainer), wire.OK}, // and a plain node it is
		{wire.OpCreateContainer, creation("/c", wire.FlagEphemeral), wire.OK},
		{wire.OpCreateContainer, creation("/c", 9), wire.ErrBadArguments},
		{wire.OpCreateTTL, ttl("/t", wire.FlagPersistentTTL, 0), wire.ErrBadArguments},
		{wire.OpCreateTTL, ttl("/t", wire.FlagPersistentTTL, 1<<40), wire.ErrBadArguments},
		{wire.OpCreateTTL, ttl("/t", wire.FlagPersistentTTL, 1<<40-1), wire.OK},
		{wire.OpCreateTTL, ttl("/t", 0, 10), wire.ErrBadArguments},
		{wire.OpCreateTTL, ttl("/t", 0, -1), wire.ErrBadArguments}, // ends the real one
		{wire.OpCreate, &wire.CreateRequest{Path: "/x"}, wire.ErrInvalidACL},
		{wire.OpCreate, raw(append(wire.AppendInt(nil, -1), make([]byte, 60)...)), wire.ErrMarshalling},
		{wire.OpCreate, raw("abc"), wire.ErrMarshalling},
		{wire.OpCreate, nullID("world"), wire.ErrMarshalling},
		{wire.OpCreate, nullID("digest"), wire.ErrMarshalling},
		{wire.OpCreate, nullID("foo", "world"), wire.ErrInvalidACL}, // the first entry is enough
		{wire.OpCreate, nullID("auth"), wire.ErrInvalidACL},
		{wire.OpDelete, version("/", -1), wire.ErrBadArguments},
		{wire.OpDelete, version("/zookeeper", -1), wire.ErrBadArguments},
		{wire.OpDelete, version("/zookeeper/quota", -1), wire.ErrBadArguments},
		{wire.OpDelete, version("/zookeeper/config", -1), wire.ErrBadArguments},
		{wire.OpDelete, version("/zookeeper/", -1), wire.ErrNoNode},
		{wire.OpDelete, version("x", -1), wire.ErrBadArguments},
		{wire.OpDelete, version("/none", -1), wire.ErrNoNode},
		{wire.OpDelete, version("/a", 7), wire.ErrBadVersion},
		{wire.OpDelete, version("/a", 0), wire.ErrNotEmpty},
		{wire.OpDelete, raw{}, wire.ErrMarshalling},
		{wire.OpSetData, set("/none", -1), wire.ErrNoNode},
		{wire.OpSetData, set("/a", 3), wire.ErrBadVersion},
		{wire.OpSetData, set("", -1), wire.ErrBadArguments},
		{wire.OpSetData, set("/a/", -1), wire.ErrBadArguments},
		{wire.OpSetData, set("/zookeeper/config", -1), wire.ErrNoAuth},
		{wire.OpSetData, raw(append(wire.AppendInt(nil, -1), make([]byte, 60)...)), wire.ErrBadArguments},
		{wire.OpSetACL, &wire.SetACLRequest{Path: "/a", ACL: everyone, Version: 1}, wire.ErrBadVersion},
		{wire.OpSetACL, &wire.SetACLRequest{Path: "/none", Version: -1}, wire.ErrInvalidACL},
		{wire.OpSetACL, &wire.SetACLRequest{Path: "/none", ACL: everyone, Version: -1}, wire.ErrNoNode},
		{wire.OpSetACL, &wire.SetACLRequest{Path: "", ACL: everyone, Version: -1}, wire.ErrBadArguments},
		{wire.OpCheck, version("/a", 1), wire.ErrBadVersion},
		{wire.OpDeleteContainer, raw("/c"), wire.ErrBadArguments},
		{wire.OpReconfig, raw(make([]byte, 20)), wire.ErrReconfigDisabled},
	} {
		c := newRig(t).client(1)
		c.create("/a", 0)
		c.create("/a/b", 0)
		c.create("/e", wire.FlagEphemeral)
		before, tree := c.s.LastZxid(), len(dump(c.s))
		r := c.do(test.op, test.body)
		if r.Header.Err != test.want || r.None || r.Close {
			t.Errorf("operation %d %+v: %+v, want %v", test.op, test.body, r, test.want)
		}
		if r.Header.Zxid != before+1 || r.Txn == nil || r.Txn.Err != test.want {
			t.Errorf("operation %d %+v: every write uses up a zxid: %d after %d", test.op, test.body, r.Header.Zxid, before)
		}
		if test.want != wire.OK && (r.Body != nil || len(dump(c.s)) != tree) {
			t.Errorf("operation %d %+v failed and did something", test.op, test.body)
		}
	}
}

// nullID is a create with an ACL of these schemes whose ids are null.
func nullID(schemes ...string) raw {
	b := wire.AppendInt(wire.AppendBuffer(wire.AppendString(nil, "/n"), nil), int32(len(schemes)))
	for _, scheme := range schemes {
		b = wire.AppendBuffer(wire.AppendString(wire.AppendInt(b, 31), scheme), nil)
	}
	return wire.AppendInt(b, 0)
}

func TestErrorsOfReads(t *testing.T) {
	read := func(path string) *wire.ReadRequest { return &wire.ReadRequest{Path: path} }
	for _, test := range []struct {
		op   wire.Op
		body wire.Record
		want wire.ErrCode
	}{
		{wire.OpExists, read("/none"), wire.ErrNoNode},
		{wire.OpExists, read("/a/"), wire.ErrNoNode},
		{wire.OpExists, read("a"), wire.ErrNoNode},
		{wire.OpExists, read("/a\x00"), wire.ErrBadArguments},
		{wire.OpGetData, read("/a\x00"), wire.ErrNoNode},
		{wire.OpGetChildren, read("/none"), wire.ErrNoNode},
		{wire.OpGetChildren2, raw{}, wire.ErrMarshalling},
		{wire.OpExists, raw(append(wire.AppendInt(nil, -1), 0)), wire.ErrMarshalling},
		{wire.OpExists, raw(wire.AppendInt(nil, -7)), wire.ErrMarshalling},
		{wire.OpExists, raw(append(read("/a").AppendTo(nil), 1, 2, 3)), wire.OK}, // nobody looks at what follows
		{wire.OpGetACL, &wire.PathRecord{Path: "/none"}, wire.ErrNoNode},
		{wire.OpSync, &wire.PathRecord{Path: "/none"}, wire.OK},
		{wire.OpSync, raw{}, wire.ErrMarshalling},
		{wire.OpReconfig, raw("xx"), wire.ErrMarshalling},
		{wire.OpAddWatch, &wire.AddWatchRequest{Path: "/a", Mode: 2}, wire.ErrMarshalling},
		{wire.OpCheckWatches, &wire.WatchTypeRequest{Path: "/a", Type: 0}, wire.ErrMarshalling},
		{wire.OpCheckWatches, &wire.WatchTypeRequest{Path: "/a", Type: 4}, wire.ErrMarshalling},
		{wire.OpCheckWatches, &wire.WatchTypeRequest{Path: "a", Type: 3}, wire.ErrMarshalling},
		{wire.OpCheckWatches, &wire.WatchTypeRequest{Path: "", Type: 3}, wire.ErrNoWatcher},
		{wire.OpCheckWatches, &wire.WatchTypeRequest{Path: "/a", Type: 3}, wire.ErrNoWatcher},
		{wire.OpRemoveWatches, &wire.WatchTypeRequest{Path: "/a", Type: 3}, wire.ErrNoWatcher},
		{wire.OpRemoveWatches, &wire.WatchTypeRequest{Path: "/a", Type: 9}, wire.ErrMarshalling},
		{wire.OpSetWatches, raw(append(wire.AppendLong(nil, 0), 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255)), wire.ErrMarshalling},
		{wire.OpMultiRead, raw{}, wire.ErrMarshalling},
		{wire.OpMultiRead, multi(wire.MultiOp{Op: wire.OpCreate, Record: creation("/x", 0)}), wire.ErrMarshalling},
	} {
		c := newRig(t).client(1)
		c.create("/a", 0)
		before := c.s.LastZxid()
		r := c.do(test.op, test.body)
		if r.Header.Err != test.want || r.Header.Zxid != before || r.Txn != nil || r.None || r.Close {
			t.Errorf("operation %d %+v: %+v, want %v", test.op, test.body, r, test.want)
		}
	}
}

func TestNullDataIsNotEmptyData(t *testing.T) {
	c := newRig(t).client(1)
	c.must(wire.OpCreate, &wire.CreateRequest{Path: "/null", ACL: everyone})
	c.must(wire.OpCreate, &wire.CreateRequest{Path: "/empty", ACL: everyone, Data: []byte{}})
	for path, null := range map[string]bool{"/null": true, "/empty": false} {
		if data := c.must(wire.OpGetData, &wire.ReadRequest{Path: path}).Body.(*wire.DataReply).Data; (data == nil) != null {
			t.Errorf("%s: %v", path, data)
		}
	}
}

func TestRepliesWithHabitsOfTheirOwn(t *testing.T) {
	c := newRig(t).client(1)
	c.create("/a", 0)
	last := c.s.LastZxid()
	for name, test := range map[string]struct {
		op   wire.Op
		body wire.Record
		want Reply
	}{
		"an unknown operation":         {999, raw{}, Reply{Header: wire.ReplyHeader{Xid: 7, Zxid: -1, Err: wire.ErrUnimplemented}, Close: true}},
		"a notification":               {wire.OpNotification, raw{}, Reply{Header: wire.ReplyHeader{Xid: 7, Zxid: -1, Err: wire.ErrUnimplemented}, Close: true}},
		"the server's own":             {wire.OpCreateSession, raw{0, 0, 0, 5}, Reply{None: true, Close: true}},
		"a ping, whatever its xid":     {wire.OpPing, raw{}, Reply{Header: wire.ReplyHeader{Xid: wire.XidPing, Zxid: last}}},
		"an unknown scheme":            {wire.OpAuth, &wire.AuthRequest{Scheme: "world"}, Reply{Header: wire.ReplyHeader{Xid: 7, Err: wire.ErrAuthFailed}, Close: true}},
		"a digest of nothing":          {wire.OpAuth, &wire.AuthRequest{Scheme: "digest"}, Reply{Header: wire.ReplyHeader{Xid: 7, Err: wire.ErrAuthFailed}, Close: true}},
		"an address":                   {wire.OpAuth, &wire.AuthRequest{Scheme: "ip"}, Reply{Header: wire.ReplyHeader{Xid: 7}}},
		"an auth packet cut short":     {wire.OpAuth, raw("xx"), Reply{None: true, Close: true}},
		"SASL, which there is not":     {wire.OpSASL, &wire.SASLRecord{Token: []byte{}}, Reply{Header: wire.ReplyHeader{Xid: 7}, Body: &wire.SASLRecord{}}},
		"SASL without a token":         {wire.OpSASL, &wire.SASLRecord{}, Reply{None: true, Close: true}},
		"a sync of nothing":            {wire.OpSync, raw(wire.AppendInt(nil, -1)), Reply{Header: wire.ReplyHeader{Xid: 7, Zxid: last}, Body: null{}}},
		"a request above the limit":    {wire.OpGetData, raw(make([]byte, 0xfffff)), Reply{None: true, Close: true}},
		"writes among reads":           {wire.OpMultiRead, multi(wire.MultiOp{Op: wire.OpDelete, Record: &wire.VersionRequest{Path: "/a"}}), Reply{Header: wire.ReplyHeader{Xid: 7, Zxid: last, Err: wire.ErrMarshalling}, Body: &wire.MultiReply{}}},
		"text that is not UTF-8":       {wire.OpSync, &wire.PathRecord{Path: "/\xff"}, Reply{Header: wire.ReplyHeader{Xid: 7, Zxid: last}, Body: &wire.PathRecord{Path: "/\ufffd"}}},
		"a check outside of any multi": {wire.OpCheck, &wire.VersionRequest{Path: "/a"}, Reply{Header: wire.ReplyHeader{Xid: 7, Zxid: last + 1}, None: true}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newRig(t).client(1)
			c.create("/a", 0)
			got := c.do(test.op, test.body)
			got.Txn = nil
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestAllChildrenAreCounted(t *testing.T) {
	c := newRig(t).client(1)
	for _, path := range []string{"/a", "/a/b", "/a/b/c", "/ab"} {
		c.create(path, 0)
	}
	for path, want := range map[string]int32{"/": 7, "": 8, "/a": 2, "/a/b/c": 0} {
		if got := c.must(wire.OpCountChildren, &wire.PathRecord{Path: path}).Body.(*wire.IntReply).Value; got != want {
			t.Errorf("%q has %d below it, want %d", path, got, want)
		}
	}
}

func TestManyChildrenComeAndGo(t *testing.T) {
	c := newRig(t).client(1)
	c.create("/d", 0)
	for i := range 3 * manyChildren {
		c.create("/d/"+strings.Repeat("x", i+1), 0)
		check(t, c.s)
	}
	if got := c.stat("/d").NumChildren; got != 3*manyChildren {
		t.Fatalf("%d children", got)
	}
	for _, name := range c.childrenOf("/d") {
		c.delete("/d/" + name)
		check(t, c.s)
	}
	if got := c.stat("/d"); got.NumChildren != 0 || got.Cversion != 2*3*manyChildren {
		t.Fatalf("%+v", got)
	}
	c.delete("/d")
}

func TestASessionThatIsGoneIsToldSo(t *testing.T) {
	c := newRig(t).client(1)
	c.log(c.s.CloseSession(c.now, 1))
	last := c.s.LastZxid()
	if r := c.do(wire.OpExists, &wire.ReadRequest{Path: "/"}); r.Header.Err != wire.ErrSessionExpired || r.Header.Zxid != last {
		t.Errorf("read: %+v", r)
	}
	if r := c.do(wire.OpCreate, creation("/a", 0)); r.Header.Err != wire.ErrSessionExpired || r.Header.Zxid != last+1 {
		t.Errorf("write: %+v", r)
	}
}

// The rig overwrites every request after the call.
func TestNothingOfARequestIsKept(t *testing.T) {
	c := newRig(t).client(1)
	acl := []wire.ACL{{Perms: wire.PermAll, Scheme: "ip", ID: "127.0.0.1"}}
	c.watch(wire.OpExists, "/a")
	c.must(wire.OpCreate, &wire.CreateRequest{Path: "/a", Data: []byte("data"), ACL: acl})
	c.must(wire.OpMulti, multi(
		wire.MultiOp{Op: wire.OpCreate, Record: &wire.CreateRequest{Path: "/b", Data: []byte("more"), ACL: acl}},
		wire.MultiOp{Op: wire.OpSetData, Record: &wire.SetDataRequest{Path: "/zookeeper", Data: []byte("set"), Version: -1}},
	))
	c.expect("created /a")
	for path, want := range map[string]string{"/a": "data", "/b": "more", "/zookeeper": "set"} {
		if got := c.data(path); got != want {
			t.Errorf("%s holds %q, want %q", path, got, want)
		}
	}
	if got := c.must(wire.OpGetACL, &wire.PathRecord{Path: "/b"}).Body.(*wire.ACLReply).ACL; !slices.Equal(got, acl) {
		t.Errorf("the ACL is %v", got)
	}
}
