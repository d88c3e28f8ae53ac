package observer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"
	"github.com/google/go-cmp/cmp"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// churn makes random transactions below root until its context ends: directories that come and go, nodes in them, some
// set. It keeps the order of everything it did.
type churn struct {
	f    *foreign
	rnd  *rand.Rand
	root string
	dirs map[string][]string // what there is
	next int
	did  []string // as the mirror would log it
	zxid int64    // of the last transaction
}

func newChurn(f *foreign, root string) *churn {
	seed := rand.Uint64()
	f.t.Logf("churn with seed %d", seed)
	return &churn{f: f, rnd: rand.New(rand.NewPCG(seed, 4)), root: root, dirs: make(map[string][]string)}
}

// transaction commits one multi of a few operations.
func (c *churn) transaction() {
	c.f.t.Helper()
	var ops []any
	for range 1 + c.rnd.IntN(12) {
		ops = append(ops, c.op())
	}
	ops = append(ops, &gozk.SetDataRequest{Path: c.f.Full(c.root), Version: -1})
	results := assert.Value(c.f.Lib.Multi(ops...))(c.f.t, "churn")
	c.zxid = results[len(results)-1].Stat.Mzxid
}

func (c *churn) op() any {
	dir := fmt.Sprintf("%s/d%d", c.root, c.rnd.IntN(8))
	nodes, exists := c.dirs[dir]
	if !exists {
		c.dirs[dir] = nil
		c.did = append(c.did, "DirAdded "+dir)
		return &gozk.CreateRequest{Path: c.f.Full(dir), Acl: gozk.WorldACL(gozk.PermAll)}
	}
	if len(nodes) == 0 && c.rnd.IntN(3) == 0 {
		delete(c.dirs, dir)
		c.did = append(c.did, "DirRemoved "+dir)
		return &gozk.DeleteRequest{Path: c.f.Full(dir), Version: -1}
	}
	if len(nodes) > 0 && c.rnd.IntN(8) == 0 {
		c.did = append(c.did, "NodeChanged "+dir+" "+nodes[0])
		return &gozk.SetDataRequest{Path: c.f.Full(dir + "/" + nodes[0]), Version: -1}
	}
	if len(nodes) > 0 && c.rnd.IntN(2) == 0 {
		i := c.rnd.IntN(len(nodes))
		c.did = append(c.did, "NodeRemoved "+dir+" "+nodes[i])
		path := c.f.Full(dir + "/" + nodes[i])
		c.dirs[dir] = slices.Delete(nodes, i, i+1)
		return &gozk.DeleteRequest{Path: path, Version: -1}
	}
	node := fmt.Sprintf("n%d", c.next)
	c.next++
	c.dirs[dir] = append(nodes, node)
	c.did = append(c.did, "NodeAdded "+dir+" "+node)
	return &gozk.CreateRequest{Path: c.f.Full(dir + "/" + node), Acl: gozk.WorldACL(gozk.PermAll)}
}

func TestEventsOfARealServerAreCompleteAndInOrder(t *testing.T) {
	addr, chroot := zkreal.SharedRealT(t)
	testkit.NoLeaks(t)
	f := newForeign(t, addr, chroot)
	f.Create("/locks", "x")
	m := newMirror()
	o := startObserver(t, realConfig(addr, chroot), m, nil, locksRoot)
	m.awaitSynced(t, 1)
	c := newChurn(f, "/locks")
	for range 400 {
		c.transaction()
	}
	reach(t, o, c.zxid)
	m.checkAll(t)
	diff := cmp.Diff(c.did, slices.DeleteFunc(m.lines(), func(l string) bool { return l == "Synced" || l == "Current" }))
	assert.That(t, diff == "", "-done +told\n%s", diff)
}

func reach(t testing.TB, o *Observer, zxid int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := o.Reached(ctx, zxid); err != nil {
		t.Fatalf("reaching %#x: %v, %+v", zxid, err, o.State())
	}
}

