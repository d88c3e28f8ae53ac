package queues

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

const now = time.Hour

// fixture is a replica with one namespace, which it holds whole.
type fixture struct {
	t     *testing.T
	r     *Replica
	space *Namespace
	woken int
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{t: t}
	f.r = New(func(ch chan struct{}) {
		f.woken++
		close(ch)
	})
	s := assert.Value(NamespaceOf("default", zk.Namespace{Root: "/locks"}))(t)
	s.Whole = true
	f.space, f.r.Namespaces["default"] = s, s
	t.Cleanup(func() { assert.Nil(t, f.r.Check()) })
	return f
}

// dir is a queue whose directory was seen to be created.
func (f *fixture) dir(lock string) *Queue {
	q := f.r.Queue(f.space, lock, now)
	f.tell(q, zk.Change{Kind: zk.DirAdded})
	return q
}

func (f *fixture) tell(q *Queue, c zk.Change) []Delta {
	c.Dir = &zk.Dir{Path: q.Path}
	return f.r.ApplyDir(q, &c, now)
}

// lease is a contender of a lease with that number.
func lease(mode recipe.Mode, number int32) *recipe.Contender {
	id := recipe.LeaseID("lk" + strings.Repeat("a", recipe.LeaseIDLen-12) + fmt.Sprintf("%010d", number))
	return &recipe.Contender{Name: fmt.Sprintf("%s-lock-%010d", id, number), Ours: true, LeaseID: id, Mode: mode, Number: number, Member: 1, Members: 1, Group: 1, Groups: 1}
}

// part is the contender of a group's member in one queue.
func part(number int32, group, groups uint8) *recipe.Contender {
	c := lease(recipe.Exclusive, 7)
	c.Name, c.Number, c.Group, c.Groups = fmt.Sprintf("g%d-lock-%010d", group, number), number, group, groups
	return c
}

func kinds(deltas []Delta) (list []DeltaKind) {
	for _, d := range deltas {
		list = append(list, d.Kind)
	}
	return list
}

func wantKinds(t *testing.T, what string, deltas []Delta, want ...DeltaKind) {
	t.Helper()
	assert.Slices(t, kinds(deltas), want, "%s: deltas", what)
}

func TestAContenderIsAddedAndRemovedOnce(t *testing.T) {
	f := newFixture(t)
	q, c := f.dir("deploy"), lease(recipe.Exclusive, 0)
	wake := q.Changed()
	wantKinds(t, "new", f.r.Add(q, c, false, now), Added)
	wantKinds(t, "again", f.r.Add(q, c, false, now))
	select {
	case <-wake:
	default:
		t.Error("a visible change wakes nothing")
	}
	assert.That(t, f.r.Counts.Locks == 1 && f.space.InUse == 1, "%+v", f.r.Counts)
	f.r.Observe(c, Observed{Holds: true, Since: now})
	q.SetNode(c.Name, nil, wire.Stat{})
	wantKinds(t, "gone", f.r.Remove(q, c.Name, now+1), Removed)
	wantKinds(t, "gone again", f.r.Remove(q, c.Name, now+2))
	assert.That(t, q.Freed && q.Since == now+1 && q.extras == nil,
		"freed %v, since %v, extras %+v", q.Freed, q.Since, q.extras)
	f.tell(q, zk.Change{Kind: zk.DirRemoved})
	for what, n := range f.r.Kept() {
		assert.That(t, n == 0, "%d %s are kept", n, what)
	}
}

// A queue that something refers to is kept.
func TestAQueueIsForgottenWhenNothingRefersToIt(t *testing.T) {
	f := newFixture(t)
	for what, keep := range map[string]func(*Queue, int32){
		"leases": func(q *Queue, n int32) { q.Leases = n }, "requests": func(q *Queue, n int32) { q.Polls = n },
	} {
		q := f.r.Queue(f.space, "deploy", now)
		keep(q, 1)
		f.r.Forget(q)
		assert.That(t, f.space.Find("deploy") == q, "%s: forgotten", what)
		keep(q, 0)
		f.r.Forget(q)
		assert.That(t, f.space.Find("deploy") == nil, "%s: kept", what)
		next := f.r.Queue(f.space, "deploy", now)
		if f.r.Forget(q); f.space.Find("deploy") != next {
			t.Errorf("%s: another queue of that name is dropped", what)
		}
		f.r.Forget(next)
	}
}

