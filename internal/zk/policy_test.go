package zk

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/zk/wire"
)

// try says how a row is met: at the first attempt, or after an attempt that
// was lost on the way there (failed) or on the way back (failed but persisted).
type try string

const (
	first          try = "first"
	afterFailed    try = "after one that failed"
	afterPersisted try = "after one that failed but persisted"
)

// lose makes the next matching request fail in the way of the try.
func (how try) lose(proxy *netfault.Proxy, match func(netfault.Frame) bool) {
	switch how {
	case afterFailed:
		proxy.FailRequest(1, match)
	case afterPersisted:
		proxy.FailReply(1, match)
	}
}

// Every row of the policy is met for real: the error is produced by ZooKeeper
// or by the network, at a first and at a later attempt, and what comes of it
// is what the row says.
func TestEveryRowOfThePolicy(t *testing.T) {
	for _, row := range policy() {
		meet, ok := map[reqKind]func(*testing.T, rule, try){
			reqCreate: meetCreate, reqDelete: meetInWrite, reqSet: meetInWrite, reqCheck: meetInWrite,
			reqGuard: meetGuard, reqMulti: meetRegistering, reqGet: meetRead, reqList: meetRead, reqExists: meetRead,
			reqConnect: meetConnecting, reqAuth: meetAuth, reqAddWatch: meetAddWatch,
		}[row.request]
		if !ok {
			t.Errorf("row %d, %v: nobody tests it", row.request, row.err)
			continue
		}
		for _, how := range []try{first, afterFailed, afterPersisted} {
			t.Run(fmt.Sprintf("%d %v %s", row.request, row.err, how), func(t *testing.T) {
				t.Parallel()
				attempt, want := 1, row.first
				if how != first {
					attempt, want = 2, row.later
				}
				if got := judge(row.request, fmt.Errorf("wrapped: %w", row.err), attempt); got != want {
					t.Errorf("judged %d, want %d (%s)", got, want, row.why)
				}
				meet(t, row, how)
			})
		}
	}
	if judge(reqGet, errors.New("something else"), 1) != itsAnswer {
		t.Error("an error without a row is not an answer")
	}
}

// meetCreate creates through the retry that the layout uses.
func meetCreate(t *testing.T, row rule, how try) {
	direct, through, proxy := faulty(t)
	p := newProbe(t, direct)
	c := newProbe(t, through).c
	path, want := "/a", error(nil)
	switch row.err {
	case ErrUnavailable:
		if how == first {
			how = afterFailed
		}
	case ErrNodeExists:
		switch how {
		case first:
			p.create("/a", "somebody's")
			want = ErrNodeExists
		case afterFailed: // lost, and meanwhile somebody else's is there
			p.create("/a", "somebody's")
		}
	case ErrNoNode:
		path, want = "/b/c", ErrNoNode
	case ErrNoAuth:
		if _, err := p.c.lib.Create(p.c.cfg.full("/b"), nil, 0, gozk.WorldACL(gozk.PermRead)); err != nil {
			t.Fatal(err)
		}
		path, want = "/b/c", ErrNoAuth
	case ErrSessionGone:
		c, want = expired(t, through), ErrSessionGone
	}
	how.lose(proxy, netfault.IsOp(netfault.OpCreate))
	err := c.retry(testContext(t), reqCreate, func(ctx context.Context) error {
		return c.create(ctx, c.cfg, path, []byte("ours"), open)
	}, func(ctx context.Context) (bool, error) {
		stat, err := c.exists(ctx, path)
		return stat != nil, err
	})
	if !errors.Is(err, want) {
		t.Errorf("creating: %v, want %v", err, want)
	}
	if want == nil && p.stat(path) == nil {
		t.Error("it is not there")
	}
}

// assassin ends the session of the connection that it dialed, as an expiry
// does, without the wait: it sends the request to close it.
type assassin struct {
	mu   sync.Mutex
	conn net.Conn
}

func (a *assassin) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := dialAnyAddress(ctx, network, addr)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conn = conn
	return conn, err
}

func (a *assassin) strike(t *testing.T) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	const xid = 1 << 30
	frame := wire.BeginFrame(nil)
	frame = wire.AppendInt(frame, xid)
	frame = wire.AppendInt(frame, int32(wire.OpCloseSession))
	if _, err := a.conn.Write(wire.EndFrame(frame, 0)); err != nil {
		t.Fatal(err)
	}
}

// expired is a conn whose session is gone.
func expired(t *testing.T, cfg Config) *conn {
	var a assassin
	cfg.Dial = a.dial
	c := newProbe(t, cfg).c
	a.strike(t)
	await(t, c.over)
	return c
}

