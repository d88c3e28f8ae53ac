package manager

import (
	"context"
	"maps"
	"path"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// fakeWatcher delivers the stream: a queue of steps, each of which the observer's goroutine takes in order.
type fakeWatcher struct {
	s         *fakeStore
	sink      zk.Sink
	roots     []zk.WatchRoot
	steps     []func()
	wake      chan struct{}
	held      bool // the stream stands still
	connected bool
	dirs      map[string]*zk.Dir
	nodes     map[string]bool
	observed  int64
	replied   int64 // the highest zxid of a reply: no server that is behind it is taken
	proven    zk.Instant
	synced    bool
	first     map[string]bool // what the first tree read showed: see inFirstTree
}

func (s *fakeStore) Watch(roots []zk.WatchRoot, sink zk.Sink, _ func() int64) term.Watcher {
	w := &fakeWatcher{s: s, sink: sink, roots: roots, wake: make(chan struct{}, 1), dirs: map[string]*zk.Dir{}, nodes: map[string]bool{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers = append(s.watchers, w)
	w.connect(s.nodes, s.zxid)
	return w
}

// note changes from a step what others look at.
func (w *fakeWatcher) note(change func()) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	change()
}

// insert makes a step the stream's next, after what is on its way.
func (w *fakeWatcher) insert(step func()) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.push(step)
}

// push is insert with s.mu held.
func (w *fakeWatcher) push(step func()) {
	w.steps = append(w.steps, step)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *fakeWatcher) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.wake:
		}
		for {
			w.s.mu.Lock()
			if w.held || len(w.steps) == 0 {
				w.s.mu.Unlock()
				break
			}
			step := w.steps[0]
			w.steps = w.steps[1:]
			w.s.mu.Unlock()
			step()
		}
	}
}

// hold stops the stream, release lets it go on.
func (w *fakeWatcher) hold() {
	w.s.mu.Lock()
	w.held = true
	w.s.mu.Unlock()
}

// release lets the stream go on, and returns when what it held has been seen.
func (w *fakeWatcher) release() {
	w.releaseSoon()
	synctest.Wait()
}

func (w *fakeWatcher) releaseSoon() {
	w.s.mu.Lock()
	w.held = false
	w.push(func() {})
	w.s.mu.Unlock()
}

func (w *fakeWatcher) rootOf(p string) *zk.WatchRoot {
	for i := range w.roots {
		if strings.HasPrefix(p+"/", w.roots[i].Path+"/") {
			return &w.roots[i]
		}
	}
	return nil
}

func (w *fakeWatcher) dir(p string) *zk.Dir {
	if w.dirs[p] == nil {
		w.dirs[p] = &zk.Dir{Path: p}
	}
	return w.dirs[p]
}

// event turns a node's event into a change.
func (w *fakeWatcher) event(kind zk.ChangeKind, p string) { w.change(kind, p, false, 0) }

func (w *fakeWatcher) change(kind zk.ChangeKind, p string, listed bool, zxid int64) {
	root := w.rootOf(p)
	if root == nil || p == root.Path {
		return
	}
	if strings.Count(p[len(root.Path):], "/") > root.Depth {
		return // below what is watched
	}
	c := zk.Change{Kind: kind, Root: root, Listed: listed, Zxid: zxid}
	if root.Depth == 2 && path.Dir(p) == root.Path {
		c.Dir = w.dir(p)
		switch kind {
		case zk.NodeAdded:
			c.Kind = zk.DirAdded
		case zk.NodeRemoved:
			c.Kind = zk.DirRemoved
			delete(w.dirs, p)
		default:
			c.Kind = zk.DirChanged
		}
	} else {
		c.Dir = w.dir(path.Dir(p))
		switch {
		case kind == zk.NodeAdded && w.nodes[p]:
			return
		case kind == zk.NodeAdded:
			w.nodes[p] = true
		case kind == zk.NodeRemoved:
			delete(w.nodes, p)
		}
		c.Node = path.Base(p)
	}
	w.sink.Apply([]zk.Change{c})
}

// moreThanDir is zk.Change.Stat; s.mu is held.
func (n *fakeNode) moreThanDir() *wire.Stat {
	stat := n.stat
	stat.DataLength = int32(len(n.data))
	if !stat.Ephemeral() && stat.DataLength == 0 {
		return nil
	}
	return &stat
}

// connect queues the tree read of a (re)connection to a server whose state is the given one; s.mu is held.
func (w *fakeWatcher) connect(state map[string]*fakeNode, zxid int64) {
	w.connected = true
	snapshot := maps.Clone(state)
	counts, more := map[string]int32{}, map[string]*wire.Stat{}
	for p, n := range snapshot {
		counts[p], more[p] = n.creates, n.moreThanDir()
	}
	w.push(func() {
		for _, p := range slices.Sorted(maps.Keys(snapshot)) {
			root := w.rootOf(p)
			if root == nil || p == root.Path || root.Depth == 2 && path.Dir(p) == root.Path && w.dirs[p] != nil {
				continue
			}
			w.change(zk.NodeAdded, p, true, zxid)
		}
		for p := range w.nodes { // what is new comes before what is gone, as the observer tells it
			if snapshot[p] == nil {
				w.change(zk.NodeRemoved, p, true, zxid)
			}
		}
		for p := range w.dirs {
			if snapshot[p] == nil {
				w.change(zk.NodeRemoved, p, true, zxid)
			}
		}
		for p, d := range w.dirs {
			w.sink.Apply([]zk.Change{{Kind: zk.DirListed, Root: w.rootOf(p), Dir: d, Listed: true, Zxid: zxid, Created: counts[p], Stat: more[p]}})
		}
		if w.first == nil {
			w.first = inFirstTree(w.sink.(*Manager))
		}
		maps.Copy(w.first, inArrivals(w.sink.(*Manager)))
		w.note(func() { w.synced, w.observed, w.replied = true, max(w.observed, zxid), max(w.replied, zxid) })
		w.sink.Apply([]zk.Change{{Kind: zk.Synced}})
	})
}

