package state

import (
	"testing"

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

func TestAOneShotWatchFiresOnce(t *testing.T) {
	r := newRig(t)
	c, w := r.client(1), r.client(2)
	w.watch(wire.OpExists, "/a")
	c.create("/a", 0)
	w.expect("created /a")
	c.set("/a", "x")
	w.expect()
	w.watch(wire.OpExists, "/a")
	c.set("/a", "y")
	w.expect("data /a")
	w.watch(wire.OpGetData, "/a")
	c.delete("/a")
	w.expect("deleted /a")
	w.watch(wire.OpGetData, "/a") // no node, no watch
	c.create("/a", 0)
	w.expect()
	w.watch(wire.OpGetChildren, "/a")
	c.set("/a", "x")
	w.expect()
	c.create("/a/b", 0)
	w.expect("children /a")
	w.watch(wire.OpGetChildren2, "/a")
	c.delete("/a/b")
	w.expect("children /a")
	w.watch(wire.OpGetChildren, "/a")
	c.delete("/a")
	w.expect("deleted /a")
	w.watch(wire.OpGetChildren, "/")
	c.create("/b", 0)
	w.expect("children /")
}

func TestADeletionIsToldOnceToAConnection(t *testing.T) {
	r := newRig(t)
	c, both, parent := r.client(1), r.client(2), r.client(3)
	c.create("/a", 0)
	both.watch(wire.OpGetData, "/a")
	both.watch(wire.OpGetChildren, "/a")
	both.watch(wire.OpGetChildren, "/")
	parent.watch(wire.OpGetChildren, "/")
	c.delete("/a")
	both.expect("deleted /a", "children /")
	parent.expect("children /")
	c.create("/a", 0)
	c.delete("/a")
	both.expect()
}

func TestEventsComeBeforeTheReplyAndInOrder(t *testing.T) {
	c := newRig(t).client(1)
	c.create("/a", 0)
	c.addWatch("/a", wire.WatchPersistent)
	c.watch(wire.OpExists, "/a/b")
	c.must(wire.OpMulti, multi(
		wire.MultiOp{Op: wire.OpCreate, Record: creation("/a/b", 0)},
		wire.MultiOp{Op: wire.OpSetData, Record: &wire.SetDataRequest{Path: "/a", Version: 0}},
		wire.MultiOp{Op: wire.OpDelete, Record: &wire.VersionRequest{Path: "/a/b", Version: 0}},
	))
	c.expect("created /a/b", "children /a", "data /a", "children /a")
}

func TestAFailedMultiIsNoEvent(t *testing.T) {
	c := newRig(t).client(1)
	c.addWatch("/", wire.WatchRecursive)
	c.do(wire.OpMulti, multi(
		wire.MultiOp{Op: wire.OpCreate, Record: creation("/a", 0)},
		wire.MultiOp{Op: wire.OpCreate, Record: creation("/a", 0)},
	))
	c.expect()
}

func TestAPersistentWatchStays(t *testing.T) {
	r := newRig(t)
	c, w := r.client(1), r.client(2)
	w.addWatch("/a", wire.WatchPersistent)
	c.create("/a", 0)
	c.set("/a", "x")
	c.create("/a/b", 0)
	c.create("/a/b/c", 0)
	c.delete("/a/b/c")
	c.delete("/a/b")
	c.delete("/a")
	w.expect("created /a", "data /a", "children /a", "children /a", "deleted /a")
}

func TestARecursiveWatchSeesAllBelowButNoChildrenEvents(t *testing.T) {
	r := newRig(t)
	c, w, root := r.client(1), r.client(2), r.client(3)
	w.addWatch("/a", wire.WatchRecursive)
	root.addWatch("/", wire.WatchRecursive)
	c.create("/a", 0)
	c.create("/a/b", 0)
	c.set("/a/b", "x")
	c.create("/ab", 0)
	c.delete("/a/b")
	c.delete("/a")
	w.expect("created /a", "created /a/b", "data /a/b", "deleted /a/b", "deleted /a")
	root.expect("created /a", "created /a/b", "data /a/b", "created /ab", "deleted /a/b", "deleted /a")
}

func TestWatchesOnOneNodeAndAboveItAreOneEvent(t *testing.T) {
	r := newRig(t)
	c, w := r.client(1), r.client(2)
	w.addWatch("/", wire.WatchRecursive)
	w.addWatch("/a", wire.WatchRecursive)
	w.watch(wire.OpExists, "/a/b")
	c.create("/a", 0)
	c.create("/a/b", 0)
	w.expect("created /a", "created /a/b")
	c.delete("/a/b")
	w.expect("deleted /a/b")
}

func TestAReadWithAWatchMakesAPersistentOneOneShot(t *testing.T) {
	r := newRig(t)
	c, w := r.client(1), r.client(2)
	w.addWatch("/a", wire.WatchRecursive)
	w.watch(wire.OpExists, "/a")
	c.create("/a", 0)
	w.expect("created /a")
	c.create("/a/b", 0) // the watch on children is still a recursive one, which sees no such event
	c.set("/a", "x")
	w.expect()
	c.delete("/a/b")
	c.delete("/a")
	w.expect("deleted /a/b", "deleted /a")
}

func TestEventsAreFilteredByTheACL(t *testing.T) {
	r := newRig(t)
	owner, w := r.client(1), r.client(2)
	owner.login("owner")
	w.addWatch("/", wire.WatchRecursive)
	w.watch(wire.OpExists, "/secret")
	w.watch(wire.OpGetChildren, "/")
	private := []wire.ACL{{Perms: wire.PermAll, Scheme: "auth"}}
	owner.must(wire.OpCreate, &wire.CreateRequest{Path: "/secret", ACL: private})
	w.expect("children /")
	owner.set("/secret", "x")
	owner.must(wire.OpCreate, &wire.CreateRequest{Path: "/secret/open", ACL: everyone})
	w.expect("created /secret/open")
	owner.delete("/secret/open")
	owner.must(wire.OpSetACL, &wire.SetACLRequest{Path: "/secret", ACL: everyone, Version: -1})
	owner.set("/secret", "y")
	w.expect("deleted /secret/open", "data /secret")
}

func TestEventsOfChildrenAreFilteredByTheParentsACL(t *testing.T) {
	r := newRig(t)
	owner, w := r.client(1), r.client(2)
	owner.create("/p", 0)
	w.addWatch("/p", wire.WatchPersistent)
	hidden := []wire.ACL{{Perms: wire.PermAll &^ wire.PermRead, Scheme: "world", ID: "anyone"}}
	owner.must(wire.OpSetACL, &wire.SetACLRequest{Path: "/p", ACL: hidden, Version: -1})
	owner.create("/p/open", 0)
	owner.delete("/p/open")
	w.expect()
	owner.must(wire.OpSetACL, &wire.SetACLRequest{Path: "/p", ACL: everyone, Version: -1})
	owner.must(wire.OpCreate, &wire.CreateRequest{Path: "/p/hidden", ACL: hidden})
	w.expect("children /p")
}

func TestWatchesAreCheckedAndRemoved(t *testing.T) {
	r := newRig(t)
	c, other := r.client(1), r.client(2)
	c.create("/a", 0)
	ask := func(c *client, op wire.Op, path string, kind int32, want wire.ErrCode) {
		t.Helper()
		if got := c.do(op, &wire.WatchTypeRequest{Path: path, Type: kind}).Header.Err; got != want {
			t.Fatalf("operation %d %s %d: %v, want %v", op, path, kind, got, want)
		}
	}
	c.watch(wire.OpGetData, "/a")
	ask(c, wire.OpCheckWatches, "/a", watchData, wire.OK)
	ask(other, wire.OpCheckWatches, "/a", watchData, wire.OK) // not its own, but nobody looks
	ask(c, wire.OpCheckWatches, "/a", watchChildren, wire.ErrNoWatcher)
	ask(c, wire.OpCheckWatches, "/a", watchAny, wire.OK)
	ask(c, wire.OpRemoveWatches, "/a", watchChildren, wire.ErrNoWatcher)
	ask(other, wire.OpRemoveWatches, "/a", watchAny, wire.ErrNoWatcher)
	ask(c, wire.OpRemoveWatches, "/a", watchAny, wire.OK)
	c.set("/a", "x")
	c.expect()
	c.addWatch("/a", wire.WatchRecursive)
	ask(c, wire.OpRemoveWatches, "/a", watchData, wire.OK)
	ask(c, wire.OpRemoveWatches, "/a", watchData, wire.ErrNoWatcher)
	ask(c, wire.OpCheckWatches, "/a/b", watchAny, wire.ErrNoWatcher)
	c.set("/a", "y")
	c.expect()
	ask(c, wire.OpRemoveWatches, "/a", watchChildren, wire.OK)
	c.delete("/a")
	c.expect()
	if counts := c.s.Counts(); counts.Watches != 0 || len(c.s.watches.data.recursive)+len(c.s.watches.childs.recursive) != 0 {
		t.Errorf("left: %+v", counts)
	}
}

func TestSetWatchesTellsWhatWasMissed(t *testing.T) {
	r := newRig(t)
	c := r.client(1)
	for _, path := range []string{"/same", "/set", "/gone", "/kids", "/kids2", "/new"} {
		if path != "/new" {
			c.create(path, 0)
		}
	}
	seen := c.s.LastZxid()
	c.set("/set", "x")
	c.delete("/gone")
	c.create("/kids/k", 0)
	c.create("/new", 0)
	w := r.client(2)
	w.must(wire.OpSetWatches, &wire.SetWatchesRequest{
		RelativeZxid: seen,
		Data:         []string{"/same", "/set", "/gone", "/kids2"}, // the last one is as old as what was seen
		Exist:        []string{"/new", "/never"},
		Child:        []string{"/kids", "/kids2", "/gone"},
	})
	w.expect("data /set", "deleted /gone", "created /new", "children /kids", "deleted /gone")
	c.set("/same", "x")
	c.set("/set", "y")
	c.create("/never", 0)
	c.create("/kids/l", 0)
	c.create("/kids2/l", 0)
	w.expect("data /same", "created /never", "children /kids2")
}

func TestSetWatchesMakesUpNothingForPersistentWatches(t *testing.T) {
	r := newRig(t)
	c, w := r.client(1), r.client(2)
	c.create("/p", 0)
	c.create("/r", 0)
	w.must(wire.OpSetWatches2, &wire.SetWatches2Request{Persistent: []string{"/p"}, Recursive: []string{"/r"}})
	w.expect()
	for range 2 {
		c.set("/p", "x")
		c.create("/r/n-", wire.FlagSequential)
	}
	w.expect("data /p", "created /r/n-0000000000", "data /p", "created /r/n-0000000001")
}

func TestADetachedConnectionHearsNothing(t *testing.T) {
	r := newRig(t)
	c, w := r.client(1), r.client(2)
	w.addWatch("/", wire.WatchRecursive)
	w.addWatch("/a", wire.WatchPersistent)
	w.watch(wire.OpExists, "/a/b")
	w.watch(wire.OpGetChildren, "/zookeeper")
	r.s.Detach(w.conn)
	if counts := r.s.Counts(); counts.Watches != 0 || counts.Conns != 1 || !r.s.HasSession(2) {
		t.Errorf("left: %+v", counts)
	}
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
	if c := r.s.Counts(); c.Watches != 4 || c.DataWatches != 3 || c.WatchedPaths != 2 || c.Watchers != 2 || c.Conns != 2 {
		t.Errorf("%+v", c)
	}
	a.create("/x", 0)
	if c := r.s.Counts(); c.Watches != 2 || c.Watchers != 1 {
		t.Errorf("%+v", c)
	}
}
