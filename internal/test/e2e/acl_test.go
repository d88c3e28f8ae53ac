package e2e

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
	"lockkeeper/internal/zk/standalone"
)

var evil = zk.DigestACL(zk.PermAll, "evil", "x")

// identity is a file for --zk-auth-file.
func identity(t *testing.T, userAndPassword string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "auth")
	assert.NoError(t, os.WriteFile(file, []byte("digest "+userAndPassword+"\n"), 0o600))
	return file
}

// runNode serves a store in this process until stop is called.
func runNode(t *testing.T, node *standalone.Node) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx) }()
	return func() {
		cancel()
		assert.NoError(t, <-ended)
	}
}

// dialOwn is a client that owns the store, as the gateway does.
func dialOwn(t *testing.T, node *standalone.Node) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect([]string{"own:2181"}, 10*time.Second, zk.WithLogger(quiet{}), zk.WithHostProvider(&oneHost{}),
		zk.WithDialer(func(network, addr string, _ time.Duration) (net.Conn, error) {
			return node.Dial(t.Context(), network, addr)
		}))
	assert.NoError(t, err)
	go func() {
		for range events {
		}
	}()
	return conn
}

// oneHost resolves nothing.
type oneHost struct{}

func (oneHost) Init([]string) error  { return nil }
func (oneHost) Len() int             { return 1 }
func (oneHost) Next() (string, bool) { return "own:2181", false }
func (oneHost) Connected()           {}

// shutOutLines counts what the log says about a lease that an ACL shuts the gateway out of.
func (g *gateway) shutOutLines(lease string) (n int) {
	for line := range strings.Lines(g.log.String()) {
		if strings.Contains(line, "shuts this gateway out") && strings.Contains(line, lease) {
			n++
		}
	}
	return n
}

// works takes a lock and lets it go.
func (g *gateway) works(lock string) {
	g.t.Helper()
	g.letGo(g.hold(lock, "ttl=1m").Token)
}

// everyNode is each node of the layout, and those given.
func everyNode(more ...string) []string {
	return append(more, "/lockkeeper", "/lockkeeper/locks", "/lockkeeper/settings", "/lockkeeper/namespaces", "/lockkeeper/gateways",
		"/lockkeeper/guards", "/lockkeeper/succession", "/lockkeeper/keys", "/lockkeeper/outbox", "/lockkeeper/webhooks", "/lockkeeper/secret",
		"/lockkeeper/auth", "/lockkeeper/auth/tokens")
}

func TestAnotherClientsSetACLLeavesTheServiceWorking(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedRealT(t)
	embedded := freeAddr(t)
	for name, c := range map[string]struct {
		g            *gateway
		addr, chroot string
	}{
		"embedded":             {startStandalone(t, "--embedded-listen="+embedded), embedded, ""},
		"ensemble, identified": {startGateway(t, addr+chroot, "--zk-auth-file="+identity(t, "fleet:sesame")), addr, chroot},
	} {
		t.Run(name, func(t *testing.T) {
			lease := c.g.hold("deploy", "ttl=1m")
			f := newForeign(t, c.addr, c.chroot)
			for _, path := range everyNode("/lockkeeper/locks/deploy", lease.Znode) {
				_, err := f.SetACL(c.chroot+path, evil, -1)
				assert.That(t, errors.Is(err, zk.ErrNoAuth), "setACL on %s by a stranger: %v, want NoAuth", path, err)
			}
			c.g.letGo(lease.Token)
			c.g.works("deploy")
			c.g.terminate()
			c.g.restart()
			c.g.awaitServing()
			c.g.works("deploy")
		})
	}
}