// disconnect ends the connection: nothing is current until reconnect.
func (w *fakeWatcher) disconnect() {
	w.s.set(func() {
		w.connected = false
		w.push(func() {
			w.note(func() { w.synced = false })
			w.sink.Apply([]zk.Change{{Kind: zk.Lost}})
		})
	})
	synctest.Wait()
}

func (w *fakeWatcher) reconnect() {
	w.s.set(func() { w.connect(w.s.nodes, w.s.zxid) })
	synctest.Wait()
}

// reconnectToThePast connects to a server that lags as far as the observer lets it, which then catches up: its events
// follow the tree read. atLeast is the writer's zxid.
func (w *fakeWatcher) reconnectToThePast(atLeast int64, skip int) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	for _, past := range w.s.past {
		if past.zxid < max(w.replied, atLeast) {
			continue
		}
		if skip--; skip >= 0 {
			continue
		}
		w.connect(past.nodes, past.zxid)
		for i, news := range past.later {
			if w.s.hidden == nil || !w.s.hidden(news.path) {
				w.push(func() { w.event(news.kind, news.path) })
			}
			if i+1 == len(past.later) || past.later[i+1].zxid != news.zxid {
				w.push(func() { w.note(func() { w.observed = max(w.observed, news.zxid) }) })
			}
		}
		return
	}
	w.connect(w.s.nodes, w.s.zxid)
}

func (w *fakeWatcher) Get(p string, reply func([]byte, wire.Stat, int64, error)) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if !w.connected {
		go reply(nil, wire.Stat{}, 0, zk.ErrUnavailable)
		return
	}
	var data []byte
	var stat wire.Stat
	n, zxid := w.s.nodes[p], w.s.zxid
	if n != nil {
		data, stat = n.data, n.stat // as they are now: what is written later comes behind it in the stream
	}
	hidden := w.s.hidden != nil && w.s.hidden(p)
	w.push(func() {
		w.note(func() { w.replied = max(w.replied, zxid) })
		switch {
		case n == nil:
			reply(nil, wire.Stat{}, zxid, zk.ErrNoNode)
		case hidden:
			reply(nil, wire.Stat{}, zxid, zk.ErrNoAuth)
		default:
			reply(data, stat, zxid, nil)
		}
	})
}

// AddRoot queues the reading of a tree as it is now; what happens there later comes behind it.
func (w *fakeWatcher) AddRoot(added zk.WatchRoot) error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	take := func() { w.roots = append(slices.Clone(w.roots), added) } // changes point to those of before
	if !w.connected {
		take() // the next connection reads all roots
		return nil
	}
	state, zxid := w.s.copy(), w.s.zxid
	w.push(func() {
		take()
		for _, p := range slices.Sorted(maps.Keys(state)) {
			if strings.HasPrefix(p, added.Path+"/") {
				w.change(zk.NodeAdded, p, true, zxid)
			}
		}
		for p, d := range w.dirs {
			if path.Dir(p) == added.Path {
				w.sink.Apply([]zk.Change{{Kind: zk.DirListed, Root: w.rootOf(p), Dir: d, Listed: true, Zxid: zxid, Created: state[p].creates, Stat: state[p].moreThanDir()}})
			}
		}
		maps.Copy(w.first, inArrivals(w.sink.(*Manager)))
		w.sink.Apply([]zk.Change{{Kind: zk.Synced, Root: &added}})
	})
	return nil
}

func (w *fakeWatcher) List(dir string) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	zxid, parent := w.s.zxid, w.s.nodes[dir]
	if parent == nil || !w.connected {
		return
	}
	created, more := parent.creates, parent.moreThanDir()
	present := map[string]bool{}
	for p := range w.s.nodes {
		if path.Dir(p) == dir {
			present[p] = true
		}
	}
	w.push(func() {
		w.note(func() { w.replied = max(w.replied, zxid) })
		for _, p := range slices.Sorted(maps.Keys(present)) {
			w.change(zk.NodeAdded, p, true, zxid)
		}
		for p := range w.nodes {
			if path.Dir(p) == dir && !present[p] {
				w.change(zk.NodeRemoved, p, true, zxid)
			}
		}
		w.sink.Apply([]zk.Change{{Kind: zk.DirListed, Root: w.rootOf(dir), Dir: w.dir(dir), Listed: true, Zxid: zxid, Created: created, Stat: more}})
	})
}

func (w *fakeWatcher) Reached(ctx context.Context, zxid int64) error {
	for {
		w.s.mu.Lock()
		reached := w.observed >= zxid
		w.s.mu.Unlock()
		if reached {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

func (w *fakeWatcher) Committed(zk.Instant, int64) {}

func (w *fakeWatcher) Lag(zk.Instant) time.Duration { return 0 }

func (w *fakeWatcher) Current(now zk.Instant) bool {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return w.synced && w.connected && now.Since(w.proven) < fakeWindow
}
