package manager

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/quota"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
	"lockkeeper/internal/zk/wire"
)

// fakeStore is ZooKeeper reduced to what the manager's logic can tell apart: one history of transactions, one stream of
// changes in its order, sessions that end, and switches for every fault that a test wants. It runs in virtual time. The
// real thing is met in the end-to-end tests.
type fakeStore struct {
	t      testing.TB
	clock  zk.Clock
	layout *layout.Layout

	mu       sync.Mutex
	zxid     int64
	nodes    map[string]*fakeNode
	sessions map[string]*fakeSession
	watchers []*fakeWatcher
	gates    []*gate
	writes   []*zk.Write // committed, in order
	by       string      // id of the session whose operations are applied

	// Faults.
	away      bool                         // nothing is answered; requests wait until it is back
	loseReply func(*zk.Write) bool         // committed, and the outcome stays unknown to the writer until resolve
	refuse    func(*zk.Write) (int, error) // definite failure with the culprit's index
	meanwhile func(*zk.Write)              // what another program does before the write is applied
	vague     func(*zk.Write) bool         // the outcome is unknown for good, and the session lives on
	drop      bool                         // with vague: it was not applied
	hidden    func(path string) bool       // contenders that may not be read

	skew time.Duration // of ZooKeeper's clock against this machine's

	peerReports bool   // gateways may be followed
	traces      Traces // of the gateways that start from here on
	outboxes    bool   // ends are noted: see fakeOutbox

	limits          quota.Limits // of the gateways that are started from now on
	principalLimits quota.PrincipalLimits

	deleted func(path string) // told of every deletion; s.mu is held

	// What servers that lag still show, while recording: the last states, and what has happened since each.
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
	fleet := assert.Value(recipe.NewFleetID(zeroes{}))(t)
	s := &fakeStore{t: t, clock: &jumpClock{Clock: zk.NewGoClock()}, nodes: map[string]*fakeNode{}, sessions: map[string]*fakeSession{}, zxid: 1000,
		layout: &layout.Layout{FleetID: string(fleet), Secret: &layout.Secret{FleetID: string(fleet), Keys: []layout.TokenKey{{ID: "k1", Key: []byte("0123456789abcdef")}}},
			PromiseWindow: fakeWindow, LargestWindow: fakeWindow, Namespaces: map[string]zk.Namespace{"default": {Root: "/lockkeeper/locks"}}}}
	for _, p := range []string{"locks", "gateways", "guards", "succession", "keys", "settings", "webhooks", "outbox", "periods"} {
		s.nodes["/lockkeeper/"+p] = &fakeNode{}
	}
	return s
}

// jumpClock is a clock that a test can set forward, as a process sees it that was stopped or suspended.
type jumpClock struct {
	zk.Clock
	offset atomic.Int64
}

func (c *jumpClock) Now() zk.Instant      { return c.Clock.Now().Add(time.Duration(c.offset.Load())) }
func (c *jumpClock) jump(d time.Duration) { c.offset.Add(int64(d)) }

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func (s *fakeStore) Layout(context.Context) (*layout.Layout, error) { return s.layout, nil }

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

// beforeWrites sets what another program does before each write is applied. f runs under s.mu.
func (s *fakeStore) beforeWrites(f func(*zk.Write)) { s.set(func() { s.meanwhile = f }) }

// lose loses the answers of the writes that hit does when they persist, and all answers when they do not; s.mu is held.
func (s *fakeStore) lose(persisted bool, hit func(*zk.Write) bool) {
	if persisted {
		s.loseReply = hit
	} else {
		s.away = true
	}
}

// loseAlone loses the answers of the writes that hit does, and of no other, whether they persist or not; s.mu is held.
func (s *fakeStore) loseAlone(persisted bool, hit func(*zk.Write) bool) {
	s.loseReply = hit
	if !persisted {
		s.refuse = refusing(hit, -1, errors.New("lost"))
	}
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
	assert.NoError(s.t, err, "foreign %v", ops)
	return zxid, paths
}

