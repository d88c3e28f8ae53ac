package e2e

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zkreal"
)

// fleetOf starts gateways on one ZooKeeper that know of each other.
func fleetOf(t *testing.T, zk string, n int, flags ...string) []*gateway {
	t.Helper()
	gateways := make([]*gateway, n)
	for i := range gateways {
		gateways[i] = startGateway(t, zk, flags...)
	}
	acquainted(t, gateways...)
	return gateways
}

// acquainted waits until all gateways know where all of them are.
func acquainted(t *testing.T, gateways ...*gateway) {
	t.Helper()
	for _, g := range gateways {
		eventually(t, patience, func() error {
			a, err := g.Send(t.Context(), http.MethodGet, "/v1/gateways")
			if err != nil {
				return err
			}
			var list api.GatewayList
			if err := json.Unmarshal(a.Body, &list); err != nil {
				return err
			}
			if len(list.Items) != len(gateways) || slices.ContainsFunc(list.Items, func(g api.GatewayInfo) bool { return g.Address == "" }) {
				return unexpected(a)
			}
			return nil
		}, "it knows where all gateways are")
	}
}

func TestAnyGatewayOfThreeAnswersForALease(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	gateways := fleetOf(t, addr+chroot, 3)
	one, two, three := gateways[0], gateways[1], gateways[2]
	lease := one.hold("deploy", "ttl=1m&owner=me&hold=a", apitest.Key("a-fresh-random-key-0001"))
	token := apitest.Token(lease.Token)

	// A long poll at one gateway hears of what is done at another.
	polled := make(chan *apitest.Answer, 1)
	seen, a, err := two.Lease(t.Context(), "self", token)
	expect(t, a, err, http.StatusOK, "")
	go func() {
		_, a, err := two.Lease(t.Context(), "self", token, apitest.Query("wait=30s&since="+seen.Rev))
		assert.Nil(t, err)
		polled <- a
	}()
	a, err = three.Send(t.Context(), http.MethodPatch, "/v1/leases/self", token, apitest.JSON(`{"metadata":"changed"}`))
	expect(t, a, err, http.StatusOK, "")
	a = <-polled
	assert.That(t, a != nil && a.Status == http.StatusOK, "the poll: %+v", a)
	// A repeat of the acquire, another hold, and its end.
	again, a, err := two.Acquire(t.Context(), "deploy", apitest.Query("ttl=1m&owner=me&hold=a"), apitest.Key("a-fresh-random-key-0001"))
	expect(t, a, err, http.StatusOK, "")
	if again.LeaseID != lease.LeaseID || again.Token != lease.Token || a.Header.Get("Idempotency-Replayed") != "true" || again.Metadata != "changed" {
		t.Errorf("the repeat: %s", a.Body)
	}
	_, a, err = three.Acquire(t.Context(), "deploy", apitest.Query("hold=b"), token)
	expect(t, a, err, http.StatusOK, "")
	a, err = two.Send(t.Context(), http.MethodDelete, "/v1/leases/self?hold=a", token)
	expect(t, a, err, http.StatusNoContent, "")
	a, err = two.Send(t.Context(), http.MethodPost, "/v1/leases/self/downgrade", token)
	expect(t, a, err, http.StatusOK, "")
	a, err = three.Send(t.Context(), http.MethodHead, "/v1/leases/"+lease.LeaseID)
	expect(t, a, err, http.StatusOK, "")
	now, a, err := three.Lease(t.Context(), lease.LeaseID, apitest.Query("verify=true"))
	expect(t, a, err, http.StatusOK, "")
	assert.That(t, now.Mode == api.ModeShared && slices.Equal(now.Holds, []string{"b"}) && now.FencingToken == lease.FencingToken,
		"it is %s", a.Body)
	// One heartbeat for leases of all three, of which one has ended.
	other := two.hold("other", "ttl=1m")
	gone := three.hold("gone", "ttl=1m")
	one.letGo(gone.Token)
	one.letGo(gone.Token) // repeated
	list, a, err := three.Heartbeats(t.Context(), []string{other.Token, lease.Token, gone.Token})
	expect(t, a, err, http.StatusOK, "")
	if list.Items[0].FencingToken != other.FencingToken || list.Items[1].FencingToken != lease.FencingToken || list.Items[2].Problem == nil || list.Items[2].Problem.Code != "lease_ended" {
		t.Errorf("heartbeats: %s", a.Body)
	}
	// The owner's report of the break, with its text, is at every gateway.
	a, err = two.Send(t.Context(), http.MethodPost, "/v1/leases/"+lease.LeaseID+"/break", apitest.JSON(`{"reason":"maintenance"}`))
	expect(t, a, err, http.StatusNoContent, "")
	for _, g := range gateways {
		_, a, err := g.Heartbeat(t.Context(), lease.Token)
		expect(t, a, err, http.StatusGone, "lease_ended")
		assert.That(t, a.Problem.Reason == "revoked", "the reason: %s", a.Body)
		a, err = g.Send(t.Context(), http.MethodGet, "/v1/leases/"+lease.LeaseID+"/postmortem")
		expect(t, a, err, http.StatusOK, "")
	}
	two.letGo(other.Token)
	assert.That(t, three.metric(`lockkeeper_forwarded_total{result="done"}`) != "", "nothing is counted")
}

