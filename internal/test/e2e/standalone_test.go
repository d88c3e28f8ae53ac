package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/testkit"
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

// Every user of the machine can connect to a port on loopback. They may queue, and remove contenders, as
// in any ZooKeeper without ACLs. They get no token, and nothing by which gateways keep each other apart.
func TestAClientOfEmbeddedListenGetsNoSecretAndNoGuard(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	g := startStandalone(t, "--embedded-listen="+addr)
	key := apitest.Key("a-fresh-random-key-of-mine")
	lease := g.hold("deploy", "ttl=2m", key)
	f := newForeign(t, addr, "")
	refused := func(what string, err error) {
		t.Helper()
		assert.That(t, errors.Is(err, zk.ErrNoAuth), "%s: %v", what, err)
	}
	_, _, err := f.Get("/lockkeeper/secret")
	refused("reading the secret", err)
	keys := f.children("/lockkeeper/keys")
	assert.Must(t, len(keys) == 1, "keys: %q", keys)
	_, _, err = f.Get("/lockkeeper/keys/" + keys[0])
	refused("reading a key", err)
	for _, dir := range []string{"guards", "gateways", "keys"} {
		for _, name := range f.children("/lockkeeper/" + dir) {
			p := path.Join("/lockkeeper", dir, name)
			refused("deleting "+p, f.Delete(p, -1))
			_, err = f.Set(p, []byte("x"), -1)
			refused("writing "+p, err)
		}
		_, err = f.Create("/lockkeeper/"+dir+"/x", nil, 0, zk.WorldACL(zk.PermAll))
		refused("creating in "+dir, err)
	}
	for _, name := range []string{"version", "fence_base", "promise_window", "secret", "namespaces/default", "succession"} {
		p := "/lockkeeper/" + name
		_, err = f.Set(p, []byte("0"), -1)
		refused("writing "+p, err)
		refused("deleting "+p, f.Delete(p, -1))
		_, err = f.SetACL(p, zk.WorldACL(zk.PermAll), -1)
		refused("opening "+p, err)
	}
	// The gateway itself goes on, and so does the next one.
	g.kill()
	assert.Equal(t, g.backAtOnce(lease.Token).FencingToken, lease.FencingToken, "the heartbeat says")
	again, a, err := g.Acquire(t.Context(), "deploy", apitest.Query("ttl=2m"), key)
	expect(t, a, err, http.StatusOK, "")
	assert.That(t, again.LeaseID == lease.LeaseID, "the repeat was answered %s", a.Body)
}

// smallDisk is a file system of a few megabytes.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("no file system can be mounted here: %v: %s", err, out)
	}
	t.Cleanup(func() {
		out, err := exec.Command("umount", "-l", dir).CombinedOutput()
		assert.That(t, err == nil, "umount: %v: %s", err, out)
	})
	return dir
}

// fill takes all the room that is left, and gives it back when it is told.
func fill(t *testing.T, dir string) (empty func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f := assert.Value(os.Create(path))(t)
	defer f.Close()
	for size := 64 << 10; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return func() { assert.NoError(t, os.Remove(path)) }
}

// large is metadata with which a few hundred leases fill the free pages of a store.
var large = strings.Repeat("x", locks.MaxMetadata)

