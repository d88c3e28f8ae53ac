package webhooks

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk"
)

// tree is ZooKeeper as several services see it, with outcomes that go wrong on demand.
type tree struct {
	mu    sync.Mutex
	zxid  int64
	nodes map[string]*node
	// commit, when not nil, decides whether a transaction is done, and its result.
	commit func(ops []zk.Op) (do bool, told *zk.Result)
	down   bool
	hidden map[string]bool // from this gateway, by their ACLs
	takes  time.Duration   // a read
}

type node struct {
	data         []byte
	version      int32
	czxid, mzxid int64
}

func newTree() *tree { return &tree{nodes: map[string]*node{"/l/webhooks": {}, "/l/outbox": {}}} }

func (t *tree) Commit(ctx context.Context, ops []zk.Op) zk.Result {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.down || ctx.Err() != nil {
		return zk.Result{Outcome: zk.NotDone, Culprit: -1, Err: zk.ErrUnavailable}
	}
	do, told := true, (*zk.Result)(nil)
	if t.commit != nil {
		do, told = t.commit(ops)
	}
	res := zk.Result{Outcome: zk.NotDone, Culprit: -1, Err: zk.ErrNotApplied}
	if do {
		res = t.apply(ops)
	}
	if told != nil {
		return *told
	}
	return res
}

// apply is a multi.
func (t *tree) apply(ops []zk.Op) zk.Result {
	next := maps.Clone(t.nodes)
	zxid := t.zxid + 1
	for i, op := range ops {
		n := next[op.Path]
		fail := func(err error) zk.Result { return zk.Result{Outcome: zk.NotDone, Culprit: i, Err: err} }
		switch {
		case op.Kind == zk.OpCreate && n != nil:
			return fail(zk.ErrNodeExists)
		case op.Kind != zk.OpCreate && n == nil:
			return fail(zk.ErrNoNode)
		case op.Kind != zk.OpCreate && op.Version >= 0 && op.Version != n.version:
			if op.Kind == zk.OpCheck {
				return zk.Result{Outcome: zk.Conflict, Culprit: -1, Err: zk.ErrBadVersion}
			}
			return fail(zk.ErrBadVersion)
		}
		switch op.Kind {
		case zk.OpCreate:
			next[op.Path] = &node{data: op.Data, czxid: zxid, mzxid: zxid}
		case zk.OpDelete:
			delete(next, op.Path)
		case zk.OpSetData:
			next[op.Path] = &node{data: op.Data, version: n.version + 1, czxid: n.czxid, mzxid: zxid}
		}
	}
	t.nodes, t.zxid = next, zxid
	return zk.Result{Outcome: zk.Done, Culprit: -1, Zxid: zxid}
}

func (t *tree) Barrier(context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.down {
		return zk.ErrUnavailable
	}
	return nil
}

func (t *tree) Get(_ context.Context, path string) ([]byte, zk.Stat, error) {
	time.Sleep(t.takes)
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[path]
	switch {
	case t.down:
		return nil, zk.Stat{}, zk.ErrUnavailable
	case n == nil:
		return nil, zk.Stat{}, zk.ErrNoNode
	case t.hidden[path]:
		return nil, zk.Stat{}, zk.ErrNoAuth
	}
	return n.data, zk.Stat{Version: n.version, Czxid: n.czxid, Mzxid: n.mzxid}, nil
}

func (t *tree) Children(_ context.Context, path string) (names []string, _ zk.Stat, _ error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.down {
		return nil, zk.Stat{}, zk.ErrUnavailable
	}
	for p := range t.nodes {
		if name, below := strings.CutPrefix(p, path+"/"); below {
			names = append(names, name)
		}
	}
	return names, zk.Stat{}, nil
}

func (t *tree) Exists(ctx context.Context, path string) (*zk.Stat, error) {
	_, stat, err := t.Get(ctx, path)
	if err != nil {
		return nil, err
	}
	names, _, _ := t.Children(ctx, path)
	stat.NumChildren = int32(len(names))
	return &stat, nil
}

// left is what the outbox holds.
func (t *tree) left() (names []string) {
	t.with(func() {
		for p := range t.nodes {
			if name, below := strings.CutPrefix(p, "/l/outbox/"); below {
				names = append(names, name)
			}
		}
	})
	slices.Sort(names)
	return names
}

// fleet is some services over one tree, with one receiver behind them.
type bench struct {
	*tree
	*receivers
	services []*Service
	changed  []int
	owner    func(entry string) int
}

func newFleet(t *testing.T, n int) *bench {
	t.Helper()
	return newFleetOf(t, n, func(*Options) {})
}

