package zk

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/test/netfault"
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

func TestARootMadeWithoutAnIdentityIsClosedByTheFirstStartWithOne(t *testing.T) {
	cfg := testConfig(t)
	cfg.Chroot += "/made/here"
	var said bytes.Buffer
	cfg.Logger = slog.New(slog.NewTextHandler(&said, nil))
	if !opened(t, cfg).SecretExposed || strings.Count(said.String(), "level=WARN") != 1 || !strings.Contains(said.String(), "--zk-auth-file") {
		t.Errorf("without an identity the log says: %s", said.String())
	}
	open := cfg
	cfg.Auth = fleet
	for start := range 2 {
		said.Reset()
		if !opened(t, cfg).SecretExposed || !strings.Contains(said.String(), "gateway secret rotate --offline") {
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
	opened(t, cfg)
	owner := newProbe(t, cfg)
	owner.setACL(DefaultRoot+NodeLocks, gozk.WorldACL(gozk.PermAll))
	if opened(t, cfg).SecretExposed {
		t.Error("the secret is said to be exposed")
	}
	err := p.trySetACL(DefaultRoot+NodeLocks, gozk.DigestACL(gozk.PermAll, "evil", "x"))
	if !errors.Is(err, gozk.ErrNoAuth) {
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
				opened(t, cfg) // without an identity
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

// Without ADMIN the fleet cannot tell its own entry from one that a stranger wrote: ZooKeeper shows both as "fleet:x".
func TestAnEntryThatLooksLikeOursProvesNothing(t *testing.T) {
	evil, forged := gozk.DigestACL(gozk.PermAll, "evil", "x"), gozk.ACL{Perms: permOpen, Scheme: "digest", ID: fleet.User + ":x"}
	acls := map[string][]gozk.ACL{
		"and another digest": slices.Concat(gozk.WorldACL(gozk.PermRead), []gozk.ACL{forged}, evil),
		"and an address":     append(gozk.WorldACL(gozk.PermRead), forged, gozk.ACL{Perms: permOpen, Scheme: "ip", ID: "127.0.0.1"}),
		"alone":              append(gozk.WorldACL(gozk.PermRead), forged),
		"and all queue":      slices.Concat(gozk.WorldACL(permOpen), []gozk.ACL{forged}, evil),
	}
	for name := range layoutNodes() {
		for what, acl := range acls {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				cfg := testConfig(t)
				opened(t, cfg) // without an identity
				p := newProbe(t, cfg)
				if name == NodeLocks { // as an earlier release made it
					p.delete(DefaultRoot + name)
					p.create(DefaultRoot+name, "")
				}
				p.setACL(DefaultRoot+name, acl)
				cfg.Auth = fleet
				_, err := OpenLayout(testContext(t), cfg)
				mustNameSetACL(t, err, cfg.full(DefaultRoot+name))
			})
		}
	}
}

// mustNameSetACL checks that an error says how ZooKeeper's super user mends the node.
func mustNameSetACL(t *testing.T, err error, node string) {
	t.Helper()
	mustBeFatal(t, node, err, KindAuth)
	var fatal *FatalError
	if errors.As(err, &fatal) && !strings.Contains(fatal.Hint, "setAcl "+node+" ") {
		t.Errorf("the hint is %q", fatal.Hint)
	}
}

// Who may write a namespace's record can move its lock root.
func TestANamespaceRecordThatAStrangerMayWriteRefusesTheStart(t *testing.T) {
	cfg := testConfig(t)
	cfg.Namespaces = map[string]Namespace{"shared": {Root: "/shared"}}
	opened(t, cfg)
	record := DefaultRoot + NodeNamespaces + "/shared"
	p := newProbe(t, cfg)
	cfg.Auth = fleet
	p.setACL(record, append(gozk.WorldACL(gozk.PermRead), gozk.DigestACL(gozk.PermAll, "evil", "x")...))
	_, err := OpenLayout(testContext(t), cfg)
	mustNameSetACL(t, err, cfg.full(record))
}

// An administrator may add identities where other programs queue, as long as none has ADMIN.
func TestAnACLThatAnAdministratorMadeStaysWhereOthersQueue(t *testing.T) {
	cfg := testConfig(t)
	cfg.Auth = fleet
	opened(t, cfg)
	theirs := append(gozk.WorldACL(permOpen), gozk.DigestACL(permOpen, "app", "x")...)
	p := newProbe(t, cfg)
	p.setACL(DefaultRoot+NodeLocks, theirs)
	opened(t, cfg)
	if _, stat := p.acl(DefaultRoot + NodeLocks); stat.Aversion != 1 {
		t.Errorf("the ACL was changed %d times", stat.Aversion)
	}
}

// A gateway writes the version last. A version alone must not make a stranger's secret the fleet's.
func TestAnIncompleteRootOfOthersIsNotAdopted(t *testing.T) {
	forged := map[string]string{"": "", NodeVersion: `{"layout":1,"oldest_reader":1}`,
		NodeSecret: `{"fleet_id":"abcdefgh","keys":[{"id":"evil","key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}]}`}
	for what, nodes := range map[string][]string{"version and secret": {"", NodeVersion, NodeSecret}, "version": {"", NodeVersion}} {
		t.Run(what, func(t *testing.T) {
			cfg := testConfig(t)
			p := newProbe(t, cfg)
			for _, name := range nodes {
				p.create(DefaultRoot+name, forged[name])
			}
			cfg.Auth = fleet
			_, err := OpenLayout(testContext(t), cfg)
			mustBeFatal(t, what, err, KindTaken)
			if p.stat(DefaultRoot+NodeLocks) != nil {
				t.Error("the layout was completed")
			}
		})
	}
	for name := range layoutNodes() {
		if name == "" || name == NodeVersion || name == NodeNamespaces {
			continue // no layout without these, and /namespaces is not empty
		}
		t.Run("all but "+name, func(t *testing.T) {
			cfg := testConfig(t)
			opened(t, cfg)
			p := newProbe(t, cfg)
			p.delete(DefaultRoot + name)
			cfg.Auth = fleet
			_, err := OpenLayout(testContext(t), cfg)
			mustBeFatal(t, "a root without "+name, err, KindTaken)
			if !strings.Contains(errString(err), DefaultRoot+name) {
				t.Errorf("the error does not name the missing node: %v", err)
			}
			if acl, _ := p.acl(DefaultRoot); !sameACL(acl, gozk.WorldACL(gozk.PermAll)) {
				t.Error("the root was closed")
			}
		})
	}
}

// A later release adds parts to a root of the fleet's own.
func TestARootOfOursIsCompleted(t *testing.T) {
	cfg := testConfig(t)
	cfg.Auth = fleet
	opened(t, cfg)
	p := newProbe(t, cfg)
	p.delete(DefaultRoot + NodeOutbox)
	if opened(t, cfg).SecretExposed || p.stat(DefaultRoot+NodeOutbox) == nil {
		t.Error("the secret is said to be exposed, or the part is missing")
	}
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
				if err := p.tryCreate(DefaultRoot+node, forged, acl); err != nil {
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
		opened(t, direct)
		direct.Auth, through.Auth = fleet, fleet
		if n%2 == 0 {
			proxy.FailRequest(n, requests)
		} else {
			proxy.FailReply(n, requests)
		}
		if !opened(t, through).SecretExposed {
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

func errString(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
