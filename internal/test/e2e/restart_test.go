package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/testkit"
	"lockkeeper/internal/test/zkreal"
)

// sameLease compares what must not change when a lease gets another gateway.
func sameLease(t testing.TB, got, want api.Lease) {
	t.Helper()
	if got.LeaseID != want.LeaseID || got.Lock != want.Lock || got.State != want.State || got.Znode != want.Znode ||
		got.FencingToken != want.FencingToken || got.TTLMS != want.TTLMS || got.Owner != want.Owner ||
		got.Metadata != want.Metadata || got.Position != want.Position {
		t.Errorf("the lease was\n%+v\nand is\n%+v", want, got)
	}
}

// unchanged demands that the gateway shows each lease as it was answered.
func (g *gateway) unchanged(leases ...api.Lease) {
	g.t.Helper()
	for _, want := range leases {
		got, a, err := g.Lease(g.t.Context(), want.LeaseID, apitest.Token(want.Token))
		expect(g.t, a, err, http.StatusOK, "")
		sameLease(g.t, got, want)
	}
}

func TestLeasesAndPlacesOutliveAGatewayThatIsKilled(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	lease := g.hold("deploy", "ttl=10s&owner=me&metadata=job+17")
	ticket := g.queue("deploy", "ttl=20s&owner=you")
	last := g.queue("deploy", "ttl=20s&owner=third")
	held, waits, waitsToo := g.keepAlive(lease.Token), g.keepAlive(ticket.Token), g.keepAlive(last.Token)
	held.awaitBeat(t, patience)

	g.kill()
	g.restart()
	beat := held.awaitBeat(t, patience)
	assert.That(t, beat.beat.FencingToken == lease.FencingToken && beat.beat.State == api.StateHeld && beat.beat.TTLMS == lease.TTLMS,
		"the heartbeat says %+v", beat.beat)
	waits.awaitBeat(t, patience)
	waitsToo.awaitBeat(t, patience)
	g.awaitOwned(lease.LeaseID)
	for _, want := range []api.Lease{lease, ticket, last} {
		// With its token: a look without one does not wait until the new process has read the lease's record.
		got, a, err := g.Lease(t.Context(), want.LeaseID, apitest.Token(want.Token))
		expect(t, a, err, http.StatusOK, "")
		sameLease(t, got, want)
	}
	if _, a, err := g.Acquire(t.Context(), "deploy"); err != nil || a.Code() != "held_by_other" || a.Problem.Holders[0].LeaseID != lease.LeaseID {
		t.Errorf("%v, a try is answered %+v", err, a)
	}
	held.halt()
	g.letGo(lease.Token)
	granted, a, err := g.Lease(t.Context(), "self", apitest.Token(ticket.Token), apitest.Query("wait=20s&since="+ticket.Rev))
	for err == nil && granted.State == api.StateWaiting {
		granted, a, err = g.Lease(t.Context(), "self", apitest.Token(ticket.Token), apitest.Query("wait=20s&since="+granted.Rev))
	}
	expect(t, a, err, http.StatusOK, "")
	assert.That(t, granted.State == api.StateHeld && granted.FencingToken > lease.FencingToken, "the one who was next: %s", a.Body)
	for _, p := range []*pulse{held, waits, waitsToo} {
		p.mustNotHaveLost(t)
	}
}

// A handover: no client waits for a session to expire.
func TestATerminatedGatewayHandsOverAtOnceAndLosesNoLease(t *testing.T) {
	t.Parallel()
	const expiry = 20 * time.Second
	g := onShared(t, "--session-timeout="+expiry.String())
	var leases []api.Lease
	var tokens []string
	for i := range 40 {
		lease := g.hold(fmt.Sprint("lock-", i), "ttl=30s&owner=me")
		waiter := g.queue(lease.Lock, "ttl=30s&owner=you")
		leases, tokens = append(leases, lease, waiter), append(tokens, lease.Token, waiter.Token)
	}
	began := time.Now()
	g.terminate()
	assert.That(t, !strings.Contains(g.log.String(), "was deposed"), "a gateway that stopped in good order says that it was deposed")
	g.restart()
	g.hears(tokens, leases)
	took := time.Since(began)
	assert.That(t, took <= expiry/2, "the handover took %v, with a session timeout of %v", took, expiry)
	g.unchanged(leases...)
}

