package layout

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	gozk "github.com/go-zookeeper/zk"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/fixture"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
)

var fleet = &zk.DigestAuth{User: "fleet", Password: "right"}

// layoutNodes are all nodes of a fresh layout, relative to the root.
func layoutNodes() map[string]conn.Access {
	nodes := map[string]conn.Access{"": conn.ReadOnly, zk.NodeVersion: conn.ReadOnly, zk.NodeSecret: conn.Private, zk.NodeFenceBase: conn.ReadOnly, zk.NodePromiseWindow: conn.ReadOnly,
		zk.NodeNamespaces + "/" + defaultNamespace: conn.ReadOnly}
	for _, d := range conn.Directories {
		nodes[d.Path] = d.Access
	}
	return nodes
}

func TestARootMadeWithoutAnIdentityIsClosedByTheFirstStartWithOne(t *testing.T) {
	cfg := fixture.Config(t)
	cfg.Chroot += "/made/here"
	var said bytes.Buffer
	cfg.Logger = slog.New(slog.NewTextHandler(&said, nil))
	if !opened(t, cfg).Secret.Exposed || strings.Count(said.String(), "level=WARN") != 1 || !strings.Contains(said.String(), "--zk-auth-file") {
		t.Errorf("without an identity the log says: %s", said.String())
	}
	open := cfg
	cfg.Auth = fleet
	for start := range 2 {
		said.Reset()
		assert.That(t, opened(t, cfg).Secret.Exposed && strings.Contains(said.String(), "gateway secret drop --now"),
			"start %d does not say that the secret is compromised: %s", start, said.String())
		closed := strings.Contains(said.String(), "/lockkeeper/secret /")
		assert.That(t, closed == (start == 0), "start %d closes the secret: %v: %s", start, closed, said.String())
	}
	p := fixture.NewProbe(t, cfg)
	for name, who := range layoutNodes() {
		if have, _ := p.ACL(zk.DefaultRoot + name); !conn.SameACL(have, conn.ACLs(&zk.Config{Auth: fleet})[who]) {
			// Queues have been closed to every client's setACL from the beginning, so the fleet has none either.
			if who == 0 && conn.SameACL(have, gozk.WorldACL(conn.PermOpen)) {
				continue
			}
			t.Errorf("the ACL of %s is %s", zk.DefaultRoot+name, conn.DescribeACL(have))
		}
	}
	_, err := Open(fixture.Context(t), open)
	fixture.MustBeFatal(t, "a start without the identity", err, zk.KindAuth)
	var fatal *zk.FatalError
	assert.That(t, !errors.As(err, &fatal) || strings.Contains(fatal.Hint, "--zk-auth-file"), "no hint in %v", err)
}

// A release before this one left ADMIN of the open nodes to every client.
func TestOpenNodesOfAnEarlierReleaseAreRepaired(t *testing.T) {
	cfg := fixture.Config(t)
	p := fixture.NewProbe(t, cfg)
	cfg.Auth = fleet
	opened(t, cfg)
	owner := fixture.NewProbe(t, cfg)
	owner.SetACL(zk.DefaultRoot+zk.NodeLocks, gozk.WorldACL(gozk.PermAll))
	assert.That(t, !opened(t, cfg).Secret.Exposed, "the secret is said to be exposed")
	err := p.TrySetACL(zk.DefaultRoot+zk.NodeLocks, gozk.DigestACL(gozk.PermAll, "evil", "x"))
	assert.That(t, errors.Is(err, gozk.ErrNoAuth), "setACL by another client: %v, want ErrNoAuth", err)
}

func TestANodeThatCannotBeClosedOrUsedRefusesTheStart(t *testing.T) {
	evil := gozk.DigestACL(gozk.PermAll, "evil", "x")
	for name := range layoutNodes() {
		for what, acl := range map[string][]gozk.ACL{
			"taken away": evil,
			"left open":  append(gozk.WorldACL(gozk.PermAll&^gozk.PermAdmin), evil...),
		} {
			if name == zk.NodeLocks && what == "left open" {
				continue // other programs queue there
			}
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				cfg := fixture.Config(t)
				opened(t, cfg) // without an identity
				p := fixture.NewProbe(t, cfg)
				if name == zk.NodeLocks { // as an earlier release made it
					p.Delete(zk.DefaultRoot + name)
					p.Create(zk.DefaultRoot+name, "")
				}
				p.SetACL(zk.DefaultRoot+name, acl)
				cfg.Auth = fleet
				_, err := Open(fixture.Context(t), cfg)
				fixture.MustBeFatal(t, what, err, zk.KindAuth)
				assert.That(t, strings.Contains(errString(err), zk.DefaultRoot+name), "it does not name the node: %v", err)
			})
		}
	}
}

