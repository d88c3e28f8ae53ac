package state

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/wire"
)

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
	diff := cmp.Diff(want, r.Body.(*wire.MultiReply).Results)
	assert.That(t, diff == "" && r.Header.Err == wire.OK, "header %v, -want +got\n%s", r.Header.Err, diff)
	assert.That(t, r.Txn != nil && r.Txn.Err == wire.ErrNodeExists && len(r.Txn.Ops) == 0, "%+v", r.Txn)
	diff = cmp.Diff(before, strings.Replace(dump(c.s), "zxid 3 ", "zxid 2 ", 1))
	assert.Equal(t, diff, "", "it left something: -before +after")
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
		assert.That(t, c.s.tree.find("/a") == nil, "%s: something was done", name)
		check(t, c.s)
	}
}