// Releases before this one left ADMIN on open nodes to everyone, and a stranger has made use of it.
func TestAStoreThatAnotherClientHasClosedServesAgain(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	g := startStandalone(t, "--embedded-listen="+addr)
	lease := g.hold("deploy", "ttl=2m")
	g.terminate()
	node, err := standalone.Open(standalone.Config{Dir: g.dataDir})
	assert.NoError(t, err)
	stop := runNode(t, node)
	owner := dialOwn(t, node)
	for _, path := range everyNode("/lockkeeper/locks/deploy", lease.Znode) {
		assert.Value(owner.SetACL(path, evil, -1))(t, "setACL on %s", path)
	}
	owner.Close()
	stop()
	g.restart()
	g.awaitServing()
	g.beatUntil(lease.Token, api.StateHeld)
	g.letGo(lease.Token)
	g.works("deploy")
	// Others queue again, and cannot close it again.
	f := newForeign(t, addr, "")
	eventually(t, patience, func() error {
		_, _, err := f.Children("/lockkeeper/locks/deploy")
		return err
	}, "the lock's directory is open again")
	_, err = f.SetACL("/lockkeeper/locks", evil, -1)
	assert.That(t, errors.Is(err, zk.ErrNoAuth), "setACL by a stranger: %v", err)
	_, _, err = f.Get("/lockkeeper/secret")
	assert.That(t, errors.Is(err, zk.ErrNoAuth), "a stranger reads the secret: %v", err)
}

func TestNoClientBecomesSuperThroughEmbeddedListen(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	startStandalone(t, "--embedded-listen="+addr)
	for _, secret := range []string{"super:admin", "super", ""} {
		f := newForeign(t, addr, "")
		assert.That(t, f.AddAuth("super", []byte(secret)) != nil, "addAuth super %q was accepted", secret)
	}
	f := newForeign(t, addr, "")
	assert.NoError(t, f.AddAuth("digest", []byte("super:admin")))
	_, _, err := f.Get("/lockkeeper/secret")
	assert.That(t, errors.Is(err, zk.ErrNoAuth), "digest super reads the secret: %v", err)
}

// A contender of an earlier release is open to every client's setACL. set and setAcl come right behind each other.
func TestALeaseWhoseContenderAnotherClientClosesStillEndsAtItsTTL(t *testing.T) {
	t.Parallel()
	const ttl = 12 * time.Second
	addr, chroot := zkreal.SharedRealT(t)
	g := startGateway(t, addr+chroot, "--zk-auth-file="+identity(t, "fleet:sesame"))
	fleet, stranger := newForeign(t, addr, chroot), newForeign(t, addr, chroot)
	assert.NoError(t, fleet.AddAuth("digest", []byte("fleet:sesame")))
	shut := func(lock string) api.Lease {
		var lease api.Lease
		// The end of the closed contender before it is found by a listing, once a second.
		eventually(t, patience, func() error {
			var a *apitest.Answer
			var err error
			if lease, a, err = g.Acquire(t.Context(), lock, apitest.Query("ttl="+ttl.String())); err == nil && a.Status != http.StatusCreated {
				err = unexpected(a)
			}
			return err
		}, "the lock is held")
		eventually(t, patience, func() error { // the gateway's check of ACLs after its start may come between
			_, err := fleet.SetACL(chroot+lease.Znode, zk.WorldACL(zk.PermAll), -1)
			if err == nil {
				_, err = stranger.Set(chroot+lease.Znode, []byte("mine"), -1)
			}
			if err == nil {
				_, err = stranger.SetACL(chroot+lease.Znode, evil, -1)
			}
			return err
		}, "the contender is closed")
		return lease
	}
	// The gateway may read between the two requests of the stranger, and then it knows what was written.
	var lease api.Lease
	for shutOut := false; !shutOut; {
		lease = shut("deploy")
		for range 3 {
			_, a, err := g.Heartbeat(t.Context(), lease.Token)
			assert.Must(t, err == nil && a.Status == http.StatusOK, "heartbeat: %v %+v", err, a)
		}
		if shutOut = g.shutOutLines(lease.LeaseID) > 0; !shutOut {
			g.letGo(lease.Token)
		}
	}
	begun := time.Now()
	released := shut("report")
	g.letGo(released.Token)
	g.works("other")
	g.awaitLock(patience, "deploy", 0, 0)
	took := time.Since(begun)
	assert.That(t, took <= ttl+required(5*time.Second), "it ended %v after its last heartbeat", took)
	assert.Equal(t, g.shutOutLines(lease.LeaseID), 1, "lines of log about one lease")
	assert.Equal(t, strings.Count(g.log.String(), "lease could not be read"), 0, "times the log says that the lease could not be read")
}

