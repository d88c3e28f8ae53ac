package webhooks

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
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

func newTree() *tree {
	return &tree{nodes: map[string]*node{"/l/webhooks": {}, "/l/outbox": {}}}
}

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