// TestTheReplicaSurvivesReconnectsInTheMiddleOfWrites cuts the observer's
// connection again and again while another program changes the tree.
func TestTheReplicaSurvivesReconnectsInTheMiddleOfWrites(t *testing.T) {
	addr, chroot := zkreal.SharedT(t)
	testkit.NoLeaks(t)
	proxy := netfault.NewT(t, addr)
	f := newForeign(t, addr, chroot)
	f.Create("/locks", "x")
	m := newMirror()
	o := startObserver(t, realConfig(proxy.Addr(), chroot), m, nil, locksRoot)
	m.awaitSynced(t, 1)

	const cuts = 8
	cut, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := range cuts {
			// Some cuts hit in the middle of a tree read.
			testkit.Eventually(t, patience, func() bool { return o.State().Connects > uint64(i) }, "connection %d", i)
			if i%2 == 0 {
				m.awaitSynced(t, 1)
			}
			if i%3 == 0 {
				proxy.DropReplies()
				proxy.Cut()
				proxy.Heal()
			} else {
				proxy.Reset()
			}
		}
		close(cut)
	}()
	c := newChurn(f, "/locks")
	for n := 0; ; n++ {
		c.transaction()
		select {
		case <-cut:
		default:
			continue
		}
		break
	}
	<-done
	for range 20 {
		c.transaction()
	}
	reach(t, o, c.zxid)
	m.checkAll(t)
	got, want := m.tree(), f.tree("/locks")
	assert.That(t, got == want, "the replica is\n%sthe tree is\n%s", got, want)
	assert.That(t, m.losses >= cuts, "the connection was lost %d times", m.losses)
}

func TestHiddenNodesSendNeitherEventAndAreShownByAListing(t *testing.T) {
	addr, chroot := zkreal.SharedRealT(t)
	testkit.NoLeaks(t)
	f := newForeign(t, addr, chroot)
	f.Create("/locks", "x")
	f.Create("/locks/a", "x")
	assert.NoError(t, f.Lib.AddAuth("digest", []byte("fleet:secret")))
	blind, seeing := newMirror(), newMirror()
	cfg := realConfig(addr, chroot)
	ob := startObserver(t, cfg, blind, nil, locksRoot)
	cfg.Auth = &zk.DigestAuth{User: "fleet", Password: "secret"}
	os := startObserver(t, cfg, seeing, nil, locksRoot)
	blind.awaitSynced(t, 1)
	seeing.awaitSynced(t, 1)

	hide := func(path string) {
		t.Helper()
		assert.Value(f.Lib.Create(chroot+path, nil, 0, gozk.DigestACL(gozk.PermAll, "fleet", "secret")))(t)
	}
	hide("/locks/a/hidden")
	reach(t, ob, f.Set("/locks/a", "y").Mzxid)
	assert.That(t, !blind.has("NodeAdded /locks/a hidden"),
		"a node that may not be read sent a created event: the premise of listing is wrong")
	ob.List("/locks/a")
	testkit.Eventually(t, patience, func() bool { return blind.has("NodeAdded* /locks/a hidden") }, "the listing shows it")
	f.Delete("/locks/a/hidden")
	last := f.Set("/locks/a", "y").Mzxid
	reach(t, ob, last)
	assert.That(t, !blind.has("NodeRemoved /locks/a hidden"), "a node that may not be read sent a deleted event")
	ob.List("/locks/a")
	testkit.Eventually(t, patience, func() bool { return blind.has("NodeRemoved* /locks/a hidden") }, "the listing shows that it is gone")

	reach(t, os, last)
	for _, line := range []string{"NodeAdded /locks/a hidden", "NodeRemoved /locks/a hidden"} {
		assert.That(t, seeing.has(line), "the observer that authenticates was not told %q", line)
	}

	// A directory that may not be read: its name is known, its content is not.
	hide("/locks/closed")
	hide("/locks/closed/n")
	proxyless := newMirror()
	cfg.Auth = nil
	startObserver(t, cfg, proxyless, nil, locksRoot)
	proxyless.awaitSynced(t, 1)
	if !proxyless.has("DirListed* /locks/closed not authorized") {
		t.Errorf("told %v", proxyless.lines())
	}
	read := make(chan error, 1)
	assert.NoError(t, ob.Get("/locks/closed/n", func(_ []byte, _ wire.Stat, _ int64, err error) { read <- err }))
	assert.Equal(t, testkit.Receive(t, patience, read, "an answer"), zk.ErrNoAuth, "reading what may not be read")
	for _, m := range []*mirror{blind, seeing, proxyless} {
		m.checkAll(t)
	}
}

