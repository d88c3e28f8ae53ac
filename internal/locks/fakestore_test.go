package locks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// fakeStore is ZooKeeper reduced to what the manager's logic can tell apart:
// one history of transactions, one stream of changes in its order, sessions
// that end, and switches for every fault that a test wants. It runs in virtual
// time. The real thing is met in the end-to-end tests.
type fakeStore struct {
	t      testing.TB
	clock  zk.Clock
	layout *zk.Layout

	mu       sync.Mutex
	zxid     int64
	nodes    map[string]*fakeNode
	sessions map[string]*fakeSession
	watchers []*fakeWatcher
	writes   []*zk.Write // committed, in order
	by       string      // id of the session whose operations are applied

	// Faults.
	away      bool                         // nothing is answered; requests wait until it is back
	loseReply func(*zk.Write) bool         // committed, and the outcome stays unknown to the writer until resolve
	refuse    func(*zk.Write) (int, error) // definite failure with the culprit's index
	vague     func(*zk.Write) bool         // the outcome is unknown for good, and the session lives on
	drop      bool                         // with vague: it was not applied
	hidden    func(path string) bool       // contenders that may not be read

	skew time.Duration // of ZooKeeper's clock against this machine's

	hearsay  bool // gateways may be followed
	outboxes bool // ends are noted: see fakeOutbox

	deleted func(path string) // told of every deletion; s.mu is held

	// What servers that lag still show, while recording: the last states, and
	// what has happened since each.
	recording bool
	past      []fakePast
}

// fakePast is a state of the tree and what has been announced since.
type fakePast struct {
	nodes map[string]*fakeNode
	zxid  int64
	later []fakeNews
}

type fakeNews struct {
	kind zk.ChangeKind
	path string
	zxid int64
}

// record keeps the present state for a server that will lag; s.mu is held.
func (s *fakeStore) record() {
	if !s.recording {
		return
	}
	const states = 16
	s.past = append(s.past, fakePast{nodes: s.copy(), zxid: s.zxid})
	if len(s.past) > states {
		s.past = s.past[1:]
	}
}

// copy is the tree as it is; s.mu is held.
func (s *fakeStore) copy() map[string]*fakeNode {
	nodes := make(map[string]*fakeNode, len(s.nodes))
	for p, n := range s.nodes {
		c := *n
		nodes[p] = &c
	}
	return nodes
}

type fakeNode struct {
	owner   string // id of the session that an ephemeral node goes with
	data    []byte
	stat    wire.Stat
	creates int32
}

const fakeWindow = 10 * time.Second

func newFakeStore(t testing.TB) *fakeStore {
	fleet, err := recipe.NewFleetID(zeroes{})
	if err != nil {
		t.Fatal(err)
	}
	s := &fakeStore{t: t, clock: &jumpClock{Clock: zk.NewGoClock()}, nodes: map[string]*fakeNode{}, sessions: map[string]*fakeSession{}, zxid: 1000,
		layout: &zk.Layout{FleetID: string(fleet), Keys: []zk.TokenKey{{ID: "k1", Key: []byte("0123456789abcdef")}},
			PromiseWindow: fakeWindow, LargestWindow: fakeWindow, Namespaces: map[string]zk.Namespace{"default": {Root: "/lockkeeper/locks"}}}}
	for _, p := range []string{"locks", "gateways", "guards", "succession", "keys", "settings", "webhooks", "outbox"} {
		s.nodes["/lockkeeper/"+p] = &fakeNode{}
	}
	return s
}

// jumpClock is a clock that a test can set forward, as a process sees it that
// was stopped or suspended.
type jumpClock struct {
	zk.Clock
	offset atomic.Int64
}

func (c *jumpClock) Now() zk.Instant      { return c.Clock.Now().Add(time.Duration(c.offset.Load())) }
func (c *jumpClock) jump(d time.Duration) { c.offset.Add(int64(d)) }

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func (s *fakeStore) Layout(context.Context) (*zk.Layout, error) { return s.layout, nil }