// Without ADMIN the fleet cannot tell its own entry from one that another client wrote: ZooKeeper shows both as "fleet:x".
func TestAnEntryThatLooksLikeOursProvesNothing(t *testing.T) {
	evil, forged := gozk.DigestACL(gozk.PermAll, "evil", "x"), gozk.ACL{Perms: conn.PermOpen, Scheme: "digest", ID: fleet.User + ":x"}
	acls := map[string][]gozk.ACL{
		"and another digest": slices.Concat(gozk.WorldACL(gozk.PermRead), []gozk.ACL{forged}, evil),
		"and an address":     append(gozk.WorldACL(gozk.PermRead), forged, gozk.ACL{Perms: conn.PermOpen, Scheme: "ip", ID: "127.0.0.1"}),
		"alone":              append(gozk.WorldACL(gozk.PermRead), forged),
		"and all queue":      slices.Concat(gozk.WorldACL(conn.PermOpen), []gozk.ACL{forged}, evil),
	}
	for name := range layoutNodes() {
		for what, acl := range acls {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				cfg := fixture.Config(t)
				opened(t, cfg) // without an identity
				p := fixture.NewProbe(t, cfg)
				if name == zk.NodeLocks { // as an earlier release made it
					p.Delete(zk.DefaultRoot + name)
					p.Create(zk.DefaultRoot+name, "")
				}
				p.SetACL(zk.DefaultRoot+name, acl)
				cfg.Auth = fleet
				_, err := Open(fixture.Context(t), cfg)
				mustNameSetACL(t, err, cfg.Full(zk.DefaultRoot+name))
			})
		}
	}
}

// mustNameSetACL checks that an error says how ZooKeeper's super user mends the node.
func mustNameSetACL(t *testing.T, err error, node string) {
	t.Helper()
	fixture.MustBeFatal(t, node, err, zk.KindAuth)
	var fatal *zk.FatalError
	assert.That(t, !errors.As(err, &fatal) || strings.Contains(fatal.Hint, "setAcl "+node+" "), "no hint in %v", err)
}

// A client that may write a namespace's record can move its lock root.
func TestANamespaceRecordThatAnotherClientMayWriteRefusesTheStart(t *testing.T) {
	cfg := fixture.Config(t)
	cfg.Namespaces = map[string]zk.Namespace{"shared": {Root: "/shared"}}
	opened(t, cfg)
	record := zk.DefaultRoot + zk.NodeNamespaces + "/shared"
	p := fixture.NewProbe(t, cfg)
	cfg.Auth = fleet
	p.SetACL(record, append(gozk.WorldACL(gozk.PermRead), gozk.DigestACL(gozk.PermAll, "evil", "x")...))
	_, err := Open(fixture.Context(t), cfg)
	mustNameSetACL(t, err, cfg.Full(record))
}

// An administrator may add identities where other programs queue, as long as none has ADMIN.
func TestAnACLThatAnAdministratorMadeStaysWhereOthersQueue(t *testing.T) {
	cfg := fixture.Config(t)
	cfg.Auth = fleet
	opened(t, cfg)
	theirs := append(gozk.WorldACL(conn.PermOpen), gozk.DigestACL(conn.PermOpen, "app", "x")...)
	p := fixture.NewProbe(t, cfg)
	p.SetACL(zk.DefaultRoot+zk.NodeLocks, theirs)
	opened(t, cfg)
	_, stat := p.ACL(zk.DefaultRoot + zk.NodeLocks)
	assert.That(t, stat.Aversion == 1, "the ACL was changed %d times", stat.Aversion)
}

