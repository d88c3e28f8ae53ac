package observer

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// book drives a replica and checks what it tells with a mirror.
type book struct {
	t testing.TB
	r replica
	m *mirror
}

func newBook(t testing.TB, roots ...zk.WatchRoot) *book {
	b := &book{t: t, m: newMirror()}
	for _, w := range roots {
		b.r.add(w, "/chroot"+w.Path)
	}
	return b
}

func (b *book) root(path string) *root {
	for _, r := range b.r.roots {
		if r.Path == path {
			return r
		}
	}
	b.t.Fatalf("no root %s", path)
	return nil
}

// told applies what has been emitted and returns it as lines.
func (b *book) told() []string {
	b.t.Helper()
	before := len(b.m.lines())
	b.m.Apply(b.r.changes)
	b.r.changes = nil
	b.m.checkAll(b.t)
	return b.m.lines()[before:]
}

func (b *book) event(t wire.EventType, path string) { b.r.event(t, []byte("/chroot"+path)) }

func (b *book) list(root, dir string, zxid int64, czxid int64, names ...string) {
	b.r.listedDir(b.root(root), dir, views(names), &wire.Stat{Czxid: czxid, Cversion: int32(len(names)), NumChildren: int32(len(names))}, zxid)
}

func views(names []string) [][]byte {
	var v [][]byte
	for _, n := range names {
		v = append(v, []byte(n))
	}
	return v
}

func (b *book) expect(want ...string) {
	b.t.Helper()
	diff := cmp.Diff(want, b.told())
	assert.Must(b.t, diff == "", "-want +told\n%s", diff)
}

var locksRoot = zk.WatchRoot{Path: "/locks", Depth: 2}

func TestEventsBecomeChangesInTheirOrder(t *testing.T) {
	b := newBook(t, locksRoot, zk.WatchRoot{Path: "/gateways", Depth: 1})
	b.event(wire.EventCreated, "/locks")
	b.event(wire.EventCreated, "/locks/a")
	b.event(wire.EventCreated, "/locks/a/x")
	b.event(wire.EventDataChanged, "/locks/a/x")
	b.event(wire.EventDeleted, "/locks/a/x")
	b.event(wire.EventDeleted, "/locks/a")
	b.event(wire.EventDeleted, "/locks")
	b.event(wire.EventCreated, "/gateways")
	b.event(wire.EventCreated, "/gateways/g")
	b.event(wire.EventDeleted, "/gateways/g")
	b.event(wire.EventDeleted, "/gateways")
	b.expect("DirAdded /locks/a", "NodeAdded /locks/a x", "NodeChanged /locks/a x", "NodeRemoved /locks/a x", "DirRemoved /locks/a",
		"DirAdded /gateways", "NodeAdded /gateways g", "NodeRemoved /gateways g", "DirRemoved /gateways")
	assert.That(t, b.r.ignored == 0, "%d events ignored", b.r.ignored)
}

func TestEventsElsewhereAreCountedAndIgnored(t *testing.T) {
	b := newBook(t, locksRoot, zk.WatchRoot{Path: "/gateways", Depth: 1})
	for _, path := range []string{"/locks/a/x/deeper", "/locks/a/x/deeper/still", "/gateways/g/sub", "/locks2/a/x", "/lock", "/", ""} {
		b.event(wire.EventCreated, path)
	}
	b.event(wire.EventDataChanged, "/locks/a")
	b.event(wire.EventDataChanged, "/locks")
	b.event(wire.EventChildrenChanged, "/locks/a")
	b.expect()
	assert.That(t, b.r.events == 10 && b.r.ignored == 10, "%d of %d events ignored", b.r.ignored, b.r.events)
}

func TestACreatedEventForAKnownNodeIsNotToldTwice(t *testing.T) {
	b := newBook(t, locksRoot)
	b.list("/locks", "a", 5, 1, "x")
	b.told()
	b.event(wire.EventCreated, "/locks/a/x")
	b.event(wire.EventCreated, "/locks/a/x")
	b.expect("NodeChanged /locks/a x", "NodeChanged /locks/a x")
}