func TestWhatIsCertain(t *testing.T) {
	first, mine := lease(recipe.Exclusive, 0), lease(recipe.Exclusive, 1)
	for _, row := range []struct {
		what          string
		seen          func(f *fixture) *Queue
		certain, list bool
	}{
		{"each number was seen", func(f *fixture) *Queue {
			q := f.dir("deploy")
			f.r.Add(q, first, false, now)
			f.r.Add(q, mine, false, now)
			return q
		}, true, false},
		{"a number was not seen", func(f *fixture) *Queue {
			q := f.dir("deploy")
			f.r.Add(q, mine, false, now)
			return q
		}, false, true},
		{"a listing closes the gap", func(f *fixture) *Queue {
			q := f.dir("deploy")
			f.r.Add(q, mine, false, now)
			wantKinds(f.t, "listing", f.tell(q, zk.Change{Kind: zk.DirListed, Created: 2}), Listed)
			return q
		}, true, false},
		{"a refused listing does not", func(f *fixture) *Queue {
			q := f.dir("deploy")
			f.r.Add(q, mine, false, now)
			wantKinds(f.t, "listing", f.tell(q, zk.Change{Kind: zk.DirListed, Created: 2, Err: zk.ErrNoAuth}))
			return q
		}, false, true},
		{"a child without a number", func(f *fixture) *Queue {
			q := f.dir("deploy")
			wantKinds(f.t, "child", f.r.AddUnnumbered(q, false), HazardBegins)
			f.r.Add(q, mine, false, now)
			return q
		}, false, true},
		{"a directory that was found", func(f *fixture) *Queue {
			q := f.r.Queue(f.space, "deploy", now)
			f.tell(q, zk.Change{Kind: zk.DirAdded, Listed: true})
			f.r.Add(q, mine, true, now)
			return q
		}, false, true},
		{"a listing is applied in part", func(f *fixture) *Queue {
			q := f.dir("deploy")
			f.r.Add(q, first, false, now)
			f.r.Add(q, mine, false, now)
			f.r.BeginPart(q)
			return q
		}, false, false},
		{"one before it ended, and is shown", func(f *fixture) *Queue {
			q := f.dir("deploy")
			f.r.Add(q, first, false, now)
			f.r.Add(q, mine, false, now)
			q.Ended(first)
			f.r.Remove(q, first.Name, now)
			return q
		}, false, false},
		{"one before it ended, and the replica shows that", func(f *fixture) *Queue {
			q := f.dir("deploy")
			f.r.Add(q, first, false, now)
			f.r.Add(q, mine, false, now)
			q.Ended(first)
			f.r.Remove(q, first.Name, now)
			q.ShowEnd(first.Name)
			return q
		}, true, false},
		{"the lock is being destroyed", func(f *fixture) *Queue {
			q := f.dir("deploy")
			f.r.Add(q, first, false, now)
			f.r.Add(q, mine, false, now)
			f.r.ReviewMarker(f.dir("deploy_INVALID"))
			return q
		}, false, false},
	} {
		t.Run(row.what, func(t *testing.T) {
			f := newFixture(t)
			q := row.seen(f)
			certain, list := f.r.Certain(q, mine)
			assert.That(t, certain == row.certain && list == row.list, "certain %v, list %v", certain, list)
		})
	}
}

// A contender that may not be read is a hazard as long as it is there, and its directory is listed each second.
func TestAHiddenContenderIsPolled(t *testing.T) {
	f := newFixture(t)
	q, c := f.dir("deploy"), lease(recipe.Exclusive, 0)
	wantKinds(t, "not there", f.r.Hide(q, c.Name))
	f.r.Add(q, c, true, now)
	wantKinds(t, "there", f.r.Hide(q, c.Name), HazardBegins)
	list := f.r.ToList()
	assert.That(t, slices.Equal(list, []*Queue{q}), "%d queues are listed", len(list))
	wantKinds(t, "gone", f.r.Remove(q, c.Name, now), Removed, HazardEnds)
	list = f.r.ToList()
	assert.Equal(t, len(list), 0, "queues are listed")
}

// An end that the writer was told of has a second for its event.
func TestAnEndThatIsNotShownIsPolledTheSecondTime(t *testing.T) {
	f := newFixture(t)
	q, first, next := f.dir("deploy"), lease(recipe.Exclusive, 0), lease(recipe.Exclusive, 1)
	f.r.Add(q, next, false, now)
	q.Ended(first)
	f.r.Certain(q, next)
	for round, want := range []int{0, 1, 1} {
		n := len(f.r.ToList())
		assert.That(t, n == want, "round %d: %d queues are listed", round, n)
	}
	q.ShowEnd(first.Name)
	assert.Equal(t, len(f.r.ToList())+f.r.Kept()["polled"], 0, "queues are polled")
}

