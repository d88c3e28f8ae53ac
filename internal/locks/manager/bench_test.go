package manager

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/postmortem"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// instantStore answers everything at once on the caller's goroutine: what is left to measure is the manager alone.
type instantStore struct {
	*fakeStore
	m       anyone
	session *instantSession
	root    *zk.WatchRoot
	dirs    map[string]*instantDir
}

type instantDir struct {
	dir   zk.Dir
	next  int
	nodes map[string]string
}

func (s *instantStore) Watch(roots []zk.WatchRoot, sink zk.Sink, _ func() int64) term.Watcher {
	for i := range roots {
		if roots[i].Depth == 2 {
			s.root = &roots[i]
		}
	}
	return &instantWatcher{sink: sink}
}

func (s *instantStore) Open(_ context.Context, id string, _ []byte, onCommit func(zk.Instant, int64)) (term.Session, error) {
	s.session = &instantSession{fakeSession: &fakeSession{s: s.fakeStore, id: id, onCommit: onCommit, done: make(chan struct{})}, s: s}
	return s.session, nil
}

type instantSession struct {
	*fakeSession
	s *instantStore
}

// answer tells a write its outcome in memory of its own, as the session tells those of a transaction.
func (f *instantSession) answer(w *zk.Write, res zk.Result) {
	room := answerRoom.Get().(*[1]zk.Answered)
	room[0] = zk.Answered{Write: w, Result: res}
	zk.Answer(room[:])
	answerRoom.Put(room)
}

var answerRoom = sync.Pool{New: func() any { return new([1]zk.Answered) }}

func (f *instantSession) Trusted(zk.Instant) bool     { return true }
func (f *instantSession) Connected() bool             { return true }
func (f *instantSession) LastAnswer() zk.Instant      { return f.s.clock.Now() }
func (f *instantSession) Close(context.Context) error { close(f.done); return nil }

// Submit does creates and deletes of contenders, and tells the replica before the writer, as ZooKeeper usually does.
func (f *instantSession) Submit(w *zk.Write) error {
	s := f.s
	s.zxid++
	res := zk.Result{Outcome: zk.Done, Culprit: -1, Zxid: s.zxid, Paths: make([]string, len(w.Ops)), Versions: make([]int32, len(w.Ops))}
	var changes []zk.Change
	for i, op := range w.Ops {
		path := op.Path
		switch {
		case op.Kind == zk.OpCreate && !op.Sequential:
			d := &instantDir{nodes: map[string]string{}}
			d.dir.Path, s.dirs[path] = path, d
			changes = append(changes, zk.Change{Kind: zk.DirAdded, Root: s.root, Dir: &d.dir})
		case op.Kind == zk.OpCreate:
			at := len(path) - 1
			for path[at] != '/' {
				at--
			}
			d := s.dirs[path[:at]]
			res.Paths[i] = fmt.Sprintf("%s%010d", path, d.next)
			d.next++
			n := res.Paths[i][at+1:]
			d.nodes[res.Paths[i]] = n
			changes = append(changes, zk.Change{Kind: zk.NodeAdded, Root: s.root, Dir: &d.dir, Node: n})
		case op.Kind == zk.OpDelete:
			for _, d := range s.dirs {
				if n := d.nodes[path]; n != "" {
					delete(d.nodes, path)
					changes = append(changes, zk.Change{Kind: zk.NodeRemoved, Root: s.root, Dir: &d.dir, Node: n})
				}
			}
		}
	}
	s.m.Apply(changes)
	f.answer(w, res)
	return nil
}

type instantWatcher struct{ sink zk.Sink }

func (w *instantWatcher) AddRoot(zk.WatchRoot) error { return nil }

func (w *instantWatcher) Run(ctx context.Context) error {
	w.sink.Apply([]zk.Change{{Kind: zk.Synced}})
	<-ctx.Done()
	return ctx.Err()
}
func (w *instantWatcher) Get(string, func([]byte, wire.Stat, int64, error)) {}
func (w *instantWatcher) List(string)                                       {}
func (w *instantWatcher) Reached(context.Context, int64) error              { return nil }
func (w *instantWatcher) Current(zk.Instant) bool                           { return true }
func (w *instantWatcher) Committed(zk.Instant, int64)                       {}
func (w *instantWatcher) Lag(zk.Instant) time.Duration                      { return 0 }

