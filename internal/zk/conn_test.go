package zk

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/zkreal"
)

func TestAServerThatAcceptsAndSaysNothingIsLeftForTheNext(t *testing.T) {
	for name, say := range map[string][]byte{"nothing": nil, "half an answer": {0, 0, 0, 37, 0, 0}} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t)
			layout := openLayout(t, cfg)
			silent := script(t, func(conn net.Conn) {
				t.Cleanup(func() { _ = conn.Close() })
				_, _ = conn.Write(say)
			})
			cfg.Servers = []string{silent, cfg.Servers[0]}
			cfg.SessionTimeout = 3 * time.Second
			for n := range 4 { // the order is random: the silent one is first in some
				began := time.Now()
				openSession(t, cfg, layout, n)
				// The library alone would take 6.7 session timeouts.
				if took := time.Since(began); took > 8*time.Second {
					t.Fatalf("it took %v", took)
				}
			}
		})
	}
}

func TestConnectingGivesUpAfterABoundedNumberOfAttempts(t *testing.T) {
	attempts := make(chan struct{}, 100)
	addr := script(t, func(conn net.Conn) {
		attempts <- struct{}{}
		_ = conn.Close()
	})
	_, err := OpenLayout(testContext(t), Config{Servers: []string{addr}})
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "attempts") {
		t.Errorf("the error is %v, want ErrUnavailable with the number of attempts", err)
	}
	if got := len(attempts); got != connectAttempts {
		t.Errorf("%d attempts, want %d", got, connectAttempts)
	}
}