// tx applies operations as one transaction, or none of them. s.mu is held.
func (s *fakeStore) tx(ops []zk.Op) (zxid int64, paths []string, versions []int32, culprit int, err error) {
	undo := map[string]*fakeNode{}
	keep := func(p string) {
		if _, ok := undo[p]; !ok {
			if n := s.nodes[p]; n != nil {
				c := *n
				undo[p] = &c
			} else {
				undo[p] = nil
			}
		}
	}
	s.record()
	zxid = s.zxid + 1
	paths, versions = make([]string, len(ops)), make([]int32, len(ops))
	var events []func()
	for i, op := range ops {
		p, parent := op.Path, s.nodes[path.Dir(op.Path)]
		n := s.nodes[p]
		switch {
		case op.Kind == zk.OpCreate && parent == nil:
			err = zk.ErrNoNode
		case op.Kind == zk.OpCreate && parent.stat.EphemeralOwner != 0:
			err = zk.ErrEphemeralParent
		case op.Kind == zk.OpCreate && n != nil && !op.Sequential:
			err = zk.ErrNodeExists
		case op.Kind != zk.OpCreate && n == nil:
			err = zk.ErrNoNode
		case op.Kind != zk.OpCreate && op.Version >= 0 && n.stat.Version != op.Version:
			err = zk.ErrBadVersion
		case op.Kind == zk.OpDelete && s.children(p) > 0:
			err = zk.ErrNotEmpty
		}
		if err != nil {
			for p, n := range undo {
				if n == nil {
					delete(s.nodes, p)
				} else {
					s.nodes[p] = n
				}
			}
			return 0, nil, nil, i, err
		}
		switch op.Kind {
		case zk.OpCreate:
			keep(path.Dir(p))
			if op.Sequential {
				p = fmt.Sprintf("%s%010d", p, parent.creates)
			}
			keep(p)
			parent.creates++
			s.nodes[p] = &fakeNode{data: op.Data, stat: wire.Stat{Czxid: zxid, Mzxid: zxid, Ctime: time.Now().Add(s.skew).UnixMilli()}}
			if op.Ephemeral {
				s.nodes[p].owner, s.nodes[p].stat.EphemeralOwner = s.by, 1
			}
			paths[i] = p
			events = append(events, func() { s.announce(zk.NodeAdded, p) })
		case zk.OpDelete:
			keep(p)
			delete(s.nodes, p)
			if s.deleted != nil {
				s.deleted(p)
			}
			events = append(events, func() { s.announce(zk.NodeRemoved, p) })
		case zk.OpSetData:
			keep(p)
			n.data, n.stat.Mzxid = op.Data, zxid
			n.stat.Version++
			versions[i] = n.stat.Version
			events = append(events, func() { s.announce(zk.NodeChanged, p) })
		}
	}
	s.zxid = zxid
	for _, event := range events {
		event()
	}
	// Reached when all of it has been told: a transaction's events come one by one.
	for _, w := range s.watchers {
		if w.connected {
			w.push(func() { w.note(func() { w.observed = max(w.observed, zxid) }) })
		}
	}
	return zxid, paths, versions, -1, nil
}

// node is a copy of a node.
func (s *fakeStore) node(p string) fakeNode {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[p]; n != nil {
		return *n
	}
	return fakeNode{}
}

func (s *fakeStore) children(p string) int {
	n := 0
	for q := range s.nodes {
		if path.Dir(q) == p {
			n++
		}
	}
	return n
}

func (s *fakeStore) announce(kind zk.ChangeKind, p string) {
	for i := range s.past {
		s.past[i].later = append(s.past[i].later, fakeNews{kind, p, s.zxid})
	}
	for _, w := range s.watchers {
		if !w.connected || s.hidden != nil && s.hidden(p) {
			continue
		}
		w.push(func() { w.event(kind, p) })
	}
}

