package session

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
	zklayout "lockkeeper/internal/zk/layout"
)

func TestAServerThatAcceptsAndSaysNothingIsLeftForTheNext(t *testing.T) {
	for name, say := range map[string][]byte{"nothing": nil, "half an answer": {0, 0, 0, 37, 0, 0}} {
		t.Run(name, func(t *testing.T) {
			cfg := fixture.Config(t)
			layout := openLayout(t, cfg)
			silent := fixture.Script(t, func(conn net.Conn) {
				t.Cleanup(func() { _ = conn.Close() })
				_, _ = conn.Write(say)
			})
			cfg.Servers = []string{silent, cfg.Servers[0]}
			cfg.SessionTimeout = 3 * time.Second
			for n := range 4 { // the order is random: the silent one is first in some
				began := time.Now()
				openSession(t, cfg, layout, n)
				// The library alone would take 6.7 session timeouts.
				took := time.Since(began)
				assert.Must(t, took <= 15*time.Second, "it took %v", took)
			}
		})
	}
}

func TestConnectingGivesUpAfterABoundedNumberOfAttempts(t *testing.T) {
	attempts := make(chan struct{}, 100)
	addr := fixture.Script(t, func(conn net.Conn) {
		attempts <- struct{}{}
		_ = conn.Close()
	})
	_, err := zklayout.Open(fixture.Context(t), zk.Config{Servers: []string{addr}})
	assert.That(t, errors.Is(err, zk.ErrUnavailable) && strings.Contains(err.Error(), "attempts"),
		"the error is %v, want ErrUnavailable with the number of attempts", err)
	assert.Equal(t, len(attempts), conn.ConnectAttempts)
}

func TestConnectingEndsWithItsContext(t *testing.T) {
	addr := fixture.Script(t, func(conn net.Conn) { t.Cleanup(func() { _ = conn.Close() }) })
	ctx := fixture.Context(t)
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := zklayout.Open(short, zk.Config{Servers: []string{addr}})
	assert.That(t, errors.Is(err, zk.ErrUnavailable), "the error is %v, want ErrUnavailable", err)
	took := time.Since(began)
	assert.That(t, took <= 15*time.Second, "it took %v", took)
}

func TestAServerThatFallsSilentWhileOpeningCannotBeReached(t *testing.T) {
	direct, through, proxy := fixture.Faulty(t)
	layout := openLayout(t, direct)
	for name, open := range map[string]func(context.Context) error{
		"layout": func(ctx context.Context) error {
			proxy.HoldRequest(1, netfault.IsOp(netfault.OpGetData))
			_, err := zklayout.Open(ctx, through)
			return err
		},
		"session": func(ctx context.Context) error {
			proxy.HoldRequest(1, fixture.About("/gateways/"))
			_, err := Open(ctx, through, layout, fixture.GatewayID(1), nil)
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		assert.ErrorIs(t, open(ctx), zk.ErrUnavailable, "%s", name)
		cancel()
		proxy.Heal()
	}
}

func TestTheNegotiatedTimeoutIsKnown(t *testing.T) {
	server := zkreal.StartT(t, zkreal.WithoutFsync(), zkreal.WithSessionBounds(4*time.Second, 5*time.Second))
	cfg := zk.Config{Servers: []string{server.Addr()}, CreateRoot: true, SessionTimeout: time.Minute}
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	assert.Equal(t, s.Timeout(), 5*time.Second, "timeout")
}

func TestCredentialsTravelWithEveryConnection(t *testing.T) {
	direct, through, proxy := fixture.Faulty(t)
	through.Auth = &zk.DigestAuth{User: "fleet", Password: "right"}
	layout := openLayout(t, through)
	s := openSession(t, through, layout, 1)
	secret := zk.DefaultRoot + zk.NodeSecret
	for range 3 {
		_, _, err := s.Get(fixture.Context(t), secret)
		assert.NoError(t, err, "reading the secret")
		proxy.Reset()
		fixture.Eventually(t, "the loss is noticed and mended", func() bool {
			_, _, err := s.Get(fixture.Context(t), secret)
			return err == nil
		})
	}
	private := mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: zk.DefaultRoot + "/keys/k", Private: true}))
	other := fixture.NewProbe(t, direct)
	for _, path := range []string{secret, private.Paths[0]} {
		_, err := other.Get(path)
		assert.That(t, errors.Is(err, gozk.ErrNoAuth), "another client reads %s: %v, want ErrNoAuth", path, err)
	}
	assert.ErrorIs(t, other.TryCreate(zk.DefaultRoot+"/guards/x", "", gozk.WorldACL(gozk.PermAll)), gozk.ErrNoAuth,
		"another client creates a guard")
	other.Create(zk.DefaultRoot+"/locks/foreign", "")
}

