package observer

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// Bounds and paces of the observer.
const (
	maxObserved = 64 << 20 // bytes of one reply: the listing of some 700,000 contenders. A larger one ends the connection.
	listWindow  = 256      // listings in flight; the others wait their turn
	getWindow   = 256      // Gets in flight; the others wait their turn
	maxGets     = 8192     // Gets waiting or in flight; a further one is ErrQueueFull
	maxLists    = 8192     // directories that List asked for and that wait; one more makes it a whole tree read
	maxReachers = 8192     // calls of Reached waiting; a further one is ErrQueueFull
	maxRoots    = 1024     // watched roots; a further one is ErrQueueFull
	maxPings    = 4        // pings in flight; no further one is sent
	// Another connection is tried after up to twice the interval, which doubles from the first to the last.
	firstRetry   = 25 * time.Millisecond
	lastRetry    = time.Second
	stableAfter  = time.Second // a connection that was synced and lived that long resets the backoff
	handshakeMin = time.Second
	handshakeMax = 5 * time.Second
	closeLimit   = 250 * time.Millisecond // to say goodbye to the server when Run ends
)

// Observer follows trees of ZooKeeper and tells a Sink every change.
//
// It is a read-only client with a connection and a session of its own, which owns nothing. One persistent recursive
// watch per root brings every change in ZooKeeper's order. After each connect the watches are set first and the tree is
// read afterwards, on the same connection, each listing taking effect at its own place in the stream. That is exact
// because of an order that ZooKeeper keeps: a server applies transactions and answers one session's requests one after
// the other, and what it sends on one connection arrives in that order; applying a transaction sends its watch events
// at once. So an event that stands before a reply was applied before that reply was made, and the reply contains it; an
// event behind it was not, and the reply lacks it. The replica after a listing is therefore the directory as it was at
// that place of the stream, and applying the events that follow keeps it so. Nothing needs to be compared by zxid, and
// no event may be dropped, delayed or put in front of a reply.
//
// What it promises its Sink:
//
//   - Changes come in ZooKeeper's order, and none is left out while the
//     connection lasts. What was missed between two connections shows up as the
//     difference that the tree read finds, with Listed set.
//   - After Synced the replica is a true state of the past. How far in the past
//     is for Freshness to judge.
//   - It never goes back in time: it connects with the highest zxid that it or
//     the writer has seen, and a server that has not got that far refuses it.
//   - A server that answers pings although its zxid has stood still while the
//     writer's moved on is left for another one, before the window is over.
//
// Goroutines: the one that calls Run reads the connection, owns the replica and calls the Sink and the functions given to
// Get. So a change costs one wake-up, from the network to the Sink. While Run waits for the network, its next ping, a
// request of another goroutine and the end of ctx end the wait by the connection's read deadline. Each connection adds a
// goroutine that writes; it ends before the next connection is tried and before Run returns.
//
// On failure: every fault of a connection (silence, a reply that was not asked for, a frame above the limit) ends it;
// the Sink is told Lost, Gets fail with ErrUnavailable, and another server is tried after a jittered backoff of at most
// two seconds. A FatalError ends Run.
type Observer struct {
	cfg        zk.Config
	cfgErr     error // told by Run
	servers    []string
	sink       zk.Sink
	writerZxid func() int64
	log        *slog.Logger
	freshness  *Freshness

	// Owned by the goroutine in Run.
	replica  replica
	lastZxid int64 // highest zxid of any reply
	next     int   // index of the server to try next

	stream atomic.Pointer[stream] // the present connection, to interrupt its reads; nil: none

	mu        sync.Mutex
	state     State
	started   bool
	connected bool // Gets and Lists are accepted
	stopped   bool
	roots     map[string]struct{} // paths of all roots ever added
	newRoots  []zk.WatchRoot      // of those, the ones the replica does not have yet
	gets      []get
	getCount  int // waiting here and with the connection
	lists     map[string]struct{}
	listAll   bool // lists overflowed: read the whole tree
	current   bool // the replica became current; the sink is to be told
	lagging   bool // what the writer has committed would make it current: the server is to be asked now, not at the next tick
	applied   int64
	reachers  []*reacher // in the order in which they came
}

// ObserverState describes an observer for status pages and metrics.
type State struct {
	Server    string // "" when not connected
	SessionID int64
	Synced    bool
	LastZxid  int64  // highest zxid of any reply
	Connects  uint64 // connections established so far
	Events    uint64 // watch events received
	Ignored   uint64 // of those, on paths that are no leaf and no directory
}

type get struct {
	path  string
	reply func(data []byte, stat wire.Stat, zxid int64, err error)
}

type reacher struct {
	zxid int64
	done chan error // capacity 1
}

