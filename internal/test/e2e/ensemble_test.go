package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/zkreal"
)

// The follower that a gateway talks to loses its peers and goes on answering reads and pings, while the leader expires
// the gateway's session and another gateway takes over. From the last commit on the old one may speak for a promise
// window, and for no longer; its successor waits that long.
func TestAGatewayBehindAFollowerThatIsCutOffFallsSilentBeforeItsSuccessorSpeaks(t *testing.T) {
	t.Parallel()
	e := zkreal.StartEnsembleT(t, 3, zkreal.WithoutFsync(), zkreal.WithSyncLimit(40))
	followers := e.Followers()
	assert.Must(t, len(followers) == 2, "followers: %v", followers)
	lonely, healthy := followers[0], followers[1]
	old := startGateway(t, e.Addr(lonely))
	young := startGateway(t, e.Addr(healthy))
	lease := old.hold("deploy", "ttl=1m&owner=me")
	old.awaitLock(patience, "deploy", 1, 0)
	young.awaitLock(patience, "deploy", 1, 0)
	toOld := old.keepAlive(lease.Token)
	toOld.awaitBeat(t, patience)

	e.CutPeers(lonely)
	cut := time.Now() // nothing commits through that follower after this
	// Until it has taken over, the young one would ask the old one.
	eventually(t, patience, func() error {
		info, _, err := young.Info(t.Context())
		if err == nil && info.Leases.Held != 1 {
			err = fmt.Errorf("it runs %d leases", info.Leases.Held)
		}
		return err
	}, "the young gateway has taken over")
	toYoung := young.keepAlive(lease.Token)
	took := toYoung.awaitBeat(t, patience)
	assert.That(t, took.beat.FencingToken == lease.FencingToken && took.beat.State == api.StateHeld, "the successor says %+v", took.beat)
	assert.That(t, took.beat.TTLMS == lease.TTLMS, "the TTL was %d ms and is %d ms", lease.TTLMS, took.beat.TTLMS)
	assert.Nil(t, old.status(http.MethodGet, "/healthz", http.StatusOK), "healthz")
	toOld.halt()
	toYoung.halt()

	// When its client hears of a confirmation is the machine's affair; a heartbeat that was sent later was not confirmed before.
	last, first := time.Time{}, time.Time{}
	for _, at := range toOld.attempts() {
		if at.status == http.StatusOK {
			last = at.sent
		}
	}
	for _, at := range toYoung.attempts() {
		if at.status == http.StatusOK && first.IsZero() {
			first = at.sent
		}
	}
	t.Logf("after the cut: the old gateway spoke for %v, the successor from %v on", last.Sub(cut), first.Sub(cut))
	if spoke := last.Sub(cut); spoke > promiseWindow {
		t.Errorf("the old gateway confirmed a heartbeat %v after the last possible commit, with a window of %v", spoke, promiseWindow)
	}
	if spoke := last.Sub(cut); spoke < 0 {
		t.Errorf("the old gateway fell silent %v after the cut: the follower did not go on serving, and this shows nothing", spoke)
	}
	toOld.mustNotHaveLost(t)
	toYoung.mustNotHaveLost(t)

	e.HealPeers(lonely)
	old.awaitServing()
	// It learns who has succeeded it a moment after it can serve again; until then it says 503. Then it asks that one.
	old.beatUntil(lease.Token, api.StateHeld)
	young.letGo(lease.Token)
	// A try is answered from the gateway's own replica, which hears of another gateway's release a moment later.
	old.awaitLock(patience, "deploy", 0, 0)
	old.hold("deploy", "ttl=1m")
}

// The writer's server is fine; the observer's is cut off, and answers pings as if nothing were wrong. The observer has
// to notice that the world stands still, and to look for another server.
func TestWhenTheObserversServerIsCutOffGrantsGoOn(t *testing.T) {
	t.Parallel()
	e := zkreal.StartEnsembleT(t, 3, zkreal.WithoutFsync(), zkreal.WithSyncLimit(60))
	g, lonely := apart(t, e)
	held := g.hold("held", "ttl=6s&owner=me")
	kept := g.keepAlive(held.Token)
	kept.awaitBeat(t, patience)

	cut := time.Now()
	e.CutPeers(lonely)
	attempts := 0
	eventually(t, patience, func() error {
		attempts++
		_, a, err := g.Acquire(t.Context(), fmt.Sprint("new-", attempts))
		return answeredWith(a, err, http.StatusCreated)
	}, "a lock is granted")
	t.Logf("granted %v after the cut", time.Since(cut))
	kept.awaitBeat(t, patience)
	kept.mustNotHaveLost(t)
	got, a, err := g.Lease(t.Context(), held.LeaseID, apitest.Token(held.Token))
	expect(t, a, err, http.StatusOK, "")
	sameLease(t, got, held)
	e.HealPeers(lonely)
}

