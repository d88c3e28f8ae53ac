package zk

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"

	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/zk/wire"
)

// Every row of the policy is met for real: the error is produced by ZooKeeper
// or by the network, at a first and at a later attempt, and what comes of it
// is what the row says. Package session meets the rows about writes, package
// observer those about watches.
func TestEveryRowOfThePolicy(t *testing.T) {
	meet := map[reqKind]func(*testing.T, rule, Try){
		reqCreate: meetCreate, reqGet: meetRead, reqList: meetRead, reqExists: meetRead, reqConnect: meetConnecting, reqAuth: meetAuth,
	}
	elsewhere := []reqKind{reqDelete, reqSet, reqCheck, reqGuard, reqMulti, reqAddWatch}
	for _, row := range policy() {
		if meet[row.request] == nil && !slices.Contains(elsewhere, row.request) {
			t.Errorf("row %d, %v: no test meets it", row.request, row.err)
		}
		for attempt, want := range map[int]verdict{1: row.first, 2: row.later} {
			if got := judge(row.request, fmt.Errorf("wrapped: %w", row.err), attempt); got != want {
				t.Errorf("row %d, %v, attempt %d: judged %d, want %d (%s)", row.request, row.err, attempt, got, want, row.why)
			}
		}
		if meet[row.request] == nil {
			continue
		}
		for _, how := range Tries {
			t.Run(fmt.Sprintf("%d %v %s", row.request, row.err, how), func(t *testing.T) {
				t.Parallel()
				meet[row.request](t, row, how)
			})
		}
	}
	if judge(reqGet, errors.New("something else"), 1) != itsAnswer {
		t.Error("an error without a row is not an answer")
	}
}

// dialed is a connection of ours that ends with the test.
func dialed(t *testing.T, cfg Config) *conn {
	t.Helper()
	cfg, err := cfg.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	c, err := connect(testContext(t), &cfg, func() {})
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	t.Cleanup(func() {
		c.end(errTestOver)
		await(t, c.closed)
	})
	return c
}

// meetCreate creates through the retry that the layout uses.
func meetCreate(t *testing.T, row rule, how Try) {
	direct, through, proxy := faulty(t)
	p := newProbe(t, direct)
	c := dialed(t, through)
	path, want := "/a", error(nil)
	switch row.err {
	case ErrUnavailable:
		if how == First {
			how = AfterFailed
		}
	case ErrNodeExists:
		switch how {
		case First:
			p.create("/a", "somebody's")
			want = ErrNodeExists
		case AfterFailed: // lost, and meanwhile somebody else's is there
			p.create("/a", "somebody's")
		}
	case ErrNoNode:
		path, want = "/b/c", ErrNoNode
	case ErrNoAuth:
		if err := p.tryCreate("/b", "", gozk.WorldACL(gozk.PermRead)); err != nil {
			t.Fatal(err)
		}
		path, want = "/b/c", ErrNoAuth
	case ErrSessionGone:
		c, want = expired(t, through), ErrSessionGone
	}
	how.Lose(proxy, netfault.IsOp(netfault.OpCreate))
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

// expired is a conn whose session is gone.
func expired(t *testing.T, cfg Config) *conn {
	var a Assassin
	cfg.Dial = a.Dial
	c := dialed(t, cfg)
	a.Strike(t)
	await(t, c.over())
	return c
}

func meetRead(t *testing.T, row rule, how Try) {
	direct, through, proxy := faulty(t)
	p := newProbe(t, direct)
	c := dialed(t, through)
	var want error
	p.create("/a", "")
	path := "/a"
	switch row.err {
	case ErrUnavailable:
		if how == First {
			how = AfterFailed
		}
	case ErrNoNode:
		path, want = "/b", ErrNoNode
	case ErrNoAuth:
		want = ErrNoAuth
		p.setACL(path, gozk.WorldACL(gozk.PermWrite))
	case ErrSessionGone:
		c, want = expired(t, through), ErrSessionGone
	}
	var tries atomic.Int32
	reads := netfault.IsOp(netfault.OpGetData, netfault.OpGetChildren2, netfault.OpExists)
	how.Lose(proxy, reads)
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
	if how != First && row.err != ErrSessionGone {
		wantTries = 2
	}
	if got := tries.Load(); got != wantTries {
		t.Errorf("it was tried %d times, want %d", got, wantTries)
	}
}

func meetConnecting(t *testing.T, row rule, how Try) {
	_, through, proxy := faulty(t)
	if row.err == ErrSessionGone {
		if err := expired(t, through).endErr(); !errors.Is(err, ErrSessionGone) {
			t.Errorf("the end is %v", err)
		}
		return
	}
	how.Lose(proxy, netfault.IsOp(netfault.OpConnect))
	dialed(t, through)
}

func meetAuth(t *testing.T, row rule, how Try) {
	if row.err == ErrUnavailable {
		_, through, proxy := faulty(t)
		through.Auth = &DigestAuth{User: "fleet", Password: "secret"}
		how.Lose(proxy, netfault.IsOp(netfault.OpAuth))
		c := dialed(t, through)
		// The later connection has the credentials: without them it may not read what it has created.
		err := c.retry(testContext(t), reqCreate, func(ctx context.Context) error {
			return c.create(ctx, c.cfg, "/private", nil, private)
		}, func(ctx context.Context) (bool, error) {
			stat, err := c.exists(ctx, "/private")
			return stat != nil, err
		})
		if err == nil {
			err = c.retry(testContext(t), reqGet, func(ctx context.Context) error {
				_, _, err := c.get(ctx, "/private")
				return err
			}, nil)
		}
		if err != nil {
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
		if connections.Add(1) == 1 && how != First {
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
		await(t, c.over())
		err = c.endErr()
		await(t, c.closed)
	}
	mustBeFatal(t, "connecting", err, KindAuth)
	if !errors.Is(err, wire.ErrAuthFailed) {
		t.Errorf("%v does not tell why", err)
	}
}