func TestConnectingEndsWithItsContext(t *testing.T) {
	addr := script(t, func(conn net.Conn) { t.Cleanup(func() { _ = conn.Close() }) })
	ctx := testContext(t)
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := OpenLayout(short, Config{Servers: []string{addr}}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("the error is %v, want ErrUnavailable", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestAServerThatFallsSilentWhileOpeningCannotBeReached(t *testing.T) {
	direct, through, proxy := faulty(t)
	layout := openLayout(t, direct)
	for name, open := range map[string]func(context.Context) error{
		"layout": func(ctx context.Context) error {
			proxy.HoldRequest(1, netfault.IsOp(netfault.OpGetData))
			_, err := OpenLayout(ctx, through)
			return err
		},
		"session": func(ctx context.Context) error {
			proxy.HoldRequest(1, about("/gateways/"))
			_, err := OpenSession(ctx, through, layout, gatewayID(1), nil)
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		if err := open(ctx); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", name, err)
		}
		cancel()
		proxy.Heal()
	}
}

func TestTheNegotiatedTimeoutIsKnown(t *testing.T) {
	server := zkreal.StartT(t, zkreal.WithoutFsync(), zkreal.WithSessionBounds(4*time.Second, 5*time.Second))
	cfg := Config{Servers: []string{server.Addr()}, CreateRoot: true, SessionTimeout: time.Minute}
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	if got := s.Timeout(); got != 5*time.Second {
		t.Errorf("timeout %v, want what the server allows: 5s", got)
	}
}

func TestCredentialsTravelWithEveryConnection(t *testing.T) {
	direct, through, proxy := faulty(t)
	through.Auth = &DigestAuth{User: "fleet", Password: "right"}
	layout := openLayout(t, through)
	s := openSession(t, through, layout, 1)
	secret := DefaultRoot + NodeSecret
	for range 3 {
		if _, _, err := s.Get(testContext(t), secret); err != nil {
			t.Fatalf("reading the secret: %v", err)
		}
		proxy.Reset()
		eventually(t, "the loss is noticed and mended", func() bool {
			_, _, err := s.Get(testContext(t), secret)
			return err == nil
		})
	}
	private := mustBeDone(t, write(t, s, Op{Kind: OpCreate, Path: DefaultRoot + "/keys/k", Private: true}))
	stranger := newProbe(t, direct)
	for _, path := range []string{secret, private.Paths[0]} {
		if _, err := stranger.get(path); !errors.Is(err, gozk.ErrNoAuth) {
			t.Errorf("a stranger reads %s: %v, want ErrNoAuth", path, err)
		}
	}
	if err := stranger.tryCreate(DefaultRoot+"/guards/x", "", gozk.WorldACL(gozk.PermAll)); !errors.Is(err, gozk.ErrNoAuth) {
		t.Errorf("a stranger creates a guard: %v, want ErrNoAuth", err)
	}
	stranger.create(DefaultRoot+"/locks/foreign", "")
}

func TestStrangersMayReadButNotWriteWhatIsTheFleetsAlone(t *testing.T) {
	cfg := testConfig(t)
	stranger := newProbe(t, cfg)
	cfg.Auth = &DigestAuth{User: "fleet", Password: "right"}
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	done := make(chan Result, 1)
	s.Takeover(testContext(t), gatewayID(9), nil, func(r Result) { done <- r })
	succession := mustBeDone(t, await(t, done)).Paths[0]
	settings := DefaultRoot + "/settings/l"
	mustBeDone(t, write(t, s, Op{Kind: OpCreate, Path: settings}, Op{Kind: OpCreate, Path: settings + "/limit-2"}))
	for _, path := range []string{succession, settings, settings + "/limit-2", s.registration, s.guard} {
		if _, err := stranger.get(path); err != nil {
			t.Errorf("a stranger reads %s: %v", path, err)
		}
		if err := stranger.trySet(path, "mine"); !errors.Is(err, gozk.ErrNoAuth) {
			t.Errorf("a stranger writes %s: %v, want ErrNoAuth", path, err)
		}
	}
	dir := DefaultRoot + "/locks/l"
	mustBeDone(t, write(t, s, Op{Kind: OpCreate, Path: dir}, Op{Kind: OpCreate, Path: dir + "/write-", Sequential: true}))
	stranger.create(dir+"/foreign-0000000001", "") // queues are shared with other programs
	mustBeDone(t, write(t, s, Op{Kind: OpDelete, Path: settings + "/limit-2"}, Op{Kind: OpDelete, Path: succession, Version: -1}))
}

func TestWrongCredentialsAreFatalWhereAnACLRefusesThem(t *testing.T) {
	cfg := testConfig(t)
	cfg.Auth = &DigestAuth{User: "fleet", Password: "right"}
	layout := openLayout(t, cfg)
	for name, auth := range map[string]*DigestAuth{"another password": {User: "fleet", Password: "wrong"}, "none": nil} {
		wrong := cfg
		wrong.Auth = auth
		_, err := OpenLayout(testContext(t), wrong)
		mustBeFatal(t, name+" opening the layout", err, KindAuth)
		_, err = OpenSession(testContext(t), wrong, layout, gatewayID(1), nil)
		mustBeFatal(t, name+" opening a session", err, KindAuth)
	}
}

func TestAServerThatRefusesTheCredentialsIsFatal(t *testing.T) {
	addr := script(t, func(conn net.Conn) {
		t.Cleanup(func() { _ = conn.Close() })
		if handshake(conn) != nil {
			return
		}
		_, _ = conn.Write(authRefusal())
	})
	_, err := OpenLayout(testContext(t), Config{Servers: []string{addr}, Auth: &DigestAuth{User: "u", Password: "p"}})
	mustBeFatal(t, "opening the layout", err, KindAuth)
}

func TestEveryPathIsBelowTheChroot(t *testing.T) {
	cfg := testConfig(t) // has one
	layout := openLayout(t, cfg)
	s := openSession(t, cfg, layout, 1)
	made := mustBeDone(t, write(t, s, Op{Kind: OpCreate, Path: DefaultRoot + "/locks/a"}))
	if made.Paths[0] != DefaultRoot+"/locks/a" {
		t.Errorf("the answer says %s", made.Paths[0])
	}
	whole := cfg
	whole.Chroot = ""
	outside := newProbe(t, whole)
	if outside.stat(cfg.Chroot+DefaultRoot+"/locks/a") == nil {
		t.Error("it is not below the chroot")
	}
	if outside.stat(DefaultRoot) != nil {
		t.Error("something was made outside the chroot")
	}
}

func TestAnotherServerTakesOverTheSession(t *testing.T) {
	direct := testConfig(t)
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
	if _, err := s.Barrier(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if other.Connections() != 1 {
		t.Error("the session did not move")
	}
}
