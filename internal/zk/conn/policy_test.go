package conn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// Every row of the policy is met for real: the error is produced by ZooKeeper or by the network, at a first and at a
// later attempt, and what comes of it is what the row says. Package session meets the rows about writes, package
// observer those about watches.
func TestEveryRowOfThePolicy(t *testing.T) {
	meet := map[Request]func(*testing.T, Rule, fixture.Try){
		ReqCreate: meetCreate, ReqGet: meetRead, ReqList: meetRead, ReqExists: meetRead, ReqConnect: meetConnecting, ReqAuth: meetAuth,
	}
	elsewhere := []Request{ReqDelete, ReqSet, ReqCheck, ReqGuard, ReqMulti, ReqAddWatch}
	for _, row := range Policy() {
		assert.That(t, meet[row.Request] != nil || slices.Contains(elsewhere, row.Request),
			"row %d, %v: no test meets it", row.Request, row.Err)
		for attempt, want := range map[int]Class{1: row.First, 2: row.Later} {
			if got := Classify(row.Request, fmt.Errorf("wrapped: %w", row.Err), attempt); got != want {
				t.Errorf("row %d, %v, attempt %d: judged %d, want %d (%s)", row.Request, row.Err, attempt, got, want, row.Why)
			}
		}
		if meet[row.Request] == nil {
			continue
		}
		for _, how := range fixture.Tries {
			t.Run(fmt.Sprintf("%d %v %s", row.Request, row.Err, how), func(t *testing.T) {
				t.Parallel()
				meet[row.Request](t, row, how)
			})
		}
	}
	assert.That(t, Classify(ReqGet, errors.New("something else"), 1) == IsAnswer, "an error without a row is not an answer")
}

// dialed is a connection of ours that ends with the test.
func dialed(t *testing.T, cfg zk.Config) *Conn {
	t.Helper()
	cfg = assert.Value(cfg.WithDefaults())(t)
	c := assert.Value(Open(fixture.Context(t), &cfg, func() {}))(t, "connecting")
	t.Cleanup(func() {
		c.End(errTestOver)
		fixture.Await(t, c.closed)
	})
	return c
}

// meetCreate creates through the retry that the layout uses.
func meetCreate(t *testing.T, row Rule, how fixture.Try) {
	direct, through, proxy := fixture.Faulty(t)
	p := fixture.NewProbe(t, direct)
	c := dialed(t, through)
	path, want := "/a", error(nil)
	switch row.Err {
	case zk.ErrUnavailable:
		if how == fixture.First {
			how = fixture.AfterFailed
		}
	case zk.ErrNodeExists:
		switch how {
		case fixture.First:
			p.Create("/a", "another's")
			want = zk.ErrNodeExists
		case fixture.AfterFailed: // lost, and meanwhile another program's is there
			p.Create("/a", "another's")
		}
	case zk.ErrNoNode:
		path, want = "/b/c", zk.ErrNoNode
	case zk.ErrNoAuth:
		assert.NoError(t, p.TryCreate("/b", "", gozk.WorldACL(gozk.PermRead)))
		path, want = "/b/c", zk.ErrNoAuth
	case zk.ErrSessionGone:
		c, want = expired(t, through), zk.ErrSessionGone
	}
	how.Lose(proxy, netfault.IsOp(netfault.OpCreate))
	err := c.Retry(fixture.Context(t), ReqCreate, func(ctx context.Context) error {
		return c.Create(ctx, c.cfg, path, []byte("ours"), OpenToAll)
	}, func(ctx context.Context) (bool, error) {
		stat, err := c.Exists(ctx, path)
		return stat != nil, err
	})
	assert.That(t, errors.Is(err, want), "creating: %v, want %v", err, want)
	assert.That(t, want != nil || p.Stat(path) != nil, "it is not there")
}

// expired is a conn whose session is gone.
func expired(t *testing.T, cfg zk.Config) *Conn {
	var a fixture.Assassin
	cfg.Dial = a.Dial
	c := dialed(t, cfg)
	a.Strike(t)
	fixture.Await(t, c.Over())
	return c
}

func meetRead(t *testing.T, row Rule, how fixture.Try) {
	direct, through, proxy := fixture.Faulty(t)
	p := fixture.NewProbe(t, direct)
	c := dialed(t, through)
	var want error
	p.Create("/a", "")
	path := "/a"
	switch row.Err {
	case zk.ErrUnavailable:
		if how == fixture.First {
			how = fixture.AfterFailed
		}
	case zk.ErrNoNode:
		path, want = "/b", zk.ErrNoNode
	case zk.ErrNoAuth:
		want = zk.ErrNoAuth
		p.SetACL(path, gozk.WorldACL(gozk.PermWrite))
	case zk.ErrSessionGone:
		c, want = expired(t, through), zk.ErrSessionGone
	}
	var tries atomic.Int32
	reads := netfault.IsOp(netfault.OpGetData, netfault.OpGetChildren2, netfault.OpExists)
	how.Lose(proxy, reads)
	err := c.Retry(fixture.Context(t), row.Request, func(ctx context.Context) (err error) {
		tries.Add(1)
		switch row.Request {
		case ReqGet:
			_, _, err = c.Get(ctx, path)
		case ReqList:
			_, _, err = c.Children(ctx, path)
		default:
			_, err = c.Exists(ctx, path)
		}
		return err
	}, nil)
	assert.That(t, errors.Is(err, want), "reading: %v, want %v", err, want)
	wantTries := int32(1)
	if how != fixture.First && row.Err != zk.ErrSessionGone {
		wantTries = 2
	}
	assert.Equal(t, tries.Load(), wantTries, "it was tried")
}

