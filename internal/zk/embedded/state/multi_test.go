package state

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lockkeeper/internal/zk/wire"
)

func results(t *testing.T, r Reply) []wire.MultiResult {
	t.Helper()
	reply, ok := r.Body.(*wire.MultiReply)
	if !ok {
		t.Fatalf("%+v", r)
	}
	return reply.Results
}

func TestAMultiSeesItsOwnChanges(t *testing.T) {
	c := newRig(t).client(1)
	c.now = 9
	r := c.must(wire.OpMulti, multi(
		wire.MultiOp{Op: wire.OpCreate, Record: creation("/a", 0)},
		wire.MultiOp{Op: wire.OpCreate2, Record: creation("/a/s-", wire.FlagSequential)},
		wire.MultiOp{Op: wire.OpCreate, Record: creation("/a/s-", wire.FlagSequential)},
		wire.MultiOp{Op: wire.OpSetData, Record: &wire.SetDataRequest{Path: "/a", Data: []byte("xy"), Version: 0}},
		wire.MultiOp{Op: wire.OpCheck, Record: &wire.VersionRequest{Path: "/a", Version: 1}},
		wire.MultiOp{Op: wire.OpDelete, Record: &wire.VersionRequest{Path: "/a/s-0000000000", Version: 0}},
		wire.MultiOp{Op: wire.OpCreateContainer, Record: creation("/c", wire.FlagContainer)},
		wire.MultiOp{Op: wire.OpCreateTTL, Record: &wire.CreateTTLRequest{CreateRequest: *creation("/t", wire.FlagPersistentTTL), TTL: 8}},
	))
	zxid := c.s.LastZxid()
	fresh := wire.Stat{Czxid: zxid, Mzxid: zxid, Pzxid: zxid, Ctime: 9, Mtime: 9}
	set := fresh
	set.Version, set.Cversion, set.NumChildren, set.DataLength = 1, 2, 2, 2
	want := []wire.MultiResult{
		{Op: wire.OpCreate, Path: "/a"},
		{Op: wire.OpCreate, Path: "/a/s-0000000000"}, // a create2 has no stat in a multi
		{Op: wire.OpCreate, Path: "/a/s-0000000001"},
		{Op: wire.OpSetData, Stat: set},
		{Op: wire.OpCheck},
		{Op: wire.OpDelete},
		{Op: wire.OpCreate2, Path: "/c", Stat: fresh},
		{Op: wire.OpCreate2, Path: "/t", Stat: fresh},
	}
	if diff := cmp.Diff(want, results(t, r)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if r.Header.Zxid != zxid || r.Txn.Zxid != zxid || len(r.Txn.Ops) != 7 {
		t.Errorf("one transaction: %+v %+v", r.Header, r.Txn)
	}
	if s := c.stat("/a"); s.Cversion != 3 || s.NumChildren != 1 {
		t.Errorf("%+v", s)
	}
}

func TestAFailedMultiTellsWhichOperationFailed(t *testing.T) {
	c := newRig(t).client(1)
	c.create("/there", 0)
	before := dump(c.s)
	r := c.do(wire.OpMulti, multi(
		wire.MultiOp{Op: wire.OpSetData, Record: &wire.SetDataRequest{Path: "/there", Data: []byte("new"), Version: -1}},
		wire.MultiOp{Op: wire.OpCreate, Record: creation("/a", wire.FlagEphemeral)},
		wire.MultiOp{Op: wire.OpDelete, Record: &wire.VersionRequest{Path: "/there", Version: 1}},
		wire.MultiOp{Op: wire.OpCreate, Record: creation("/a", 0)},
		wire.MultiOp{Op: wire.OpCreate, Record: creation("/b", 0)},
		wire.MultiOp{Op: wire.OpDelete, Record: &wire.VersionRequest{Path: "/none", Version: 1}},
	))
	want := []wire.MultiResult{
		{Op: wire.OpError}, {Op: wire.OpError}, {Op: wire.OpError}, {Op: wire.OpError, Err: wire.ErrNodeExists},
		{Op: wire.OpError, Err: wire.ErrRuntimeInconsistency}, {Op: wire.OpError, Err: wire.ErrRuntimeInconsistency},
	}
	if diff := cmp.Diff(want, results(t, r)); diff != "" || r.Header.Err != wire.OK {
		t.Errorf("header %v, -want +got\n%s", r.Header.Err, diff)
	}
	if r.Txn == nil || r.Txn.Err != wire.ErrNodeExists || len(r.Txn.Ops) != 0 {
		t.Errorf("%+v", r.Txn)
	}
	if diff := cmp.Diff(before, strings.Replace(dump(c.s), "zxid 3 ", "zxid 2 ", 1)); diff != "" {
		t.Errorf("it left something: -before +after\n%s", diff)
	}
}

func TestFlagsDecideWhatACreateIsInAMulti(t *testing.T) {
	c := newRig(t).client(1)
	r := c.must(wire.OpMulti, multi(
		wire.MultiOp{Op: wire.OpCreate, Record: creation("/container", wire.FlagContainer)},
		wire.MultiOp{Op: wire.OpCreateContainer, Record: creation("/plain", 0)},
		wire.MultiOp{Op: wire.OpCreateTTL, Record: &wire.CreateTTLRequest{CreateRequest: *creation("/plain2", 0), TTL: 1000}},
	))
	if got := results(t, r); got[0].Op != wire.OpCreate2 || got[1].Op != wire.OpCreate || got[2].Op != wire.OpCreate {
		t.Errorf("%+v", got)
	}
	if c.s.owners.containers.len() != 1 || c.s.owners.ttls.len() != 0 || !isContainer(c.s.tree.find("/container").owner) {
		t.Error("the wrong nodes are containers")
	}
	r = c.do(wire.OpMulti, multi(wire.MultiOp{Op: wire.OpCreate, Record: creation("/x", 77)}))
	if got := results(t, r); got[0].Err != wire.ErrBadArguments {
		t.Errorf("%+v", got)
	}
}

func TestAMultiThatCannotBeReadUsesUpAZxid(t *testing.T) {
	header := func(op wire.Op) raw {
		return raw(wire.AppendInt(wire.AppendBool(wire.AppendInt(nil, int32(op)), false), -1))
	}
	read := wire.MultiOp{Op: wire.OpGetData, Record: &wire.ReadRequest{Path: "/"}}
	add := wire.MultiOp{Op: wire.OpCreate, Record: creation("/a", 0)}
	whole := multi(add).AppendTo(nil)
	for name, body := range map[string]wire.Record{
		"cut short":                  raw("abc"),
		"an operation unknown to it": header(77),
		"a close of the session":     header(wire.OpCloseSession),
		"a read":                     multi(read),
		"a read behind a write":      multi(add, read),
		"a TTL node without a TTL":   multi(add, wire.MultiOp{Op: wire.OpCreate, Record: creation("/t", wire.FlagPersistentTTL)}),
		"no end":                     raw(whole[:len(whole)-9]),
		"a path that is null":        raw(append(header(wire.OpDelete), 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 0xff, 0xff, 0xff, 0xff)),
	} {
		c := newRig(t).client(1)
		before := c.s.LastZxid()
		r := c.do(wire.OpMulti, body)
		if r.Header.Err != wire.ErrMarshalling || r.Header.Zxid != before+1 || r.Body != nil || r.Txn.Err != wire.ErrMarshalling {
			t.Errorf("%s: %+v", name, r)
		}
		if c.s.tree.find("/a") != nil {
			t.Errorf("%s: something was done", name)
		}
		check(t, c.s)
	}
}

func TestAnEmptyMultiIsATransaction(t *testing.T) {
	c := newRig(t).client(1)
	if r := c.must(wire.OpMulti, multi()); len(results(t, r)) != 0 || r.Txn == nil || r.Txn.Err != wire.OK {
		t.Errorf("%+v", r)
	}
}

func TestAMultiReadAnswersEachOnItsOwn(t *testing.T) {
	c := newRig(t).client(1)
	c.create("/a", 0)
	c.create("/a/b", 0)
	c.set("/a", "x")
	get := func(path string) wire.MultiOp {
		return wire.MultiOp{Op: wire.OpGetData, Record: &wire.ReadRequest{Path: path, Watch: true}}
	}
	r := c.must(wire.OpMultiRead, multi(get("/a"), get("/none"), wire.MultiOp{Op: wire.OpGetChildren, Record: &wire.ReadRequest{Path: "/a", Watch: true}}))
	want := []wire.MultiResult{
		{Op: wire.OpGetData, Data: []byte("x"), Stat: c.stat("/a")},
		{Op: wire.OpError, Err: wire.ErrNoNode},
		{Op: wire.OpGetChildren, Children: []string{"b"}},
	}
	if diff := cmp.Diff(want, results(t, r)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	c.set("/a", "y")
	c.delete("/a/b")
	c.expect() // a multiRead leaves no watches
}