// withFleet runs a test in virtual time with a fleet of n gateways.
func withFleet(t *testing.T, n int, f func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newFleet(t, n)) })
}

func newFleetOf(t *testing.T, n int, with func(*Options)) *bench {
	t.Helper()
	b := &bench{tree: newTree(), receivers: &receivers{answer: ok, now: map[string]int{}, most: map[string]int{}}, changed: make([]int, n), owner: func(string) int { return 0 }}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range n {
		o := Options{Store: b.tree, Root: "/l", Addresses: mustAddresses(t, false), Transport: b.receivers,
			Mine: func(entry string) bool { return b.owner(entry) == i }, Changed: func() { b.changed[i]++ }, Random: func(int64) int64 { return 0 }}
		with(&o)
		s := New(o)
		b.services = append(b.services, s)
		all.Go(func() { _ = s.Run(ctx) })
	}
	t.Cleanup(func() { cancel(); all.Wait() })
	synctest.Wait()
	return b
}

// end is what a gateway does when a lease ends: decide, commit, tell; again when it has to.
func (b *bench) end(t *testing.T, i int, lease, lock string) *Entry {
	t.Helper()
	for range 10 {
		ops, entry, ready := b.services[i].Ending(false, func() *End {
			return &End{Entry: EntryOf(lease), Events: []Event{{Type: Released, NS: "default", Lock: lock, LeaseID: lease, Detail: lease}}}
		})
		if ready {
			res := b.Commit(t.Context(), ops)
			b.services[i].Ended(entry, ops, res)
			if res.Outcome != zk.Conflict {
				return entry
			}
		}
		synctest.Wait()
	}
	t.Fatal("the end is never decided")
	return nil
}

func (b *bench) subscribe(t *testing.T, i int, locks string) *Subscription {
	t.Helper()
	sub := assert.Value(b.services[i].Create(t.Context(), &Subscription{URL: "https://example.com/hook", Locks: locks, Enabled: true}))(t)
	return sub
}

func (t *tree) with(f func()) { t.mu.Lock(); defer t.mu.Unlock(); f() }

// A receiver that takes nothing, and so many ends that they would fill the outbox ten times: another subscription gets each.
func TestAReceiverThatTakesNothingSilencesNoOther(t *testing.T) {
	if testkit.Race {
		t.Skip("in one run of eight Go 1.26's race detector dies in it (ThreadSanitizer: CHECK failed: tsan_rtl.cpp:346)")
	}
	for _, c := range []struct{ holes, gateways int }{{1, 1}, {3, 1}, {8, 1}, {1, 2}, {2, 3}} {
		t.Run(fmt.Sprintf("%d of them, %d gateways", c.holes, c.gateways), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const room = 500
				b := newFleetOf(t, c.gateways, func(o *Options) { o.MaxEntries = room })
				var dead []string
				for range c.holes {
					dead = append(dead, b.subscribe(t, 0, "").ID)
				}
				well := b.subscribe(t, 0, "")
				b.answering(func() {
					b.answer = func(to *Subscription, _ *Message, _ int) Attempt {
						if slices.Contains(dead, to.ID) {
							return Attempt{Result: Failed}
						}
						return Attempt{Result: Delivered}
					}
				})
				for i := range 10 * room {
					b.end(t, i%c.gateways, fmt.Sprint("lease-", i), fmt.Sprint("lock-", i%700))
					if i%10 == 9 {
						time.Sleep(500 * time.Millisecond) // what other gateways add is counted every five seconds
						synctest.Wait()
					}
				}
				time.Sleep(time.Second)
				synctest.Wait()
				got := len(b.delivered(well.ID))
				assert.That(t, got == 10*room, "it is told of %d ends of %d", got, 10*room)
				left := len(b.left())
				assert.That(t, left < room, "%d entries are left, the outbox is full", left)
			})
		})
	}
}

// answering changes how the receivers answer.
func (b *bench) answering(change func()) {
	b.receivers.mu.Lock()
	defer b.receivers.mu.Unlock()
	change()
}

// One that comes late finds the same room as if no other had failed before it: half of what is free.
func TestReceiversThatFailOneAfterTheOtherLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room = 800
		b := newFleetOf(t, 1, func(o *Options) { o.MaxEntries = room })
		b.answering(func() { b.answer = func(*Subscription, *Message, int) Attempt { return Attempt{Result: Failed} } })
		want := room
		for n := range 4 {
			lock := string(rune('a' + n))
			sub := b.subscribe(t, 0, lock+"*")
			for i := range room {
				b.end(t, 0, fmt.Sprint(lock, i), fmt.Sprint(lock, i))
			}
			synctest.Wait()
			want /= 2
			if s := b.services[0].Statuses()[sub.ID]; s.Waiting < want || s.Waiting > want+1 || s.Waiting+s.Dropped != room || s.LastDropped.IsZero() {
				t.Errorf("subscription %d: %+v, want about %d waiting", n, s, want)
			}
		}
	})
}