// foreign does what another program on the same ZooKeeper does.
func (s *fakeStore) foreign(ops ...zk.Op) (int64, []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	zxid, paths, _, _, err := s.tx(ops)
	if err != nil {
		s.t.Fatalf("foreign %v: %v", ops, err)
	}
	return zxid, paths
}

func (s *fakeStore) names(dir string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for p := range s.nodes {
		if path.Dir(p) == dir {
			names = append(names, path.Base(p))
		}
	}
	slices.Sort(names)
	return names
}

// fakeSession is a writer that sends one transaction per write, each a
// millisecond.
type fakeSession struct {
	s         *fakeStore
	id        string
	onCommit  func(zk.Instant, int64)
	done      chan struct{}
	err       error
	last      zk.Instant // send time of the last commit
	answered  zk.Instant
	pending   map[*zk.Write]struct{} // committed or not, not answered
	zxid      int64
	crashed   bool
	deaf      bool     // it pings, and nothing that it writes is answered or done
	abandoned bool     // see Abandon
	forgotten []string // see ForgetEphemeral
}

// depose does what another gateway does to one that it takes for dead.
func (f *fakeSession) depose() {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	f.s.tx([]zk.Op{{Kind: zk.OpDelete, Path: "/lockkeeper/guards/" + f.id, Version: -1},
		{Kind: zk.OpDelete, Path: "/lockkeeper/gateways/" + f.id, Version: -1}})
}

// deposed reports whether its nodes are gone, which it notices when it writes; s.mu is held.
func (f *fakeSession) deposed() bool { return f.s.nodes["/lockkeeper/gateways/"+f.id] == nil }

