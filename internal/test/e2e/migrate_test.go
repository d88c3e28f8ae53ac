package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/childproc"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
)

// must runs a command of the gateway's, which has to succeed, and returns what it said.
func must(t testing.TB, args ...string) string {
	t.Helper()
	code, out := exitCode(t, args...)
	assert.Must(t, code == 0, "gateway %s: exit %d\n%s", strings.Join(args, " "), code, out)
	return out
}

// use makes the gateway keep its locks somewhere else from its next start on: a flag --zk or --data-dir.
func (g *gateway) use(store string) { g.flags[0] = store }

// From a gateway's own store to Debian's ZooKeeper, and back into another store. The
// clients know one address; what they see is an outage.
func TestAMoveToAnotherZooKeeperAndBackLosesNoLeaseAndNoPlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	real := zkreal.StartT(t, zkreal.Real(), zkreal.WithoutFsync())
	stores := []string{"--data-dir=" + filepath.Join(dir, "first"), "--zk=" + real.Addr() + "/apps", "--data-dir=" + filepath.Join(dir, "last")}

	g := newGateway(t, "")
	g.use(stores[0])
	g.start()
	g.awaitServing()
	key, ended := apitest.Key("one-fresh-random-key-of-mine"), apitest.Key("another-fresh-random-key")
	lease := g.hold("deploy", "ttl=10s&owner=me&metadata=job+17", key)
	first := g.queue("deploy", "ttl=20s&owner=you")
	second := g.queue("deploy", "ttl=20s&owner=third")
	other := g.hold("report", "ttl=1h&owner=no+heartbeats") // its TTL is long enough without heartbeats
	g.letGo(g.hold("billing", "ttl=1m", ended).Token)
	gone := g.hold("gone", "ttl=1m") // a token that nothing shows any more
	g.letGo(gone.Token)
	greatest := gone.FencingToken
	held, waits, waitsToo := g.keepAlive(lease.Token), g.keepAlive(first.Token), g.keepAlive(second.Token)
	held.awaitBeat(t, patience)

	token := lease.FencingToken
	for n := 1; n < len(stores); n++ {
		file := filepath.Join(dir, fmt.Sprint(n, ".export"))
		g.terminate()
		must(t, "export", stores[n-1], "--output="+file)
		must(t, "import", stores[n], "--input="+file)
		g.use(stores[n])
		g.restart()

		beat := held.awaitBeat(t, patience).beat
		if beat.State != api.StateHeld || beat.TTLMS != lease.TTLMS || beat.FencingToken <= max(token, greatest) {
			t.Errorf("%s: the heartbeat says %+v; there was a token %d", stores[n], beat, max(token, greatest))
		}
		token = beat.FencingToken
		for i, p := range []*pulse{waits, waitsToo} {
			if at := p.awaitBeat(t, patience).beat; at.State != api.StateWaiting || at.Position != i+1 {
				t.Errorf("%s: the waiter at place %d is told %+v", stores[n], i+1, at)
			}
		}
		for _, want := range []api.Lease{lease, first, second, other} {
			got, a, err := g.Lease(t.Context(), want.LeaseID, apitest.Token(want.Token))
			expect(t, a, err, http.StatusOK, "")
			want.FencingToken, want.Znode = got.FencingToken, got.Znode // both are of the new ZooKeeper
			sameLease(t, got, want)
		}
		again, a, err := g.Acquire(t.Context(), "deploy", apitest.Query("ttl=10s&owner=me&metadata=job+17"), key)
		expect(t, a, err, http.StatusOK, "")
		if a.Header.Get("Idempotency-Replayed") != "true" || again.LeaseID != lease.LeaseID || again.Token != lease.Token || again.FencingToken != token {
			t.Errorf("%s: the repeat got %s", stores[n], a.Body)
		}
		_, a, err = g.Acquire(t.Context(), "deploy", apitest.Query("ttl=10s&owner=another"), key)
		expect(t, a, err, http.StatusUnprocessableEntity, "idempotency_key_reused")
		_, a, err = g.Acquire(t.Context(), "billing", apitest.Query("ttl=1m"), ended)
		expect(t, a, err, http.StatusGone, "lease_ended")
		if a.Problem.Reason != api.ReasonUnknown {
			t.Errorf("%s: the repeat for a lease that had ended is told %q", stores[n], a.Problem.Reason)
		}
		_, a, err = g.Acquire(t.Context(), "report", apitest.Query("ttl=10s"))
		expect(t, a, err, http.StatusConflict, "held_by_other")
		fresh := g.hold("gone", "ttl=1m")
		if fresh.FencingToken <= token {
			t.Errorf("%s: a new lease has token %d after one of %d", stores[n], fresh.FencingToken, token)
		}
		greatest = fresh.FencingToken
		g.letGo(fresh.Token)
	}

	// In the end the queue goes on in its order.
	for _, p := range []struct {
		leaves *pulse
		token  string
		next   *pulse
	}{{held, lease.Token, waits}, {waits, first.Token, waitsToo}} {
		p.leaves.halt()
		g.letGo(p.token)
		var at api.Heartbeat
		eventually(t, patience, func() error {
			if at = p.next.awaitBeat(t, patience).beat; at.State != api.StateHeld {
				return fmt.Errorf("it is told %+v", at)
			}
			return nil
		}, "the next one holds")
		assert.That(t, at.FencingToken > token, "the token %d follows %d", at.FencingToken, token)
		token = at.FencingToken
	}
	for _, p := range []*pulse{held, waits, waitsToo} {
		p.mustNotHaveLost(t)
	}
	g.letGo(other.Token)
}