func TestADeletedEventAlwaysCounts(t *testing.T) {
	b := newBook(t, locksRoot)
	b.list("/locks", "a", 5, 1)
	b.told()
	b.event(wire.EventDeleted, "/locks/a/never-seen")
	assert.Must(t, len(b.r.changes) == 1 && b.r.changes[0].Node == "never-seen", "changes %+v", b.r.changes)
	b.expect("NodeRemoved /locks/a never-seen")
}

func TestADirectoryThatIsNotListedYetIsInferredFromItsNodes(t *testing.T) {
	b := newBook(t, locksRoot)
	root := b.root("/locks")
	root.pending = 1 // the top is being listed
	b.event(wire.EventDeleted, "/locks/a/x")
	b.event(wire.EventCreated, "/locks/a/y")
	b.event(wire.EventDataChanged, "/locks/b/z")
	b.expect("DirAdded* /locks/a", "NodeRemoved /locks/a x", "NodeAdded /locks/a y",
		"DirAdded* /locks/b", "NodeAdded /locks/b z", "NodeChanged /locks/b z")
	assert.Must(t, len(b.r.want) == 0, "the listing of the top will ask for them, yet %d are wanted", len(b.r.want))
	b.r.listedTop(root, views([]string{"a", "b"}), true, 7)
	assert.Must(t, len(b.r.want) == 2 && root.pending == 3, "after the top: %d wanted, %d pending", len(b.r.want), root.pending)
	b.list("/locks", "a", 8, 1, "y", "old")
	b.list("/locks", "b", 8, 2, "z")
	b.expect("NodeAdded* /locks/a old", "DirListed* /locks/a", "DirListed* /locks/b")
}

func TestADirectoryInferredAfterTheTreeReadIsListed(t *testing.T) {
	b := newBook(t, locksRoot)
	root := b.root("/locks")
	root.listed, root.synced = true, true
	b.event(wire.EventCreated, "/locks/hidden/x")
	b.expect("DirAdded* /locks/hidden", "NodeAdded /locks/hidden x")
	assert.That(t, len(b.r.want) == 1 && b.r.want[0].name == "hidden" && !b.r.want[0].tree, "wanted: %+v", b.r.want)
}

func TestAListingReplacesTheDirectory(t *testing.T) {
	b := newBook(t, locksRoot)
	b.list("/locks", "a", 5, 1, "x", "y")
	b.expect("DirAdded* /locks/a", "NodeAdded* /locks/a x", "NodeAdded* /locks/a y", "DirListed* /locks/a")
	b.list("/locks", "a", 9, 1, "y", "z")
	for _, c := range b.r.changes {
		assert.That(t, c.Listed && c.Zxid == 9, "%v: listed %v, zxid %d; the reply had 9", c.Kind, c.Listed, c.Zxid)
	}
	// What is new comes first: a queue half-way through has too many contenders rather than too few.
	b.expect("NodeAdded* /locks/a z", "NodeRemoved* /locks/a x", "DirListed* /locks/a")
}

func TestAListingOfTheTopRemovesWhatIsGone(t *testing.T) {
	b := newBook(t, locksRoot)
	b.list("/locks", "a", 5, 1, "x")
	b.list("/locks", "b", 5, 2)
	b.told()
	b.r.listedTop(b.root("/locks"), views([]string{"b", "c"}), true, 8)
	b.expect("DirAdded* /locks/c", "NodeRemoved* /locks/a x", "DirRemoved* /locks/a")
	assert.That(t, len(b.r.want) == 2, "%d listings wanted", len(b.r.want))
	b.r.listedGone(b.root("/locks"), "", true, 9)
	if b.told(); b.m.tree() != "" {
		t.Errorf("after the top itself is gone: %s", b.m.tree())
	}
}

func TestAListingThatFindsNothingRemovesADirectoryWeStillHave(t *testing.T) {
	b := newBook(t, locksRoot, zk.WatchRoot{Path: "/gateways", Depth: 1})
	b.list("/locks", "a", 5, 1, "x")
	b.list("/gateways", "", 5, 1, "g")
	b.told()
	b.r.listedGone(b.root("/locks"), "a", false, 6)
	b.r.listedGone(b.root("/locks"), "never", false, 6)
	b.r.listedGone(b.root("/gateways"), "", false, 6)
	b.expect("NodeRemoved* /locks/a x", "DirRemoved* /locks/a", "NodeRemoved* /gateways g", "DirRemoved* /gateways")
}