func TestAFullDiskIsAnsweredWith503UntilThereIsRoomAndNoLeaseIsLost(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, "8m")
	g := startStandalone(t, "--data-dir="+filepath.Join(disk, "data"), "--promise-window=3s")
	key := apitest.Key("of-before-the-disk-was-full")
	acknowledged := []api.Lease{g.hold("before", "ttl=5m", key)}
	empty := fill(t, disk)

	// Pages that are free within the file are used up first.
	var refused *apitest.Answer
	eventually(t, patience, func() error {
		lease, a, err := g.Acquire(t.Context(), fmt.Sprint("lock-", len(acknowledged)), apitest.Query("ttl=5m&metadata="+large))
		switch {
		case err != nil:
			return err
		case a.Status == http.StatusCreated:
			acknowledged = append(acknowledged, lease)
			return errors.New("there is still room")
		}
		refused = a
		return nil
	}, "a write is refused")
	if code := refused.Code(); refused.Status != http.StatusServiceUnavailable || code != "zookeeper_unavailable" && code != "outcome_unknown" {
		t.Errorf("on a full disk an acquire is answered %d %s", refused.Status, refused.Body)
	}
	assert.That(t, refused.Header.Get("Retry-After") != "", "it does not say when to try again")
	assert.Nil(t, g.status(http.MethodGet, "/readyz", http.StatusServiceUnavailable), "/readyz")
	assert.Nil(t, g.status(http.MethodGet, "/healthz", http.StatusOK), "/healthz, which would ask for a restart")
	// Longer than the promise window: the gateway may not speak for its leases any more.
	eventually(t, patience, func() error {
		_, a, err := g.Heartbeat(t.Context(), acknowledged[0].Token)
		return answeredWith(a, err, http.StatusServiceUnavailable)
	}, "heartbeats are answered 503")

	empty()
	t.Logf("%d leases were acknowledged", len(acknowledged))
	for _, lease := range acknowledged {
		if beat := g.firstBeat(lease.Token); beat.State != api.StateHeld || beat.FencingToken != lease.FencingToken {
			t.Fatalf("the lease is %+v, and was acknowledged as %+v", beat, lease)
		}
	}
	assert.Nil(t, g.status(http.MethodGet, "/readyz", http.StatusOK), "/readyz")
	g.letGo(g.hold("after", "ttl=1m").Token)
	again, a, err := g.Acquire(t.Context(), "before", apitest.Query("ttl=5m"), key)
	expect(t, a, err, http.StatusOK, "")
	assert.That(t, again.LeaseID == acknowledged[0].LeaseID, "the repeat found %s", a.Body)
	// And what is on the disk now is what was acknowledged.
	g.kill()
	g.start()
	for _, lease := range acknowledged {
		assert.Equal(t, g.firstBeat(lease.Token).State, api.StateHeld, "after a restart the lease")
	}
}

// Damage that is found while the gateway runs ends it: it must not go on with less than it had.
// The store is in good order: the hint has to be about where the copy goes.
func TestABackupToAFullDiskSaysThatItIsThatDisk(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, "8k")
	g := startStandalone(t)
	g.hold("deploy", "ttl=5m")
	refused := func(when string) {
		t.Helper()
		code, said := exitCode(t, "backup", "--data-dir="+g.dataDir, "--output="+filepath.Join(disk, "b"))
		if code != 74 || !strings.Contains(said, "no space left") || !strings.Contains(said, "hint: is there room") || strings.Contains(said, g.dataDir) {
			t.Errorf("%s: exit code %d:\n%s", when, code, said)
		}
		left, err := os.ReadDir(disk)
		assert.That(t, err == nil && len(left) == 0, "%s: left behind: %v %v", when, left, err)
	}
	refused("running")
	g.terminate()
	refused("stopped")
}

func TestAStoreThatIsFoundDamagedWhenThereIsRoomAgainEndsTheGateway(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, "8m")
	g := startStandalone(t, "--data-dir="+filepath.Join(disk, "data"))
	// Renamed over the store, not written into it: the gateway may just have checked the file that it reads.
	damaged := filepath.Join(disk, "damaged")
	assert.NoError(t, os.WriteFile(damaged, make([]byte, 64<<10), 0o600))
	empty := fill(t, disk)
	n := 0
	eventually(t, patience, func() error {
		_, a, err := g.Acquire(t.Context(), fmt.Sprint("lock-", n), apitest.Query("ttl=5m&metadata="+large))
		n++
		if err == nil && a.Status == http.StatusCreated {
			err = errors.New("there is still room")
		}
		return err
	}, "a write is refused")
	// Right after a try that failed: one that is under way may have opened the store already, and would find room.
	tries := func() int { return strings.Count(g.log.String(), "the store cannot be written yet") }
	before := tries()
	eventually(t, patience, func() error {
		if tries() == before {
			return errors.New("no try has failed since")
		}
		return nil
	}, "another try to write fails")
	assert.NoError(t, os.Rename(damaged, filepath.Join(disk, "data", "lockkeeper.db")))
	g.done = true
	empty()
	testkit.Closed(t, patience, g.proc.Done(), "the gateway ends")
	err := g.proc.Wait()
	assert.That(t, err != nil && strings.Contains(err.Error(), "74"), "the gateway ended with %v", err)
	said := g.log.String()
	assert.That(t, strings.Contains(said, "damaged") && strings.Contains(said, "gateway restore"), "it does not say why, or what to do")
}

