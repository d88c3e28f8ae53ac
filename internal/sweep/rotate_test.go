package sweep

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/embeddedtest"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/offlinetest"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/layout"
	"lockkeeper/internal/zk/session"
)

func (s *site) open() *layout.Layout {
	s.T.Helper()
	layout := assert.Value(layout.Open(offlinetest.Context(s.T), s.cfg))(s.T)
	return layout
}

var identity = &zk.DigestAuth{User: "fleet", Password: "right"}

// exposed is a root that was made without an identity; its fleet has one now.
func exposed(t *testing.T) *site {
	cfg := zk.Config{Servers: []string{embeddedtest.RunT(t).Addr()}, CreateRoot: true}
	siteOn(t, cfg)
	cfg.Auth = identity
	return siteOn(t, cfg)
}

func TestARotationReplacesTheKeysAndKeepsTheFleet(t *testing.T) {
	s := exposed(t)
	before := s.layout
	assert.Must(t, before.Secret.Exposed, "the secret is not said to be exposed")
	done := assert.Value(RotateSecret(offlinetest.Context(t), s.cfg))(t)
	after := s.open()
	if after.Secret.Exposed || after.FleetID != before.FleetID || len(after.Secret.Keys) != 1 || string(after.Secret.Keys[0].Key) == string(before.Secret.Keys[0].Key) {
		t.Errorf("exposed %v, fleet %s, before %s, %d keys", after.Secret.Exposed, after.FleetID, before.FleetID, len(after.Secret.Keys))
	}
	if done.Open || done.KeyID != after.Secret.Keys[0].ID || done.Dropped != 1 || done.FleetID != after.FleetID || len(after.Secret.Keys[0].Key) != 32 {
		t.Errorf("%+v", done)
	}
}

// Without an identity all clients can read the new keys, too, and the report says so.
func TestARotationWithoutAnIdentityClosesNothing(t *testing.T) {
	s := newSite(t, nil)
	done, err := RotateSecret(offlinetest.Context(t), s.cfg)
	assert.That(t, err == nil && done.Open && s.open().Secret.Exposed, "%+v, %v", done, err)
}

func TestWhileAGatewayIsRegisteredTheSecretStays(t *testing.T) {
	s := exposed(t)
	session := s.gateway("somewhere:8080")
	_, err := RotateSecret(offlinetest.Context(t), s.cfg)
	offlinetest.WantKind(t, err, KindInUse, "somewhere:8080")
	assert.That(t, string(s.open().Secret.Keys[0].Key) == string(s.layout.Secret.Keys[0].Key), "the secret was replaced")
	end(t, session)
}

// A gateway that was cut off, and whose session is over, still has the old keys. It must not come back with them.
func TestAGatewayWithTheOldKeysCannotRegister(t *testing.T) {
	s := exposed(t)
	_, err := RotateSecret(offlinetest.Context(t), s.cfg)
	assert.NoError(t, err)
	_, err = session.Open(offlinetest.Context(t), s.cfg, s.layout, "abcdefghijklm", nil)
	assert.That(t, errors.Is(err, zk.ErrBadVersion), "registering under the old layout: %v, want ErrBadVersion", err)
}

// A client that may write the layout could undo the rotation. ZooKeeper shows "fleet:x" for any entry of that user.
func TestALayoutThatOthersMayWriteIsNotRotated(t *testing.T) {
	for _, node := range []string{"", zk.NodeVersion, zk.NodeSecret, zk.NodeFenceBase, zk.NodePromiseWindow, zk.NodeNamespaces, zk.NodeGateways} {
		t.Run(node, func(t *testing.T) {
			cfg := zk.Config{Servers: []string{embeddedtest.RunT(t).Addr()}, CreateRoot: true}
			s := siteOn(t, cfg)
			path := zk.DefaultRoot + node
			acl := append(gozk.WorldACL(gozk.PermRead), gozk.ACL{Perms: gozk.PermAll &^ gozk.PermAdmin, Scheme: "digest", ID: identity.User + ":x"})
			acl = append(acl, gozk.DigestACL(gozk.PermAll, "evil", "x")...)
			if node == zk.NodeVersion { // hidden
				acl = gozk.DigestACL(gozk.PermAll, "evil", "x")
			}
			conn, events, err := gozk.Connect(cfg.Servers, 10*time.Second, gozk.WithLogInfo(false))
			assert.NoError(t, err)
			defer conn.Close()
			go func() {
				for range events {
				}
			}()
			secret, _, err := conn.Get(zk.DefaultRoot + zk.NodeSecret)
			assert.NoError(t, err)
			assert.Value(conn.SetACL(path, acl, -1))(t)
			s.cfg.Auth = identity
			_, err = RotateSecret(offlinetest.Context(t), s.cfg)
			var fatal *zk.FatalError
			assert.That(t, errors.As(err, &fatal) && fatal.Kind == zk.KindAuth && strings.Contains(fatal.Hint, "setAcl "+path+" "),
				"the rotation: %v (%+v), want a hint that names %s", err, fatal, path)
			assert.NoError(t, conn.AddAuth("digest", []byte(identity.User+":"+identity.Password)))
			now, _, err := conn.Get(zk.DefaultRoot + zk.NodeSecret)
			assert.That(t, err == nil && bytes.Equal(now, secret), "the secret was replaced (%v)", err)
		})
	}
}

func TestARotationWithoutARootSaysSo(t *testing.T) {
	_, err := RotateSecret(offlinetest.Context(t), zk.Config{Servers: []string{embeddedtest.RunT(t).Addr()}, Auth: identity})
	offlinetest.WantKind(t, err, KindNoRoot, "there is no Lockkeeper")
}

// The transaction is lost on the way there, or its answer is lost: the operator repeats the command.
func TestARotationWhoseAnswerWasLostIsRepeated(t *testing.T) {
	for name, fail := range map[string]func(*netfault.Proxy, func(netfault.Frame) bool){
		"failed":               func(p *netfault.Proxy, match func(netfault.Frame) bool) { p.FailRequest(1, match) },
		"failed but persisted": func(p *netfault.Proxy, match func(netfault.Frame) bool) { p.FailReply(1, match) },
	} {
		t.Run(name, func(t *testing.T) {
			s := exposed(t)
			proxy := netfault.NewT(t, s.cfg.Servers[0], netfault.Framed())
			through := s.cfg
			through.Servers = []string{proxy.Addr()}
			seen := 0
			fail(proxy, func(f netfault.Frame) bool {
				if f.Op() == netfault.OpMulti {
					seen++
				}
				return f.Op() == netfault.OpMulti && seen == 2 // the first is the barrier
			})
			_, err := RotateSecret(offlinetest.Context(t), through)
			offlinetest.WantKind(t, err, KindUnknown, "run it again")
			assert.Value(RotateSecret(offlinetest.Context(t), s.cfg))(t)
			assert.That(t, !s.open().Secret.Exposed, "the secret is still said to be exposed")
		})
	}
}

// The gateway registers after it was looked for, and before the transaction.
func TestAGatewayThatStartsMeanwhileKeepsTheSecret(t *testing.T) {
	s := exposed(t)
	var session *session.Session
	_, err := rotateSecret(offlinetest.Context(t), s.cfg, Options{looked: func() { session = s.gateway("late:8080") }})
	offlinetest.WantKind(t, err, KindInUse, "late:8080")
	assert.That(t, string(s.open().Secret.Keys[0].Key) == string(s.layout.Secret.Keys[0].Key), "the secret was replaced")
	end(t, session)
}