// Between the write and the answer. What the gateway knew dies with it; the key's node in the same transaction tells its
// successor. Each fate of the write is one case.
func TestARepeatWithTheSameKeyFindsWhatAKilledGatewayDid(t *testing.T) {
	t.Parallel()
	creates := func(lock string) func(netfault.Frame) bool {
		return func(f netfault.Frame) bool {
			return f.Op() == netfault.OpMulti && bytes.Contains(f.Raw, []byte("/locks/"+lock+"/write-"))
		}
	}
	for name, c := range map[string]struct {
		strike func(p *netfault.Proxy, match func(netfault.Frame) bool) *netfault.Trigger
		status int // of the repeat
	}{
		"done and not answered": {func(p *netfault.Proxy, match func(netfault.Frame) bool) *netfault.Trigger {
			return p.HoldReply(1, match)
		}, http.StatusOK},
		"never arrived": {func(p *netfault.Proxy, match func(netfault.Frame) bool) *netfault.Trigger {
			return p.FailRequest(1, match)
		}, http.StatusCreated},
		"arrives when the gateway is dead": {func(p *netfault.Proxy, match func(netfault.Frame) bool) *netfault.Trigger {
			return p.HoldRequest(1, match)
		}, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, chroot := zkreal.SharedT(t)
			p := netfault.NewT(t, addr, netfault.Framed())
			g := startGateway(t, p.Addr()+chroot)
			f := newForeign(t, addr, chroot)
			g.letGo(g.hold("between", "").Token) // the directory exists: one transaction, one fate
			key := apitest.Key("one-fresh-random-key-of-mine")
			struck := c.strike(p, creates("between"))
			asked := g.acquiring(t.Context(), "between", "ttl=1m&owner=me&wait=20s", key)
			testkit.Closed(t, patience, struck.Fired(), "the fault strikes")
			g.kill()
			asked.answered(patience)
			assert.Must(t, asked.err != nil, "there was an answer: %+v", asked.a)
			p.Heal()
			if c.status == http.StatusOK {
				testkit.Eventually(t, patience, func() bool { return len(f.children("/lockkeeper/locks/between")) == 1 }, "the write commits")
			}
			g.restart()

			var lease api.Lease
			eventually(t, patience, func() error {
				var a *apitest.Answer
				var err error
				lease, a, err = g.Acquire(t.Context(), "between", apitest.Query("ttl=1m&owner=me&wait=20s"), key)
				if err != nil || a.Status == http.StatusServiceUnavailable {
					return fmt.Errorf("%w %s", err, a.Code())
				}
				expect(t, a, err, c.status, "")
				return nil
			}, "the repeat is answered")
			assert.That(t, lease.State == api.StateHeld && lease.Token != "" && lease.FencingToken != 0, "the repeat got %+v", lease)
			g.beat(lease.Token, api.StateHeld)
			names := f.children("/lockkeeper/locks/between")
			assert.That(t, len(names) == 1, "queued more than once: %v", names)
			again, a, err := g.Acquire(t.Context(), "between", apitest.Query("ttl=1m&owner=me&wait=20s"), key)
			expect(t, a, err, http.StatusOK, "")
			assert.That(t, a.Header.Get("Idempotency-Replayed") == "true" && again.LeaseID == lease.LeaseID && again.Token == lease.Token,
				"a further repeat: %s", a.Body)
			_, a, err = g.Acquire(t.Context(), "between", apitest.Query("ttl=1m&owner=you"), key)
			expect(t, a, err, http.StatusUnprocessableEntity, "idempotency_key_reused")
			g.letGo(lease.Token)
			_, a, err = g.Acquire(t.Context(), "between", apitest.Query("ttl=1m&owner=me"), key)
			expect(t, a, err, http.StatusGone, "lease_ended")
			names = f.children("/lockkeeper/locks/between")
			assert.That(t, len(names) == 0, "left behind: %v", names)
		})
	}
}

// A gateway that stands still (a loaded machine, a debugger, SIGSTOP) finds the heartbeats of its clients in its sockets
// when it goes on. They are heard before anything expires.
func TestHeartbeatsThatWaitedForAFrozenGatewayAreHeardBeforeAnythingExpires(t *testing.T) {
	t.Parallel()
	for name, window := range map[string]time.Duration{
		"inside its promise window":      15 * time.Second,
		"longer than its promise window": 2 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := onShared(t, "--session-timeout=20s", "--promise-window="+window.String())
			var pulses []*pulse
			for i := range 50 {
				pulses = append(pulses, g.keepAlive(g.hold(fmt.Sprint("lock-", i), "ttl=6s").Token))
			}
			pulses = append(pulses, g.keepAlive(g.queue("lock-0", "ttl=6s").Token))
			g.freeze()
			elapse(t, 8*time.Second) // longer than the TTL
			g.thaw()
			for _, p := range pulses {
				p.awaitBeat(t, patience)
				p.halt()
				p.mustNotHaveLost(t)
			}
		})
	}
}
