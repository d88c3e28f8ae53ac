package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/audit"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
)

// audited are the lines of audit logs.
func audited(t *testing.T, paths ...string) (all []audit.Line) {
	t.Helper()
	for _, path := range paths {
		text := assert.Value(os.ReadFile(path))(t)
		for line := range bytes.Lines(text) {
			var l audit.Line
			assert.NoError(t, json.Unmarshal(line, &l), string(line))
			all = append(all, l)
		}
	}
	return all
}

// has reports whether a line fits the words, each a part of it as JSON.
func has(lines []audit.Line, words ...string) bool {
	for _, line := range lines {
		text, _ := json.Marshal(line)
		fits := true
		for _, word := range words {
			fits = fits && strings.Contains(string(text), word)
		}
		if fits {
			return true
		}
	}
	return false
}

func TestTheAuditLogTellsWhoDidWhatAndNoSecret(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	g := startStandalone(t, "--audit-log="+path)
	lease := g.hold("deploy", "ttl=1m&owner=me")
	g.beat(lease.Token, "held")
	g.letGo(lease.Token)
	g.hold("short", "ttl=1s")
	_, a, err := g.Acquire(t.Context(), "busy", apitest.Query("ttl=1m"))
	expect(t, a, err, http.StatusCreated, "")
	_, a, err = g.Acquire(t.Context(), "busy", apitest.Query("ttl=1m"))
	expect(t, a, err, http.StatusConflict, "held_by_other")
	a, err = g.Release(t.Context(), lease.Token[:len(lease.Token)-2]+"zz")
	assert.Must(t, err == nil && a.Status == http.StatusForbidden, "%v %+v", err, a)
	made := must(t, "token", "create", "--name", "ci", "--data-dir", g.dataDir)
	token := made[strings.Index(made, "lkt_"):][:63]
	must(t, "token", "revoke", "ci", "--data-dir", g.dataDir)
	want := [][]string{
		{`"event":"request"`, `"operation":"Acquire"`, `"result":"ok"`, `"status":201`, `"lock":"deploy"`, `"principal":"anonymous"`, `"address":"127.0.0.1"`, `"request_id":"`},
		{`"operation":"Release"`, `"result":"ok"`, `"status":204`, `"lease_id":"` + lease.LeaseID},
		{`"operation":"Acquire"`, `"result":"failed"`, `"code":"held_by_other"`, `"lock":"busy"`},
		{`"result":"refused"`, `"status":403`, `"code":"lease_token_wrong"`},
		{`"event":"lease.expired"`, `"lock":"short"`},
		{`"event":"token.created"`, `"token_name":"ci"`, `"token_id":"` + token[4:12], `"principal":"uid:`},
		{`"event":"token.revoked"`, `"token_id":"` + token[4:12], `"principal":"uid:`},
	}
	for _, words := range want {
		testkit.Eventually(t, patience, func() bool { return has(audited(t, path), words...) }, "the audit log has %q", words)
	}
	for _, line := range audited(t, path) {
		assert.That(t, line.Operation != "Heartbeat", "a heartbeat stands in the audit log: %+v", line)
	}
	text := string(assert.Value(os.ReadFile(path))(t))
	for what, secret := range map[string]string{"a lease token": lease.Token[strings.LastIndexByte(lease.Token, '.')+1:], "an API token": token[13:]} {
		assert.That(t, !strings.Contains(text, secret) && !strings.Contains(g.log.String(), secret), "%s stands in a log", what)
	}
}

// As logrotate does it: the file is moved away and the gateway gets SIGHUP, while clients take and release locks.
func TestRotatingTheAuditLogUnderLoadLosesNoLine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	g := startStandalone(t, "--audit-log="+path)
	stop, ended := make(chan struct{}), make(chan int, 4)
	for w := range cap(ended) {
		go func() {
			cycles := 0
			defer func() { ended <- cycles }()
			for {
				select {
				case <-stop:
					return
				default:
				}
				g.letGo(g.hold(fmt.Sprint("lock-", w), "ttl=1m").Token)
				cycles++
			}
		}()
	}
	files := []string{path}
	for i := range 5 {
		testkit.Eventually(t, patience, func() bool { return len(audited(t, path)) > 20 }, "file %d has lines", i)
		moved := fmt.Sprint(path, ".", i)
		assert.NoError(t, os.Rename(path, moved))
		files = append(files, moved)
		g.proc.Signal(syscall.SIGHUP)
		testkit.Eventually(t, patience, func() bool { info, err := os.Stat(path); return err == nil && info.Mode() == 0o600 }, "a new file after %d", i)
	}
	close(stop)
	cycles := 0
	for range cap(ended) {
		cycles += <-ended
	}
	g.terminate()
	acquired, released := 0, 0
	for _, line := range audited(t, files...) {
		switch {
		case line.Operation == "Acquire" && line.Result == "ok":
			acquired++
		case line.Operation == "Release" && line.Result == "ok":
			released++
		}
		assert.That(t, line.Event != "audit.lost", "lines were lost: %+v", line)
	}
	assert.That(t, acquired == cycles && released == cycles, "%d cycles, %d acquired and %d released in the log", cycles, acquired, released)
	assert.That(t, cycles > 0, "no cycles")
}

// The command talks to ZooKeeper alone; the gateways hear of it.
func TestEveryGatewayHearsOfATokenThatTheFleetsIdentityMakesOrRevokes(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedRealT(t)
	auth := "--zk-auth-file=" + identity(t, "fleet:sesame")
	var logs []string
	for i := range 2 {
		path := filepath.Join(t.TempDir(), fmt.Sprint("audit-", i, ".log"))
		logs = append(logs, path)
		startGateway(t, addr+chroot, auth, "--audit-log="+path)
	}
	heard := func(event, id string) {
		t.Helper()
		for _, path := range logs {
			eventually(t, patience, func() error {
				if !has(audited(t, path), `"event":"`+event+`"`, `"token_id":"`+id+`"`, `"admin":true`) {
					return errors.New("not yet")
				}
				return nil
			}, "%s in %s", event, path)
		}
	}
	made := must(t, "token", "create", "--name=ops", "--admin", "--ttl=8h", "--zk="+addr+chroot, auth)
	id := made[strings.Index(made, "lkt_"):][4:12]
	heard("token.created", id)
	must(t, "token", "revoke", id, "--zk="+addr+chroot, auth)
	heard("token.revoked", id)
	// No other client of ZooKeeper reads or makes one.
	f := newForeign(t, addr, chroot)
	_, _, err := f.Get(chroot + "/lockkeeper/auth/tokens/" + id)
	assert.ErrorIs(t, err, zk.ErrNoAuth)
	_, _, err = f.Children(chroot + "/lockkeeper/auth/tokens")
	assert.ErrorIs(t, err, zk.ErrNoAuth)
	_, err = f.Create(chroot+"/lockkeeper/auth/tokens/abcdefgh", []byte("{}"), 0, zk.WorldACL(zk.PermAll))
	assert.ErrorIs(t, err, zk.ErrNoAuth)
}