func meetConnecting(t *testing.T, row Rule, how fixture.Try) {
	_, through, proxy := fixture.Faulty(t)
	if row.Err == zk.ErrSessionGone {
		assert.ErrorIs(t, expired(t, through).Err(), zk.ErrSessionGone, "the end")
		return
	}
	how.Lose(proxy, netfault.IsOp(netfault.OpConnect))
	dialed(t, through)
}

func meetAuth(t *testing.T, row Rule, how fixture.Try) {
	if row.Err == zk.ErrUnavailable {
		_, through, proxy := fixture.Faulty(t)
		through.Auth = &zk.DigestAuth{User: "fleet", Password: "secret"}
		how.Lose(proxy, netfault.IsOp(netfault.OpAuth))
		c := dialed(t, through)
		// The later connection has the credentials: without them it may not read what it has created.
		err := c.Retry(fixture.Context(t), ReqCreate, func(ctx context.Context) error {
			return c.Create(ctx, c.cfg, "/private", nil, Private)
		}, func(ctx context.Context) (bool, error) {
			stat, err := c.Exists(ctx, "/private")
			return stat != nil, err
		})
		if err == nil {
			err = c.Retry(fixture.Context(t), ReqGet, func(ctx context.Context) error {
				_, _, err := c.Get(ctx, "/private")
				return err
			}, nil)
		}
		assert.Nil(t, err)
		return
	}
	var connections atomic.Int32
	addr := fixture.Script(t, func(conn net.Conn) {
		t.Cleanup(func() { _ = conn.Close() })
		if fixture.Handshake(conn) != nil {
			return
		}
		if connections.Add(1) == 1 && how != fixture.First {
			_ = conn.Close() // lost; whether it was executed makes no difference
			return
		}
		_, _ = conn.Write(fixture.AuthRefusal())
	})
	cfg := assert.Value(zk.Config{Servers: []string{addr}, Auth: &zk.DigestAuth{User: "u", Password: "p"}}.WithDefaults())(t)
	c, err := Open(fixture.Context(t), &cfg, func() {})
	if err == nil {
		fixture.Await(t, c.Over())
		err = c.Err()
		fixture.Await(t, c.closed)
	}
	fixture.MustBeFatal(t, "connecting", err, zk.KindAuth)
	assert.That(t, errors.Is(err, wire.ErrAuthFailed), "%v does not tell why", err)
}

var errTestOver = fmt.Errorf("%w: the test is over", zk.ErrSessionGone)

func TestEventsThatComeBeforeTheConstructorReturnsAreNotDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := assert.Value(zk.Config{Servers: []string{"127.0.0.1:1"}}.WithDefaults())(t)
		c := newConn(&cfg, func() {})
		defer c.cancel()
		handled := false
		go func() {
			c.event(gozk.Event{Type: gozk.EventSession, State: gozk.StateExpired}) // on the library's goroutine, which may be quicker than Connect
			handled = true
		}()
		synctest.Wait()
		assert.Must(t, !handled && c.Err() == nil, "the event was handled, or dropped, before there was anything to close")
		lib, events, err := gozk.Connect(cfg.Servers, time.Second, gozk.WithLogger(libLogger{cfg.Logger}),
			gozk.WithDialer(func(string, string, time.Duration) (net.Conn, error) {
				time.Sleep(time.Millisecond)
				return nil, io.EOF
			}))
		assert.NoError(t, err)
		c.attach(lib)
		for range events { // ends only when the library has been closed
		}
		assert.That(t, errors.Is(c.Err(), zk.ErrSessionGone), "the session's end is %v, want ErrSessionGone", c.Err())
	})
}

func TestAnImpossibleFrameEndsTheConnectionAndNotTheProcess(t *testing.T) {
	for name, frame := range map[string][]byte{
		"negative":  {0xff, 0xff, 0xff, 0xff},
		"too short": {0, 0, 0, 3},
		"too long":  {0x7f, 0xff, 0xff, 0xff},
	} {
		t.Run(name, func(t *testing.T) {
			connections := make(chan struct{}, 100)
			addr := fixture.Script(t, func(conn net.Conn) {
				t.Cleanup(func() { _ = conn.Close() })
				select {
				case connections <- struct{}{}:
				default:
				}
				if fixture.Handshake(conn) == nil {
					_, _ = conn.Write(append(frame, make([]byte, 100)...))
				}
			})
			cfg := assert.Value(zk.Config{Servers: []string{addr}}.WithDefaults())(t)
			c := assert.Value(Open(fixture.Context(t), &cfg, func() {}))(t)
			fixture.Await(t, connections)
			fixture.Await(t, connections) // it has hung up and tries again
			c.End(errTestOver)
			fixture.Await(t, c.closed)
		})
	}
}

// TestMain ends the shared ZooKeeper and refuses tests that leave goroutines
// behind. zkreal ends its own with the server.
func TestMain(m *testing.M) {
	embeddedtest.StandIn()
	os.Exit(testkit.Run(zkreal.Wrap(m)))
}