// The client of a gateway that died asks another one, and keeps its place.
func TestAWaiterWhoseGatewayDiedIsGrantedInTurnByAnother(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	gateways := fleetOf(t, addr+chroot, 3)
	one, two, three := gateways[0], gateways[1], gateways[2]
	holder := one.hold("deploy", "ttl=1m")
	first := two.queue("deploy", "ttl=1m&owner=first")
	two.awaitLock(patience, "deploy", 1, 1)
	second := three.queue("deploy", "ttl=1m&owner=second")
	one.awaitLock(patience, "deploy", 1, 2)
	granted := make(chan string, 2)
	poll := func(g *gateway, l api.Lease) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		since := l.Rev
		for ctx.Err() == nil {
			now, a, err := g.Lease(ctx, "self", apitest.Token(l.Token), apitest.Query("wait=5s&since="+since))
			switch {
			case err == nil && a.Status == http.StatusOK && now.State == api.StateHeld:
				granted <- l.Owner
				return
			case err == nil && a.Status == http.StatusOK:
				since = now.Rev
			case err == nil && a.Status != http.StatusServiceUnavailable:
				t.Errorf("%s is told %d %s", l.Owner, a.Status, a.Body)
				return
			default:
				time.Sleep(20 * time.Millisecond) // 503: its gateway is gone, and no gateway has taken over yet
			}
		}
		t.Errorf("%s is not granted", l.Owner)
	}
	two.kill()
	go poll(three, first)
	go poll(one, second)
	keep := one.keepAlive(holder.Token)
	for _, g := range []*gateway{one, three} { // either may take over
		eventually(t, patience, func() error {
			now, a, err := g.Lease(t.Context(), first.LeaseID)
			if err == nil && (a.Status != http.StatusOK || now.State != api.StateWaiting || now.Position != 1) {
				err = unexpected(a)
			}
			return err
		}, "it stands first")
	}
	keep.halt()
	one.letGo(holder.Token)
	assert.Equal(t, <-granted, "first", "was granted first")
	one.letGo(first.Token)
	assert.Equal(t, <-granted, "second", "was granted next")
	one.letGo(second.Token)
}

// Attack 45: invented ids lead nowhere: they are asked for once, and no gateway is succeeded for them.
func TestInventedLeasesLeadNowhere(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	gateways := fleetOf(t, addr+chroot, 3)
	f := newForeign(t, addr, chroot)
	lease := gateways[0].hold("deploy", "ttl=1m")
	genuine := recipe.LeaseID(lease.LeaseID)
	var invented []string
	for range 5 {
		stranger := assert.Value(recipe.NewGatewayID(rand.Reader))(t)
		for _, gateway := range []recipe.GatewayID{stranger, genuine.Gateway()} {
			id := assert.Value(recipe.NewLeaseID(genuine.Fleet(), gateway, rand.Reader))(t)
			invented = append(invented, string(id))
		}
	}
	for _, g := range gateways {
		for _, id := range invented {
			token := apitest.Token(fmt.Sprintf("lk1.%s.k1.AAAAAAAAAAAAAAAAAAAAAA", id))
			a, err := g.Send(t.Context(), http.MethodGet, "/v1/leases/"+id)
			expect(t, a, err, http.StatusNotFound, "lease_not_found")
			a, err = g.Send(t.Context(), http.MethodGet, "/v1/leases/"+id+"/postmortem")
			expect(t, a, err, http.StatusNotFound, "lease_not_found")
			a, err = g.Send(t.Context(), http.MethodDelete, "/v1/leases/"+id, token)
			expect(t, a, err, http.StatusForbidden, "lease_token_wrong")
			a, err = g.Send(t.Context(), http.MethodPost, "/v1/leases/"+id+"/break")
			expect(t, a, err, http.StatusNotFound, "lease_not_found")
		}
	}
	entries := f.children("/lockkeeper/succession")
	assert.That(t, len(entries) == 0, "succession: %v", entries)
	gateways[2].letGo(lease.Token)
}

// While the owner stands still, and before a gateway may take it over, another gateway keeps its leases alive.
func TestWhileTheOwnerHangsAnotherGatewayRenewsItsLeases(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	gateways := fleetOf(t, addr+chroot, 2, "--session-timeout=20s")
	one, two := gateways[0], gateways[1]
	lease := one.hold("deploy", "ttl=6s")
	one.freeze()
	defer one.thaw()
	for begun := time.Now(); time.Since(begun) < 10*time.Second; {
		assert.MustEqual(t, two.beatUntil(lease.Token, api.StateHeld).FencingToken, lease.FencingToken, "the fencing token")
		time.Sleep(time.Second)
	}
	one.thaw()
	one.beatUntil(lease.Token, api.StateHeld)
	two.letGo(lease.Token)
}

// A release does not wait for the takeover of a gateway that was killed: that comes with the end of its session.
func TestALeaseOfAKilledGatewayIsReleasedAtAnotherOneAtOnce(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	gateways := fleetOf(t, addr+chroot, 2, "--session-timeout=40s")
	one, two := gateways[0], gateways[1]
	lease := one.hold("deploy", "ttl=10m")
	one.kill()
	killed := time.Now()
	for range 2 { // repeated
		eventually(t, patience, func() error {
			a, err := two.Release(t.Context(), lease.Token)
			return answeredWith(a, err, http.StatusNoContent)
		}, "the lease is released")
	}
	two.hold("deploy", "ttl=1m&wait=30s")
	assert.That(t, time.Since(killed) < 38*time.Second, "it took %v", time.Since(killed))
}
