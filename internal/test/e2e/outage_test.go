package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
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

// outage is longer than the TTLs, the session timeout and the promise window here.
const outage = 7 * time.Second

// ZooKeeper goes away in each of the ways that look different to a client, and comes back.
func TestInAnOutageRequestsAreRefusedQuicklyAndAfterItEverythingIsStillHeld(t *testing.T) {
	t.Parallel()
	type weather struct{ addr, chroot, direct string }
	for name, fault := range map[string]func(t *testing.T) (w weather, away, back func()){
		"the network is cut": func(t *testing.T) (weather, func(), func()) {
			addr, chroot := zkreal.SharedT(t)
			p := netfault.NewT(t, addr)
			return weather{p.Addr(), chroot, addr}, p.Cut, p.Heal
		},
		"the network is silent": func(t *testing.T) (weather, func(), func()) {
			addr, chroot := zkreal.SharedT(t)
			p := netfault.NewT(t, addr)
			return weather{p.Addr(), chroot, addr}, p.Stall, p.Heal
		},
		"the server is killed": func(t *testing.T) (weather, func(), func()) {
			s := zkreal.StartT(t, zkreal.WithoutFsync())
			return weather{s.Addr(), "", s.Addr()}, s.Kill, func() { s.RestartT(t) }
		},
		"the server is frozen": func(t *testing.T) (weather, func(), func()) {
			s := zkreal.StartT(t, zkreal.WithoutFsync())
			t.Cleanup(s.Thaw)
			return weather{s.Addr(), "", s.Addr()}, s.Freeze, s.Thaw
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, away, back := fault(t)
			g := startGateway(t, w.addr+w.chroot)
			held := g.hold("held", "ttl=5s&owner=me")
			waiting := g.queue("held", "ttl=5s&owner=you")
			mayGo := g.hold("released", "ttl=1m")
			pulses := []*pulse{g.keepAlive(held.Token), g.keepAlive(waiting.Token)}
			pulses[0].awaitBeat(t, patience)
			pulses[1].awaitBeat(t, patience)

			away()
			began := time.Now()
			var took []time.Duration
			for round := 0; time.Since(began) < outage; round++ {
				took = append(took, g.refusesAcquire(fmt.Sprint("during-", round), apitest.Key("a-fresh-random-key-"+strconv.Itoa(round))))
				if round%2 == 1 {
					took = append(took, g.refusesRelease(mayGo.Token))
				}
				assert.Nil(t, g.status(http.MethodGet, "/healthz", http.StatusOK), "healthz")
				assert.Nil(t, g.status(http.MethodGet, "/readyz", http.StatusOK), "readyz, in an outage that every gateway has")
			}
			slices.Sort(took)
			t.Logf("%d refusals, median %v, slowest %v", len(took), took[len(took)/2], took[len(took)-1])
			assert.That(t, took[len(took)/2] <= required(1500*time.Millisecond) && took[len(took)-1] <= required(4*time.Second),
				"refusals took %v", took)
			for _, at := range pulses[0].attempts() {
				// Longer than the window after the last commit nothing may be confirmed. When the client hears of it is the
				// machine's affair; what it sent later cannot have been confirmed before.
				assert.That(t, at.status != http.StatusOK || at.sent.Sub(began) <= promiseWindow || !at.answered.Before(began.Add(outage)),
					"a heartbeat that was sent %v into the outage was confirmed", at.sent.Sub(began))
			}

			back()
			for _, p := range pulses {
				p.awaitBeat(t, patience)
				p.mustNotHaveLost(t)
			}
			g.unchanged(held, waiting)
			// The release either happened or it did not; repeating it settles that.
			eventually(t, patience, func() error {
				a, err := g.Release(t.Context(), mayGo.Token)
				return answeredWith(a, err, http.StatusNoContent)
			}, "the release is repeated")
			g.settles(newForeign(t, w.direct, w.chroot), held, waiting)
		})
	}
}

// refusesAcquire sends an acquire that must be refused with 503, and tells how long that took.
func (g *gateway) refusesAcquire(lock string, options ...apitest.Option) time.Duration {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), patience)
	defer cancel()
	began := time.Now()
	_, a, err := g.Acquire(ctx, lock, append(options, apitest.Query("ttl=1m"))...)
	return g.refused(a, err, began)
}

func (g *gateway) refusesRelease(token string) time.Duration {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), patience)
	defer cancel()
	began := time.Now()
	a, err := g.Release(ctx, token)
	return g.refused(a, err, began)
}

