package session

import (
	"errors"
	"testing"

	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/zk"
)

func TestASessionDoesNotRegisterUnderALayoutThatHasChanged(t *testing.T) {
	for _, node := range []string{zk.NodePromiseWindow, zk.NodeFenceBase} {
		cfg := fixture.Config(t)
		layout := openLayout(t, cfg)
		p := fixture.NewProbe(t, cfg)
		data, err := p.Get(zk.DefaultRoot + node)
		assert.NoError(t, err)
		p.Set(zk.DefaultRoot+node, data)
		_, err = Open(fixture.Context(t), cfg, layout, fixture.GatewayID(1), nil)
		assert.That(t, errors.Is(err, zk.ErrBadVersion), "%s changed: %v, want ErrBadVersion", node, err)
		assert.That(t, p.Stat(zk.DefaultRoot+"/gateways/"+fixture.GatewayID(1)) == nil, "it has registered")
		openSession(t, cfg, openLayout(t, cfg), 2)
	}
}

// Registering, lost on the way there and on the way back.
func TestALostRegistrationIsFoundOrRepeated(t *testing.T) {
	for _, persisted := range []bool{false, true} {
		direct, through, proxy := fixture.Faulty(t)
		layout := openLayout(t, direct)
		if persisted {
			proxy.FailReply(1, fixture.About("/gateways/"))
		} else {
			proxy.FailRequest(1, fixture.About("/gateways/"))
		}
		s := openSession(t, through, layout, 1)
		p := fixture.NewProbe(t, direct)
		stat := p.Stat(s.registration)
		assert.That(t, stat != nil && stat.Version == 0 && p.Stat(s.guard) != nil, "persisted %v: registration %+v", persisted, stat)
		mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: zk.DefaultRoot + "/locks/x"}))
	}
}

func TestAnIdThatIsTakenIsRefused(t *testing.T) {
	cfg := fixture.Config(t)
	layout := openLayout(t, cfg)
	openSession(t, cfg, layout, 1)
	_, err := Open(fixture.Context(t), cfg, layout, fixture.GatewayID(1), nil)
	assert.That(t, errors.Is(err, zk.ErrNodeExists), "%v, want ErrNodeExists", err)
	for _, id := range []string{"", "short", "UPPERCASE1234", "a/b/c/d/e/f/g"} {
		_, err := Open(fixture.Context(t), cfg, layout, id, nil)
		assert.That(t, err != nil, "id %q was accepted", id)
	}
}

func TestNoOtherClientChangesTheACLOfAnyNodeOfAFleetWithAnIdentity(t *testing.T) {
	cfg := fixture.Config(t)
	other := fixture.NewProbe(t, cfg)
	cfg.Auth = &zk.DigestAuth{User: "fleet", Password: "right"}
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	dir := zk.DefaultRoot + "/locks/deploy"
	paths := mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: dir}, zk.Op{Kind: zk.OpCreate, Path: dir + "/write-", Sequential: true})).Paths
	paths = append(paths, s.registration, s.guard)
	for _, name := range []string{"", zk.NodeVersion, zk.NodeSecret, zk.NodeFenceBase, zk.NodePromiseWindow, zk.NodeNamespaces + "/default", zk.NodeLocks, zk.NodeSettings,
		zk.NodeNamespaces, zk.NodeGateways, zk.NodeGuards, zk.NodeSuccession, zk.NodeKeys, zk.NodeOutbox, zk.NodeWebhooks} {
		paths = append(paths, zk.DefaultRoot+name)
	}
	for _, path := range paths {
		err := other.TrySetACL(path, gozk.DigestACL(gozk.PermAll, "evil", "x"))
		assert.That(t, errors.Is(err, gozk.ErrNoAuth), "setACL on %s by another client: %v, want ErrNoAuth", path, err)
	}
	other.Create(dir+"/foreign-0000000001", "") // queueing needs no setACL
}

// Without an identity another client may do everything but keep others out of the queues.
func TestQueuesOfAFleetWithoutAnIdentityCannotBeClosed(t *testing.T) {
	cfg := fixture.Config(t)
	other := fixture.NewProbe(t, cfg)
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	dir := zk.DefaultRoot + "/locks/deploy"
	mustBeDone(t, write(t, s, zk.Op{Kind: zk.OpCreate, Path: dir}, zk.Op{Kind: zk.OpCreate, Path: dir + "/write-"}))
	for _, path := range []string{zk.DefaultRoot + "/locks", dir, dir + "/write-"} {
		assert.ErrorIs(t, other.TrySetACL(path, gozk.DigestACL(gozk.PermAll, "evil", "x")), gozk.ErrNoAuth,
			"setACL on %s by another client", path)
	}
}