// meetInWrite makes an operation of a Write fail. What was lost before is a
// transaction that would have been refused, or was refused, just the same.
func meetInWrite(t *testing.T, row rule, how try) {
	direct, through, proxy := faulty(t)
	layout := openLayout(t, direct)
	p := newProbe(t, direct)
	dir := locksDir(t, p, "l")
	s := openSession(t, through, layout, 1)
	op := Op{Kind: OpDelete, Path: dir + "/n"}
	switch row.request {
	case reqSet:
		op.Kind = OpSetData
	case reqCheck:
		op.Kind = OpCheck
	}
	if row.err != ErrNoNode {
		p.create(op.Path, "")
	}
	switch row.err {
	case ErrBadVersion:
		op.Version = 7
	case ErrNotEmpty:
		p.create(op.Path+"/child", "")
	case ErrNoAuth:
		guarded := op.Path
		if row.request == reqDelete {
			guarded = dir
		}
		if _, err := p.c.lib.SetACL(p.c.cfg.full(guarded), gozk.WorldACL(gozk.PermRead), -1); err != nil {
			t.Fatal(err)
		}
	}
	if how != first {
		how.lose(proxy, about("/n"))
		if r := write(t, s, op); r.Outcome != NotDone || !errors.Is(r.Err, ErrNotApplied) {
			t.Fatalf("lost: %+v, want NotDone(ErrNotApplied)", r)
		}
	}
	r := write(t, s, op)
	want := NotDone
	if row.first == decideAgain {
		want = Redecide
	}
	if r.Outcome != want || !errors.Is(r.Err, row.err) {
		t.Errorf("%+v, want outcome %d with %v", r, want, row.err)
	}
}

// meetGuard makes the guarding operations fail.
func meetGuard(t *testing.T, row rule, how try) {
	direct, through, proxy := faulty(t)
	auth := &DigestAuth{User: "fleet", Password: "secret"}
	direct.Auth, through.Auth = auth, auth
	layout := openLayout(t, direct)
	p := newProbe(t, direct)
	dir := locksDir(t, p, "l")
	var a assassin
	through.Dial = a.dial
	s := openSession(t, through, layout, 1)
	switch row.err {
	case ErrNoNode:
		p.delete(s.registration)
	case ErrBadVersion:
		p.set(s.registration, "meddled")
	case ErrNoAuth:
		for _, path := range []string{s.registration, s.guard} {
			if _, err := p.c.lib.SetACL(p.c.cfg.full(path), gozk.WorldACL(gozk.PermRead), -1); err != nil {
				t.Fatal(err)
			}
		}
	case ErrSessionGone:
		a.strike(t)
	}
	how.lose(proxy, about("/n"))
	result := make(chan Result, 1)
	err := s.Submit(&Write{Ops: []Op{{Kind: OpCreate, Path: dir + "/n"}}, Done: func(r Result) { result <- r }})
	if row.err == ErrBadVersion {
		r := await(t, result)
		if how == first && r.Outcome != Done || how != first && (r.Outcome != NotDone || !errors.Is(r.Err, ErrNotApplied)) {
			t.Errorf("%+v", r)
		}
		mustBeDone(t, write(t, s, Op{Kind: OpCreate, Path: dir + "/m"}))
		return
	}
	if err == nil {
		if r := await(t, result); r.Outcome == Done {
			t.Errorf("%+v", r)
		}
	}
	await(t, s.Done())
	switch {
	case row.err == ErrNoNode && !errors.Is(s.Err(), ErrDeposed), row.err == ErrSessionGone && !errors.Is(s.Err(), ErrSessionGone):
		t.Errorf("the session's end is %v", s.Err())
	case row.err == ErrNoAuth:
		mustBeFatal(t, "writing", s.Err(), KindAuth)
	}
	if p.stat(dir+"/n") != nil {
		t.Error("it was created")
	}
}

// meetRegistering meets the errors of a transaction as a whole where one is
// repeated: when the gateway registers.
func meetRegistering(t *testing.T, row rule, how try) {
	direct, through, proxy := faulty(t)
	auth := &DigestAuth{User: "fleet", Password: "secret"}
	direct.Auth, through.Auth = auth, auth
	layout := openLayout(t, direct)
	p := newProbe(t, direct)
	id := gatewayID(1)
	want := row.err
	switch row.err {
	case ErrUnavailable:
		if how == first {
			how = afterFailed
		}
		want = nil
	case ErrNodeExists:
		if how == afterPersisted {
			want = nil // it is our own
		} else {
			p.create(DefaultRoot+"/gateways/"+id, "somebody's")
		}
	case ErrBadVersion:
		p.set(DefaultRoot+NodeFenceBase, "0")
	case ErrNoNode:
		p.delete(DefaultRoot + "/guards")
	case ErrNoAuth:
		through.Auth = nil
	case ErrSessionGone:
		c := expired(t, through)
		s := &Session{cfg: c.cfg, conn: c, registration: DefaultRoot + "/gateways/" + id, guard: DefaultRoot + "/guards/" + id}
		how.lose(proxy, about("/gateways/"))
		if _, err := s.register(testContext(t), layout); !errors.Is(err, ErrSessionGone) {
			t.Errorf("registering: %v, want ErrSessionGone", err)
		}
		return
	}
	how.lose(proxy, about("/gateways/"))
	s, err := OpenSession(testContext(t), through, layout, id, nil)
	if err == nil {
		t.Cleanup(func() { closeSession(t, s) })
	}
	if !errors.Is(err, want) {
		t.Errorf("registering: %v, want %v", err, want)
	}
	if there := p.stat(DefaultRoot+"/guards/"+id) != nil; there != (want == nil) {
		t.Errorf("the guard is there: %v", there)
	}
	if row.err == ErrNoAuth {
		mustBeFatal(t, "registering", err, KindAuth)
	}
}