// What was left out is reported under the subscription's id, and counted for it and in all.
func TestASubscriptionThatIsLeftOutIsReportedByItsID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := map[string]int{}
		b := newFleetOf(t, 1, func(o *Options) { o.MaxEntries, o.Dropped = 10, func(id string, n int, _ string) { told[id] += n } })
		sub := b.subscribe(t, 0, "")
		other := b.subscribe(t, 0, "other")
		b.answering(func() { b.answer = func(*Subscription, *Message, int) Attempt { return Attempt{Result: Failed} } })
		b.ends(t, "lease-", 9)
		entry := b.end(t, 0, "both", "other")
		if !slices.Equal(entry.LeftOut, []string{sub.ID}) || !slices.Equal(entry.Subscriptions, []string{other.ID}) || entry.Dropped {
			t.Errorf("left out are %q, told are %q", entry.LeftOut, entry.Subscriptions)
		}
		time.Sleep(countEvery + time.Second)
		synctest.Wait()
		all := b.services[0].Statuses()
		if o := b.services[0].Outbox(); all[sub.ID].Waiting != 6 || all[sub.ID].Dropped != 4 || all[other.ID].Dropped != 0 || o.Dropped != 4 || o.Entries != 7 {
			t.Errorf("%+v, %+v, %+v", all[sub.ID], all[other.ID], o)
		}
		assert.That(t, len(told) == 1 && told[sub.ID] == 4, "told of %v", told)
		// With its receiver back it gets everything again.
		b.answering(func() { b.answer = ok })
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := len(b.delivered(sub.ID)); got != 6 || len(b.left()) != 0 {
			t.Errorf("delivered %d, left %q", got, b.left())
		}
		for i := range 9 {
			b.ends(t, fmt.Sprint("again-", i), 1)
			synctest.Wait()
		}
		got := len(b.delivered(sub.ID))
		assert.That(t, got == 15, "delivered %d of 15", got)
		assert.NoError(t, b.services[0].Delete(t.Context(), sub.ID, -1, anySubscription))
		time.Sleep(2 * countEvery)
		synctest.Wait()
		s, there := b.services[0].Statuses()[sub.ID]
		assert.That(t, !there, "removed, and kept: %+v", s)
	})
}

// A message counts from its entry until it is delivered or forgotten: the count is that of the entries.
func TestPlacesAreCountedAsTheEntriesSay(t *testing.T) {
	withFleet(t, 1, func(t *testing.T, b *bench) {
		c := b.services[0].courier
		check := func(when string) {
			t.Helper()
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			want := map[string]int{}
			for _, out := range c.entries {
				in := map[string]bool{}
				for _, r := range c.receivers {
					for _, ln := range r.lanes {
						for _, l := range ln.queue {
							in[l.subscription] = in[l.subscription] || l.out == out
						}
					}
				}
				for _, d := range out.Dead {
					in[out.Subscriptions[d.Subscription]] = true
				}
				for id, is := range in {
					if is && strings.HasPrefix(id, idPrefix) {
						want[id]++
					}
				}
			}
			c.shares.mu.Lock()
			defer c.shares.mu.Unlock()
			assert.That(t, fmt.Sprint(c.shares.of) == fmt.Sprint(want), "%s: counted %v, the entries have %v", when, c.shares.of, want)
		}
		sub, other := b.subscribe(t, 0, ""), b.subscribe(t, 0, "lock-a-*")
		b.answering(func() { b.answer = func(*Subscription, *Message, int) Attempt { return Attempt{Result: Failed} } })
		b.ends(t, "a-", 5)
		check("waiting")
		disable := func(enabled bool) {
			assert.Value(b.services[0].Update(t.Context(), sub.ID, -1, func(s *Subscription) error { s.Enabled = enabled; return nil }))(t)
		}
		disable(false)
		time.Sleep(time.Minute)
		check("dead")
		disable(true)
		assert.Equal(t, c.Replay(sub.ID, ""), 5, "replayed")
		check("replayed")
		assert.NoError(t, b.services[0].Delete(t.Context(), other.ID, -1, anySubscription))
		time.Sleep(time.Minute)
		check("one removed")
		b.answering(func() { b.answer = ok })
		time.Sleep(time.Hour)
		check("delivered")
		assert.That(t, len(c.shares.of) == 0 && len(b.left()) == 0, "left: %v, %q", c.shares.of, b.left())
	})
}
