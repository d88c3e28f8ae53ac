package manager

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// remoteStore is a ZooKeeper that keeps nothing: a writer that says yes, and a server at the other end of a pipe that
// tells a real observer what was written. What is in memory is the manager's and the replica's.
type remoteStore struct {
	*fakeStore
	session *remoteSession

	wire  sync.Mutex // guards the server's end of the pipe, and order
	nc    net.Conn
	order int64 // the last zxid
	// early: the answer to a write overtakes its event.
	early bool
}

func (s *remoteStore) Open(_ context.Context, id string, _ []byte, onCommit func(zk.Instant, int64)) (term.Session, error) {
	s.session = &remoteSession{fakeSession: &fakeSession{s: s.fakeStore, id: id, onCommit: onCommit, done: make(chan struct{})}, s: s}
	return s.session, nil
}

func (s *remoteStore) Watch(roots []zk.WatchRoot, sink zk.Sink, writerZxid func() int64) term.Watcher {
	cfg := zk.Config{Servers: []string{"server:2181"}, Dial: s.dial, Clock: s.clock,
		PromiseWindow: zk.MaxPromiseWindow, SessionTimeout: time.Hour} // nothing has to be quick
	return remoteWatcher{(&term.ZooKeeper{Config: cfg}).Watch(roots, sink, writerZxid)}
}

// remoteWatcher is always current.
type remoteWatcher struct{ term.Watcher }

func (remoteWatcher) Current(zk.Instant) bool { return true }

func (s *remoteStore) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	go s.serve(server)
	return client, nil
}

// serve answers an observer: there is nothing in the tree yet.
func (s *remoteStore) serve(nc net.Conn) {
	defer nc.Close()
	frames := wire.NewFrameReader(nc, 1<<20)
	if _, err := frames.Next(); err != nil {
		return
	}
	s.wire.Lock()
	s.nc = nc
	nc.Write(wire.AppendFrame(nil, &wire.ConnectReply{TimeoutMs: int32(time.Hour.Milliseconds()), SessionID: 1, Passwd: make([]byte, 16)}))
	s.wire.Unlock()
	for {
		frame, err := frames.Next()
		if err != nil {
			return
		}
		var h wire.RequestHeader
		h.Decode(wire.NewDecoder(frame))
		s.wire.Lock()
		reply := []wire.Record{&wire.ReplyHeader{Xid: h.Xid, Zxid: s.order}}
		switch h.Op {
		case wire.OpAddWatch:
			reply = append(reply, &wire.IntReply{})
		case wire.OpGetChildren2:
			reply = append(reply, &wire.Children2Reply{Stat: wire.Stat{Czxid: 1}})
		case wire.OpGetData: // on a machine that is very slow: is it really there?
			reply = append(reply, &wire.DataReply{Stat: wire.Stat{Czxid: s.order}})
		case wire.OpSync:
			reply = append(reply, &wire.PathRecord{Path: "/"})
		}
		nc.Write(wire.AppendFrame(nil, reply...))
		s.wire.Unlock()
	}
}

type remoteSession struct {
	*fakeSession
	s *remoteStore
}

func (f *remoteSession) Trusted(zk.Instant) bool     { return true }
func (f *remoteSession) Connected() bool             { return true }
func (f *remoteSession) LastAnswer() zk.Instant      { return f.s.clock.Now() }
func (f *remoteSession) Close(context.Context) error { close(f.done); return nil }

// Submit does what is asked, and always gives the first number of a directory.
func (f *remoteSession) Submit(w *zk.Write) error {
	s := f.s
	s.wire.Lock()
	s.order++
	res := zk.Result{Outcome: zk.Done, Culprit: -1, Zxid: s.order, Paths: make([]string, len(w.Ops)), Versions: make([]int32, len(w.Ops))}
	var events []byte
	for i, op := range w.Ops {
		happened, path := wire.EventCreated, op.Path
		switch {
		case op.Kind == zk.OpDelete:
			happened = wire.EventDeleted
		case op.Sequential:
			path += "0000000000"
			fallthrough
		default:
			res.Paths[i] = path
		}
		events = wire.AppendFrame(events, &wire.ReplyHeader{Xid: wire.XidWatcherEvent, Zxid: -1},
			&wire.WatcherEvent{Type: happened, State: wire.StateSyncConnected, Path: path})
	}
	if s.early {
		w.Answer(res)
	}
	_, err := s.nc.Write(events)
	s.wire.Unlock()
	if err != nil {
		return errors.Join(zk.ErrSessionGone, err)
	}
	if !s.early {
		w.Answer(res)
	}
	return nil
}

// crowd is a gateway whose clients hold very many locks.
type crowd struct {
	m       anyone
	cancel  context.CancelFunc
	stopped chan error
}

func newCrowd(t testing.TB, early bool) *crowd {
	s := &remoteStore{fakeStore: newFakeStore(t), early: early}
	c := &crowd{m: anyone{New(Options{Store: s, Root: "/lockkeeper", SessionTimeout: 10 * time.Second})}, stopped: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	go func() { c.stopped <- c.m.Run(ctx) }()
	testkit.Eventually(t, 10*time.Second, func() bool { return c.m.Ready() == nil && c.m.Trusted() }, "the manager is usable")
	return c
}

func (c *crowd) stop(t testing.TB) {
	c.cancel()
	assert.Nil(t, testkit.Receive(t, 10*time.Second, c.stopped, "the manager stops"), "run")
}

// hold takes that many locks, each for a client of its own. Their requests come
// in the buffers of connections, which others use afterwards.
func (c *crowd) hold(t testing.TB, from, to int) {
	for i := from; i < to; i++ {
		req := locks.AcquireRequest{Lock: strings.Clone(fmt.Sprintf("many-%06d", i)), Owner: strings.Clone("bench"), TTL: time.Hour}
		res, err := c.m.Acquire(context.Background(), req)
		assert.Must(t, err == nil && res.Lease.State == locks.Held, "acquire: %+v %v", res, err)
	}
}

// live is the heap that is in use once the garbage is gone.
func live() uint64 {
	runtime.GC()
	runtime.GC() // what sync.Pools held goes with the second
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// bytesPerLease is what one held lease, on a lock of its own, keeps alive in the manager and the replica.
func bytesPerLease(t testing.TB, leases int, early bool) float64 {
	c := newCrowd(t, early)
	defer c.stop(t)
	before := live()
	c.hold(t, 0, leases)
	after := live()
	runtime.KeepAlive(c)
	return float64(after-before) / float64(leases)
}

// BenchmarkHeldLeases reports the live heap of 40,000 held leases. Where it is: go test -bench HeldLeases -benchtime
// 1x -memprofile m -memprofilerate 512, then go tool pprof -sample_index=inuse_space.
func BenchmarkHeldLeases(b *testing.B) {
	for _, early := range []bool{false, true} {
		b.Run(fmt.Sprintf("replyFirst=%v", early), func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(bytesPerLease(b, 40_000, early), "B/lease")
			}
		})
	}
}

// maxBytesPerLease bounds what a held lease on a lock of its own keeps alive, in the manager and the replica together:
// 546 bytes.
const maxBytesPerLease = 560

func TestAHeldLeaseTakesLittleMemory(t *testing.T) {
	testkit.NotShort(t, "40,000 leases")
	testkit.NoLeaks(t)
	for _, early := range []bool{false, true} {
		if bytes := bytesPerLease(t, 20_000, early); bytes > maxBytesPerLease {
			t.Errorf("%.0f bytes, more than %d (the reply before the event: %v)", bytes, maxBytesPerLease, early)
		}
	}
}