// A gateway writes the version last. A version alone must not make another client's secret the fleet's.
func TestAnIncompleteRootOfOthersIsNotAdopted(t *testing.T) {
	forged := map[string]string{"": "", zk.NodeVersion: `{"layout":1,"oldest_reader":1}`,
		zk.NodeSecret: `{"fleet_id":"abcdefgh","keys":[{"id":"evil","key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}]}`}
	for what, nodes := range map[string][]string{"version and secret": {"", zk.NodeVersion, zk.NodeSecret}, "version": {"", zk.NodeVersion}} {
		t.Run(what, func(t *testing.T) {
			cfg := fixture.Config(t)
			p := fixture.NewProbe(t, cfg)
			for _, name := range nodes {
				p.Create(zk.DefaultRoot+name, forged[name])
			}
			cfg.Auth = fleet
			_, err := Open(fixture.Context(t), cfg)
			fixture.MustBeFatal(t, what, err, zk.KindTaken)
			assert.That(t, p.Stat(zk.DefaultRoot+zk.NodeLocks) == nil, "the layout was completed")
		})
	}
	for name := range layoutNodes() {
		if name == "" || name == zk.NodeVersion || name == zk.NodeNamespaces || name == zk.NodeAuth {
			continue // no layout without these, and the last two are not empty
		}
		t.Run("all but "+name, func(t *testing.T) {
			cfg := fixture.Config(t)
			opened(t, cfg)
			p := fixture.NewProbe(t, cfg)
			p.Delete(zk.DefaultRoot + name)
			cfg.Auth = fleet
			_, err := Open(fixture.Context(t), cfg)
			fixture.MustBeFatal(t, "a root without "+name, err, zk.KindTaken)
			assert.That(t, strings.Contains(errString(err), zk.DefaultRoot+name), "the error does not name the missing node: %v", err)
			acl, _ := p.ACL(zk.DefaultRoot)
			assert.That(t, conn.SameACL(acl, gozk.WorldACL(gozk.PermAll)), "the root was closed")
		})
	}
}

// A later release adds parts to a root of the fleet's own.
func TestARootOfOursIsCompleted(t *testing.T) {
	cfg := fixture.Config(t)
	cfg.Auth = fleet
	opened(t, cfg)
	p := fixture.NewProbe(t, cfg)
	p.Delete(zk.DefaultRoot + zk.NodeOutbox)
	assert.That(t, !opened(t, cfg).Secret.Exposed && p.Stat(zk.DefaultRoot+zk.NodeOutbox) != nil,
		"the secret is said to be exposed, or the part is missing")
}

func TestWhatOthersMadeBeforeTheFirstGatewayIsNotAccepted(t *testing.T) {
	forged := `{"fleet_id":"abcdefgh","keys":[{"id":"evil","key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}]}`
	for name, acl := range map[string][]gozk.ACL{
		"open to all":         gozk.WorldACL(gozk.PermAll),
		"theirs":              gozk.DigestACL(gozk.PermAll, "evil", "x"),
		"theirs, as if ours":  append(gozk.DigestACL(gozk.PermAll, "evil", "x"), gozk.DigestACL(gozk.PermAll, fleet.User, "wrong")...),
		"ours, and not alone": append(gozk.DigestACL(gozk.PermAll, "evil", "x"), gozk.DigestACL(gozk.PermAll, fleet.User, fleet.Password)...),
	} {
		for _, node := range []string{zk.NodeSecret, "/succession"} {
			t.Run(name+node, func(t *testing.T) {
				t.Parallel()
				cfg := fixture.Config(t)
				p := fixture.NewProbe(t, cfg)
				p.Create(zk.DefaultRoot, "")
				assert.NoError(t, p.TryCreate(zk.DefaultRoot+node, forged, acl))
				cfg.Auth = fleet
				_, err := Open(fixture.Context(t), cfg)
				fixture.MustBeFatal(t, name, err, zk.KindTaken)
				assert.That(t, p.Stat(zk.DefaultRoot+zk.NodeVersion) == nil, "the layout was completed")
			})
		}
	}
}

