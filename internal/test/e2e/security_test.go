package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
)

// The commands of docs/operate/security.md, exactly as they are written: from no configuration to two teams over TLS.
func TestTwoTeamsShareAGatewayAsThePageSays(t *testing.T) {
	t.Parallel()
	const page = "docs/operate/security.md"
	list, err := examples(documents(t)[page])
	assert.NoError(t, err)
	bin, listen := t.TempDir(), freeAddr(t)
	assert.NoError(t, os.Symlink(binary(t), filepath.Join(bin, "gateway")))
	first := example{command: "trap 'kill $(jobs -p); wait' EXIT; export GORACE=halt_on_error=1 LOCKKEEPER_LISTEN=" + listen + " PATH=" + bin + ":$PATH"}
	// The log is shown when a line fails, and says whether the gateway ended well.
	last := example{command: "for job in 1 2; do kill %$job; wait %$job; echo ended with $?; done; trap - EXIT; cat gateway.log users.log", shows: "ended with 0 … ended with 0"}
	list = append(append([]example{first}, list...), last)
	ran := runExamples(t, list, "localhost:8080", listen)
	for i, r := range ran {
		if err := r.check(&list[i]); err != nil {
			t.Errorf("%s:%d: %s\n%v\nanswer: %s%s", page, list[i].line, list[i].command, err, r.out, r.complaints)
		}
	}
	said := ran[len(ran)-1].out
	assert.That(t, !strings.Contains(said, "DATA RACE") && !strings.Contains(said, "level=WARN msg=\"every client"), "the log:\n%s", said)
	refused := slices.IndexFunc(list, func(e example) bool {
		return strings.Contains(e.command, "audit.log") && strings.HasPrefix(e.command, "grep")
	})
	assert.Equal(t, strings.TrimSpace(ran[refused].out), "3", "refusals in the audit log")
	if t.Failed() {
		t.Log(said)
	}
}

// rulesFile is a file for --auth-file.
func rulesFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "auth.yaml")
	assert.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// Locks that were taken before there were rules are closed, too. A namespace that other programs share stays open, if the flags say so.
