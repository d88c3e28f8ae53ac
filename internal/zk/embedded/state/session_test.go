package state

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/wire"
)

func TestASessionsNodesGoInOneTransaction(t *testing.T) {
	r := newRig(t)
	c, w := r.client(1), r.client(2)
	c.create("/p", 0)
	for i := range 5 {
		c.create(fmt.Sprintf("/p/e%d", i), wire.FlagEphemeral)
	}
	w.create("/p/mine", wire.FlagEphemeral)
	w.addWatch("/p", wire.WatchRecursive)
	before := r.s.LastZxid()
	txn := r.s.CloseSession(77, 1)
	r.log(txn)
	assert.That(t, txn.Zxid == before+1 && len(txn.Ops) == 6 && txn.Ops[5].Kind == TxnCloseSession && txn.Session == 1 && txn.Time == 77,
		"%+v", txn)
	got := w.took()
	assert.That(t, len(got) == 5, "events %q", got)
	assert.Slices(t, w.childrenOf("/p"), []string{"mine"}, "left")
	assert.Equal(t, w.stat("/p").Pzxid, txn.Zxid)
	assert.That(t, !r.s.HasSession(1) && r.s.CloseSession(78, 1) == nil, "the session is still there")
	check(t, r.s)
}

func TestSessionsAreListedByID(t *testing.T) {
	s := New(Config{})
	for _, id := range []int64{5, -3, 9} {
		s.OpenSession(1, id, int32(1000*id))
	}
	var ids []int64
	for id, timeout := range s.Sessions() {
		assert.That(t, timeout == int32(1000*id), "session %d has the timeout %d", id, timeout)
		ids = append(ids, id)
	}
	assert.That(t, slices.Equal(ids, []int64{-3, 5, 9}), "%v", ids)
}

func TestAContainerGoesWhenItsLastChildHasGone(t *testing.T) {
	c := newRig(t).client(1)
	c.addWatch("/", wire.WatchRecursive)
	c.must(wire.OpCreateContainer, creation("/c", wire.FlagContainer))
	c.must(wire.OpCreateContainer, creation("/c/d", wire.FlagContainer))
	c.create("/c/d/x", 0)
	c.must(wire.OpCreateContainer, creation("/unused", wire.FlagContainer))
	c.took()
	if txns := c.s.Reap(c.now); len(txns) != 0 {
		t.Fatalf("too soon: %+v", txns[0])
	}
	c.delete("/c/d/x")
	c.took()
	for _, path := range []string{"/c/d", "/c"} { // the outer one has to wait for the next time
		txns := c.s.Reap(c.now)
		c.log(txns...)
		assert.Must(t, len(txns) == 1 && txns[0].Ops[0].Path == path && txns[0].Session == 0, "%+v", txns)
		c.expect("deleted " + path)
	}
	assert.That(t, len(c.s.Reap(1<<50)) == 0 && c.s.tree.find("/unused") != nil, "a container that never had a child may stay")
	check(t, c.s)
}

func TestANodeGoesWhenItsTimeToLiveIsOver(t *testing.T) {
	c := newRig(t).client(1)
	start := c.now
	c.must(wire.OpCreateTTL, &wire.CreateTTLRequest{CreateRequest: *creation("/t", wire.FlagPersistentTTL), TTL: 1000})
	c.must(wire.OpCreateTTL, &wire.CreateTTLRequest{CreateRequest: *creation("/u", wire.FlagPersistentSequentialTTL), TTL: 1000})
	c.now = start + 500
	c.set("/t", "begins anew")
	c.create("/u0000000002", 0)
	reap := func(at int64) (paths []string) {
		txns := c.s.Reap(at)
		c.log(txns...)
		for _, txn := range txns {
			paths = append(paths, txn.Ops[0].Path)
		}
		return paths
	}
	for _, step := range []struct {
		at   int64
		want []string
	}{{start + 1000, nil}, {start + 1001, []string{"/u0000000001"}}, {start + 1500, nil}, {start + 1501, []string{"/t"}}, {1 << 50, nil}} {
		assert.Slices(t, reap(step.at), step.want, "after %d ms", step.at-start)
	}
	c.must(wire.OpCreateTTL, &wire.CreateTTLRequest{CreateRequest: *creation("/t", wire.FlagPersistentTTL), TTL: 1})
	c.create("/t/child", 0)
	assert.That(t, reap(1<<50) == nil, "went with a child")
}