// BenchmarkManagerCycle is one acquire and one release without ZooKeeper's and the network's part.
func BenchmarkManagerCycle(b *testing.B) {
	for _, told := range []bool{false, true} {
		b.Run(fmt.Sprintf("events=%v", told), func(b *testing.B) { benchmarkCycle(b, told, nil, locks.Anonymous) })
	}
	b.Run("events=false,principal", func(b *testing.B) {
		benchmarkCycle(b, false, nil, locks.Principal{Name: "token:ci", Rules: access.Everything(), Counts: true})
	})
	b.Run("events=false,outbox", func(b *testing.B) {
		benchmarkCycle(b, false, &quietOutbox{check: []zk.Op{{Kind: zk.OpCheck, Path: "/lockkeeper/webhooks"}}}, locks.Anonymous)
	})
}

// quietOutbox checks that there is no webhook, as package webhooks does without one.
type quietOutbox struct {
	Outbox
	check []zk.Op
}

func (o *quietOutbox) Ending(bool, func() *Ending) ([]zk.Op, any, bool) { return o.check, nil, true }
func (o *quietOutbox) Ended(any, []zk.Op, zk.Result)                    {}
func (o *quietOutbox) Look()                                            {}
func (o *quietOutbox) Adopt()                                           {}

func benchmarkCycle(b *testing.B, told bool, outbox Outbox, who locks.Principal) {
	opt := Options{Outbox: outbox}
	if told {
		opt.Events = events.New(events.Options{})
	}
	m := instantManager(b, opt)
	b.ReportAllocs()
	for b.Loop() {
		res, err := m.Acquire(b.Context(), locks.AcquireRequest{Principal: who, Lock: "deploy", TTL: time.Hour})
		if err != nil {
			b.Fatal(err)
		}
		if err := m.Release(b.Context(), who, res.Lease.ID, res.Lease.Token); err != nil {
			b.Fatal(err)
		}
	}
}

// processorTime is what this process has used, which a busy machine changes less than the time that passes.
func processorTime(b *testing.B) time.Duration {
	var used unix.Rusage
	assert.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkHandOver is one contender that joins the end of a queue, and one release that hands the lock to the next. The length of the
// queue must make no difference.
func BenchmarkHandOver(b *testing.B) {
	for _, waiters := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("waiters=%d", waiters), func(b *testing.B) {
			m := instantManager(b, Options{Events: events.New(events.Options{})})
			queue := make([]*locks.Lease, 0, waiters)
			join := func() *locks.Lease {
				res, err := m.Acquire(b.Context(), locks.AcquireRequest{Lock: "deploy", TTL: time.Hour, Async: true})
				if err != nil {
					b.Fatal(err)
				}
				return &res.Lease
			}
			for range waiters {
				queue = append(queue, join())
			}
			b.ReportAllocs()
			at, before := 0, processorTime(b)
			defer func() { b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op") }()
			for b.Loop() {
				last := join()
				if err := m.Release(b.Context(), locks.Anonymous, queue[at].ID, queue[at].Token); err != nil {
					b.Fatal(err)
				}
				queue[at] = last
				at = (at + 1) % waiters
			}
		})
	}
}

// BenchmarkHeartbeat is one heartbeat, alone and as one of a hundred in a request.
func BenchmarkHeartbeat(b *testing.B) {
	m := instantManager(b, Options{})
	res, err := m.Acquire(b.Context(), locks.AcquireRequest{Lock: "deploy", TTL: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := m.Heartbeat(b.Context(), locks.Anonymous, res.Lease.ID, res.Lease.Token, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("of a hundred", func(b *testing.B) {
		tokens := slices.Repeat([]string{res.Lease.Token}, 100)
		b.ReportAllocs()
		for b.Loop() {
			if beats := m.Heartbeats(b.Context(), locks.Anonymous, tokens); beats[99].Err != nil {
				b.Fatal(beats[99].Err)
			}
		}
	})
}

// instantManager runs a manager until the benchmark ends.
func instantManager(b *testing.B, opt Options) anyone {
	s := &instantStore{fakeStore: newFakeStore(b), dirs: map[string]*instantDir{}}
	opt.Store, opt.Root, opt.SessionTimeout = s, "/lockkeeper", 10*time.Second
	s.m = anyone{New(opt)}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- s.m.Run(ctx) }()
	for s.m.Ready() != nil || !s.m.Trusted() {
		time.Sleep(time.Millisecond)
	}
	b.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			b.Error(err)
		}
	})
	return s.m
}