// forge makes the token of a lease from what every client could read.
func forge(t *testing.T, secret []byte, lease string) string {
	t.Helper()
	var record struct {
		Keys []struct {
			ID  string `json:"id"`
			Key []byte `json:"key"`
		} `json:"keys"`
	}
	err := json.Unmarshal(secret, &record)
	assert.Must(t, err == nil && len(record.Keys) != 0, "the secret: %v", err)
	mac := hmac.New(sha256.New, record.Keys[0].Key)
	mac.Write([]byte(lease))
	return "lk1." + lease + "." + record.Keys[0].ID + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16])
}

func TestAForgedTokenIsRefusedAfterTheSecretWasRotated(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedRealT(t)
	file := identity(t, "fleet:sesame")
	g := startGateway(t, addr+chroot)
	if log := g.log.String(); !strings.Contains(log, "--zk-auth-file") || !strings.Contains(log, "forge lease tokens") {
		t.Errorf("the log does not say that the secret is open:\n%s", log)
	}
	f := newForeign(t, addr, chroot)
	secret, _, err := f.Get(chroot + "/lockkeeper/secret")
	assert.NoError(t, err)
	victim := g.hold("deploy", "ttl=10s")
	assert.Must(t, forge(t, secret, victim.LeaseID) == victim.Token, "the forged token differs from the lease's: the test forges wrongly")
	rotate := []string{"secret", "rotate", "--offline", "--zk=" + addr + chroot, "--zk-auth-file=" + file}
	g.terminate()

	// The first start with an identity closes what is open. The secret was read before that.
	g.flags = append(g.flags, "--zk-auth-file="+file)
	mark := len(g.log.String())
	g.restart()
	g.awaitServing()
	_, _, err = f.Get(chroot + "/lockkeeper/secret")
	assert.That(t, errors.Is(err, zk.ErrNoAuth), "a stranger reads the secret: %v", err)
	if log := g.log.String()[mark:]; !strings.Contains(log, "compromised") || !strings.Contains(log, "gateway secret rotate") {
		t.Errorf("the log does not say that the secret is compromised:\n%s", log)
	}
	exposed := func(want bool) {
		t.Helper()
		info, _, err := g.Info(t.Context())
		assert.That(t, err == nil && info.Zookeeper.SecretExposed == want,
			"secret_exposed is %v, want %v (%v)", info.Zookeeper.SecretExposed, want, err)
		line := "lockkeeper_secret_exposed 0"
		if want {
			line = "lockkeeper_secret_exposed 1"
		}
		a, err := g.Send(t.Context(), http.MethodGet, "/metrics")
		assert.That(t, err == nil && strings.Contains(string(a.Body), line), "the metrics lack %s (%v)", line, err)
	}
	exposed(true)
	stolen := g.hold("report", "ttl=1m")
	a, err := g.Release(t.Context(), forge(t, secret, stolen.LeaseID))
	assert.That(t, err == nil && a.Status == http.StatusNoContent, "a forged token before the rotation: %v %+v", err, a)
	code, out := exitCode(t, rotate...)
	assert.That(t, code == 75 && strings.Contains(out, g.listen), "while a gateway runs: exit code %d\n%s", code, out)
	g.terminate()

	code, out = exitCode(t, rotate...)
	assert.That(t, code == 0 && strings.Contains(out, "end at their TTLs"), "exit code %d\n%s", code, out)
	owner := newForeign(t, addr, chroot)
	assert.NoError(t, owner.AddAuth("digest", []byte("fleet:sesame")))
	fresh, _, err := owner.Get(chroot + "/lockkeeper/secret")
	assert.That(t, err == nil && !strings.Contains(out, forge(t, fresh, victim.LeaseID)) && !strings.Contains(out, string(fresh)),
		"%v, or the key is printed:\n%s", err, out)

	mark = len(g.log.String())
	g.restart()
	g.awaitServing()
	exposed(false)
	assert.That(t, !strings.Contains(g.log.String()[mark:], "compromised"), "the log still says that the secret is compromised")
	for what, lease := range map[string]string{"the victim's": victim.LeaseID, "a new one's": g.hold("fresh", "ttl=1m").LeaseID} {
		a, err := g.Release(t.Context(), forge(t, secret, lease))
		assert.That(t, err == nil && a.Status == http.StatusForbidden,
			"a forged token of %s lease after the rotation: %v %+v", what, err, a)
	}
	g.awaitLock(2*patience, "deploy", 0, 0) // its contender is still the fleet's, and ends with its TTL

	// A second gateway that lacks the identity says so.
	code, out = exitCode(t, "--zk="+addr+chroot, "--listen="+freeAddr(t))
	assert.That(t, code == 78 && strings.Contains(out, "--zk-auth-file"), "without the identity: exit code %d\n%s", code, out)
}