func TestOtherClientsMayReadButNotWriteWhatIsTheFleetsAlone(t *testing.T) {
	cfg := fixture.Config(t)
	other := fixture.NewProbe(t, cfg)
	cfg.Auth = &zk.DigestAuth{User: "fleet", Password: "right"}
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	done := make(chan zk.Result, 1)
	s.Takeover(fixture.Context(t), fixture.GatewayID(9), nil, func(r zk.Result) { done <- r })
	succession := mustBeDone(t, fixture.Await(t, done)).Paths[0]
	settings := zk.DefaultRoot + "/settings/l"
	mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: settings}, zk.Op{Kind: zk.OpCreate, Path: settings + "/limit-2"}))
	for _, path := range []string{succession, settings, settings + "/limit-2", s.registration, s.guard} {
		_, err := other.Get(path)
		assert.Nil(t, err, "another client reads %s", path)
		assert.ErrorIs(t, other.TrySet(path, "mine"), gozk.ErrNoAuth, "another client writes %s", path)
	}
	dir := zk.DefaultRoot + "/locks/l"
	mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: dir}, zk.Op{Kind: zk.OpCreate, Path: dir + "/write-", Sequential: true}))
	other.Create(dir+"/foreign-0000000001", "") // queues are shared with other programs
	mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpDelete, Path: settings + "/limit-2"}, zk.Op{Kind: zk.OpDelete, Path: succession, Version: -1}))
}

func TestWrongCredentialsAreFatalWhereAnACLRefusesThem(t *testing.T) {
	cfg := fixture.Config(t)
	cfg.Auth = &zk.DigestAuth{User: "fleet", Password: "right"}
	layout := openLayout(t, cfg)
	for name, auth := range map[string]*zk.DigestAuth{"another password": {User: "fleet", Password: "wrong"}, "none": nil} {
		wrong := cfg
		wrong.Auth = auth
		_, err := zklayout.Open(fixture.Context(t), wrong)
		fixture.MustBeFatal(t, name+" opening the layout", err, zk.KindAuth)
		_, err = Open(fixture.Context(t), wrong, layout, fixture.GatewayID(1), nil)
		fixture.MustBeFatal(t, name+" opening a session", err, zk.KindAuth)
	}
}

func TestAServerThatRefusesTheCredentialsIsFatal(t *testing.T) {
	addr := fixture.Script(t, func(conn net.Conn) {
		t.Cleanup(func() { _ = conn.Close() })
		if fixture.Handshake(conn) != nil {
			return
		}
		_, _ = conn.Write(fixture.AuthRefusal())
	})
	_, err := zklayout.Open(fixture.Context(t), zk.Config{Servers: []string{addr}, Auth: &zk.DigestAuth{User: "u", Password: "p"}})
	fixture.MustBeFatal(t, "opening the layout", err, zk.KindAuth)
}

func TestEveryPathIsBelowTheChroot(t *testing.T) {
	cfg := fixture.Config(t) // has one
	layout := openLayout(t, cfg)
	s := openSession(t, cfg, layout, 1)
	made := mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: zk.DefaultRoot + "/locks/a"}))
	assert.That(t, made.Paths[0] == zk.DefaultRoot+"/locks/a", "the answer says %s", made.Paths[0])
	whole := cfg
	whole.Chroot = ""
	outside := fixture.NewProbe(t, whole)
	assert.That(t, outside.Stat(cfg.Chroot+zk.DefaultRoot+"/locks/a") != nil, "it is not below the chroot")
	assert.That(t, outside.Stat(zk.DefaultRoot) == nil, "something was made outside the chroot")
}

func TestAnotherServerTakesOverTheSession(t *testing.T) {
	direct := fixture.Config(t)
	layout := openLayout(t, direct)
	a := netfault.NewT(t, direct.Servers[0], netfault.Framed())
	b := netfault.NewT(t, direct.Servers[0], netfault.Framed())
	cfg := direct
	cfg.Servers = []string{a.Addr(), b.Addr()}
	s := openSession(t, cfg, layout, 1)
	used, other := a, b
	if b.Connections() > 0 {
		used, other = b, a
	}
	used.Cut()
	assert.Value(s.Barrier(fixture.Context(t)))(t)
	assert.That(t, other.Connections() == 1, "the session did not move")
}