// No gateway may write what is not exported: not the gateway that runs, nor one that was
// killed and whose session ZooKeeper still grants.
func TestAnExportWaitsForTheEndOfEveryGateway(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	file := filepath.Join(t.TempDir(), "x.export")
	refused := func(when string) {
		t.Helper()
		code, out := exitCode(t, "export", "--zk="+g.zk, "--output="+file)
		assert.That(t, code == 1 && strings.Contains(out, g.listen) && strings.Contains(out, "stop every gateway"),
			"%s: exit %d\n%s", when, code, out)
	}
	g.hold("deploy", "ttl=1m")
	refused("while it runs")
	g.kill()
	refused("after it was killed")
	_, err := os.Stat(file)
	assert.That(t, err != nil, "there is a file")
	eventually(t, patience, func() error {
		if code, out := exitCode(t, "export", "--zk="+g.zk, "--output="+file); code != 0 {
			return fmt.Errorf("exit %d: %s", code, out)
		}
		return nil
	}, "its session has expired")
}

// An import is killed with SIGKILL while a transaction of it is under way.
func TestAnImportThatIsKilledLeavesNothingThatAGatewayStartsOn(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	g := startGateway(t, addr+chroot)
	const many = 30
	g.hold("busy", "ttl=1h")
	for range many - 1 { // of one queue: a transaction for each
		g.queue("busy", "ttl=1h")
	}
	g.terminate()
	file := filepath.Join(t.TempDir(), "x.export")
	must(t, "export", "--zk="+g.zk, "--output="+file)
	f := newForeign(t, addr, chroot)
	p := netfault.NewT(t, addr, netfault.Framed())
	for n, at := range []int{3, 10, many} {
		root := fmt.Sprintf("/new-%d", n)
		held := p.HoldRequest(at, netfault.IsOp(netfault.OpMulti))
		killed, err := childproc.Start(exec.Command(binary(t), "import", "--zk="+p.Addr()+chroot, "--root="+root, "--input="+file))
		assert.NoError(t, err)
		testkit.Closed(t, patience, held.Fired(), "the import is at work")
		killed.Kill()
		code, out := exitCode(t, "--zk="+g.zk, "--root="+root, "--listen="+freeAddr(t))
		assert.That(t, code == 78 && strings.Contains(out, "--replace-partial"), "a gateway that starts there: exit %d\n%s", code, out)
		code, out = exitCode(t, "import", "--zk="+g.zk, "--root="+root, "--input="+file)
		assert.That(t, code == 1 && strings.Contains(out, "--replace-partial"), "the import repeated as it was: exit %d\n%s", code, out)
		must(t, "import", "--zk="+g.zk, "--root="+root, "--input="+file, "--replace-partial")
		p.Heal() // what was under way arrives now
		testkit.Eventually(t, patience, func() bool { return p.Connections() == 0 }, "it has arrived")
		names := f.children(root + "/locks/busy")
		assert.That(t, len(names) == many, "%d leases of %d", len(names), many)
	}
}

// What a command waits for may never come: here, the end of what it reads.
func TestASecondCtrlCEndsACommandThatWaits(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(binary(t), "import", "--data-dir="+filepath.Join(t.TempDir(), "data"))
	in := assert.Value(cmd.StdinPipe())(t)
	defer in.Close()
	// A shell starts its background jobs with SIGINT ignored, and they their children.
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, syscall.SIGINT)
	defer signal.Stop(interrupts)
	p := assert.Value(childproc.Start(cmd))(t)
	defer p.Kill()
	if _, err := in.Write(make([]byte, 1<<20)); err != nil { // more than a pipe holds: it reads
		t.Fatal(err)
	}
	testkit.Eventually(t, patience, func() bool {
		p.Signal(syscall.SIGINT)
		return p.Ended()
	}, "it ends")
}

