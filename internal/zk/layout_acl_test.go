package zk

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/netfault"
)

var fleet = &DigestAuth{User: "fleet", Password: "right"}

// layoutNodes are all nodes of a fresh layout, relative to the root.
func layoutNodes() map[string]access {
	nodes := map[string]access{"": shown, NodeVersion: shown, NodeSecret: private, NodeFenceBase: shown, NodePromiseWindow: shown,
		NodeNamespaces + "/" + defaultNamespace: shown}
	for _, d := range directories {
		nodes[d.path] = d.who
	}
	return nodes
}

func (p *probe) acl(path string) ([]gozk.ACL, Stat) {
	p.t.Helper()
	acl, stat, err := p.c.getACL(testContext(p.t), path)
	if err != nil {
		p.t.Fatalf("probe: %v", err)
	}
	return acl, stat
}

func (p *probe) setACL(path string, acl []gozk.ACL) {
	p.t.Helper()
	if err := p.c.setACL(testContext(p.t), path, acl, -1); err != nil {
		p.t.Fatalf("probe: %v", err)
	}
}

func TestNoStrangerChangesTheACLOfAnyNodeOfAFleetWithAnIdentity(t *testing.T) {
	cfg := testConfig(t)
	stranger := newProbe(t, cfg)
	cfg.Auth = fleet
	s := openSession(t, cfg, openLayout(t, cfg), 1)
	dir := DefaultRoot + "/locks/deploy"
	paths := mustBeDone(t, write(t, s, Op{Kind: OpCreate, Path: dir}, Op{Kind: OpCreate, Path: dir + "/write-", Sequential: true})).Paths
	paths = append(paths, s.registration, s.guard)
	for name := range layoutNodes() {
		paths = append(paths, DefaultRoot+name)
	}
	for _, path := range paths {
		err := stranger.c.setACL(testContext(t), path, gozk.DigestACL(gozk.PermAll, "evil", "x"), -1)
		if !errors.Is(err, ErrNoAuth) {
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
		if err := stranger.c.setACL(testContext(t), path, gozk.DigestACL(gozk.PermAll, "evil", "x"), -1); !errors.Is(err, ErrNoAuth) {
			t.Errorf("setACL on %s by a stranger: %v, want ErrNoAuth", path, err)
		}
	}
}

func TestARootMadeWithoutAnIdentityIsClosedByTheFirstStartWithOne(t *testing.T) {
	cfg := testConfig(t)
	cfg.Chroot += "/made/here"
	var said bytes.Buffer
	cfg.Logger = slog.New(slog.NewTextHandler(&said, nil))
	if !openLayout(t, cfg).SecretExposed || strings.Count(said.String(), "level=WARN") != 1 || !strings.Contains(said.String(), "--zk-auth-file") {
		t.Errorf("without an identity the log says: %s", said.String())
	}
	open := cfg
	cfg.Auth = fleet
	for start := range 2 {
		said.Reset()
		if !openLayout(t, cfg).SecretExposed || !strings.Contains(said.String(), "gateway secret rotate --offline") {
			t.Errorf("start %d does not say that the secret is compromised: %s", start, said.String())
		}
		if closed := strings.Contains(said.String(), "/lockkeeper/secret /"); closed != (start == 0) {
			t.Errorf("start %d closes the secret: %v: %s", start, closed, said.String())
		}
	}
	p := newProbe(t, cfg)
	for name, who := range layoutNodes() {
		if have, _ := p.acl(DefaultRoot + name); !sameACL(have, aclsFor(fleet)[who]) {
			// Queues have been closed to everyone's setACL from the beginning, so the fleet has none either.
			if who == 0 && sameACL(have, gozk.WorldACL(permOpen)) {
				continue
			}
			t.Errorf("the ACL of %s is %s", DefaultRoot+name, describe(have))
		}
	}
	_, err := OpenLayout(testContext(t), open)
	mustBeFatal(t, "a start without the identity", err, KindAuth)
	var fatal *FatalError
	if errors.As(err, &fatal) && !strings.Contains(fatal.Hint, "--zk-auth-file") {
		t.Errorf("the hint is %q", fatal.Hint)
	}
}

// A release before this one left ADMIN of the open nodes to everyone.
func TestOpenNodesOfAnEarlierReleaseAreRepaired(t *testing.T) {
	cfg := testConfig(t)
	p := newProbe(t, cfg)
	cfg.Auth = fleet
	openLayout(t, cfg)
	owner := newProbe(t, cfg)
	owner.setACL(DefaultRoot+NodeLocks, gozk.WorldACL(gozk.PermAll))
	if openLayout(t, cfg).SecretExposed {
		t.Error("the secret is said to be exposed")
	}
	err := p.c.setACL(testContext(t), DefaultRoot+NodeLocks, gozk.DigestACL(gozk.PermAll, "evil", "x"), -1)
	if !errors.Is(err, ErrNoAuth) {
		t.Errorf("setACL by a stranger: %v, want ErrNoAuth", err)
	}
}

func TestANodeThatCannotBeClosedOrUsedRefusesTheStart(t *testing.T) {
	evil := gozk.DigestACL(gozk.PermAll, "evil", "x")
	for name := range layoutNodes() {
		for what, acl := range map[string][]gozk.ACL{
			"taken away": evil,
			"left open":  append(gozk.WorldACL(gozk.PermAll&^gozk.PermAdmin), evil...),
		} {
			if name == NodeLocks && what == "left open" {
				continue // everyone queues there
			}
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				cfg := testConfig(t)
				openLayout(t, cfg) // without an identity
				p := newProbe(t, cfg)
				if name == NodeLocks { // as an earlier release made it
					p.delete(DefaultRoot + name)
					p.create(DefaultRoot+name, "")
				}
				p.setACL(DefaultRoot+name, acl)
				cfg.Auth = fleet
				_, err := OpenLayout(testContext(t), cfg)
				mustBeFatal(t, what, err, KindAuth)
				if !strings.Contains(errString(err), DefaultRoot+name) {
					t.Errorf("it does not name the node: %v", err)
				}
			})
		}
	}
}

