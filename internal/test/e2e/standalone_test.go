package e2e

import (
	"fmt"
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
)

// backWithin is the requirement: from the start of a gateway that was killed until it answers a heartbeat.
const backWithin = 2 * time.Second

// newStandalone prepares a gateway without --zk, as it comes: with its defaults, and a data directory of its own.
func newStandalone(t testing.TB, flags ...string) *gateway {
	t.Helper()
	g := &gateway{t: t, listen: freeAddr(t), log: &journal{}, dataDir: filepath.Join(t.TempDir(), "data")}
	g.flags = append([]string{"--data-dir=" + g.dataDir, "--listen=" + g.listen, "--log-format=json", "--log-level=debug"}, flags...)
	g.Client = apitest.New(t, g.url())
	t.Cleanup(g.close)
	return g
}

func startStandalone(t testing.TB, flags ...string) *gateway {
	t.Helper()
	g := newStandalone(t, flags...)
	g.start()
	g.awaitServing()
	return g
}

// backAtOnce starts a gateway whose process is gone, and demands that a heartbeat is answered 200 within the bound.
func (g *gateway) backAtOnce(token string) api.Heartbeat {
	g.t.Helper()
	began := time.Now()
	g.start()
	beat := g.firstBeat(token)
	took := time.Since(began)
	g.t.Logf("answered %v after the start", took)
	assert.That(g.t, took <= required(backWithin), "the first heartbeat was answered %v after the start, not within %v", took, backWithin)
	return beat
}

// firstBeat heartbeats until it is answered 200; meanwhile only 503 may be the answer, or none.
func (g *gateway) firstBeat(token string) (beat api.Heartbeat) {
	g.t.Helper()
	eventually(g.t, patience, func() error {
		var a *apitest.Answer
		var err error
		beat, a, err = g.Heartbeat(g.t.Context(), token)
		if err == nil && a.Status != http.StatusOK {
			assert.Must(g.t, a.Status == http.StatusServiceUnavailable, "a heartbeat is answered %d %s", a.Status, a.Body)
			err = unexpected(a)
		}
		return err
	}, "a heartbeat is answered")
	return beat
}

// It runs alone: what it measures is a gateway, not how many of them share the machine.
func TestAKilledGatewayWithoutZooKeeperGoesOnWithinTwoSeconds(t *testing.T) {
	g := startStandalone(t)
	info, _, err := g.Info(t.Context())
	assert.That(t, err == nil && info.Mode == api.Embedded, "%v, the mode is %s", err, info.Mode)
	key := apitest.Key("a-fresh-random-key-of-mine")
	keyed := g.hold("keyed", "ttl=2m&owner=me", key)
	lease := g.hold("deploy", "ttl=2m&owner=me&metadata=job+17")
	second, third := g.queue("deploy", "ttl=2m&owner=you"), g.queue("deploy", "ttl=2m&owner=third")
	for round, end := range []func(){g.kill, g.terminate, g.kill} {
		end()
		if beat := g.backAtOnce(lease.Token); beat.State != api.StateHeld || beat.FencingToken != lease.FencingToken {
			t.Errorf("round %d: the heartbeat says %+v, the fencing token was %d", round, beat, lease.FencingToken)
		}
		g.unchanged(lease, second, third)
		again, a, err := g.Acquire(t.Context(), "keyed", apitest.Query("ttl=2m&owner=me"), key)
		expect(t, a, err, http.StatusOK, "")
		assert.That(t, again.LeaseID == keyed.LeaseID && again.Token == keyed.Token && a.Header.Get("Idempotency-Replayed") == "true",
			"round %d: the repeat was answered %s", round, a.Body)
	}
	last := lease
	for _, next := range []api.Lease{second, third} {
		g.letGo(last.Token)
		granted, a, err := g.Lease(t.Context(), "self", apitest.Token(next.Token), apitest.Query("wait=20s&since="+next.Rev))
		for err == nil && granted.State == api.StateWaiting {
			granted, a, err = g.Lease(t.Context(), "self", apitest.Token(next.Token), apitest.Query("wait=20s&since="+granted.Rev))
		}
		expect(t, a, err, http.StatusOK, "")
		assert.That(t, granted.State == api.StateHeld && granted.FencingToken > last.FencingToken,
			"after %d: %s", last.FencingToken, a.Body)
		granted.Token = next.Token
		last = granted
	}
}

func TestAStoreHasOneProcessAtATime(t *testing.T) {
	t.Parallel()
	g := startStandalone(t)
	code, said := exitCode(t, "--data-dir="+g.dataDir, "--listen="+freeAddr(t))
	if code != 75 || !strings.Contains(said, "in use by another process") || !strings.Contains(said, g.dataDir) || !strings.Contains(said, "hint: ") {
		t.Errorf("exit code %d:\n%s", code, said)
	}
	g.letGo(g.hold("deploy", "").Token)
}

func TestADamagedStoreIsRefused(t *testing.T) {
	t.Parallel()
	g := startStandalone(t)
	g.hold("deploy", "ttl=1m")
	g.terminate()
	path := filepath.Join(g.dataDir, "lockkeeper.db")
	data := assert.Value(os.ReadFile(path))(t)
	at := strings.Index(string(data), "/lockkeeper/locks/deploy")
	assert.Must(t, at >= 0, "the lock is not in the store")
	for i := range data { // every copy of that page
		if i+24 < len(data) && string(data[i:i+24]) == "/lockkeeper/locks/deploy" {
			data[i+1] ^= 1
		}
	}
	assert.NoError(t, os.WriteFile(path, data, 0o600))
	code, said := exitCode(t, g.flags...)
	assert.That(t, code == 74 && strings.Contains(said, "damaged") && strings.Contains(said, "gateway restore"),
		"exit code %d:\n%s", code, said)
}

// Other programs' clients stand in the same queue, and their sessions outlive a gateway that is killed.
func TestAnotherZooKeeperClientStandsInTheSameQueue(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	g := startStandalone(t, "--embedded-listen="+addr)
	conn, events, err := zk.Connect([]string{addr}, 20*time.Second, zk.WithLogger(quiet{}))
	assert.NoError(t, err)
	defer conn.Close()
	go func() {
		for range events {
		}
	}()
	theirs := zk.NewLock(conn, "/lockkeeper/locks/shared", zk.WorldACL(zk.PermAll))
	assert.NoError(t, theirs.Lock())
	session := conn.SessionID()
	_, a, err := g.Acquire(t.Context(), "shared", apitest.Query("ttl=1m"))
	expect(t, a, err, http.StatusConflict, "held_by_other")
	ticket := g.queue("shared", "ttl=1m")

	g.kill()
	g.restart()
	eventually(t, patience, func() error {
		_, _, err := conn.Exists("/lockkeeper")
		return err
	}, "the other client is connected again")
	assert.That(t, conn.SessionID() == session, "the other client has lost its session")
	eventually(t, patience, func() error {
		got, a, err := g.Lease(t.Context(), ticket.LeaseID)
		if err == nil && a.Status != http.StatusOK {
			err = unexpected(a)
		}
		assert.Must(t, err != nil || got.State == api.StateWaiting, "the ticket is %s while the other client holds", got.State)
		return err
	}, "the ticket waits")
	assert.NoError(t, theirs.Unlock())
	eventually(t, patience, func() error {
		got, _, err := g.Lease(t.Context(), ticket.LeaseID)
		if err == nil && got.State != api.StateHeld {
			err = fmt.Errorf("it is %s", got.State)
		}
		return err
	}, "the ticket is granted")
}