func (s *fakeStore) Open(ctx context.Context, id string, registration []byte, onCommit func(zk.Instant, int64)) (Session, error) {
	fs := &fakeSession{s: s, id: id, onCommit: onCommit, done: make(chan struct{}), pending: map[*zk.Write]struct{}{}}
	for {
		s.mu.Lock()
		if !s.away {
			break
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	defer s.mu.Unlock()
	if _, _, _, _, err := s.tx([]zk.Op{
		{Kind: zk.OpCreate, Path: "/lockkeeper/gateways/" + id, Data: registration},
		{Kind: zk.OpCreate, Path: "/lockkeeper/guards/" + id},
	}); err != nil {
		return nil, err
	}
	s.sessions[id] = fs
	fs.commit(s.clock.Now())
	go fs.beat()
	return fs, nil
}

// beat is the bare guard write of an idle writer.
func (f *fakeSession) beat() {
	for {
		select {
		case <-f.done:
			return
		case <-time.After(fakeWindow / 3):
			f.s.mu.Lock()
			if !f.s.away && f.err == nil && !f.deposed() && !f.deaf {
				f.s.zxid++
				f.commit(f.s.clock.Now())
			}
			f.s.mu.Unlock()
		}
	}
}

func (f *fakeSession) commit(sent zk.Instant) {
	f.last, f.answered, f.zxid = sent, f.s.clock.Now(), f.s.zxid
	if guard := f.s.nodes["/lockkeeper/guards/"+f.id]; guard != nil {
		guard.stat.Version++
		guard.stat.Mzxid, guard.stat.Mtime = f.s.zxid, time.Now().Add(f.s.skew).UnixMilli()
	}
	zxid := f.s.zxid
	go f.onCommit(sent, zxid)
	for _, w := range f.s.watchers {
		if w.connected {
			w.push(func() { w.note(func() { w.observed, w.proven = max(w.observed, zxid), sent }) })
		}
	}
}

// expire ends the session as ZooKeeper does: its ephemeral nodes go, and what
// was not answered stays unknown.
func (f *fakeSession) expire() {
	f.s.mu.Lock()
	if f.err != nil {
		f.s.mu.Unlock()
		return
	}
	f.s.closeSession(f.id)
	f.end(zk.ErrSessionGone)
}

// end answers everything; s.mu is held and released.
func (f *fakeSession) end(err error) {
	if f.err != nil {
		f.s.mu.Unlock()
		return
	}
	f.err = err
	pending := slices.Collect(maps.Keys(f.pending))
	clear(f.pending)
	delete(f.s.sessions, f.id)
	f.s.mu.Unlock()
	for _, w := range pending {
		w.Done(zk.Result{Outcome: zk.Unknown, Err: err, Culprit: -1})
	}
	close(f.done)
}

// closeSession deletes the nodes that go with a session, in no particular order:
// its contenders before or after its registration. s.mu is held.
func (s *fakeStore) closeSession(id string) {
	paths := []string{"/lockkeeper/guards/" + id, "/lockkeeper/gateways/" + id}
	for _, p := range slices.Sorted(maps.Keys(s.nodes)) {
		if s.nodes[p].owner == id {
			paths = append(paths, p)
		}
	}
	if s.zxid%2 == 0 {
		slices.Reverse(paths)
	}
	var ops []zk.Op
	for _, p := range paths {
		if s.nodes[p] != nil {
			ops = append(ops, zk.Op{Kind: zk.OpDelete, Path: p, Version: -1})
		}
	}
	s.tx(ops)
}

func (f *fakeSession) ForgetEphemeral(path string) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	f.forgotten = append(f.forgotten, path)
}

func (f *fakeSession) Submit(w *zk.Write) error {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	size := 0
	for i := range w.Ops {
		size += len(w.Ops[i].Path) + len(w.Ops[i].Data)
	}
	if size > 250<<10 {
		return fmt.Errorf("%d bytes: %w", size, zk.ErrTooLarge)
	}
	f.pending[w] = struct{}{}
	go f.run(w)
	return nil
}

func (f *fakeSession) run(w *zk.Write) {
	sent := f.s.clock.Now()
	for {
		time.Sleep(time.Millisecond)
		f.s.mu.Lock()
		if f.err != nil {
			f.s.mu.Unlock()
			return // end answered it
		}
		if f.deposed() && !f.s.away && !f.deaf {
			f.end(zk.ErrDeposed) // releases mu, and answers
			return
		}
		if !f.s.away && !f.deaf {
			break
		}
		f.s.mu.Unlock()
	}
	res := zk.Result{Outcome: zk.Done, Culprit: -1, SentAt: sent}
	lose := f.s.loseReply != nil && f.s.loseReply(w)
	var err error
	culprit := -1
	if f.s.refuse != nil {
		culprit, err = f.s.refuse(w)
	}
	if f.s.vague != nil && f.s.vague(w) {
		if !f.s.drop {
			f.s.by = f.id
			f.s.tx(w.Ops)
		}
		f.commit(sent) // the raise of the epoch
		delete(f.pending, w)
		f.s.mu.Unlock()
		w.Done(zk.Result{Outcome: zk.Unknown, Culprit: -1, Err: zk.ErrUnavailable})
		return
	}
	if err == nil {
		f.s.by = f.id
		res.Zxid, res.Paths, res.Versions, culprit, err = f.s.tx(w.Ops)
	}
	if err != nil {
		res = zk.Result{Outcome: zk.NotDone, Err: err, Culprit: culprit}
		if culprit >= 0 && culprit < len(w.Ops) && w.Ops[culprit].Kind == zk.OpCheck && !errors.Is(err, zk.ErrNoAuth) {
			res.Outcome, res.Culprit = zk.Redecide, -1
		}
		f.answered = f.s.clock.Now()
	} else {
		f.s.writes = append(f.s.writes, w)
		f.commit(sent)
	}
	if lose {
		f.s.mu.Unlock()
		return // stays pending
	}
	delete(f.pending, w)
	f.s.mu.Unlock()
	w.Done(res)
}

func (f *fakeSession) ID() string            { return f.id }
func (f *fakeSession) Done() <-chan struct{} { return f.done }
func (f *fakeSession) Err() error            { return f.err }
func (f *fakeSession) Connected() bool {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	return !f.s.away && f.err == nil
}
func (f *fakeSession) LastZxid() int64 {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	return f.zxid
}
func (f *fakeSession) LastAnswer() zk.Instant {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	return f.answered
}
func (f *fakeSession) FenceOpen(now zk.Instant) bool { return f.FenceMargin(now) > 0 }
func (f *fakeSession) FenceMargin(now zk.Instant) time.Duration {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if f.abandoned {
		return 0
	}
	return fakeWindow - now.Since(f.last)
}

func (f *fakeSession) Barrier(ctx context.Context) (int64, error) {
	done := make(chan zk.Result, 1)
	if err := f.Submit(&zk.Write{Done: func(r zk.Result) { done <- r }}); err != nil {
		return 0, err
	}
	select {
	case r := <-done:
		return r.Zxid, r.Err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (f *fakeSession) Get(_ context.Context, p string) ([]byte, zk.Stat, error) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if f.s.away {
		return nil, zk.Stat{}, zk.ErrUnavailable
	}
	n := f.s.nodes[p]
	if n == nil {
		return nil, zk.Stat{}, zk.ErrNoNode
	}
	return n.data, n.stat, nil
}

func (f *fakeSession) Exists(_ context.Context, p string) (*zk.Stat, error) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if f.s.away {
		return nil, zk.ErrUnavailable
	}
	if n := f.s.nodes[p]; n != nil {
		stat := n.stat
		return &stat, nil
	}
	return nil, nil
}

func (f *fakeSession) Children(_ context.Context, p string) ([]string, zk.Stat, error) {
	names := f.s.names(p)
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	f.zxid = max(f.zxid, f.s.zxid) // replies to reads carry it too
	if f.s.nodes[p] == nil {
		return nil, zk.Stat{}, zk.ErrNoNode
	}
	return names, zk.Stat{}, nil
}

func (f *fakeSession) Guards(_ context.Context, ids []string) map[string]zk.Guard {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	found := map[string]zk.Guard{}
	if f.s.away {
		return found
	}
	for _, id := range ids {
		found[id] = zk.Guard{}
		if n := f.s.nodes["/lockkeeper/guards/"+id]; n != nil {
			found[id] = zk.Guard{There: true, Version: n.stat.Version, Czxid: n.stat.Czxid}
		}
	}
	return found
}

func (f *fakeSession) Abandon() {
	f.s.mu.Lock()
	f.abandoned = true
	f.end(zk.ErrDeposed) // releases mu
}

func (f *fakeSession) Takeover(_ context.Context, dead string, polled *zk.Guard, done func(zk.Result)) {
	f.s.mu.Lock()
	ops := []zk.Op{{Kind: zk.OpCreate, Path: "/lockkeeper/succession/" + dead, Data: []byte(f.id)}}
	for _, p := range []string{"/lockkeeper/guards/", "/lockkeeper/gateways/"} {
		there, version := f.s.nodes[p+dead] != nil, int32(-1)
		if polled != nil && p == "/lockkeeper/guards/" {
			there, version = polled.There, polled.Version
		}
		if !there {
			ops = append(ops, zk.Op{Kind: zk.OpCreate, Path: p + dead})
			version = -1
		}
		ops = append(ops, zk.Op{Kind: zk.OpDelete, Path: p + dead, Version: version})
	}
	f.s.mu.Unlock()
	if err := f.Submit(&zk.Write{Ops: ops, Alone: true, Done: done}); err != nil {
		done(zk.Result{Outcome: zk.NotDone, Err: err, Culprit: -1})
	}
}

func (f *fakeSession) Close(context.Context) error {
	f.s.mu.Lock()
	if f.crashed {
		f.end(zk.ErrSessionGone)
		return nil
	}
	f.s.mu.Unlock()
	f.expire()
	return nil
}