func TestADirectoryCreatedAgainWithoutAConnectionIsAnotherOne(t *testing.T) {
	b := newBook(t, locksRoot)
	b.list("/locks", "a", 5, 1, "n-0000000000")
	b.told()
	b.r.reset()
	b.list("/locks", "a", 9, 7, "n-0000000000")
	b.expect("NodeRemoved* /locks/a n-0000000000", "DirRemoved* /locks/a",
		"DirAdded* /locks/a", "NodeAdded* /locks/a n-0000000000", "DirListed* /locks/a")
}

// The gateway's own lease may be the first in the new directory, with its reply
// long arrived: told as removed by a listing that is not older, it would end.
func TestANodeThatCameBeforeTheListingOfItsNewDirectoryIsNotToldAsRemoved(t *testing.T) {
	for name, tell := range map[string]wire.EventType{"created": wire.EventCreated, "changed": wire.EventDataChanged} {
		t.Run(name, func(t *testing.T) {
			b := newBook(t, locksRoot)
			b.list("/locks", "a", 5, 1, "old", "same")
			b.told()
			b.r.reset()
			b.event(wire.EventCreated, "/locks/a/new")
			b.event(tell, "/locks/a/same")
			b.event(wire.EventCreated, "/locks/a/brief")
			b.event(wire.EventDeleted, "/locks/a/brief")
			b.told()
			b.list("/locks", "a", 9, 7, "new", "same", "another")
			b.expect("NodeRemoved* /locks/a old", "NodeAdded* /locks/a another", "DirListed* /locks/a")
			b.list("/locks", "a", 10, 7, "new", "same", "another")
			b.expect("DirListed* /locks/a")
			assert.Equal(t, len(b.root("/locks").fresh), 2, "nodes are remembered")
			if b.r.reset(); b.root("/locks").fresh != nil {
				t.Error("nodes of an earlier connection are remembered")
			}
		})
	}
}

func TestADirectoryDeletedAndCreatedAgainByEventsIsAnotherOne(t *testing.T) {
	b := newBook(t, locksRoot)
	b.list("/locks", "a", 5, 1, "x")
	b.event(wire.EventDeleted, "/locks/a/x")
	b.event(wire.EventDeleted, "/locks/a")
	b.event(wire.EventCreated, "/locks/a")
	b.event(wire.EventCreated, "/locks/a/y")
	b.told() // the mirror checks that the Dir is a new one
	// A listing that was asked for before all that comes now.
	b.list("/locks", "a", 9, 8, "y")
	b.expect("DirListed* /locks/a")
}

func TestACreatedEventForAKnownDirectoryHasItListed(t *testing.T) {
	b := newBook(t, locksRoot)
	root := b.root("/locks")
	b.list("/locks", "a", 5, 1, "x")
	b.told()
	b.event(wire.EventCreated, "/locks/a") // in the middle of a tree read, which will list it anyway
	assert.That(t, len(b.r.want) == 0, "wanted: %+v", b.r.want)
	root.listed = true
	b.event(wire.EventCreated, "/locks/a")
	assert.That(t, len(b.r.want) == 1 && b.r.want[0].name == "a", "wanted: %+v", b.r.want)
	b.list("/locks", "a", 9, 8)
	b.expect("NodeRemoved* /locks/a x", "DirRemoved* /locks/a", "DirAdded* /locks/a", "DirListed* /locks/a")
}

// ZooKeeper withholds the deletion of a directory whose ACL hides it. The gateway's own lease may be the first in the one that
// takes its place: told as removed by the listing, it would end.
func TestADirectoryThatIsCreatedAgainWithoutItsDeletionIsAnotherOne(t *testing.T) {
	b := newBook(t, locksRoot)
	root := b.root("/locks")
	b.list("/locks", "a", 5, 1, "old")
	b.told()
	root.listed, root.synced = true, true
	b.event(wire.EventCreated, "/locks/a")
	b.event(wire.EventCreated, "/locks/a/new")
	b.expect("NodeRemoved /locks/a old", "DirRemoved /locks/a", "DirAdded /locks/a", "NodeAdded /locks/a new")
	assert.That(t, len(b.r.want) == 1 && b.r.want[0].name == "a", "wanted: %+v", b.r.want)
	b.list("/locks", "a", 9, 7, "new", "hidden")
	b.expect("NodeAdded* /locks/a hidden", "DirListed* /locks/a")
}

