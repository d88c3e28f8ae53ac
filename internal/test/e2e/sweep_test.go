package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zkreal"
)

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
	select {
	case err := <-locked:
		t.Fatalf("the other program has the lock: %v", err)
	default:
	}
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
