package state

import (
	"testing"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/wire"
)

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