func TestTheSecretOfAnOwnStoreIsRotated(t *testing.T) {
	t.Parallel()
	g := startStandalone(t)
	lease := g.hold("deploy", "ttl=5m", apitest.Key("a-fresh-random-key-of-mine"))
	rotate := []string{"secret", "rotate", "--offline", "--data-dir=" + g.dataDir}
	code, out := exitCode(t, rotate...)
	assert.That(t, code == 75, "while the gateway runs: exit code %d\n%s", code, out)
	g.terminate()
	code, out = exitCode(t, rotate...)
	assert.Must(t, code == 0, "exit code %d\n%s", code, out)
	g.restart()
	g.awaitServing()
	_, a, err := g.Heartbeat(t.Context(), lease.Token)
	expect(t, a, err, http.StatusForbidden, "lease_token_wrong")
	var again api.Lease
	eventually(t, patience, func() error { // the takeover may be under way
		if again, a, err = g.Acquire(t.Context(), "deploy", apitest.Query("ttl=5m"), apitest.Key("a-fresh-random-key-of-mine")); err == nil && a.Status != http.StatusOK {
			err = unexpected(a)
		}
		return err
	}, "the repeat is answered")
	assert.That(t, again.LeaseID == lease.LeaseID && again.Token != lease.Token, "the repeat was answered %s", a.Body)
	g.letGo(again.Token)
}

// Its maker knows the keys.
func TestASecretThatOthersMadeFirstIsNotAccepted(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedRealT(t)
	f := newForeign(t, addr, chroot)
	f.put("/lockkeeper", nil)
	f.put("/lockkeeper/secret", []byte(`{"fleet_id":"abcdefgh","keys":[{"id":"evil","key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}]}`))
	code, out := exitCode(t, "--zk="+addr+chroot, "--listen="+freeAddr(t), "--zk-auth-file="+identity(t, "fleet:sesame"))
	assert.That(t, code == 78 && strings.Contains(out, "/lockkeeper/secret") && strings.Contains(out, "hint: "),
		"exit code %d\n%s", code, out)
}

