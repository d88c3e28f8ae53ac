package state

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/wire"
)

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