func TestWithRulesNoOtherClientOfZooKeeperReachesTheLocks(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedRealT(t)
	g := startGateway(t, addr+chroot, "--zk-auth-file="+identity(t, "fleet:sesame"), "--namespace=shared=/shared")
	f := newForeign(t, addr, chroot)
	before := g.hold("before", "ttl=5m")
	_, _, err := f.Get(chroot + before.Znode)
	assert.NoError(t, err, "without rules other programs read contenders")
	g.terminate()

	g.flags = append(g.flags, "--auth-file="+rulesFile(t, "anonymous: [read, acquire, operate]\n"))
	code, out := exitCode(t, g.flags...)
	assert.That(t, code == 78 && strings.Contains(out, "the namespace shared leads around --auth-file") && strings.Contains(out, "hint: add --open-namespace shared"), "exit code %d\n%s", code, out)
	g.flags = append(g.flags, "--open-namespace=shared")
	g.restart()
	g.awaitServing()
	after := g.hold("after", "ttl=5m")
	refused := func(path string) error {
		_, _, read := f.Get(chroot + path)
		_, wrote := f.Set(chroot+path, []byte("mine"), -1)
		_, acl := f.SetACL(chroot+path, evil, -1)
		_, created := f.Create(chroot+path+"/planted", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		deleted := f.Delete(chroot+path, -1)
		for _, err := range []error{read, wrote, acl, deleted} {
			if !errors.Is(err, zk.ErrNoAuth) {
				return fmt.Errorf("%s: %v, %v, %v, %v", path, read, wrote, acl, deleted)
			}
		}
		if created == nil {
			return fmt.Errorf("%s: a child was created", path)
		}
		return nil
	}
	for _, path := range []string{"/lockkeeper/locks/after", after.Znode} {
		assert.NoError(t, refused(path))
	}
	for _, path := range []string{"/lockkeeper/locks/before", before.Znode} {
		testkit.EventuallyNil(t, patience, func() error { return refused(path) }, "what was open is closed") // in the background
	}
	for _, path := range []string{"", "/locks", "/settings", "/succession", "/guards", "/gateways", "/namespaces"} {
		_, _, err = f.Children(chroot + "/lockkeeper" + path)
		assert.That(t, errors.Is(err, zk.ErrNoAuth), "others list %s: %v", path, err)
	}
	g.beatUntil(before.Token, api.StateHeld)
	g.letGo(before.Token)
	g.letGo(after.Token)
	shared := g.hold("common", "ttl=5m&ns=shared")
	_, _, err = f.Get(chroot + shared.Znode)
	assert.NoError(t, err, "a namespace that other programs share")

	// The commands that work without a gateway need the identity.
	g.terminate()
	at := "--zk=" + addr + chroot
	for _, args := range [][]string{{"export", "--output=" + t.TempDir() + "/out"}, {"sweep"}, {"secret", "rotate", "--offline"}, {"token", "list"}, {"token", "create", "--name=x"}} {
		code, out := exitCode(t, append(args, at)...)
		assert.That(t, code != 0 && strings.Contains(out, "--zk-auth-file") && !strings.Contains(out, "lkt_"), "%v: exit code %d\n%s", args, code, out)
	}
}

// With a secret that others have read they can speak for a gateway, and so for every principal.
func TestWithRulesASecretThatOthersCouldReadIsRefused(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedRealT(t)
	g := startGateway(t, addr+chroot)
	g.terminate()
	g.flags = append(g.flags, "--zk-auth-file="+identity(t, "fleet:sesame"))
	owner := newForeign(t, addr, chroot)
	assert.NoError(t, owner.AddAuth("digest", []byte("fleet:sesame")))
	g.restart()
	g.terminate()
	// As if a gateway with an identity had made the directory of the locks.
	assert.NoError(t, owner.Delete(chroot+"/lockkeeper/locks", -1))
	g.restart()
	g.terminate()
	g.flags = append(g.flags, "--auth-file="+rulesFile(t, "anonymous: [read]\n"))
	code, out := exitCode(t, g.flags...)
	assert.That(t, code == 78 && strings.Contains(out, "a secret that others could never read") && strings.Contains(out, "gateway secret rotate --offline"), "exit code %d\n%s", code, out)
	code, out = exitCode(t, "secret", "rotate", "--offline", "--zk="+addr+chroot, "--zk-auth-file="+strings.TrimPrefix(g.flags[len(g.flags)-2], "--zk-auth-file="))
	assert.That(t, code == 0, "exit code %d\n%s", code, out)
	_, _, err := newForeign(t, addr, chroot).Children(chroot + "/lockkeeper/locks")
	assert.That(t, errors.Is(err, zk.ErrNoAuth), "the rotation has opened the locks: %v", err)
	g.restart()
	g.awaitServing()
}

// In a fleet in which one gateway has no rules yet, callers of the others get no more through it than their roles give.
func TestRulesHoldWhileAFleetGetsThem(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedRealT(t)
	fleet := "--zk-auth-file=" + identity(t, "fleet:sesame")
	without := startGateway(t, addr+chroot, fleet)
	with := startGateway(t, addr+chroot, fleet, "--auth-file="+rulesFile(t, "anonymous: [read]\nroles: {all: [{ns: \"*\", locks: \"*\", verbs: [read, acquire, operate]}]}\nwho: [{token: ci, roles: [all]}]\n"))
	code, made := exitCode(t, "token", "create", "--name=ci", "--zk="+addr+chroot, fleet)
	assert.Must(t, code == 0, "exit code %d\n%s", code, made)
	secret := regexp.MustCompile(`lkt_\w+`).FindString(made)
	as := apitest.Header("Authorization", "Bearer "+secret)
	eventually(t, patience, func() error {
		_, a, err := with.Acquire(t.Context(), "mine", apitest.Query("ttl=5m"), as)
		if err == nil && a.Status != http.StatusCreated && a.Code() != "held_by_other" {
			err = unexpected(a)
		}
		return err
	}, "the token is known")

	lease := without.hold("deploy", "ttl=5m")
	// A caller's request goes to no gateway that would do it for every caller.
	eventually(t, patience, func() error { // its registration is read
		a, err := with.Send(t.Context(), http.MethodPatch, "/v1/leases/"+lease.LeaseID+"?metadata=x", as, apitest.Token(lease.Token))
		if err == nil && (a.Code() != "owner_unreachable" || !strings.Contains(string(a.Body), "--auth-file")) {
			err = unexpected(a)
		}
		return err
	}, "the change is not sent on")
	// The lease token is the right, at any gateway.
	_, a, err := with.Heartbeat(t.Context(), lease.Token)
	expect(t, a, err, http.StatusOK, "")

	// What comes from the gateway without rules gets no more than lease tokens give.
	theirs, a, err := with.Acquire(t.Context(), "theirs", apitest.Query("ttl=5m"), as)
	expect(t, a, err, http.StatusCreated, "")
	a, err = without.Send(t.Context(), http.MethodPatch, "/v1/leases/"+theirs.LeaseID+"?metadata=x", apitest.Token("lk1."+theirs.LeaseID+".k1.AbCdEfGhIjKlMnOpQr-_01"))
	assert.That(t, err == nil && a.Status >= 400, "a wrong token: %v %+v", err, a)
	a, err = without.Send(t.Context(), http.MethodPatch, "/v1/leases/"+theirs.LeaseID+"?metadata=x", apitest.Token(theirs.Token))
	expect(t, a, err, http.StatusOK, "") // by its token
	_, a, err = without.Heartbeat(t.Context(), theirs.Token)
	expect(t, a, err, http.StatusOK, "")
	a, err = with.Release(t.Context(), lease.Token)
	expect(t, a, err, http.StatusNoContent, "")
}

// A start without any configuration is what it was, and says once that every client may do everything.
func TestAStartWithoutConfigurationHasOneWarning(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "")
	g.dataDir = t.TempDir()
	g.flags = []string{"--listen=" + g.listen, "--data-dir=" + g.dataDir, "--log-format=json"}
	g.start()
	g.awaitReady()
	g.letGo(g.hold("deploy", "ttl=1m").Token)
	g.terminate()
	var warnings []string
	for line := range strings.Lines(g.log.String()) {
		if strings.Contains(line, `"level":"WARN"`) && !strings.Contains(line, `"msg":"request"`) {
			warnings = append(warnings, line)
		}
	}
	assert.That(t, len(warnings) == 1 && strings.Contains(warnings[0], "may do everything") && strings.Contains(warnings[0], "docs/operate/security.md"), "%q", warnings)
}
