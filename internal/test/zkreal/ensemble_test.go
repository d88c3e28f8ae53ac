package zkreal

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/testkit"
)

const patience = 60 * time.Second // for what must happen; a loaded machine may take its time

// connect opens a go-zookeeper session through addr and waits until it is there.
func connect(t *testing.T, addr string, sessionTimeout time.Duration) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect([]string{addr}, sessionTimeout, zk.WithLogger(quiet{}))
	assert.NoError(t, err)
	t.Cleanup(conn.Close)
	for event := range events {
		if event.State == zk.StateHasSession {
			return conn
		}
	}
	t.Fatal("the client gave up")
	return nil
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

func TestAFollowerThatIsCutOffServesReadsWhileTheOthersGoOn(t *testing.T) {
	testkit.NoLeaks(t)
	e := StartEnsembleT(t, 3, WithoutFsync(), WithSyncLimit(12)) // 6 s of silence before a server gives up
	leader, followers := e.Leader(), e.Followers()
	assert.Must(t, leader >= 0 && len(followers) == 2, "leader %d, followers %v", leader, followers)
	deaf, well := followers[0], followers[1]
	atDeaf, atWell := connect(t, e.Addr(deaf), 30*time.Second), connect(t, e.Addr(well), 30*time.Second)
	assert.Value(atWell.Create("/before", nil, 0, zk.WorldACL(zk.PermAll)))(t)
	assert.Value(atDeaf.Sync("/"))(t)

	e.DelayPeers(leader, 100*time.Millisecond)
	began := time.Now()
	assert.Value(atWell.Create("/slow", nil, 0, zk.WorldACL(zk.PermAll)))(t)
	if took := time.Since(began); took < 200*time.Millisecond { // there and back again
		t.Errorf("with a leader that is 100ms away a follower's write took %v", took)
	}
	e.DelayPeers(leader, 0)

	e.CutPeers(deaf)
	assert.Value(atWell.Create("/after", nil, 0, zk.WorldACL(zk.PermAll)))(t, "the majority does not go on")
	there, _, err := atDeaf.Exists("/before")
	assert.That(t, err == nil && there, "the follower that is cut off does not serve: %v, %v", there, err)
	there, _, err = atDeaf.Exists("/after")
	assert.That(t, err == nil && !there, "the follower that is cut off knows what it cannot: %v, %v", there, err)
	assert.Equal(t, e.Servers()[deaf].Mode(), "follower", "the follower has noticed already: mode")

	testkit.Eventually(t, patience, func() bool { return e.Servers()[deaf].Mode() == "" }, "the follower notices")
	got := e.Followers()
	assert.That(t, len(got) == 1 && got[0] == well, "followers %v, want %d alone", got, well)
	e.HealPeers(deaf)
	assert.NoError(t, e.AwaitServing())
	testkit.Eventually(t, patience, func() bool {
		there, _, err := atDeaf.Exists("/after")
		return err == nil && there
	}, "the follower catches up")
}

func TestALeaderThatIsLostIsReplacedAndRejoins(t *testing.T) {
	e := StartEnsembleT(t, 3, WithoutFsync())
	for name, lose := range map[string]struct{ away, back func(int) }{
		"killed": {func(i int) { e.Servers()[i].Kill() }, func(i int) {
			assert.Nil(t, e.Servers()[i].Restart())
		}},
		"reset": {e.ResetPeers, e.HealPeers},
	} {
		was := e.Leader()
		assert.Must(t, was >= 0, "%s: no leader to begin with", name)
		lose.away(was)
		testkit.Eventually(t, patience, func() bool { l := e.Leader(); return l >= 0 && l != was }, "%s: another leader", name)
		lose.back(was)
		testkit.Eventually(t, patience, func() bool { return len(e.Followers()) == 2 }, "%s: both others follow", name)
	}
}

// Every connection to a port that only peers use must have this process, the proxies, at its calling end.
func TestAllTalkAmongPeersGoesThroughTheProxies(t *testing.T) {
	e := StartEnsembleT(t, 3, WithoutFsync())
	// Twice, as elections after a loss connect in an order of their own.
	for range 2 {
		calls := e.callsToPeerPorts(t)
		if len(calls) < 5 { // two followers at the leader, three pairs in the election
			t.Errorf("found only %d connections among peers", len(calls))
		}
		for call, ours := range calls {
			assert.That(t, ours, "%s bypasses the proxies", call)
		}
		was := e.Leader()
		e.Servers()[was].Kill()
		assert.NoError(t, e.Servers()[was].Restart())
		assert.NoError(t, e.AwaitServing())
	}
}

// callsToPeerPorts finds the established connections to the ports that the servers bind for their peers, and whether the
// calling socket is this process's.
func (e *Ensemble) callsToPeerPorts(t *testing.T) map[string]bool {
	t.Helper()
	ports := make(map[int64]bool)
	for i, m := range e.members {
		for _, line := range m.server.peers {
			if own, ok := strings.CutPrefix(line, fmt.Sprintf("server.%d=127.0.0.1:", i+1)); ok {
				for port := range strings.SplitSeq(own, ":") {
					n := assert.Value(strconv.ParseInt(port, 10, 64))(t)
					ports[n] = true
				}
			}
		}
	}
	fds := assert.Value(os.ReadDir("/proc/self/fd"))(t)
	ours := make(map[string]bool)
	for _, fd := range fds {
		if link, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil {
			ours[link] = true
		}
	}
	calls := make(map[string]bool)
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		table, err := os.ReadFile(file)
		if err != nil {
			continue // no IPv6 here
		}
		for line := range strings.Lines(string(table)) {
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != "01" { // 01: established
				continue
			}
			_, hexPort, _ := strings.Cut(f[2], ":")
			if port, err := strconv.ParseInt(hexPort, 16, 64); err == nil && ports[port] {
				calls[f[1]+" to "+f[2]] = ours["socket:["+f[9]+"]"]
			}
		}
	}
	return calls
}

func TestWritesFailOrPersistAsTheProxyIsTold(t *testing.T) {
	testkit.NoLeaks(t)
	s := StartT(t, WithoutFsync())
	p := netfault.NewT(t, s.Addr(), netfault.Framed())
	counter := p.CountOps()
	for name, c := range map[string]struct {
		fault     *netfault.Trigger
		persisted bool
	}{
		"failed":               {p.FailRequest(1, pathIs("/failed")), false},
		"failed but persisted": {p.FailReply(1, pathIs("/persisted")), true},
	} {
		path := "/failed"
		if c.persisted {
			path = "/persisted"
		}
		conn := connect(t, p.Addr(), 10*time.Second)
		_, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
		assert.Must(t, err != nil, "%s: the client got an answer", name)
		testkit.Closed(t, patience, c.fault.Fired(), "%s: the fault strikes", name)
		testkit.Eventually(t, patience, func() bool { return conn.State() == zk.StateHasSession }, "%s: the client is back", name)
		there, _, err := conn.Exists(path)
		assert.That(t, err == nil && there == c.persisted, "%s: the node is there: %v, %v", name, there, err)
	}
	counts := counter.Counts()
	assert.That(t, counts.Writes() == 2 && counts.Reads() == 2 && counts[netfault.OpConnect] == 4, "on the wire: %v", fmt.Sprint(counts))
}

func pathIs(path string) func(netfault.Frame) bool {
	return func(f netfault.Frame) bool {
		return f.Op() == netfault.OpCreate && string(f.Raw[16:16+len(path)]) == path
	}
}
