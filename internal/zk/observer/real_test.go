package observer

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
	"lockkeeper/internal/zk/session"
	"lockkeeper/internal/zk/wire"
)

// foreign is another program at the same ZooKeeper.
type foreign struct {
	*fixture.Probe
	t testing.TB
}

func newForeign(t testing.TB, addr, chroot string) *foreign {
	return &foreign{fixture.NewProbe(t, zk.Config{Servers: []string{addr}, Chroot: chroot}), t}
}

func (f *foreign) createSeq(path string) string {
	f.t.Helper()
	name := assert.Value(f.Lib.Create(f.Full(path), nil, gozk.FlagSequence, gozk.WorldACL(gozk.PermAll)))(f.t, "creating %s", path)
	return name[len(f.Full("")):]
}

// tree reads the directories below root.
func (f *foreign) tree(root string) string {
	f.t.Helper()
	dirs := make(map[string]map[string]bool)
	for _, dir := range f.Children(root) {
		dirs[root+"/"+dir] = make(map[string]bool)
		for _, c := range f.Children(root + "/" + dir) {
			dirs[root+"/"+dir][c] = true
		}
	}
	return treeString(dirs)
}

func realConfig(addr, chroot string) zk.Config {
	return zk.Config{Servers: []string{addr}, Chroot: chroot, SessionTimeout: 4 * time.Second, PromiseWindow: 2 * time.Second}
}

func TestReplicaFollowsARealTree(t *testing.T) {
	addr, chroot := zkreal.SharedRealT(t)
	testkit.NoLeaks(t)
	f := newForeign(t, addr, chroot)
	f.Create("/locks", "x")
	f.Create("/locks/a", "x")
	first := f.createSeq("/locks/a/x-")
	f.Create("/gateways", "x")
	f.Create("/gateways/g1", "x")

	m := newMirror()
	o := startObserver(t, realConfig(addr, chroot), m, nil, zk.WatchRoot{Path: "/locks", Depth: 2}, zk.WatchRoot{Path: "/gateways", Depth: 1})
	m.awaitSynced(t, 1)
	want, got := "/gateways: g1\n/locks/a: "+first[len("/locks/a/"):]+"\n", m.tree()
	assert.Must(t, got == want, "the tree read gave\n%swant\n%s", got, want)
	assert.That(t, m.created["/locks/a"] == 1, "one child was created in /locks/a, told %d", m.created["/locks/a"])

	second := f.createSeq("/locks/a/x-")
	f.Delete(first)
	f.Create("/locks/b", "x")
	f.Create("/locks/b/y", "x")
	f.Set("/locks/b/y", "y")
	f.Create("/locks/b/y/deeper", "x")
	f.Delete("/locks/b/y/deeper")
	f.Delete("/locks/b/y")
	f.Delete("/locks/b")
	f.Delete("/gateways/g1")
	last := f.Set("/locks/a", "y")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	assert.NoError(t, o.Reached(ctx, last.Mzxid))
	want, got = "/gateways: \n/locks/a: "+second[len("/locks/a/"):]+"\n", m.tree()
	assert.Must(t, got == want, "after the events\n%swant\n%s", got, want)
	for _, line := range []string{"DirAdded /locks/b", "NodeAdded /locks/b y", "NodeChanged /locks/b y", "NodeRemoved /locks/b y", "DirRemoved /locks/b"} {
		assert.That(t, m.count(line) == 1, "%q was told %d times", line, m.count(line))
	}
	m.checkAll(t)
	if s := o.State(); s.Ignored != 2 { // created and deleted below a leaf
		t.Errorf("%d events ignored, want 2", s.Ignored)
	}
}

func TestGetIsAnsweredAfterWhatPrecedesItInTheStream(t *testing.T) {
	addr, chroot := zkreal.SharedT(t)
	testkit.NoLeaks(t)
	f := newForeign(t, addr, chroot)
	f.Create("/locks", "x")
	f.Create("/locks/a", "x")
	m := newMirror()
	o := startObserver(t, realConfig(addr, chroot), m, nil, zk.WatchRoot{Path: "/locks", Depth: 2})
	m.awaitSynced(t, 1)

	type answer struct {
		data string
		stat wire.Stat
		zxid int64
		err  error
		seen bool
	}
	answers := make(chan answer, 1)
	get := func(path string) answer {
		t.Helper()
		if err := o.Get(path, func(data []byte, stat wire.Stat, zxid int64, err error) {
			answers <- answer{string(data), stat, zxid, err, m.has("NodeAdded /locks/a n")}
		}); err != nil {
			t.Fatal(err)
		}
		return testkit.Receive(t, patience, answers, "an answer to Get")
	}
	f.Create("/locks/a/n", "x")
	if a := get("/locks/a/n"); a.err != nil || a.data != "x" || !a.seen || a.stat.Czxid == 0 || a.zxid < a.stat.Czxid {
		t.Errorf("answer %+v: the creation must have been told before", a)
	}
	a := get("/locks/a/none")
	assert.That(t, errors.Is(a.err, zk.ErrNoNode), "answer %+v for a node that is not there", a)
	m.checkAll(t)
}

func TestListTellsADirectoryAgain(t *testing.T) {
	addr, chroot := zkreal.SharedT(t)
	testkit.NoLeaks(t)
	f := newForeign(t, addr, chroot)
	f.Create("/locks", "x")
	f.Create("/locks/a", "x")
	m := newMirror()
	o := startObserver(t, realConfig(addr, chroot), m, nil, zk.WatchRoot{Path: "/locks", Depth: 2})
	m.awaitSynced(t, 1)
	for i := range 3 {
		f.createSeq("/locks/a/n-")
		o.List("/locks/a")
		testkit.Eventually(t, patience, func() bool { return m.count("DirListed* /locks/a") == i+2 }, "listing %d", i)
	}
	m.mu.Lock()
	created := m.created["/locks/a"]
	m.mu.Unlock()
	assert.That(t, created == 3, "three children were created, told %d", created)
	m.checkAll(t)
}