func TestADirectoryThatIsDeletedTakesItsHiddenNodesAlong(t *testing.T) {
	b := newBook(t, locksRoot)
	b.list("/locks", "a", 5, 1, "hidden")
	b.told()
	b.event(wire.EventDeleted, "/locks/a")
	b.expect("NodeRemoved /locks/a hidden", "DirRemoved /locks/a")
}

func TestARefusedListingKeepsWhatIsKnown(t *testing.T) {
	b := newBook(t, locksRoot)
	b.event(wire.EventCreated, "/locks/a/mine")
	b.r.listedRefused(b.root("/locks"), "a", 5, zk.ErrNoAuth)
	last := b.r.changes[len(b.r.changes)-1]
	assert.That(t, errors.Is(last.Err, zk.ErrNoAuth), "error %v", last.Err)
	b.expect("DirAdded* /locks/a", "NodeAdded /locks/a mine", "DirListed* /locks/a not authorized")
}

func TestRootsInsideEachOtherAreFoundInnermostFirst(t *testing.T) {
	b := newBook(t, zk.WatchRoot{Path: "/a", Depth: 2}, zk.WatchRoot{Path: "/a/b/c", Depth: 1})
	b.event(wire.EventCreated, "/a/b/c/n")
	b.event(wire.EventCreated, "/a/b/d")
	b.expect("DirAdded* /a/b/c", "NodeAdded /a/b/c n", "DirAdded* /a/b", "NodeAdded /a/b d")
}

func TestARootAtTheVeryTop(t *testing.T) {
	b := &book{t: t, m: newMirror()}
	b.r.add(zk.WatchRoot{Path: "/", Depth: 2}, "/")
	b.r.event(wire.EventCreated, []byte("/a/x"))
	b.expect("DirAdded* /a", "NodeAdded /a x")
}

func TestAnEventOnAKnownDirectoryCostsOneName(t *testing.T) {
	b := newBook(t, locksRoot)
	b.list("/locks", "a", 5, 1, "x")
	created, deleted := []byte("/chroot/locks/a/y"), []byte("/chroot/locks/a/y")
	if n := testing.AllocsPerRun(100, func() {
		b.r.event(wire.EventCreated, created)
		b.r.event(wire.EventDeleted, deleted)
		b.r.changes = b.r.changes[:0]
	}); n > 1 { // the name
		t.Errorf("%v allocations for a node that comes and goes", n)
	}
}

func TestNodeSetAgreesWithAMap(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 2))
	var s nodeSet
	want := make(map[string]bool)
	for range 20_000 {
		name := fmt.Sprint(rnd.IntN(3 * nodeIndexFrom))
		have, known := s.get([]byte(name))
		assert.Must(t, known == want[name] && (!known || have == name), "seed %d: get %q is %q, %v", seed, name, have, known)
		switch {
		case !known:
			s.add(name)
			want[name] = true
		case rnd.IntN(2) == 0:
			s.remove(name)
			delete(want, name)
		case rnd.IntN(100) == 0:
			for name := range s.all() {
				s.remove(name)
			}
			clear(want)
		case rnd.IntN(100) == 0: // all but one or two
			left := 1 + rnd.IntN(2)
			for name := range s.all() {
				if len(want) > left {
					s.remove(name)
					delete(want, name)
				}
			}
		}
		all := make(map[string]bool)
		for name := range s.all() {
			all[name] = true
		}
		assert.Must(t, s.len() == len(want) && maps.Equal(all, want), "seed %d: %d and %v, want %v", seed, s.len(), all, want)
	}
}

// TestReplicaEqualsTheTreeWheneverItIsSynced runs random histories: a tree that changes at random, a connection that
// delivers its events and answers listings at their place, and that breaks at random moments.
func TestReplicaEqualsTheTreeWheneverItIsSynced(t *testing.T) {
	for range 200 {
		seed := rand.Uint64()
		if !t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { randomHistory(t, rand.New(rand.NewPCG(seed, 3))) }) {
			return
		}
	}
}

