package state

import (
	"slices"
	"strings"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/wire"
)

// What ZooKeeper answers to requests is held by the difference test (internal/test/difftest). Here stands what it cannot ask,
// and where this server differs.

func TestAnswersThatDifferOnPurpose(t *testing.T) {
	for name, test := range map[string]struct {
		op   wire.Op
		body wire.Record
		want wire.ErrCode // 0: the connection is closed without an answer
	}{
		"a createTTL without a TTL mode, which ends the real server": {wire.OpCreateTTL, &wire.CreateTTLRequest{CreateRequest: *creation("/t", 0), TTL: -1}, wire.ErrBadArguments},
		"a watch on a null path":                                     {wire.OpAddWatch, raw(wire.AppendInt(wire.AppendInt(nil, -1), 0)), wire.ErrMarshalling},
		"createSession, the server's own":                            {wire.OpCreateSession, raw{0, 0, 0, 5}, wire.OK},
		"a request above the limit":                                  {wire.OpGetData, raw(make([]byte, 0xfffff)), wire.OK},
		"a multi with a null path":                                   {wire.OpMulti, raw(append(wire.AppendInt(wire.AppendBool(wire.AppendInt(nil, int32(wire.OpDelete)), false), -1), 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0)), wire.ErrMarshalling},
		"a TTL node without a TTL within a multi":                    {wire.OpMulti, multi(wire.MultiOp{Op: wire.OpCreate, Record: creation("/a", 0)}, wire.MultiOp{Op: wire.OpCreate, Record: creation("/t", wire.FlagPersistentTTL)}), wire.ErrMarshalling},
		"a session that has ended under a request":                   {wire.OpCreate, creation("/gone", 0), wire.ErrSessionExpired},
	} {
		c := newRig(t).client(1)
		if test.want == wire.ErrSessionExpired {
			c.log(c.s.CloseSession(c.now, 1))
		}
		before := dump(c.s)
		r := c.do(test.op, test.body)
		assert.That(t, r.Header.Err == test.want && (test.want == wire.OK) == (r.None && r.Close), "%s: %+v", name, r)
		assert.That(t, r.Txn == nil || r.Txn.Err == test.want, "%s is logged as %+v", name, r.Txn)
		_, nodes, _ := strings.Cut(dump(c.s), "nodes")
		assert.That(t, strings.HasSuffix(before, nodes), "%s: something was done", name)
		check(t, c.s)
	}
}

func TestAFreshServerHasZooKeepersOwnNodes(t *testing.T) {
	c := newRig(t).client(1)
	for path, want := range map[string]wire.Stat{
		"/":                 {Cversion: -1, NumChildren: 1},
		"":                  {Cversion: -1, NumChildren: 1},
		"/zookeeper":        {Cversion: -2, NumChildren: 2},
		"/zookeeper/quota":  {},
		"/zookeeper/config": {Aversion: -1},
	} {
		assert.Equal(t, c.stat(path), want, "%q", path)
	}
	acl := c.must(wire.OpGetACL, &wire.PathRecord{Path: "/zookeeper/config"}).Body.(*wire.ACLReply).ACL
	want := []wire.ACL{{Perms: wire.PermRead, Scheme: "world", ID: "anyone"}}
	assert.That(t, slices.Equal(acl, want), "the configuration's ACL is %v", acl)
	counts := c.s.Counts()
	assert.That(t, counts.Nodes == 5 && counts.DataSize == 44, "counts %+v", counts)
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
		assert.Equal(t, c.data(path), want, "%s holds", path)
	}
	assert.Slices(t, c.must(wire.OpGetACL, &wire.PathRecord{Path: "/b"}).Body.(*wire.ACLReply).ACL, acl, "the ACL")
}

// The difference test cannot count what is below the root: other scenarios have nodes there.
func TestAllNodesAreCountedAndTheRootTwice(t *testing.T) {
	c := newRig(t).client(1)
	c.create("/a", 0)
	for path, want := range map[string]int32{"/": 4, "": 5} {
		assert.Equal(t, c.must(wire.OpCountChildren, &wire.PathRecord{Path: path}).Body.(*wire.IntReply).Value, want, "%q has", path)
	}
}