// An administrator may keep ADMIN for herself, if the fleet has what it needs and the world does not.
func TestAnACLThatAnAdministratorMadeIsLeftAlone(t *testing.T) {
	cfg := testConfig(t)
	cfg.Auth = fleet
	openLayout(t, cfg)
	admin := gozk.DigestACL(gozk.PermAll, "admin", "x")
	ours := gozk.DigestACL(permOpen, fleet.User, fleet.Password)
	newProbe(t, cfg).setACL(DefaultRoot+NodeGuards, slices.Concat(admin, ours, gozk.WorldACL(gozk.PermRead)))
	openLayout(t, cfg)
}

func TestWhatOthersMadeBeforeTheFirstGatewayIsNotAccepted(t *testing.T) {
	forged := `{"fleet_id":"abcdefgh","keys":[{"id":"evil","key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}]}`
	for name, acl := range map[string][]gozk.ACL{
		"open to all":         gozk.WorldACL(gozk.PermAll),
		"theirs":              gozk.DigestACL(gozk.PermAll, "evil", "x"),
		"theirs, as if ours":  append(gozk.DigestACL(gozk.PermAll, "evil", "x"), gozk.DigestACL(gozk.PermAll, fleet.User, "wrong")...),
		"ours, and not alone": append(gozk.DigestACL(gozk.PermAll, "evil", "x"), gozk.DigestACL(gozk.PermAll, fleet.User, fleet.Password)...),
	} {
		for _, node := range []string{NodeSecret, "/succession"} {
			t.Run(name+node, func(t *testing.T) {
				t.Parallel()
				cfg := testConfig(t)
				p := newProbe(t, cfg)
				p.create(DefaultRoot, "")
				if _, err := p.c.lib.Create(cfg.full(DefaultRoot+node), []byte(forged), 0, acl); err != nil {
					t.Fatal(err)
				}
				cfg.Auth = fleet
				_, err := OpenLayout(testContext(t), cfg)
				mustBeFatal(t, name, err, KindTaken)
				if p.stat(DefaultRoot+NodeVersion) != nil {
					t.Error("the layout was completed")
				}
			})
		}
	}
}

// Requests for ACLs are lost on the way there and on the way back: in the end all is closed.
func TestClosingALayoutSurvivesTheLossOfRequests(t *testing.T) {
	const opGetACL, opSetACL = 6, 7
	requests := netfault.IsOp(opGetACL, opSetACL)
	for n := 1; n < 40; n += 3 {
		direct, through, proxy := faulty(t)
		openLayout(t, direct)
		direct.Auth, through.Auth = fleet, fleet
		if n%2 == 0 {
			proxy.FailRequest(n, requests)
		} else {
			proxy.FailReply(n, requests)
		}
		if !openLayout(t, through).SecretExposed {
			t.Errorf("request %d lost: the secret is not said to be exposed", n)
		}
		p := newProbe(t, direct)
		for name, who := range layoutNodes() {
			if have, _ := p.acl(DefaultRoot + name); who != 0 && !sameACL(have, aclsFor(fleet)[who]) {
				t.Errorf("request %d lost: the ACL of %s is %s", n, name, describe(have))
			}
		}
	}
}