func meetRead(t *testing.T, row rule, how try) {
	direct, through, proxy := faulty(t)
	p := newProbe(t, direct)
	c := newProbe(t, through).c
	var want error
	p.create("/a", "")
	path := "/a"
	switch row.err {
	case ErrUnavailable:
		if how == first {
			how = afterFailed
		}
	case ErrNoNode:
		path, want = "/b", ErrNoNode
	case ErrNoAuth:
		want = ErrNoAuth
		if _, err := p.c.lib.SetACL(p.c.cfg.full(path), gozk.WorldACL(gozk.PermWrite), -1); err != nil {
			t.Fatal(err)
		}
	case ErrSessionGone:
		c, want = expired(t, through), ErrSessionGone
	}
	var tries atomic.Int32
	reads := netfault.IsOp(netfault.OpGetData, netfault.OpGetChildren2, netfault.OpExists)
	how.lose(proxy, reads)
	err := c.retry(testContext(t), row.request, func(ctx context.Context) (err error) {
		tries.Add(1)
		switch row.request {
		case reqGet:
			_, _, err = c.get(ctx, path)
		case reqList:
			_, _, err = c.list(ctx, path)
		default:
			_, err = c.exists(ctx, path)
		}
		return err
	}, nil)
	if !errors.Is(err, want) {
		t.Errorf("reading: %v, want %v", err, want)
	}
	wantTries := int32(1)
	if how != first && row.err != ErrSessionGone {
		wantTries = 2
	}
	if got := tries.Load(); got != wantTries {
		t.Errorf("it was tried %d times, want %d", got, wantTries)
	}
}

func meetConnecting(t *testing.T, row rule, how try) {
	direct, through, proxy := faulty(t)
	if row.err == ErrSessionGone {
		if err := expired(t, through).endErr(); !errors.Is(err, ErrSessionGone) {
			t.Errorf("the end is %v", err)
		}
		return
	}
	newProbe(t, direct)
	how.lose(proxy, netfault.IsOp(netfault.OpConnect))
	newProbe(t, through)
}

func meetAuth(t *testing.T, row rule, how try) {
	if row.err == ErrUnavailable {
		_, through, proxy := faulty(t)
		through.Auth = &DigestAuth{User: "fleet", Password: "secret"}
		how.lose(proxy, netfault.IsOp(netfault.OpAuth))
		s := openSession(t, through, openLayout(t, through), 1)
		if _, _, err := s.Get(testContext(t), DefaultRoot+NodeSecret); err != nil {
			t.Error(err)
		}
		return
	}
	var connections atomic.Int32
	addr := script(t, func(conn net.Conn) {
		t.Cleanup(func() { _ = conn.Close() })
		if handshake(conn) != nil {
			return
		}
		if connections.Add(1) == 1 && how != first {
			_ = conn.Close() // lost; whether it was executed makes no difference
			return
		}
		_, _ = conn.Write(authRefusal())
	})
	cfg, err := Config{Servers: []string{addr}, Auth: &DigestAuth{User: "u", Password: "p"}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	c, err := connect(testContext(t), &cfg, func() {})
	if err == nil {
		await(t, c.over)
		err = c.endErr()
		await(t, c.closed)
	}
	mustBeFatal(t, "connecting", err, KindAuth)
	if !errors.Is(err, wire.ErrAuthFailed) {
		t.Errorf("%v does not tell why", err)
	}
}

// authRefusal is a server's no to an auth request.
func authRefusal() []byte { return reply(wire.XidAuth, 0, wire.ErrAuthFailed) }

func meetAddWatch(t *testing.T, row rule, how try) {
	if row.err == ErrUnavailable {
		direct, through, proxy := faulty(t)
		newProbe(t, direct).create("/a", "")
		how.lose(proxy, netfault.IsOp(netfault.OpAddWatch))
		m := newMirror()
		startObserver(t, through, m, func() int64 { return 0 }, WatchRoot{"/a", 1})
		m.awaitSynced(t, 1)
		return
	}
	lost := how == first
	play(t, func(s *stage) {
		s.zk.intercept = func(c *fakeConn, r fakeRequest) bool {
			if r.op != wire.OpAddWatch {
				return false
			}
			if !lost {
				lost = true
				_ = c.nc.Close()
				return true
			}
			c.write(reply(r.xid, 100, wire.ErrUnimplemented))
			return true
		}
	}, func(s *stage) {
		s.over = true
		mustBeFatal(t, "watching", <-s.ended, KindServerTooOld)
	})
}