// apart starts a gateway whose writer and observer are on different servers, the observer's a follower, and returns the
// number of the observer's. Which servers they choose is chance.
func apart(t *testing.T, e *zkreal.Ensemble) (g *gateway, observers int) {
	t.Helper()
	var mu sync.Mutex
	watching, writing := map[int]int64{}, map[int]int64{} // server to connection
	for i := range 3 {
		t.Cleanup(e.Client(i).Observe(func(f netfault.Frame) netfault.Action {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case f.Dir != netfault.Requests:
			case f.Op() == netfault.OpAddWatch:
				watching[i] = f.Conn
			case f.Op() == netfault.OpMulti:
				writing[i] = f.Conn
			}
			return netfault.Forward
		}))
	}
	leader := e.Leader()
	for range 16 {
		g = newGateway(t, e.Addrs())
		g.start()
		g.awaitServing()
		g.letGo(g.hold("warm", "").Token)
		mu.Lock()
		for i := range watching {
			if _, both := writing[i]; !both && i != leader && len(watching) == 1 && len(writing) == 1 {
				mu.Unlock()
				return g, i
			}
		}
		mu.Unlock()
		g.terminate()
		mu.Lock() // not before: a gateway that leaves has a last transaction
		clear(watching)
		clear(writing)
		mu.Unlock()
	}
	t.Fatalf("writer and observer were on one server, or the observer with the leader %d, sixteen times", leader)
	return nil, 0
}

// One server after the other is restarted, as in an upgrade of the ensemble: clients notice delays and nothing else.
func TestARollingRestartOfTheEnsembleLosesNothing(t *testing.T) {
	t.Parallel()
	e := zkreal.StartEnsembleT(t, 3, zkreal.WithoutFsync())
	g := startGateway(t, e.Addrs())
	held := g.hold("deploy", "ttl=6s&owner=me")
	waiting := g.queue("deploy", "ttl=6s&owner=you")
	pulses := []*pulse{g.keepAlive(held.Token), g.keepAlive(waiting.Token)}
	leader := e.Leader()
	order := append(slices.DeleteFunc([]int{0, 1, 2}, func(i int) bool { return i == leader }), leader)
	for _, i := range order {
		e.Servers()[i].RestartT(t)
		assert.NoError(t, e.AwaitServing())
	}
	for _, p := range pulses {
		p.awaitBeat(t, patience)
		p.mustNotHaveLost(t)
	}
	g.unchanged(held, waiting)
	g.letGo(held.Token)
	if beat := g.beatUntil(waiting.Token, api.StateHeld); beat.FencingToken <= held.FencingToken {
		t.Errorf("fencing token %d follows %d, across an election", beat.FencingToken, held.FencingToken)
	}
}

// Servers with local sessions greet an observer without asking their leader, and make the writer's session known to all when
// it registers. Promises are the same there, also when the server that has both goes away.
func TestAGatewayWorksOnServersWithLocalSessions(t *testing.T) {
	t.Parallel()
	e := zkreal.StartEnsembleT(t, 3, zkreal.WithoutFsync(),
		zkreal.WithConfig("localSessionsEnabled", "true"), zkreal.WithConfig("localSessionsUpgradingEnabled", "true"))
	g := startGateway(t, e.Addrs())
	held := g.hold("deploy", "ttl=6s&owner=me")
	waiting := g.queue("deploy", "ttl=6s&owner=you")
	pulses := []*pulse{g.keepAlive(held.Token), g.keepAlive(waiting.Token)}
	for _, p := range pulses {
		p.awaitBeat(t, patience)
	}
	local := 0 // sessions that one server alone knows
	for i := range e.Servers() {
		dump := assert.Value(zkreal.FourLetter(e.Addr(i), "dump"))(t)
		sessions := 0
		if _, sets, ok := strings.Cut(dump, "Local Session Sets "); !ok {
			t.Errorf("server %d has no local sessions:\n%s", i, dump)
		} else if _, err := fmt.Sscanf(sets, "(%d)/(%d)", new(int), &sessions); err != nil {
			t.Errorf("server %d: %v:\n%s", i, err, dump)
		}
		local += sessions
	}
	assert.That(t, local == 1, "%d local sessions, want the observer's: the writer's is known to all, or has no registration", local)
	for _, i := range e.Followers() {
		e.Servers()[i].RestartT(t)
		assert.NoError(t, e.AwaitServing())
	}
	for _, p := range pulses {
		p.awaitBeat(t, patience)
		p.mustNotHaveLost(t)
	}
	young := startGateway(t, e.Addr(e.Followers()[0]))
	young.awaitLock(patience, "deploy", 1, 1)
	g.letGo(held.Token)
	beat := g.beatUntil(waiting.Token, api.StateHeld)
	assert.That(t, beat.FencingToken > held.FencingToken, "fencing token %d follows %d", beat.FencingToken, held.FencingToken)
	g.terminate() // its sessions end in good order
	young.beatUntil(waiting.Token, api.StateHeld)
	young.letGo(waiting.Token)
	young.hold("deploy", "ttl=1m")
}
