package state

import (
	"bytes"
	"fmt"
	"hash/adler32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/rawzk"
	"lockkeeper/internal/test/zkreal"
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

func TestChildrenAreListedInByteOrder(t *testing.T) {
	c := newRig(t).client(1)
	c.create("/d", 0)
	var names []string
	for i := range 2 * manyChildren {
		names = append(names, fmt.Sprintf("n%d", 7*i%(2*manyChildren)), fmt.Sprintf("größe-%d-日本", i))
		for _, name := range names[2*i:] {
			c.create("/d/"+name, 0)
		}
		want := slices.Sorted(slices.Values(names))
		assert.MustSlices(t, c.childrenOf("/d"), want)
	}
	for i, name := range names[:len(names)-2] {
		c.delete("/d/" + name)
		want := slices.Sorted(slices.Values(names[i+1:]))
		assert.MustSlices(t, c.childrenOf("/d"), want)
		check(t, c.s)
	}
	got := c.stat("/d")
	assert.That(t, got.NumChildren == 2 && got.Cversion == int32(2*len(names)-2), "%+v", got)
}

func TestASessionsNodesAreListedAndGoInTheOrderOfTheirCreation(t *testing.T) {
	r := newRig(t)
	c, watcher := r.client(1), r.client(2)
	c.create("/d", 0)
	var paths, events []string
	for i := range 100 {
		path := fmt.Sprintf("/d/e%d", 37*i%100)
		c.create(path, wire.FlagEphemeral)
		paths = append(paths, path)
	}
	for i := 99; i >= 0; i-- {
		if i%4 != 0 { // so many that the roster is packed
			c.delete(paths[i])
			paths = slices.Delete(paths, i, i+1)
		}
	}
	for _, path := range paths {
		events = append(events, "deleted "+path)
	}
	got := c.must(wire.OpGetEphemerals, &wire.PathRecord{Path: "/"}).Body.(*wire.ChildrenReply).Children
	assert.That(t, slices.Equal(got, paths), "listed %q, want %q", got, paths)
	watcher.addWatch("/d", wire.WatchRecursive)
	r.log(r.s.CloseSession(r.now, 1))
	watcher.expect(events...)
}

// The snapshot was written by a State that listed children and sessions' nodes in the order of Java's hash tables. It has
// places among siblings, the most children of each node, the most nodes of each session, and a quota's counts.
func TestASnapshotFromTheTimeOfHashTablesIsRestored(t *testing.T) {
	b := assert.Value(os.ReadFile("testdata/snapshot-with-peaks"))(t)
	s := assert.Value(restore(separated(b)))(t)
	check(t, s)
	r := &rig{t: t, s: s, now: 2_000_000}
	for range s.LastZxid() {
		r.txns = append(r.txns, nil) // those before the snapshot
	}
	const session = 1<<56 | 5
	c := r.client(session)
	got, want := c.childrenOf("/big"), []string{"last", "n0", "n12", "n16", "n20", "n24", "n28", "n32", "n36", "n4", "n8"}
	assert.That(t, slices.Equal(got, want), "children %q, want %q", got, want)
	if got, want := c.stat("/big"), (wire.Stat{Czxid: 3, Mzxid: 3, Pzxid: 81, Ctime: 1_000_000, Mtime: 1_000_000, Cversion: 71, NumChildren: 11}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	assert.Equal(t, c.data("/zookeeper/quota/big/zookeeper_stats"), "count=12,bytes=0", "statistics")
	assert.Equal(t, c.do(wire.OpGetData, &wire.ReadRequest{Path: "/own"}).Header.Err, wire.ErrNoAuth, "another client reads bob's")
	c.login("bob")
	assert.Equal(t, c.data("/own"), "d", "bob reads")
	var paths []string
	for _, op := range r.s.CloseSession(r.now, session).Ops {
		paths = append(paths, op.Path)
	}
	if want := []string{"/big/n16", "/big/n20", "/big/n24", "/big/last", ""}; !slices.Equal(paths, want) { // "" is the end itself
		t.Errorf("with the session go %q, want %q", paths, want)
	}
	txns := s.Reap(r.now)
	assert.That(t, len(txns) == 1 && txns[0].Ops[0].Path == "/ttl", "reaped %+v", txns)
	check(t, s)
}

// TestTheSequenceCounterOverflowsAsInZooKeeper starts a real server from a log in which a node's counter is two below the
// greatest int, because two thousand million creations take too long.
func TestTheSequenceCounterOverflowsAsInZooKeeper(t *testing.T) {
	dir := t.TempDir()
	writeLog(t, filepath.Join(dir, "data", "version-2"), 1<<31-3)
	server := zkreal.StartT(t, zkreal.WithDir(dir), zkreal.WithoutFsync(), zkreal.WithJVMFlag("-Dzookeeper.snapshot.trust.empty=true"))
	theirs := assert.Value(rawzk.Dial(server.Addr(), 30*time.Second, 30*time.Second))(t)
	defer theirs.Conn.Close()
	ours := newRig(t).client(1)
	ours.create("/d", 0)
	ours.create("/d/first", 0)
	ours.s.tree.find("/d").makeRare().cversion = 1<<31 - 3
	one := creation("/d/s", wire.FlagSequential)
	two := multi(wire.MultiOp{Op: wire.OpCreate, Record: creation("/d/m", wire.FlagSequential)}, wire.MultiOp{Op: wire.OpCreate, Record: creation("/d/n", wire.FlagSequential)})
	for i, request := range []struct {
		op   wire.Op
		body wire.Record
	}{{wire.OpCreate, one}, {wire.OpCreate, one}, {wire.OpCreate, one}, {wire.OpCreate, one}, {wire.OpCreate, creation("/d/plain", 0)}, {wire.OpMulti, two}, {wire.OpMulti, two}} {
		their := assert.Value(theirs.Call(request.op, request.body, nil))(t)
		reply := ours.do(request.op, request.body)
		var body []byte
		if reply.Body != nil {
			body = reply.Body.AppendTo(nil)
		}
		assert.That(t, their.Err == reply.Header.Err && bytes.Equal(their.Body, body),
			"request %d: %v %q, want %v %q", i, reply.Header.Err, body, their.Err, their.Body)
		var stat wire.StatReply
		assert.NoError(t, theirs.Must(wire.OpExists, &wire.ReadRequest{Path: "/d"}, &stat))
		if got := ours.stat("/d"); got.Cversion != stat.Stat.Cversion || got.NumChildren != stat.Stat.NumChildren {
			t.Errorf("after request %d: %+v, want %+v", i, got, stat.Stat)
		}
	}
}

// writeLog writes a transaction log of ZooKeeper's own that creates /d and a first child, which makes the counter what is
// asked for.
func writeLog(t *testing.T, dir string, counter int32) {
	t.Helper()
	assert.NoError(t, os.MkdirAll(dir, 0o755))
	b := []byte("ZKLG")
	b = wire.AppendLong(wire.AppendInt(b, 2), 0) // version, database
	for i, node := range []struct {
		path    string
		counter int32
	}{{"/d", 1}, {"/d/first", counter}} {
		txn := wire.AppendLong(nil, 1)         // session
		txn = wire.AppendInt(txn, 0)           // cxid
		txn = wire.AppendLong(txn, int64(i)+1) // zxid
		txn = wire.AppendLong(txn, 1_000_000)  // time
		txn = wire.AppendInt(txn, int32(wire.OpCreate))
		txn = wire.AppendBuffer(wire.AppendString(txn, node.path), []byte{})
		txn = wire.AppendBool(wire.AppendACLs(txn, everyone), false)
		txn = wire.AppendInt(txn, node.counter)
		b = wire.AppendLong(b, int64(adler32.Checksum(txn)))
		b = append(wire.AppendBuffer(b, txn), 'B')
	}
	assert.NoError(t, os.WriteFile(filepath.Join(dir, "log.1"), b, 0o644))
}