func TestAGroupHoldsWhenItIsWholeAndEachContenderHolds(t *testing.T) {
	f := newFixture(t)
	a, b := f.dir("a"), f.dir("b")
	before := lease(recipe.Exclusive, 0)
	f.r.Add(b, before, false, now)
	one, two := part(0, 1, 2), part(1, 2, 2)
	f.r.Add(a, one, false, now)
	assert.That(t, f.r.Group(one.LeaseID).Whole() == nil && !f.r.LeaseHolds(a, one), "a group that lacks a contender is whole")
	all := func(recipe.LeaseID) bool { return true }
	assert.Equal(t, len(f.r.Broken(now+time.Second-1, time.Second, all)), 0, "are broken before the window has passed")
	assert.Equal(t, len(f.r.Broken(now+time.Second, time.Second, all)), 1, "are broken")
	f.r.Add(b, two, false, now)
	g := f.r.Group(one.LeaseID)
	assert.That(t, len(g.Whole()) == 2 && !f.r.LeaseHolds(a, one) && !f.r.LeaseHolds(b, two), "the group waits in b")
	f.r.Remove(b, before.Name, now)
	assert.That(t, f.r.LeaseHolds(a, one) && f.r.LeaseHolds(b, two), "the group holds in both queues")
	holds, certain, unlisted := Holds(g.Whole())
	assert.That(t, holds && certain && unlisted == nil, "holds %v, certain %v", holds, certain)
	assert.Slices(t, f.r.OtherLocks(a, one), []string{"b"}, "other locks")
	f.r.Remove(a, one.Name, now)
	f.r.Remove(b, two.Name, now)
	assert.That(t, f.r.Group(one.LeaseID) == nil, "a group without contenders is kept")
}

func TestAPlainNodeIsTheOnlyContenderAndIsRemembered(t *testing.T) {
	f := newFixture(t)
	q := f.r.Queue(f.space, "deploy", now)
	wantKinds(t, "new directory", f.tell(q, zk.Change{Kind: zk.DirAdded}), LookSoon)
	assert.That(t, q.NeverUsed() && !q.HadPlain(), "it has had no child, and no plain node has stood there")
	assert.That(t, q.NewPlain(nil) == nil && q.NewPlain(&wire.Stat{Czxid: 5}) == nil, "a directory is no plain node")
	stat := &wire.Stat{Czxid: 5, EphemeralOwner: 1}
	c := q.NewPlain(stat)
	f.r.Add(q, c, true, now)
	assert.That(t, q.Plain() == c && q.Obstructed() && q.NodeOf(c.Name) == "/locks/deploy" && !q.Replaced(stat),
		"the plain node is in the lock's place")
	for what, other := range map[string]*wire.Stat{"a directory": nil, "another node": {Czxid: 6, EphemeralOwner: 1}} {
		assert.That(t, q.Replaced(other), "%s does not replace it", what)
	}
	f.r.Remove(q, c.Name, now)
	f.tell(q, zk.Change{Kind: zk.DirRemoved})
	q = f.r.Queue(f.space, "deploy", now)
	wantKinds(t, "where a plain node has stood", f.tell(q, zk.Change{Kind: zk.DirAdded}), LookSoon, ReadDir)
}

// A marker blocks the lock beside it, also one that comes later.
func TestAMarkerBlocksItsLock(t *testing.T) {
	f := newFixture(t)
	lock, marker := f.dir("deploy"), f.dir("deploy_INVALID")
	wantKinds(t, "marker", f.r.ReviewMarker(marker), HazardBegins, Evaluate)
	wantKinds(t, "again", f.r.ReviewMarker(marker))
	assert.That(t, marker.NoLock() && f.space.Marked("deploy") && f.space.Marked("deploy_INVALID") && lock.Blocked(),
		"the lock is not blocked")
	f.tell(lock, zk.Change{Kind: zk.DirRemoved})
	later := f.r.Queue(f.space, "deploy", now)
	assert.That(t, later.Blocked() && later.Extras().Invalid, "a lock that comes later is not blocked")
	f.tell(marker, zk.Change{Kind: zk.DirRemoved})
	f.r.ReviewMarker(marker)
	assert.That(t, !f.space.Marked("deploy"), "the marker is gone, and blocks")
}

