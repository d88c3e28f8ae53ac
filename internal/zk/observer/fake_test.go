package observer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// fakeZK stands in for the servers of an ensemble: it hands out net.Pipes and
// answers from a small tree, unless a test takes a request into its own hands.
type fakeZK struct {
	t testing.TB

	mu      sync.Mutex
	tree    map[string][]string // directory to children; a leaf is absent
	stats   map[string]wire.Stat
	zxid    int64
	timeout int32 // granted, in ms
	dials   []string
	refuse  map[string]bool // servers that do not answer the dial
	hellos  []wire.ConnectRequest
	conns   []*fakeConn
	// intercept may take a request into its own hands (true).
	intercept func(c *fakeConn, r fakeRequest) bool
	// admit may refuse a session.
	admit func(server string, hello wire.ConnectRequest) bool
}

type fakeRequest struct {
	xid  int32
	op   wire.Op
	path string
	auth string
}

func (r fakeRequest) String() string { return fmt.Sprintf("%d %s", r.op, cmp.Or(r.path, r.auth)) }

// fakeConn is the server's end of one connection.
type fakeConn struct {
	zk     *fakeZK
	nc     net.Conn
	server string
	log    []string // requests, without pings
	pings  int
	closed bool // the client has said goodbye
	silent bool // answers nothing any more
}

func newFakeZK(t testing.TB) *fakeZK {
	return &fakeZK{
		t:       t,
		zxid:    100,
		timeout: 9_000,
		tree:    map[string][]string{"/locks": {"a"}, "/locks/a": {"x"}},
		stats:   make(map[string]wire.Stat),
		refuse:  make(map[string]bool),
	}
}

func (z *fakeZK) dial(_ context.Context, _, server string) (net.Conn, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.dials = append(z.dials, server)
	if z.refuse[server] {
		return nil, errors.New("connection refused")
	}
	client, nc := net.Pipe()
	c := &fakeConn{zk: z, nc: nc, server: server}
	go c.serve()
	return client, nil
}

// serve answers one connection until it ends.
func (c *fakeConn) serve() {
	defer c.nc.Close()
	frames := wire.NewFrameReader(c.nc, 1<<20)
	frame, err := frames.Next()
	if err != nil {
		return
	}
	var hello wire.ConnectRequest
	hello.Decode(wire.NewDecoder(frame))
	c.zk.mu.Lock()
	c.zk.hellos = append(c.zk.hellos, hello)
	admit, timeout := c.zk.admit, c.zk.timeout
	c.zk.mu.Unlock()
	if admit != nil && !admit(c.server, hello) {
		return
	}
	c.zk.mu.Lock()
	c.zk.conns = append(c.zk.conns, c)
	id := int64(len(c.zk.conns))
	c.zk.mu.Unlock()
	c.write(wire.AppendFrame(nil, &wire.ConnectReply{TimeoutMs: timeout, SessionID: id, Passwd: make([]byte, 16), HasReadOnly: true}))
	for {
		frame, err := frames.Next()
		if err != nil {
			assert.That(c.zk.t, err == io.EOF || errors.Is(err, io.ErrClosedPipe), "fake server: %v", err)
			return
		}
		c.handle(frame)
	}
}

func (c *fakeConn) handle(frame []byte) {
	d := wire.NewDecoder(frame)
	var h wire.RequestHeader
	h.Decode(d)
	r := fakeRequest{xid: h.Xid, op: h.Op}
	switch h.Op {
	case wire.OpAddWatch:
		var a wire.AddWatchRequest
		a.Decode(d)
		r.path = a.Path
		assert.Equal(c.zk.t, a.Mode, wire.WatchRecursive, "watch mode")
	case wire.OpGetChildren2, wire.OpGetData:
		var a wire.ReadRequest
		a.Decode(d)
		r.path = a.Path
		assert.That(c.zk.t, !a.Watch, "%v leaves a watch", r)
	case wire.OpSync:
		var a wire.PathRecord
		a.Decode(d)
		r.path = a.Path
	case wire.OpAuth:
		var a wire.AuthRequest
		a.Decode(d)
		r.auth = a.Scheme + " " + string(a.Auth)
	}
	assert.Nil(c.zk.t, d.Finish(), "request %v", r)
	c.zk.mu.Lock()
	if h.Op == wire.OpPing {
		c.pings++
	} else {
		c.log = append(c.log, r.String())
	}
	c.closed = c.closed || h.Op == wire.OpCloseSession
	intercept, silent := c.zk.intercept, c.silent
	c.zk.mu.Unlock()
	if silent || intercept != nil && intercept(c, r) {
		return
	}
	c.write(c.answer(r))
}