func TestOneReapIsBounded(t *testing.T) {
	c := newRig(t).client(1)
	for i := range maxReaped + 10 {
		path := fmt.Sprintf("/c%d", i)
		c.must(wire.OpCreateContainer, creation(path, wire.FlagContainer))
		c.s.tree.find(path).makeRare().cversion = 1
	}
	for _, want := range []int{maxReaped, 10, 0} {
		assert.Equal(t, len(c.s.Reap(c.now)), want)
	}
}

func (c *client) watch(op wire.Op, path string) {
	c.t.Helper()
	c.do(op, &wire.ReadRequest{Path: path, Watch: true})
}

func (c *client) addWatch(path string, mode int32) {
	c.t.Helper()
	c.must(wire.OpAddWatch, &wire.AddWatchRequest{Path: path, Mode: mode})
}

func TestADetachedConnectionHearsNothing(t *testing.T) {
	r := newRig(t)
	c, w := r.client(1), r.client(2)
	w.addWatch("/", wire.WatchRecursive)
	w.addWatch("/a", wire.WatchPersistent)
	w.watch(wire.OpExists, "/a/b")
	w.watch(wire.OpGetChildren, "/zookeeper")
	r.s.Detach(w.conn)
	counts := r.s.Counts()
	assert.That(t, counts.Watches == 0 && counts.Conns == 1 && r.s.HasSession(2), "left: %+v", counts)
	c.create("/a", 0)
	w.expect()
	r.s.Attach(w.conn)
	c.set("/a", "x")
	w.expect()
	w.watch(wire.OpGetData, "/a")
	c.set("/a", "y")
	w.expect("data /a")
}

func TestWatchesAreCounted(t *testing.T) {
	r := newRig(t)
	a, b := r.client(1), r.client(2)
	a.watch(wire.OpExists, "/x")
	a.watch(wire.OpExists, "/x")
	b.watch(wire.OpExists, "/x")
	b.addWatch("/y", wire.WatchPersistent)
	c := r.s.Counts()
	assert.That(t, c.Watches == 4 && c.DataWatches == 3 && c.WatchedPaths == 2 && c.Watchers == 2 && c.Conns == 2, "%+v", c)
	a.create("/x", 0)
	c = r.s.Counts()
	assert.That(t, c.Watches == 2 && c.Watchers == 1, "%+v", c)
}

const bobsDigest = "bob:ikIaKsbtGweaHnb/jKn7OHqbunM=" // bob:pw

func TestAnAddressIsMatchedByItsNetworks(t *testing.T) {
	for expr, from := range map[string]string{"10.1.2.3": "10.1.2.3", "10.1.2.3/23": "10.1.3.4", "10.1.2.3/0": "192.168.0.1"} {
		assert.That(t, (identity{schemeIP, from}).matches(expr), "%s is not in %s", from, expr)
	}
	for expr, from := range map[string]string{"10.1.2.3": "10.1.2.4", "10.1.2.3/24": "10.1.3.4", "10.1.2.3/0": "::1"} {
		assert.That(t, !(identity{schemeIP, from}).matches(expr), "%s is in %s", from, expr)
	}
}

func TestAuthMeansTheCreatorsIdentities(t *testing.T) {
	c := newRig(t).client(1)
	c.login("bob")
	c.login("al")
	c.must(wire.OpCreate, &wire.CreateRequest{Path: "/a", ACL: []wire.ACL{
		{Perms: wire.PermAll, Scheme: "auth", ID: "whatever"}, {Perms: wire.PermRead, Scheme: "world", ID: "anyone"}, {Perms: wire.PermRead, Scheme: "world", ID: "anyone"},
	}})
	want := []wire.ACL{{Perms: 31, Scheme: "digest", ID: bobsDigest}, {Perms: 31, Scheme: "digest", ID: "al:E2WgW72KiEUG4R7vIVBkt6SPXyA="}, {Perms: wire.PermRead, Scheme: "world", ID: "anyone"}}
	got := c.must(wire.OpGetACL, &wire.PathRecord{Path: "/a"}).Body.(*wire.ACLReply).ACL
	assert.That(t, slices.Equal(got, want), "got %v\nwant %v", got, want)
	// A list that is known already must not be taken for the list of another client.
	other := c.rig.client(2)
	other.login("eve")
	other.must(wire.OpCreate, &wire.CreateRequest{Path: "/e", ACL: []wire.ACL{{Perms: wire.PermAll, Scheme: "auth"}}})
	assert.Equal(t, c.do(wire.OpGetData, &wire.ReadRequest{Path: "/e"}).Header.Err, wire.ErrNoAuth, "bob reads what is eve's")
}