// New returns an observer of the roots; Run makes it work. cfg.PromiseWindow must be the recorded one, it is the window
// of Freshness. writerZxid, which may be nil, tells the highest zxid the writer has seen.
func New(cfg zk.Config, roots []zk.WatchRoot, sink zk.Sink, writerZxid func() int64) *Observer {
	cfg, err := cfg.WithDefaults()
	if cfg.PromiseWindow == 0 {
		cfg.PromiseWindow = zk.DefaultPromiseWindow
	}
	if writerZxid == nil {
		writerZxid = func() int64 { return 0 }
	}
	if err != nil {
		cfg.Clock, cfg.Logger = zk.SystemClock{}, slog.New(slog.DiscardHandler)
	}
	o := &Observer{
		cfg:        cfg,
		cfgErr:     err,
		servers:    slices.Clone(cfg.Servers),
		sink:       sink,
		writerZxid: writerZxid,
		log:        cfg.Logger,
		freshness:  NewFreshness(cfg.Clock, cfg.PromiseWindow),
		roots:      make(map[string]struct{}),
		lists:      make(map[string]struct{}),
	}
	// Gateways that are configured alike must not all sit on the first server.
	rand.New(cfg.Random).Shuffle(len(o.servers), func(i, j int) { o.servers[i], o.servers[j] = o.servers[j], o.servers[i] })
	o.freshness.wanted = func() {
		o.mu.Lock()
		o.lagging = true
		o.mu.Unlock()
		o.poke()
	}
	o.freshness.turned = func() {
		o.mu.Lock()
		o.current = true
		o.mu.Unlock()
		o.poke()
	}
	for _, w := range roots {
		if err := o.AddRoot(w); err != nil && o.cfgErr == nil {
			o.cfgErr = &zk.FatalError{Kind: zk.KindConfig, Err: err}
		}
	}
	return o
}

// AddRoot adds a root to follow; the same path again changes nothing. Synced with that root tells when it has been
// read. The error is ErrQueueFull above 1024 roots, or says why the root makes no sense.
func (o *Observer) AddRoot(w zk.WatchRoot) error {
	if w.Depth != 1 && w.Depth != 2 {
		return errors.New("a watched root has depth 1 or 2")
	}
	if w.Path != "/" {
		if err := zk.CheckPath(w.Path); err != nil {
			return err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, have := o.roots[w.Path]; have {
		return nil
	}
	if len(o.roots) == maxRoots {
		return zk.ErrQueueFull
	}
	o.roots[w.Path] = struct{}{}
	o.newRoots = append(o.newRoots, w)
	o.poke()
	return nil
}

// Get reads a node's data and stat. reply is called exactly once, at the reply's place in the stream, from the
// goroutine that calls the Sink (so it must not block), with the zxid of the reply; the data is the caller's. Its error
// is ErrNoNode, ErrNoAuth, or ErrUnavailable when the connection was lost. When Get itself returns an error,
// ErrUnavailable without a connection or ErrQueueFull above 8192 calls at a time, reply is never called.
func (o *Observer) Get(path string, reply func(data []byte, stat wire.Stat, zxid int64, err error)) error {
	o.mu.Lock()
	if !o.connected {
		o.mu.Unlock()
		return zk.ErrUnavailable
	}
	if o.getCount == maxGets {
		o.mu.Unlock()
		return zk.ErrQueueFull
	}
	o.getCount++
	o.gets = append(o.gets, get{path: path, reply: reply})
	o.mu.Unlock()
	o.poke()
	return nil
}

// List lists a directory again (or the top of a root of depth 2): the differences, which only nodes that we may not
// read can make, and DirListed come at the reply's place in the stream. The request is sent after the call. Of a
// directory that is gone nothing is told but the DirRemoved before. Calls for one directory that is waiting its turn
// become one. Without a connection List does nothing, because the tree read after every connect lists every directory.
func (o *Observer) List(dir string) {
	o.mu.Lock()
	if o.connected && !o.listAll {
		o.lists[dir] = struct{}{}
		if len(o.lists) > maxLists {
			clear(o.lists)
			o.listAll = true
		}
	}
	o.mu.Unlock()
	o.poke()
}

// Reached waits until the replica contains everything up to a zxid: until a reply has carried that zxid or a later one,
// and all before it was applied. It does not wait for chance but makes the server catch up with its leader. It must not
// be called from the Sink. Errors: ctx's, ErrQueueFull above 8192 calls at a time, ErrUnavailable when Run has ended.
func (o *Observer) Reached(ctx context.Context, zxid int64) error {
	o.mu.Lock()
	switch {
	case o.applied >= zxid:
		o.mu.Unlock()
		return nil
	case o.stopped:
		o.mu.Unlock()
		return zk.ErrUnavailable
	case len(o.reachers) == maxReachers:
		o.mu.Unlock()
		return zk.ErrQueueFull
	}
	r := &reacher{zxid: zxid, done: make(chan error, 1)}
	o.reachers = append(o.reachers, r)
	o.mu.Unlock()
	o.poke()
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		o.mu.Lock()
		o.reachers = slices.DeleteFunc(o.reachers, func(other *reacher) bool { return other == r })
		o.mu.Unlock()
		return ctx.Err()
	}
}

// Current judges whether the replica is fit to grant from. The writer's commit hook calls its Committed.
func (o *Observer) Freshness() *Freshness { return o.freshness }

// State describes the observer now.
func (o *Observer) State() State {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.state
}

// poke has the goroutine in Run look at what others ask of it. What they ask is set before.
func (o *Observer) poke() {
	if s := o.stream.Load(); s != nil {
		s.interrupt()
	}
}