// The whole fleet is killed and no gateway comes back. Another program has been waiting behind its leases, and gets its lock
// from the sweep.
func TestASweepLetsOtherProgramsGoOnWhenTheFleetIsGone(t *testing.T) {
	t.Parallel()
	real := zkreal.StartT(t, zkreal.Real(), zkreal.WithoutFsync())
	at := real.Addr()
	fleet := []*gateway{startGateway(t, at), startGateway(t, at)}
	f := newForeign(t, at, "")
	held := fleet[0].hold("deploy", "ttl=1h&owner=me", apitest.Key("a-fresh-random-key-0001"))
	fleet[1].queue("deploy", "ttl=1h&owner=you")
	fleet[1].hold("report", "ttl=1m")

	lock := zk.NewLock(f.Conn, "/lockkeeper/locks/deploy", zk.WorldACL(zk.PermAll))
	locked := make(chan error, 1)
	go func() { locked <- lock.Lock() }()
	fleet[0].awaitLock(patience, "deploy", 1, 2)

	code, out := exitCode(t, "sweep", "--zk="+at)
	assert.That(t, code == 75 && strings.Contains(out, fleet[0].listen) && strings.Contains(out, fleet[1].listen),
		"while gateways run: exit %d\n%s", code, out)
	for _, g := range fleet {
		g.kill()
	}
	var listed string
	eventually(t, patience, func() error { // until their sessions have expired
		code, out := exitCode(t, "sweep", "--zk="+at, "--dry-run")
		if listed = out; code != 0 {
			return fmt.Errorf("exit %d: %s", code, out)
		}
		return nil
	}, "no gateway is registered")
	assert.That(t, strings.Count(listed, "would delete ") == 4 && strings.Contains(listed, held.Znode), "the dry run says\n%s", listed)
	testkit.Nothing(t, locked, "the other program has the lock")
	out = must(t, "sweep", "--zk="+at)
	assert.That(t, strings.Count(out, "deleted /") == 4 && strings.Contains(out, "the longest TTL is 1h"), "the sweep says\n%s", out)
	assert.Nil(t, <-locked, "the other program's lock")
	for path, want := range map[string]int{"/lockkeeper/locks/deploy": 1, "/lockkeeper/locks/report": 0, "/lockkeeper/keys": 0, "/lockkeeper/gateways": 0, "/lockkeeper/namespaces": 1} {
		names := f.children(path)
		assert.That(t, len(names) == want, "%s: %v", path, names)
	}

	// A gateway that comes back after all finds an empty service, whose tokens rise.
	g := fleet[0]
	g.restart()
	g.awaitServing()
	_, a, err := g.Heartbeat(t.Context(), held.Token)
	expect(t, a, err, http.StatusGone, "lease_ended")
	waits := g.queue("deploy", "ttl=1m")
	assert.Nil(t, lock.Unlock())
	beat := g.beatUntil(waits.Token, api.StateHeld)
	assert.That(t, beat.FencingToken > held.FencingToken, "fencing token %d follows %d", beat.FencingToken, held.FencingToken)
}

// A gateway that only looked dead: ZooKeeper has ended its session, the sweep has cleared its leases, and then it wakes up.
func TestAGatewayThatWakesUpAfterASweepConfirmsNothingThatIsGone(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	f := g.foreign(t)
	held := g.hold("deploy", "ttl=1h")
	g.freeze()
	eventually(t, patience, func() error {
		if code, out := exitCode(t, "sweep", "--zk="+g.zk); code != 0 {
			return fmt.Errorf("exit %d: %s", code, out)
		}
		return nil
	}, "the gateway's session has ended, and the sweep is done")
	names := f.children("/lockkeeper/locks/deploy")
	assert.That(t, len(names) == 0, "left are %v", names)
	g.thaw()
	eventually(t, patience, func() error {
		_, a, err := g.Heartbeat(t.Context(), held.Token)
		switch {
		case err != nil:
			return err
		case a.Status == http.StatusOK:
			t.Fatalf("a lease that is gone was confirmed: %s", a.Body)
		case a.Status != http.StatusGone:
			return unexpected(a)
		}
		return nil
	}, "the lease is said to be gone")
	g.awaitServing()
	young := startGateway(t, g.zk)
	young.hold("deploy", "ttl=1m")
	g.awaitLock(patience, "deploy", 1, 0)
}