// ZooKeeper shows a digest as x to clients without ADMIN, and takes "user:x" for an identity. Neither proves a right.
func TestAnEntryThatAnotherClientWroteInOurNameRefusesTheStart(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedRealT(t)
	file := identity(t, "fleet:sesame")
	startGateway(t, addr+chroot).terminate()
	f := newForeign(t, addr, chroot)
	acl := append(zk.WorldACL(zk.PermRead), zk.ACL{Perms: zk.PermAll &^ zk.PermAdmin, Scheme: "digest", ID: "fleet:x"})
	acl = append(acl, evil...)
	path := chroot + "/lockkeeper/fence_base"
	assert.Value(f.SetACL(path, acl, -1))(t)
	for _, command := range [][]string{{"--listen=" + freeAddr(t)}, {"secret", "rotate", "--offline"}} {
		code, out := exitCode(t, append(command, "--zk="+addr+chroot, "--zk-auth-file="+file)...)
		assert.That(t, code == 78 && strings.Contains(out, "hint: have ZooKeeper's super user run: setAcl "+path+" "),
			"%v: exit code %d\n%s", command, code, out)
	}
}

// A gateway writes the version last, so a root with a version and little else is not a gateway's.
func TestAVersionThatOthersMadeFirstMakesNoRootTheirs(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedRealT(t)
	f := newForeign(t, addr, chroot)
	f.put("/lockkeeper", nil)
	f.put("/lockkeeper/version", []byte(`{"layout":1,"oldest_reader":1}`))
	f.put("/lockkeeper/secret", []byte(`{"fleet_id":"abcdefgh","keys":[{"id":"evil","key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}]}`))
	code, out := exitCode(t, "--zk="+addr+chroot, "--listen="+freeAddr(t), "--zk-auth-file="+identity(t, "fleet:sesame"))
	assert.That(t, code == 78 && strings.Contains(out, "root_taken") && strings.Contains(out, "hint: "), "exit code %d\n%s", code, out)
}

// Without this no other program could create its root any more.
func TestNoOtherClientClosesTheTreeOfAnOwnStore(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	startStandalone(t, "--embedded-listen="+addr)
	f := newForeign(t, addr, "")
	for _, path := range []string{"/", "/zookeeper"} {
		_, err := f.SetACL(path, evil, -1)
		assert.That(t, errors.Is(err, zk.ErrNoAuth), "setACL on %s by a stranger: %v, want NoAuth", path, err)
	}
	newForeign(t, addr, "").put("/theirs", nil)
}

// Curator makes a lock's directory open to every client. A setACL there costs that one lock, and no other.
func TestAClosedDirectoryOfAnotherProgramCostsOnlyItsLock(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedRealT(t)
	g := startGateway(t, addr+chroot, "--zk-auth-file="+identity(t, "fleet:sesame"))
	testkit.Eventually(t, patience, func() bool { return strings.Contains(g.log.String(), "the check of ACLs is over") }, "the check at the start is over")
	stranger := newForeign(t, addr, chroot)
	stranger.put("/lockkeeper/locks/theirs", nil) // what comes after the check is not closed
	lease := g.hold("theirs", "ttl=20s")
	assert.Value(stranger.SetACL(chroot+"/lockkeeper/locks/theirs", evil, -1))(t)
	_, a, err := g.Heartbeat(t.Context(), lease.Token)
	assert.That(t, err == nil && a.Status == http.StatusOK, "heartbeat: %v %+v", err, a)
	a, err = g.Release(t.Context(), lease.Token)
	if err != nil || a.Status != http.StatusServiceUnavailable || !strings.Contains(string(a.Body), "ACL of the lock's directory") {
		t.Errorf("release: %v %d %s", err, a.Status, a.Body)
	}
	_, a, err = g.Acquire(t.Context(), "theirs", apitest.Query("ttl=20s&async=true"))
	assert.That(t, err == nil && a.Status == http.StatusServiceUnavailable && strings.Contains(string(a.Body), "ACL"),
		"acquire: %v %d %s", err, a.Status, a.Body)
	g.works("other")
	elapse(t, 3*time.Second) // the deletion is tried once a second
	assert.Equal(t, g.shutOutLines(lease.LeaseID), 1, "lines of log about one lease")
	assert.That(t, !strings.Contains(g.log.String(), "could not be deleted"), "each attempt is logged")
}