func TestLimitsFollowTheirNodes(t *testing.T) {
	f := newFixture(t)
	dir := &zk.Dir{Path: "/lockkeeper/settings/default,deploy"}
	var q *Queue
	tell := func(kind zk.ChangeKind, node string) []Delta {
		c := &zk.Change{Kind: kind, Dir: dir, Node: node}
		q = f.r.SettingsOf(c, now)
		return f.r.ApplySettings(q, c)
	}
	wantKinds(t, "directory", tell(zk.DirAdded, ""), SettingsBegin)
	wantKinds(t, "directory again", tell(zk.DirAdded, ""))
	wantKinds(t, "limit", tell(zk.NodeAdded, LimitNode(5)), ReadLimit)
	wantKinds(t, "second limit", tell(zk.NodeAdded, LimitNode(3)), ReadLimit)
	wantKinds(t, "none of ours", tell(zk.NodeAdded, "limit-03"))
	n, agreed := q.Limit()
	assert.That(t, n == 3 && !agreed, "limit %d, agreed %v: of two the lower one counts", n, agreed)
	f.r.SetAgreed(q, 3, true)
	_, all := q.Agreed()
	assert.That(t, !all, "one of them was set")
	tell(zk.NodeRemoved, LimitNode(5))
	limits, all := q.Agreed()
	assert.That(t, all && slices.Equal(limits, []int{3}), "agreed %v, limits %v", all, limits)
	wantKinds(t, "gone", tell(zk.DirRemoved, ""), SettingsEnd)
	assert.That(t, f.space.Find("deploy") == nil, "the queue is kept")
	assert.That(t, f.r.SettingsOf((&zk.Change{Kind: zk.DirAdded, Dir: &zk.Dir{Path: "/lockkeeper/settings/other,deploy"}}), now) == nil,
		"settings in a namespace that there is not are followed")
}

func TestANamespaceIsLoadedInThreeSteps(t *testing.T) {
	f := newFixture(t)
	const record = `{"root":"/python","dialect":"kazoo"}`
	assert.Must(t, f.r.Recorded("python") && !f.r.KnowsAll() && slices.Equal(f.r.Unread(), []string{"python"}), "its record is to be read")
	loading := f.r.Loading["python"]
	for what, bad := range map[string]string{"no record": `{`, "unknown dialect": `{"root":"/python","dialect":"later"}`, "overlaps": `{"root":"/locks/below"}`} {
		_, err := f.r.Learn("python", "/lockkeeper", []byte(bad))
		assert.That(t, err != nil, "%s: no error", what)
	}
	known, err := f.r.Learn("python", "/lockkeeper", []byte(record))
	assert.Must(t, !known && err == nil, "%v %v", known, err)
	assert.That(t, !loading.Watch(false) && loading.Watch(true) && !loading.Watch(true), "a synced replica is told of the root once")
	assert.That(t, !f.r.Recorded("python") && !f.r.Unrecorded("python") && len(f.r.Arrived(&zk.WatchRoot{Path: "/other"})) == 0,
		"it is loaded without its record, too")
	whole := f.r.Arrived(&zk.WatchRoot{Path: "/python"})
	assert.That(t, len(whole) == 1 && whole[0].Whole && f.r.KnowsAll() && f.r.NamespaceAt("/python") == whole[0], "it is whole")
	f.r.Recorded("python")
	known, err = f.r.Learn("python", "/lockkeeper", []byte(record))
	assert.That(t, known && err == nil && f.r.KnowsAll(), "the same record again is known %v", err)
	f.r.Recorded("python")
	_, err = f.r.Learn("python", "/lockkeeper", []byte(`{"root":"/elsewhere"}`))
	assert.That(t, err != nil, "its root has moved")
	assert.That(t, f.r.Unrecorded("python"), "a record that was not understood is gone")
}

func TestAQueueHas80Bytes(t *testing.T) {
	size := unsafe.Sizeof(Queue{})
	assert.That(t, size == 80, "a queue has %d bytes", size)
}

func TestWhatIsAwaitedOutlivesTheOtherExtras(t *testing.T) {
	closed := 0
	r := New(func(chan struct{}) { closed++ })
	q := &Queue{Exists: true}
	assert.That(t, q.BeginListing() && !q.BeginListing(), "a listing is asked for once")
	q.Trim()
	assert.That(t, q.Listing(), "a listing that is asked for is forgotten")
	q.endListing()
	assert.That(t, !q.Listing() && q.extras == nil, "a listing that has come is awaited")

	q.Changed()
	q.Trim()
	r.Touch(q)
	r.Touch(q)
	assert.That(t, closed == 1 && q.extras == nil, "a change was told %d times", closed)
}
