package state

import (
	"fmt"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/wire"
)

func TestDeletingThroughTwoSlashesFindsNoNode(t *testing.T) {
	r := newRig(t)
	c := r.client(1)
	c.create("/a", 0)
	c.create("/a/b", 0)
	c.create("/leaf", 0)
	for _, path := range []string{"//leaf", "//a", "//", "/a//b", "/a/", "//zookeeper", "/a/b/", "///a", "//a/b"} {
		for _, op := range []wire.Op{wire.OpDelete, wire.OpMulti} {
			body := wire.Record(&wire.VersionRequest{Path: path, Version: -1})
			if op == wire.OpMulti {
				body = multi(wire.MultiOp{Op: wire.OpDelete, Record: body})
			}
			reply := c.do(op, body)
			assert.That(t, op != wire.OpDelete || reply.Header.Err == wire.ErrNoNode, "%q: %v, want no node", path, reply.Header.Err)
		}
	}
	c.stat("/a/b")
	check(t, r.s)
}

func TestAMultiReadMakesNoReplyAboveTheBound(t *testing.T) {
	r := newRig(t)
	r.s = New(Config{MaxReply: 1 << 20})
	c := r.client(1)
	c.set("/", string(make([]byte, 100<<10)))
	var reads []wire.MultiOp
	for range 20 {
		reads = append(reads, wire.MultiOp{Op: wire.OpGetData, Record: &wire.ReadRequest{Path: "/"}})
	}
	c.must(wire.OpMultiRead, multi(reads[:5]...))
	reply := c.do(wire.OpMultiRead, multi(reads...))
	assert.That(t, reply.Close && reply.None && reply.Body == nil, "2 MB of a bound of 1 MB were answered: close %v", reply.Close)
	r.s.tree.root.data = nil
	for i := range 1000 {
		c.create(fmt.Sprintf("/a-rather-long-name-of-a-child-%d", i), 0)
	}
	for i := range reads {
		reads[i].Op = wire.OpGetChildren
	}
	c.must(wire.OpMultiRead, multi(reads[:5]...))
	for range 3 {
		reads = append(reads, reads...)
	}
	assert.That(t, c.do(wire.OpMultiRead, multi(reads...)).Close, "children have no bound")
}

func TestIdentitiesOfAConnectionAreBounded(t *testing.T) {
	r := newRig(t)
	c := r.client(1)
	for i := range maxIdentities - 1 { // the address is one
		c.login(fmt.Sprint("user", i))
	}
	c.login("user0") // is one already
	more := &wire.AuthRequest{Scheme: "digest", Auth: []byte("one:more")}
	reply := c.do(wire.OpAuth, more)
	assert.That(t, reply.Header.Err == wire.ErrAuthFailed && reply.Close, "one more: %v, close %v", reply.Header.Err, reply.Close)
}

// An ACL is looked through for each operation on its node, and "auth" in it stands for all identities of a client: without a
// bound a few requests would hold up the server for minutes or take all of its memory.
func TestEntriesOfAnACLAreBounded(t *testing.T) {
	r := newRig(t)
	c := r.client(1)
	var long []wire.ACL
	for i := range maxACL {
		long = append(long, wire.ACL{Perms: int32(i), Scheme: "world", ID: "anyone"})
	}
	create := func(path string, acl []wire.ACL) wire.ErrCode {
		return c.do(wire.OpCreate, &wire.CreateRequest{Path: path, ACL: acl}).Header.Err
	}
	assert.Equal(t, create("/long", long), wire.OK, "the longest")
	assert.Equal(t, create("/repeats", append(long, long...)), wire.OK, "what is repeated counts")
	assert.Equal(t, create("/longer", append(long, wire.ACL{Perms: maxACL, Scheme: "world", ID: "anyone"})), wire.ErrInvalidACL, "one more")
	for i := range 8 {
		c.login(fmt.Sprint("user", i))
	}
	for i := range long {
		long[i].Scheme, long[i].ID = "auth", ""
	}
	assert.Equal(t, create("/own", long[:maxACL/8]), wire.OK, "the longest of identities")
	assert.Equal(t, create("/more", long[:maxACL/8+1]), wire.ErrInvalidACL, "one more for each identity")
	assert.Equal(t, c.do(wire.OpSetACL, &wire.SetACLRequest{Path: "/own", ACL: long, Version: -1}).Header.Err, wire.ErrInvalidACL, "setACL")
	check(t, r.s)
}