func randomHistory(t *testing.T, rnd *rand.Rand) {
	b := newBook(t, locksRoot)
	root := b.root("/locks")
	tree := make(map[string]map[string]bool)
	czxid := make(map[string]int64)
	created := make(map[string]int32)
	zxid := int64(1)
	connected := false

	mutate := func() {
		zxid++
		dir, node := fmt.Sprintf("d%d", rnd.IntN(4)), fmt.Sprintf("n%d", rnd.IntN(30))
		path, typ := "/locks/"+dir+"/"+node, wire.EventType(0)
		switch nodes := tree[dir]; {
		case nodes == nil:
			tree[dir], czxid[dir], created[dir] = make(map[string]bool), zxid, 0
			path, typ = "/locks/"+dir, wire.EventCreated
		case len(nodes) == 0 && rnd.IntN(2) == 0:
			delete(tree, dir)
			path, typ = "/locks/"+dir, wire.EventDeleted
		case nodes[node]:
			typ = wire.EventDataChanged
			if rnd.IntN(3) > 0 {
				delete(nodes, node)
				typ = wire.EventDeleted
			}
		default:
			nodes[node] = true
			created[dir]++
			typ = wire.EventCreated
		}
		if connected {
			b.event(typ, path)
		}
	}
	answer := func(l listing) {
		root.pending--
		switch {
		case l.top:
			b.r.listedTop(root, views(slices.Collect(maps.Keys(tree))), l.tree, zxid)
		case tree[l.name] == nil:
			b.r.listedGone(root, l.name, false, zxid)
		default:
			names := views(slices.Collect(maps.Keys(tree[l.name])))
			stat := wire.Stat{Czxid: czxid[l.name], Cversion: 2*created[l.name] - int32(len(names)), NumChildren: int32(len(names))}
			b.r.listedDir(root, l.name, names, &stat, zxid)
			assert.MustEqual(t, b.r.changes[len(b.r.changes)-1].Created, created[l.name],
				"%d children were created in %s, told", created[l.name], l.name)
		}
	}
	for range 12 {
		for range rnd.IntN(40) {
			mutate()
		}
		b.r.reset()
		connected = true
		root.pending = 1
		queue := []listing{{root: root, top: true, tree: true}}
		for len(queue) > 0 || rnd.IntN(30) > 0 {
			if len(queue) > 0 && rnd.IntN(3) == 0 {
				answer(queue[0])
				queue = append(queue[1:], b.r.want...)
				b.r.want = nil
			} else {
				mutate()
			}
			if rnd.IntN(4) == 0 {
				b.told()
			}
			if rnd.IntN(150) == 0 {
				break // the connection is lost in the middle
			}
		}
		connected = false
		b.told()
		if root.pending > 0 {
			continue
		}
		want := make(map[string]map[string]bool)
		for dir, nodes := range tree {
			want["/locks/"+dir] = nodes
		}
		if got, want := b.m.tree(), treeString(want); got != want {
			t.Fatalf("replica\n%stree\n%s%s", got, want, strings.Join(b.m.lines(), "\n"))
		}
	}
}

func TestTheServerIsAskedAtOnceWhenACommitWouldMakeTheReplicaCurrent(t *testing.T) {
	play(t, nil, func(s *stage) {
		s.pass(100 * time.Millisecond) // between two pings
		began := time.Now()
		s.zk.mu.Lock()
		s.zk.zxid++
		zxid := s.zk.zxid
		s.zk.mu.Unlock()
		s.o.Freshness().Committed(s.cfg.Clock.Now(), zxid)
		synctest.Wait()
		assert.That(t, s.o.Freshness().Current(s.cfg.Clock.Now()) && time.Since(began) == 0,
			"not current, %v after the commit", time.Since(began))
		// Once it is current, the next tick is soon enough: a busy writer is no reason for more pings.
		s.zk.mu.Lock()
		pings := s.zk.conns[0].pings
		s.zk.mu.Unlock()
		for i := range int64(100) {
			s.o.Freshness().Committed(s.cfg.Clock.Now(), zxid+i+1)
			synctest.Wait()
		}
		s.zk.mu.Lock()
		defer s.zk.mu.Unlock()
		assert.Equal(t, s.zk.conns[0].pings-pings, 0, "pings for commits while current")
	})
}