func TestARestartedServerIsReadAgain(t *testing.T) {
	testkit.NoLeaks(t)
	server := zkreal.StartT(t)
	assert.NoError(t, zkreal.Mkdir(server.Addr(), "/locks"))
	m := newMirror()
	o := startObserver(t, realConfig(server.Addr(), ""), m, nil, locksRoot)
	m.awaitSynced(t, 1)
	server.Kill()
	testkit.Eventually(t, patience, func() bool { return !o.State().Synced }, "the loss is noticed")
	server.RestartT(t)
	m.awaitSynced(t, 2)
	assert.NoError(t, zkreal.Mkdir(server.Addr(), "/locks/a"))
	testkit.Eventually(t, patience, func() bool { return m.has("DirAdded /locks/a") }, "events come again")
	m.checkAll(t)
}

// TestAFrozenServerIsNoticed: the process stands still, its connections stay open.
func TestAFrozenServerIsNoticed(t *testing.T) {
	testkit.NoLeaks(t)
	server := zkreal.StartT(t)
	m := newMirror()
	o := startObserver(t, realConfig(server.Addr(), ""), m, nil, locksRoot)
	m.awaitSynced(t, 1)
	server.Freeze()
	testkit.Eventually(t, patience, func() bool { return !o.State().Synced }, "the silence is noticed")
	server.Thaw()
	m.awaitSynced(t, 2)
}

// TestAFollowerCutOffFromItsPeers: it goes on answering pings and reads. The replica must not count as current for
// longer than the window, and must move to a server that knows what is going on.
func TestAFollowerCutOffFromItsPeers(t *testing.T) {
	const syncLimit = 60 // of 500 ms: it serves for half a minute without its leader
	testkit.NoLeaks(t)
	e := zkreal.StartEnsembleT(t, 3, zkreal.WithSyncLimit(syncLimit), zkreal.WithoutFsync())
	followers := e.Followers()
	assert.Must(t, len(followers) == 2, "followers %v", followers)
	byAddr := map[string]int{e.Addr(followers[0]): followers[0], e.Addr(followers[1]): followers[1]}

	clock := zk.SystemClock{}
	m := newMirror()
	cfg := realConfig("", "")
	cfg.Servers = []string{e.Addr(followers[0]), e.Addr(followers[1])}
	var written int64
	wrote := make(chan int64, 1)
	o := startObserver(t, cfg, m, func() int64 {
		select {
		case written = <-wrote:
		default:
		}
		return written
	}, locksRoot)
	m.awaitSynced(t, 1)
	cut := byAddr[o.State().Server]
	other := followers[0] + followers[1] - cut

	f := newForeign(t, e.Addr(other), "")
	f.Create("/locks", "x")
	f.Create("/locks/a", "x")
	commit := func() int64 {
		sent := clock.Now()
		zxid := f.Set("/locks/a", "y").Mzxid
		o.Freshness().Committed(sent, zxid)
		select {
		case <-wrote:
		default:
		}
		wrote <- zxid
		return zxid
	}
	for range 100 {
		reach(t, o, commit())
	}
	assert.Must(t, o.Freshness().Current(clock.Now()), "not current on a healthy ensemble")

	e.CutPeers(cut)
	began := time.Now()
	f.Create("/locks/a/unseen", "x")
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	lastOnCut := began
	for {
		commit()
		state, now := o.State(), time.Now()
		current := o.Freshness().Current(clock.Now())
		if byAddr[state.Server] == cut && current {
			lastOnCut = now
		}
		if byAddr[state.Server] == other && state.Synced && current {
			break
		}
		assert.Must(t, now.Sub(began) <= patience, "still at %+v", state)
		<-tick.C
	}
	// What was committed before the cut may count for one window; the
	// connection through the proxy may deliver a moment later.
	if late := lastOnCut.Sub(began); late > cfg.PromiseWindow+200*time.Millisecond {
		t.Errorf("current for %v on a server that is cut off, window %v", late, cfg.PromiseWindow)
	}
	mode := e.Servers()[cut].Mode()
	assert.That(t, mode == "follower", "the cut-off server is %q now: it was not tested that it is left while it serves", mode)
	assert.That(t, strings.Contains(m.tree(), "unseen"), "tree %s", m.tree())

	// It still serves, but what we have seen since it has not: never back.
	for range 3 {
		before := o.State().Connects
		e.Client(other).Reset()
		testkit.Eventually(t, patience, func() bool { s := o.State(); return s.Connects > before && s.Synced }, "back on a server")
		s := o.State()
		assert.That(t, byAddr[s.Server] != cut, "synced on a server that lags behind: %+v", s)
	}
	e.HealPeers(cut)
	reach(t, o, f.Set("/locks/a", "y").Mzxid)
	m.checkAll(t)
}