func TestARootAddedLaterIsReadAndSyncedByItself(t *testing.T) {
	addr, chroot := zkreal.SharedT(t)
	testkit.NoLeaks(t)
	f := newForeign(t, addr, chroot)
	for _, p := range []string{"/locks", "/other", "/other/d", "/other/d/n"} {
		f.Create(p, "x")
	}
	m := newMirror()
	o := startObserver(t, realConfig(addr, chroot), m, nil, zk.WatchRoot{Path: "/locks", Depth: 2})
	m.awaitSynced(t, 1)
	for range 2 {
		assert.NoError(t, o.AddRoot(zk.WatchRoot{Path: "/other", Depth: 2}))
	}
	testkit.Eventually(t, patience, func() bool { return m.has("Synced /other") }, "the new root is synced")
	assert.Equal(t, m.tree(), "/other/d: n\n", "tree")
	m.checkAll(t)
	n := m.count("Synced")
	assert.That(t, n == 1, "Synced for all roots was told %d times", n)
}

func TestReachedWaitsForAFutureTransaction(t *testing.T) {
	addr, chroot := zkreal.SharedT(t)
	testkit.NoLeaks(t)
	f := newForeign(t, addr, chroot)
	f.Create("/locks", "x")
	f.Create("/locks/a", "x")
	stat := f.Set("/locks/a", "y")
	m := newMirror()
	o := startObserver(t, realConfig(addr, chroot), m, nil, zk.WatchRoot{Path: "/locks", Depth: 2})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	assert.NoError(t, o.Reached(ctx, stat.Mzxid))
	reached := make(chan error, 1)
	future := stat.Mzxid + 50
	go func() { reached <- o.Reached(ctx, future) }()
	for range 100 {
		if stat = f.Set("/locks/a", "y"); stat.Mzxid >= future {
			break
		}
		testkit.Nothing(t, reached, "reached %#x at %#x", future, stat.Mzxid)
	}
	assert.NoError(t, testkit.Receive(t, patience, reached, "the zxid"))
	gone, cancelGone := context.WithCancel(ctx)
	cancelGone()
	assert.ErrorIs(t, o.Reached(gone, future+1_000_000), context.Canceled, "a cancelled wait")
}

func TestManyDirectoriesAreReadThroughTheWindow(t *testing.T) {
	addr, chroot := zkreal.SharedT(t)
	testkit.NoLeaks(t)
	f := newForeign(t, addr, chroot)
	f.Create("/locks", "x")
	const dirs = 3 * listWindow
	for i := 0; i < dirs; i += 64 {
		var ops []any
		for j := range 64 {
			dir := fmt.Sprintf("%s/locks/d%04d", chroot, i+j)
			ops = append(ops,
				&gozk.CreateRequest{Path: dir, Acl: gozk.WorldACL(gozk.PermAll)},
				&gozk.CreateRequest{Path: dir + "/n", Acl: gozk.WorldACL(gozk.PermAll)})
		}
		assert.Value(f.Lib.Multi(ops...))(t)
	}
	m := newMirror()
	startObserver(t, realConfig(addr, chroot), m, nil, zk.WatchRoot{Path: "/locks", Depth: 2})
	m.awaitSynced(t, 1)
	want, got := f.tree("/locks"), m.tree()
	assert.That(t, got == want, "trees differ: %d bytes, want %d", len(got), len(want))
	m.checkAll(t)
}

// TestAnIdleWriterKeepsTheReplicaCurrent joins both sides: the writer's
// guard-only writes are what the observer is measured by, and nothing else is.
func TestAnIdleWriterKeepsTheReplicaCurrent(t *testing.T) {
	cfg := fixture.Config(t)
	testkit.NoLeaks(t)
	cfg.PromiseWindow = 2 * time.Second
	layout := assert.Value(layout.Open(fixture.Context(t), cfg))(t)
	writer := assert.Value(session.Open(fixture.Context(t), cfg, layout, fixture.GatewayID(1), nil))(t)
	m := newMirror()
	o := startObserver(t, cfg, m, writer.LastZxid, zk.WatchRoot{Path: "/lockkeeper/locks", Depth: 2}, zk.WatchRoot{Path: "/lockkeeper/gateways", Depth: 1})
	writer.TrustWindow().OnCommit(o.Freshness().Committed)
	now := func() bool { return o.Freshness().Current(zk.SystemClock{}.Now()) }
	testkit.Eventually(t, patience, func() bool { return now() && m.has("Current") }, "the replica becomes current")
	first := o.Freshness().Until()
	testkit.Eventually(t, patience, func() bool { return o.Freshness().Until().Since(first) > 2*cfg.PromiseWindow }, "it goes on being so")
	if !m.has("NodeAdded* /lockkeeper/gateways " + fixture.GatewayID(1)) {
		t.Errorf("the registration is not in the replica: %v", m.lines())
	}
	assert.Nil(t, writer.Close(fixture.Context(t)))
	testkit.Eventually(t, patience, func() bool { return !now() }, "without a writer the replica stops being current")
	s := o.State()
	assert.That(t, s.Connects == 1 && s.Synced, "state %+v: a server was left because no gateway writes", s)
	m.checkAll(t)
}