func TestABackupUnderLoadIsRestoredElsewhereWithItsLeases(t *testing.T) {
	t.Parallel()
	g := startStandalone(t)
	lease := g.hold("deploy", "ttl=5m&owner=me")
	waiter := g.queue("deploy", "ttl=5m&owner=you")
	highest := func() int64 { return g.hold(fmt.Sprint("lock-", time.Now().UnixNano()), "ttl=5m").FencingToken }

	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for i := range 4 {
		load.Go(func() {
			for ctx.Err() == nil {
				if lease, a, err := g.Acquire(ctx, fmt.Sprint("busy-", i), apitest.Query("ttl=10s&wait=5s")); err == nil && a.Status == http.StatusCreated {
					_, _ = g.Release(ctx, lease.Token) // load
				}
			}
		})
	}
	files := t.TempDir()
	backup := filepath.Join(files, "backup")
	code, said := exitCode(t, "backup", "--data-dir="+g.dataDir, "--output="+backup)
	assert.Must(t, code == 0, "backup: exit code %d\n%s", code, said)
	info, err := os.Stat(backup)
	assert.That(t, err == nil && info.Mode().Perm() == 0o600, "the backup is %v %v", info, err)
	code, said = exitCode(t, "backup", "--data-dir="+g.dataDir, "--output="+backup)
	assert.That(t, code == 64, "a backup over another one: exit code %d\n%s", code, said)
	stop()
	load.Wait()
	later := g.hold("later", "ttl=5m")
	g.letGo(waiter.Token)
	before := highest()
	g.terminate()
	atRest := filepath.Join(files, "at-rest")
	code, said = exitCode(t, "backup", "--data-dir="+g.dataDir, "--output="+atRest)
	assert.That(t, code == 0, "backup of a store that is not in use: exit code %d\n%s", code, said)

	elsewhere := filepath.Join(files, "elsewhere")
	code, said = exitCode(t, "restore", "--input="+backup, "--data-dir="+elsewhere)
	assert.Must(t, code == 0, "restore: exit code %d\n%s", code, said)
	code, said = exitCode(t, "restore", "--input="+backup, "--data-dir="+elsewhere)
	assert.That(t, code == 64, "a restore over a store: exit code %d\n%s", code, said)
	restored := startStandalone(t, "--data-dir="+elsewhere)
	if beat := restored.firstBeat(lease.Token); beat.State != api.StateHeld || beat.FencingToken <= before {
		t.Errorf("the lease is %+v; the fencing token %d was given before", beat, before)
	}
	restored.beat(waiter.Token, api.StateWaiting) // it let go after the backup: a restore cannot know
	_, a, err := restored.Heartbeat(t.Context(), later.Token)
	expect(t, a, err, http.StatusGone, "lease_ended")
	if lease := restored.hold("new", "ttl=1m"); lease.FencingToken <= before {
		t.Errorf("a new fencing token is %d; %d was given before", lease.FencingToken, before)
	}
	restored.letGo(lease.Token)
	restored.letGo(waiter.Token)
}

// The README, from top to bottom, with the kill that it asks for in the middle.
func TestTheReadmeGoesOnAfterKill9(t *testing.T) {
	t.Parallel()
	text := assert.Value(os.ReadFile("../../../README.md"))(t)
	list := assert.Value(examples(string(text)))(t)
	handed := t.TempDir()
	before, _, _ := strings.Cut(string(text), "\n<!-- restart -->\n")
	at := slices.IndexFunc(list, func(e example) bool { return e.line > strings.Count(before, "\n") })
	assert.Must(t, at > 0, "no restart with an example behind it in the README")
	// The reader's part in between, as a command that waits until the test has done it.
	kill := example{command: fmt.Sprintf("touch '%[1]s/kill'; until [ -e '%[1]s/back' ]; do sleep 0.05; done", handed)}
	list = append(list[:at:at], append([]example{kill}, list[at:]...)...)
	g := startStandalone(t)
	var outcomes []outcome
	var reader sync.WaitGroup
	reader.Go(func() { outcomes = runExamples(t, list, "localhost:8080", g.listen, "127.0.0.1:8080", g.listen) })
	eventually(t, patience, func() error {
		_, err := os.Stat(filepath.Join(handed, "kill"))
		return err
	}, "the reader gets that far")
	g.kill()
	g.restart()
	g.awaitServing()
	eventually(t, patience, func() error { // a person is not so quick
		q, _, err := g.Lock(t.Context(), "survivor")
		if err == nil && (len(q.Holders) != 1 || q.Holders[0].ExpiresInMS == 0) {
			err = fmt.Errorf("its leases have not been taken over: %+v", q)
		}
		return err
	}, "the gateway runs the leases of its former life")
	assert.Nil(t, os.WriteFile(filepath.Join(handed, "back"), nil, 0o600))
	reader.Wait()
	for i, r := range outcomes {
		if err := r.check(&list[i]); err != nil {
			t.Errorf("README.md:%d: %s\n%v\nanswer: %s%s", list[i].line, list[i].command, err, r.out, r.complaints)
		}
	}
}