// foreignSeen is foreign, and returns when all gateways that are connected have seen it.
func (s *fakeStore) foreignSeen(ops ...zk.Op) (int64, []string) {
	zxid, paths := s.foreign(ops...)
	synctest.Wait()
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

// fakeOutbox notes each end below /outbox. It learns the version of /webhooks when it is told to look, a while later.
type fakeOutbox struct {
	s       *fakeStore
	changed func()

	mu      sync.Mutex
	version int32
	known   bool
	stale   bool // it is told to look, and does not come to it
	reckons bool // it does not check who wants to be told
	verbose bool // its notes fit into no transaction
	noted   []*Ending
	gone    []*Ending
	results []zk.Result
	adopted int
}

func (o *fakeOutbox) Ending(_ bool, describe func() *Ending) ([]zk.Op, any, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.known {
		return nil, nil, false
	}
	e := describe()
	ops := []zk.Op{{Kind: zk.OpCheck, Path: "/lockkeeper/webhooks", Version: o.version}, {Kind: zk.OpCreate, Path: "/lockkeeper/outbox/" + e.LeaseID, Data: []byte(e.Reason)}}
	if o.reckons {
		ops = ops[1:]
	}
	if o.verbose {
		ops[1].Data = make([]byte, 256<<10)
	}
	return ops, e, true
}

func (o *fakeOutbox) Notify(e *Ending) ([]zk.Op, any) {
	name := e.LeaseID
	if e.Granted {
		name += "-granted"
	}
	return []zk.Op{{Kind: zk.OpCreate, Path: "/lockkeeper/outbox/" + name, Data: []byte(e.Reason)}}, e
}

func (o *fakeOutbox) CheckURL(url string) error {
	if strings.Contains(url, "inside") {
		return errors.New("it is inside")
	}
	return nil
}

func (o *fakeOutbox) Ended(entry any, _ []zk.Op, res zk.Result) {
	o.mu.Lock()
	o.results = append(o.results, res)
	if res.Outcome == zk.Done {
		o.noted = append(o.noted, entry.(*Ending))
	}
	if res.Outcome == zk.Conflict {
		o.known = false
	}
	o.mu.Unlock()
	if res.Outcome == zk.Conflict {
		o.Look()
	}
}

func (o *fakeOutbox) Gone(e *Ending) { o.with(func() { o.gone = append(o.gone, e) }) }
func (o *fakeOutbox) Adopt()         { o.with(func() { o.adopted++ }) }
func (o *fakeOutbox) with(f func())  { o.mu.Lock(); defer o.mu.Unlock(); f() }

func (o *fakeOutbox) Look() {
	go func() {
		time.Sleep(50 * time.Millisecond)
		version := o.s.node("/lockkeeper/webhooks").stat.Version
		o.mu.Lock()
		if !o.stale {
			o.version, o.known = version, true
		}
		o.mu.Unlock()
		o.changed()
	}()
}

// subscribe changes who wants to be told, unknown to all gateways.
func (s *fakeStore) subscribe() {
	s.foreign(zk.Op{Kind: zk.OpSetData, Path: "/lockkeeper/webhooks", Version: -1})
}

// told are the endings of leases that a gateway has noted, by lease.
func (g *gate) notedFor(l locks.Lease) (list []*Ending) {
	synctest.Wait() // the outbox is told beside the answer
	g.outbox.with(func() {
		for _, e := range g.outbox.noted {
			if e.LeaseID == l.ID {
				list = append(list, e)
			}
		}
	})
	return list
}

func notingScene(t *testing.T, f func(t *testing.T, s *fakeStore)) {
	scene(t, func(t *testing.T, s *fakeStore) {
		s.outboxes = true
		f(t, s)
	})
}

// withOutbox is a notingScene with one gateway.
func withOutbox(t *testing.T, f func(t *testing.T, s *fakeStore, g *gate)) {
	t.Helper()
	notingScene(t, func(t *testing.T, s *fakeStore) { f(t, s, s.notingGateway(t)) })
}

// withOutboxes is a notingScene with two gateways.
func withOutboxes(t *testing.T, f func(t *testing.T, s *fakeStore, one, two *gate)) {
	t.Helper()
	notingScene(t, func(t *testing.T, s *fakeStore) { f(t, s, s.notingGateway(t), s.notingGateway(t)) })
}

// started waits until the outbox knows.
func (s *fakeStore) notingGateway(t *testing.T) *gate {
	g := s.gateway(t)
	pass(time.Second)
	return g
}

func (s *fakeStore) outbox() []string { return s.names("/lockkeeper/outbox") }

// committed is the number of transactions. A lease's clock may write at any time, so it takes the lock.
func (s *fakeStore) committed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.writes)
}

// last is the last transaction with a deletion, by the kinds of its operations.
func (s *fakeStore) lastEnd() (kinds []zk.OpKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range slices.Backward(s.writes) {
		if slices.ContainsFunc(w.Ops, func(op zk.Op) bool { return op.Kind == zk.OpDelete && strings.Contains(op.Path, "/locks/") }) {
			for _, op := range w.Ops {
				kinds = append(kinds, op.Kind)
			}
			return kinds
		}
	}
	return nil
}