// Requests for ACLs are lost on the way there and on the way back: in the end all is closed.
func TestClosingALayoutSurvivesTheLossOfRequests(t *testing.T) {
	const opGetACL, opSetACL = 6, 7
	requests := netfault.IsOp(opGetACL, opSetACL)
	for n := 1; n < 40; n += 3 {
		direct, through, proxy := fixture.Faulty(t)
		opened(t, direct)
		direct.Auth, through.Auth = fleet, fleet
		if n%2 == 0 {
			proxy.FailRequest(n, requests)
		} else {
			proxy.FailReply(n, requests)
		}
		assert.That(t, opened(t, through).Secret.Exposed, "request %d lost: the secret is not said to be exposed", n)
		p := fixture.NewProbe(t, direct)
		for name, who := range layoutNodes() {
			if have, _ := p.ACL(zk.DefaultRoot + name); who != 0 && !conn.SameACL(have, conn.ACLs(&zk.Config{Auth: fleet})[who]) {
				t.Errorf("request %d lost: the ACL of %s is %s", n, name, conn.DescribeACL(have))
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

// A record of an API token lets a client in. One that is closed like other nodes would go on to let in the program that wrote it.
func TestAPITokensThatOthersCouldHaveMadeAreDeleted(t *testing.T) {
	cfg := fixture.Config(t)
	opened(t, cfg) // without an identity: every client may write
	tokens := zk.DefaultRoot + zk.NodeTokens
	stranger := fixture.NewProbe(t, cfg)
	stranger.Create(tokens+"/planted1", "evil")
	stranger.Create(tokens+"/planted2", "evil")
	// One that pretends to be the fleet's: with an ACL that its maker knows from the password's hash, or that hides it.
	stranger.Create(tokens+"/planted3", "evil")
	stranger.SetACL(tokens+"/planted3", gozk.DigestACL(gozk.PermAll, fleet.User, fleet.Password))
	cfg.Auth = fleet
	var said bytes.Buffer
	cfg.Logger = slog.New(slog.NewTextHandler(&said, nil))
	opened(t, cfg)
	assert.That(t, strings.Count(said.String(), "API tokens that other programs could have made are deleted") == 1, "the log says: %s", said.String())
	ours := fixture.NewProbe(t, cfg)
	for _, name := range []string{"/planted1", "/planted2", "/planted3"} {
		assert.That(t, ours.Stat(tokens+name) == nil, "%s is there", name)
	}
	// The fleet's own, made since, stay.
	o := assert.Value(OpenOffline(fixture.Context(t), cfg))(t)
	defer o.Close()
	assert.Value(o.Commit(fixture.Context(t), []zk.Op{{Kind: zk.OpCreate, Path: tokens + "/made", Data: []byte("ours")}}))(t)
	said.Reset()
	opened(t, cfg)
	assert.That(t, ours.Stat(tokens+"/made") != nil && !strings.Contains(said.String(), "deleted"), "the fleet's own token is gone: %s", said.String())
	_, err := stranger.Get(tokens + "/made")
	assert.That(t, errors.Is(err, gozk.ErrNoAuth), "a stranger reads a record: %v", err)
}

func TestWithRulesTheLocksAreTheFleetsAloneAndOpenAgainWithoutThem(t *testing.T) {
	cfg := fixture.Config(t)
	var said bytes.Buffer
	cfg.Logger = slog.New(slog.NewTextHandler(&said, nil))
	p := fixture.NewProbe(t, cfg)
	cfg.Auth = fleet
	opened(t, cfg)
	owner, dir := fixture.NewProbe(t, cfg), zk.DefaultRoot+zk.NodeLocks
	for _, c := range []struct {
		close bool
		who   conn.Access
		says  string
	}{{true, conn.Private, "they are closed now"}, {true, conn.Private, ""}, {false, conn.OpenToAll, "has opened them"}, {false, conn.OpenToAll, ""}} {
		said.Reset()
		cfg.CloseLocks = c.close
		opened(t, cfg)
		have, _ := owner.ACL(dir)
		assert.That(t, conn.SameACL(have, conn.ACLs(&zk.Config{Auth: fleet})[c.who]), "the ACL is %s", conn.DescribeACL(have))
		err := p.TryCreate(dir+"/planted", "", gozk.WorldACL(gozk.PermAll))
		assert.That(t, errors.Is(err, gozk.ErrNoAuth) == c.close, "closed %v: another program makes a lock's directory: %v", c.close, err)
		if err == nil {
			p.Delete(dir + "/planted")
		}
		assert.That(t, strings.Contains(said.String(), dir) == (c.says != "") && strings.Contains(said.String(), c.says), "closed %v: the log says %s", c.close, said.String())
	}
}

// Where ZooKeeper does not let the fleet close the locks, they lead around the rules.
func TestLocksThatCannotBeClosedRefuseAStartWithRules(t *testing.T) {
	cfg := fixture.Config(t)
	opened(t, cfg) // without an identity: no client has ADMIN on the directory of the locks
	cfg.Auth = fleet
	opened(t, cfg)
	cfg.CloseLocks = true
	_, err := Open(fixture.Context(t), cfg)
	fixture.MustBeFatal(t, "locks that stay open", err, zk.KindAuth)
	assert.That(t, strings.Contains(errString(err), zk.DefaultRoot+zk.NodeLocks), "it does not name the node: %v", err)
}
