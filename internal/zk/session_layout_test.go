package zk

import (
	"errors"
	"testing"

	gozk "github.com/go-zookeeper/zk"
)

func TestASessionDoesNotRegisterUnderALayoutThatHasChanged(t *testing.T) {
	for _, node := range []string{NodePromiseWindow, NodeFenceBase} {
		cfg := testConfig(t)
		layout := openLayout(t, cfg)
		p := newProbe(t, cfg)
		data, err := p.get(DefaultRoot + node)
		if err != nil {
			t.Fatal(err)
		}
		p.set(DefaultRoot+node, data)
		if _, err := OpenSession(testContext(t), cfg, layout, gatewayID(1), nil); !errors.Is(err, ErrBadVersion) {
			t.Errorf("%s changed: %v, want ErrBadVersion", node, err)
		}
		if p.stat(DefaultRoot+"/gateways/"+gatewayID(1)) != nil {
			t.Error("it has registered")
		}
		openSession(t, cfg, openLayout(t, cfg), 2)
	}
}

// Registering, lost on the way there and on the way back.
func TestALostRegistrationIsFoundOrRepeated(t *testing.T) {
	for _, persisted := range []bool{false, true} {
		direct, through, proxy := faulty(t)
		layout := openLayout(t, direct)
		if persisted {
			proxy.FailReply(1, about("/gateways/"))
		} else {
			proxy.FailRequest(1, about("/gateways/"))
		}
		s := openSession(t, through, layout, 1)
		p := newProbe(t, direct)
		if stat := p.stat(s.registration); stat == nil || stat.Version != 0 || p.stat(s.guard) == nil {
			t.Errorf("persisted %v: registration %+v", persisted, stat)
		}
		mustBeDone(t, write(t, s, Op{Kind: OpCreate, Path: DefaultRoot + "/locks/x"}))
	}
}

func TestAnIdThatIsTakenIsRefused(t *testing.T) {
	cfg := testConfig(t)
	layout := openLayout(t, cfg)
	openSession(t, cfg, layout, 1)
	if _, err := OpenSession(testContext(t), cfg, layout, gatewayID(1), nil); !errors.Is(err, ErrNodeExists) {
		t.Errorf("%v, want ErrNodeExists", err)
	}
	for _, id := range []string{"", "short", "UPPERCASE1234", "a/b/c/d/e/f/g"} {
		_, err := OpenSession(testContext(t), cfg, layout, id, nil)
		if err == nil {
			t.Errorf("id %q was accepted", id)
		}
	}
}

func TestNoStrangerChangesTheACLOfAnyNodeOfAFleetWithAnIdentity(t *testing.T) {
	cfg := testConfig(t)
	stranger := newProbe(t, cfg)
	cfg.Auth = &DigestAuth{User: "fleet", Password: "right"}
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	dir := DefaultRoot + "/locks/deploy"
	paths := mustBeDone(t, write(t, s, Op{Kind: OpCreate, Path: dir}, Op{Kind: OpCreate, Path: dir + "/write-", Sequential: true})).Paths
	paths = append(paths, s.registration, s.guard)
	for _, name := range []string{"", NodeVersion, NodeSecret, NodeFenceBase, NodePromiseWindow, NodeNamespaces + "/default", NodeLocks, NodeSettings,
		NodeNamespaces, NodeGateways, NodeGuards, NodeSuccession, NodeKeys, NodeOutbox, NodeWebhooks} {
		paths = append(paths, DefaultRoot+name)
	}
	for _, path := range paths {
		err := stranger.trySetACL(path, gozk.DigestACL(gozk.PermAll, "evil", "x"))
		if !errors.Is(err, gozk.ErrNoAuth) {
			t.Errorf("setACL on %s by a stranger: %v, want ErrNoAuth", path, err)
		}
	}
	stranger.create(dir+"/foreign-0000000001", "") // queueing needs no setACL
}

// Without an identity a stranger may do everything but keep others out of the queues.
func TestQueuesOfAFleetWithoutAnIdentityCannotBeClosed(t *testing.T) {
	cfg := testConfig(t)
	stranger := newProbe(t, cfg)
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	dir := DefaultRoot + "/locks/deploy"
	mustBeDone(t, write(t, s, Op{Kind: OpCreate, Path: dir}, Op{Kind: OpCreate, Path: dir + "/write-"}))
	for _, path := range []string{DefaultRoot + "/locks", dir, dir + "/write-"} {
		if err := stranger.trySetACL(path, gozk.DigestACL(gozk.PermAll, "evil", "x")); !errors.Is(err, gozk.ErrNoAuth) {
			t.Errorf("setACL on %s by a stranger: %v, want ErrNoAuth", path, err)
		}
	}
}