func TestRepetitionsInAListAreLeftOutButNotThoseThatAuthMakes(t *testing.T) {
	c := newRig(t).client(1)
	c.login("bob")
	bob := wire.ACL{Perms: 31, Scheme: "digest", ID: bobsDigest}
	for _, test := range []struct{ asked, want []wire.ACL }{
		{[]wire.ACL{{Perms: 31, Scheme: "auth"}, bob}, []wire.ACL{bob, bob}},
		{[]wire.ACL{bob, bob}, []wire.ACL{bob}}, // though the table holds a list that looks like this by now
	} {
		path := c.must(wire.OpCreate, &wire.CreateRequest{Path: "/a", ACL: test.asked, Flags: wire.FlagSequential}).Body.(*wire.PathRecord).Path
		assert.Slices(t, c.must(wire.OpGetACL, &wire.PathRecord{Path: path}).Body.(*wire.ACLReply).ACL, test.want, "%v became", test.asked)
	}
}

func TestUnusedListsAreForgotten(t *testing.T) {
	c := newRig(t).client(1)
	lists := len(c.s.tree.acls.ids)
	for i := range 100 {
		acl := []wire.ACL{{Perms: wire.PermAll, Scheme: "world", ID: "anyone"}, {Perms: int32(i), Scheme: "ip", ID: "10.0.0.1"}}
		c.must(wire.OpCreate, &wire.CreateRequest{Path: "/a", ACL: acl})
		c.must(wire.OpSetACL, &wire.SetACLRequest{Path: "/a", ACL: append(acl, everyone...), Version: -1})
		c.must(wire.OpSetACL, &wire.SetACLRequest{Path: "/a", ACL: acl[:1], Version: -1})
		c.delete("/a")
		check(t, c.s)
	}
	assert.That(t, len(c.s.tree.acls.ids) == lists && len(c.s.tree.acls.lists) <= lists+3,
		"%d lists by name and %d in all, were %d", len(c.s.tree.acls.ids), len(c.s.tree.acls.lists), lists)
}

func TestTheSuperUserPassesEveryACLAndNoRequestMakesOne(t *testing.T) {
	r := newRig(t)
	other, owner := r.client(1), r.client(2)
	session := owner.conn.Session
	owner.conn = NewSuper("127.0.0.1")
	owner.conn.Session = session
	other.login("eve")
	other.must(wire.OpCreate, &wire.CreateRequest{Path: "/a", ACL: []wire.ACL{{Perms: wire.PermAll, Scheme: "auth"}}})
	none := []wire.ACL{{Scheme: "world", ID: "anyone"}}
	other.must(wire.OpSetACL, &wire.SetACLRequest{Path: "/a", ACL: none, Version: -1})
	assert.MustEqual(t, other.do(wire.OpGetACL, &wire.PathRecord{Path: "/a"}).Header.Err, wire.ErrNoAuth,
		"a node without permissions answers")
	owner.must(wire.OpGetData, &wire.ReadRequest{Path: "/a"})
	owner.must(wire.OpGetACL, &wire.PathRecord{Path: "/a"})
	owner.must(wire.OpSetData, &wire.SetDataRequest{Path: "/a", Version: -1})
	owner.create("/a/b", 0)
	owner.delete("/a/b")
	owner.must(wire.OpSetACL, &wire.SetACLRequest{Path: "/a", ACL: everyone, Version: -1})
	other.must(wire.OpGetData, &wire.ReadRequest{Path: "/a"})
	// "auth" does not count it, and no ACL can name it.
	for _, acl := range []wire.ACL{{Perms: wire.PermAll, Scheme: "auth"}, {Perms: wire.PermAll, Scheme: "super"}} {
		got := owner.do(wire.OpSetACL, &wire.SetACLRequest{Path: "/a", ACL: []wire.ACL{acl}, Version: -1}).Header.Err
		assert.Equal(t, got, wire.ErrInvalidACL, "%v", acl)
	}
	for _, secret := range []string{"", "super", "super:", "super:admin", ":"} {
		for _, scheme := range []string{"super", "world", "auth", "SUPER"} {
			c := r.client(3)
			if reply := c.do(wire.OpAuth, &wire.AuthRequest{Scheme: scheme, Auth: []byte(secret)}); reply.Header.Err != wire.ErrAuthFailed || !reply.Close || c.conn.super {
				t.Errorf("auth %s %q: %v, closes %v", scheme, secret, reply.Header.Err, reply.Close)
			}
		}
	}
	digest := r.client(4)
	if digest.do(wire.OpAuth, &wire.AuthRequest{Scheme: "digest", Auth: []byte("super:admin")}); digest.conn.super {
		t.Error("a digest made a super user")
	}
}