func (g *gateway) refused(a *apitest.Answer, err error, began time.Time) time.Duration {
	g.t.Helper()
	took := time.Since(began)
	assert.That(g.t, err == nil && a.Status == http.StatusServiceUnavailable && a.Header.Get("Retry-After") != "",
		"in the outage: %v, %+v", err, a)
	return took
}

// settles repeats every acquire of the outage with its key: each lock is then held once, by the lease of that key, and
// nothing was queued twice.
func (g *gateway) settles(f *foreign, held, waiting api.Lease) {
	t := g.t
	t.Helper()
	for _, lock := range f.children("/lockkeeper/locks") {
		switch lock {
		case "held":
			names := f.children("/lockkeeper/locks/held")
			assert.That(t, len(names) == 2, "the queue of %s and %s is %v", held.LeaseID, waiting.LeaseID, names)
		case "released":
			names := f.children("/lockkeeper/locks/released")
			assert.That(t, len(names) == 0, "not released: %v", names)
		default:
			key := apitest.Key("a-fresh-random-key-" + lock[len("during-"):])
			eventually(t, patience, func() error {
				_, a, err := g.Acquire(t.Context(), lock, apitest.Query("ttl=1m"), key)
				return answeredWith(a, err, http.StatusOK, http.StatusCreated)
			}, "the acquire of %s is repeated", lock)
			names := f.children("/lockkeeper/locks/" + lock)
			assert.That(t, len(names) == 1, "%s was queued %d times: %v", lock, len(names), names)
		}
	}
}

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
	began := time.Now()
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
	seen := time.Since(began).Milliseconds()
	if lock, a, err := g.Lock(t.Context(), "deploy"); err != nil || len(lock.Holders) != 1 || lock.Holders[0].HeldMS < seen || lock.Holders[0].HeldLonger {
		t.Errorf("%v, held for at least %d ms: %s", err, seen, a.Body)
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

// A later release has been here. What it says in the layout's record decides whether this one may go on beside it.
func TestALayoutOfALaterReleaseSaysWhichReleasesMayStillUseIt(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	g := startGateway(t, addr+chroot)
	held := g.hold("deploy", "ttl=1m")
	f := newForeign(t, addr, chroot)
	record := func(data string) {
		t.Helper()
		assert.Value(f.Set(chroot+"/lockkeeper/version", []byte(data), -1))(t)
	}
	record(`{"layout":7,"oldest_reader":1,"of_a_later_release":true}`)
	g.terminate()
	g.restart()
	g.beatUntil(held.Token, api.StateHeld)
	data, _, err := f.Get(chroot + "/lockkeeper/version")
	assert.That(t, err == nil && strings.Contains(string(data), `"layout":7`), "the record was written back: %s, %v", data, err)

	record(`{"layout":8,"oldest_reader":2}`)
	g.beatUntil(held.Token, api.StateHeld) // one that runs goes on; raising it needs the others stopped before
	for _, command := range []string{"", "sweep", "export"} {
		args := []string{"--zk=" + addr + chroot, "--listen=" + freeAddr(t)}
		if command != "" {
			args = []string{command, args[0]}
		}
		code, out := exitCode(t, args...)
		if code != 78 || !strings.Contains(out, "layout 8") || !strings.Contains(out, "hint: run the release that the other gateways run") {
			t.Errorf("%q: exit %d\n%s", command, code, out)
		}
	}
}

// A contender whose name a later release has written is respected as an exclusive one and shown.
func TestAContenderOfALaterReleaseIsWaitedForAndShown(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	f := g.foreign(t)
	lease := g.hold("deploy", "ttl=1m")
	later := lease.LeaseID[:len(lease.LeaseID)-3] + "777"
	f.put("/lockkeeper/locks/deploy/read-v2."+later+".x7-lock-", []byte(`{"v":2,"ttl_ms":1000}`))
	g.letGo(lease.Token)
	_, a, err := g.Acquire(t.Context(), "deploy", apitest.Query("ttl=1m&mode=shared"))
	expect(t, a, err, http.StatusConflict, "held_by_other")
	waiting := g.acquiring(t.Context(), "deploy", "ttl=1m&wait=1m&mode=shared")
	q := g.awaitLock(patience, "deploy", 1, 1)
	h := q.Holders[0]
	assert.That(t, strings.Contains(h.Znode, later) && h.LeaseID == later && h.Foreign == nil, "the holder is shown as %+v", h)
	a, err = g.Send(t.Context(), http.MethodPost, "/v1/locks/deploy/contenders/"+q.Holders[0].Znode[strings.LastIndexByte(q.Holders[0].Znode, '/')+1:]+"/break")
	expect(t, a, err, http.StatusNoContent, "")
	waiting.granted(patience)
}