// BenchmarkTelling is one event: an acquire and a release tell five.
func BenchmarkTelling(b *testing.B) {
	s := newFakeStore(b)
	m := anyone{New(Options{Store: s, Root: "/lockkeeper", Clock: s.clock, Events: events.New(events.Options{})})}
	if err := m.prepare(s.layout); err != nil {
		b.Fatal(err)
	}
	m.Apply([]zk.Change{{Kind: zk.Synced}})
	q := m.replica.Queue(m.replica.Namespaces[locks.DefaultNamespace], "deploy", 0)
	c := &zk.Change{Kind: zk.NodeAdded, Dir: &zk.Dir{Path: q.Path}, Node: "write-0000000000"}
	b.ReportAllocs()
	for b.Loop() {
		m.publisher.node(c, q)
	}
}

// BenchmarkTellingACycle is the five events of one acquire and one release, and what is noted for them.
func BenchmarkTellingACycle(b *testing.B) {
	for _, told := range []bool{false, true} {
		b.Run(fmt.Sprintf("events=%v", told), func(b *testing.B) { benchmarkTellingACycle(b, told) })
	}
}

func benchmarkTellingACycle(b *testing.B, told bool) {
	s := newFakeStore(b)
	opt := Options{Store: s, Root: "/lockkeeper", Clock: s.clock}
	if told {
		opt.Events = events.New(events.Options{})
	}
	m := anyone{New(opt)}
	if err := m.prepare(s.layout); err != nil {
		b.Fatal(err)
	}
	openSession(b, m.Manager, &fakeSession{s: s, id: "abcdefghijklm", done: make(chan struct{})})
	m.Apply([]zk.Change{{Kind: zk.Synced}})
	q := m.replica.Queue(m.replica.Namespaces[locks.DefaultNamespace], "deploy", 0)
	l, err := (&acquisition{m: m.Manager, wants: []locks.Want{{NS: locks.DefaultNamespace, Lock: "deploy"}}, req: locks.AcquireRequest{Lock: "deploy", TTL: time.Minute, Owner: "me"}}).newLease()
	if err != nil {
		b.Fatal(err)
	}
	c := &recipe.Contender{LeaseID: l.id(), Name: "write-v1." + string(l.id()) + "-lock-0000000000", Ours: true, Member: 1, Members: 1}
	l.contender, l.czxid = c, 7
	dir := &zk.Dir{Path: q.Path}
	root := &zk.WatchRoot{Path: "/lockkeeper/locks", Depth: 2}
	at := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		m.stream.heard = at
		l.shown, l.why, l.State = false, postmortem.CauseOf(locks.ReasonReleased), lifecycle.New(lifecycle.Held, lifecycle.RecordCurrent)
		l.SetGrant(m.leases, lifecycle.GrantClaimed)
		l.setObservation(queues.Observed{})
		m.publisher.node(&zk.Change{Kind: zk.NodeAdded, Root: root, Dir: dir, Node: c.Name}, q)
		if appeared(m.leases, &m.history, m.replica, q, c) {
			m.publisher.queued(q, c)
		}
		m.stream.heard = time.Time{} // the next two are told when ZooKeeper has replied
		if l.observeHold(0, false) {
			m.publisher.granted(q, c, l)
		}
		m.tellEnded(l)
		m.stream.heard = at
		m.publisher.node(&zk.Change{Kind: zk.NodeRemoved, Root: root, Dir: dir, Node: c.Name}, q)
		m.replica.Observe(c, queues.Observed{})
	}
}