// answer is the frame that answers a request from the tree.
func (c *fakeConn) answer(r fakeRequest) []byte {
	c.zk.mu.Lock()
	defer c.zk.mu.Unlock()
	h := &wire.ReplyHeader{Xid: r.xid, Zxid: c.zk.zxid}
	switch r.op {
	case wire.OpAuth:
		h.Zxid = 0
		return wire.AppendFrame(nil, h)
	case wire.OpAddWatch:
		return wire.AppendFrame(nil, h, &wire.IntReply{})
	case wire.OpSync:
		return wire.AppendFrame(nil, h, &wire.PathRecord{Path: r.path})
	case wire.OpGetData:
		return wire.AppendFrame(nil, h, &wire.DataReply{Data: []byte("data of " + r.path), Stat: c.zk.stats[r.path]})
	case wire.OpGetChildren2:
		children, ok := c.zk.tree[r.path]
		if !ok {
			h.Err = wire.ErrNoNode
			return wire.AppendFrame(nil, h)
		}
		stat := c.zk.stats[r.path]
		stat.NumChildren = int32(len(children))
		if stat.Cversion == 0 {
			stat.Cversion = stat.NumChildren
		}
		stat.Czxid = max(stat.Czxid, 1)
		return wire.AppendFrame(nil, h, &wire.Children2Reply{Children: children, Stat: stat})
	}
	return wire.AppendFrame(nil, h) // ping, close
}

// write sends frames; one call arrives as one burst, if it is below 64 KiB.
func (c *fakeConn) write(frames []byte) { c.nc.Write(frames) }

// event is the frame of a watch event.
func event(t wire.EventType, path string) []byte {
	return wire.AppendFrame(nil, &wire.ReplyHeader{Xid: wire.XidWatcherEvent, Zxid: -1}, &wire.WatcherEvent{Type: t, State: wire.StateSyncConnected, Path: path})
}

// reply is the frame of a reply.
func reply(xid int32, zxid int64, err wire.ErrCode, body ...wire.Record) []byte {
	return wire.AppendFrame(nil, append([]wire.Record{&wire.ReplyHeader{Xid: xid, Zxid: zxid, Err: err}}, body...)...)
}

func children(czxid int64, names ...string) *wire.Children2Reply {
	n := int32(len(names))
	return &wire.Children2Reply{Children: names, Stat: wire.Stat{Czxid: czxid, Cversion: n, NumChildren: n}}
}

// set changes the fake's world.
func (z *fakeZK) set(f func()) {
	z.mu.Lock()
	defer z.mu.Unlock()
	f()
}

// conn is the n-th connection (from 0) that got a session.
func (z *fakeZK) conn(n int) *fakeConn {
	z.t.Helper()
	z.mu.Lock()
	defer z.mu.Unlock()
	assert.Must(z.t, n < len(z.conns), "there are only %d connections", len(z.conns))
	return z.conns[n]
}

func (z *fakeZK) sessions() int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return len(z.conns)
}

func (c *fakeConn) requests() []string {
	c.zk.mu.Lock()
	defer c.zk.mu.Unlock()
	return slices.Clone(c.log)
}

// stage is a fake ZooKeeper with an observer on it, in virtual time.
type stage struct {
	*testing.T
	zk     *fakeZK
	m      *mirror
	o      *Observer
	cfg    zk.Config
	roots  []zk.WatchRoot
	writer func() int64
	cancel context.CancelFunc
	ended  chan error
	over   bool
}

// play runs a script in virtual time. setUp may change the stage before the observer starts.
func play(t *testing.T, setUp func(s *stage), script func(s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{T: t, zk: newFakeZK(t), m: newMirror(), roots: []zk.WatchRoot{locksRoot}, ended: make(chan error, 1)}
		s.cfg = zk.Config{
			Servers:        []string{"one:1"},
			SessionTimeout: 9 * time.Second,
			PromiseWindow:  6 * time.Second,
			Dial:           s.zk.dial,
			Clock:          zk.NewGoClock(),
		}
		if setUp != nil {
			setUp(s)
		}
		s.o = New(s.cfg, s.roots, s.m, s.writer)
		ctx, cancel := context.WithCancel(context.Background())
		s.cancel = cancel
		go func() { s.ended <- s.o.Run(ctx) }()
		synctest.Wait()
		script(s)
		s.finish()
		s.m.checkAll(t)
	})
}

// finish ends Run, which must return nil.
func (s *stage) finish() {
	s.Helper()
	if s.over {
		return
	}
	s.over = true
	s.cancel()
	assert.Nil(s, <-s.ended, "Run")
}

// pass lets virtual time go by and everything come to rest.
func (s *stage) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// expectTail checks the last lines that the sink was told.
func (s *stage) expectTail(want ...string) {
	s.Helper()
	got := s.m.lines()
	if len(got) < len(want) || !slices.Equal(got[len(got)-len(want):], want) {
		s.Fatalf("the sink was told\n%s\nand should have been told last\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// setTree replaces the fake's tree, given as "a: x y" lines below /locks.
func (z *fakeZK) setTree(zxid int64, dirs map[string][]string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.zxid = zxid
	z.tree = map[string][]string{"/locks": slices.Sorted(maps.Keys(dirs))}
	for dir, nodes := range dirs {
		z.tree["/locks/"+dir] = nodes
	}
}

// TestMain ends the shared ZooKeeper and refuses tests that leave goroutines
// behind. zkreal ends its own with the server.
func TestMain(m *testing.M) {
	embeddedtest.StandIn()
	os.Exit(testkit.Run(zkreal.Wrap(m)))
}