// lockkeeperTree makes as many locks as a lock gateway would: a directory each, with one contender in it. The names and the
// data are as long as the gateway's.
func lockkeeperTree(t testing.TB, locks int) *rig {
	r := newRig(t)
	c := r.client(1)
	c.create("/lockkeeper", 0)
	c.create("/lockkeeper/locks", 0)
	for i := range locks {
		dir := fmt.Sprintf("/lockkeeper/locks/orders-%06d", i)
		contender := fmt.Sprintf("%s/write-v1.lk%037d-lock-", dir, i)
		record := fmt.Appendf(nil, `{"v":1,"owner":"batch-worker","ttl_ms":30000,"enqueued_ms":%d}`, 1763900000000+i)
		body := multi(
			wire.MultiOp{Op: wire.OpCreate, Record: creation(dir, 0)},
			wire.MultiOp{Op: wire.OpCreate, Record: &wire.CreateRequest{Path: contender, Data: record, ACL: everyone, Flags: wire.FlagSequential}})
		assert.MustEqual(t, c.s.Request(c.conn, 1, wire.RequestHeader{Op: wire.OpMulti}, body.AppendTo(nil)).Txn.Err, wire.OK)
	}
	return r
}

// liveHeap is what is in use after everything has been collected that can be.
func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func TestLocksTakeLittleMemory(t *testing.T) {
	size := unsafe.Sizeof(node{})
	assert.That(t, size <= 64, "a node is %d bytes long, above the size class of 64", size)
	size = unsafe.Sizeof(rare{})
	assert.That(t, size <= 32, "the rare fields of a node are %d bytes long, above the size class of 32", size)
	size = unsafe.Sizeof(rarest{})
	assert.That(t, size <= 48, "the rarest fields of a node are %d bytes long, above the size class of 48", size)
	const locks = 20_000
	before := liveHeap()
	r := lockkeeperTree(t, locks)
	perLock := float64(liveHeap()-before) / locks
	t.Logf("%.0f bytes for each lock with a holder", perLock)
	assert.That(t, perLock <= 300, "%.0f bytes for each lock with a holder, want 100,000 of them in less than 30 MB", perLock)
	pieces := take(r.s, 1<<20).pieces
	before = liveHeap()
	restored := assert.Value(restore(pieces))(t)
	again := float64(liveHeap()-before) / locks
	assert.That(t, again <= perLock+10, "%.0f bytes once it is restored, had %.0f", again, perLock)
	runtime.KeepAlive(r)
	runtime.KeepAlive(pieces)
	runtime.KeepAlive(restored)
}

// BenchmarkMemory tells what a lock with a holder takes, in a State that was made by requests.
func BenchmarkMemory(b *testing.B) {
	const locks = 100_000
	var used uint64
	for b.Loop() {
		before := liveHeap()
		r := lockkeeperTree(b, locks)
		used = liveHeap() - before
		runtime.KeepAlive(r)
	}
	b.ReportMetric(float64(used)/locks, "B/lock")
	b.ReportMetric(float64(used)/1e6, "MB")
}
