package e2e

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/netfault"
	"lockkeeper/internal/test/zkreal"
)

func TestASecondGatewaySendsRequestsToTheOwnerAndTakesOverWhenThatOneIsKilled(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	p := netfault.NewT(t, addr, netfault.Framed())
	one := startGateway(t, addr+chroot)
	two := startGateway(t, p.Addr()+chroot)
	f := newForeign(t, addr, chroot)
	var leases []api.Lease
	var tokens []string
	for i := range 30 {
		lease := one.hold(fmt.Sprint("lock-", i), "ttl=1m&owner=me&metadata=m")
		waiter := one.queue(lease.Lock, "ttl=1m&owner=you")
		leases, tokens = append(leases, lease, waiter), append(tokens, lease.Token, waiter.Token)
	}
	first := leases[0]
	two.awaitLock(patience, first.Lock, 1, 1) // both see one queue

	beat := two.beat(first.Token, api.StateHeld)
	assert.That(t, beat.FencingToken == first.FencingToken, "the fencing token was %d and is %d", first.FencingToken, beat.FencingToken)
	one.beat(first.Token, api.StateHeld)
	_, a, err := two.Acquire(t.Context(), first.Lock)
	expect(t, a, err, http.StatusConflict, "held_by_other")

	c := watchTraffic(p)
	one.kill()
	began := time.Now()
	eventually(t, patience, func() error {
		_, a, err := two.Lease(t.Context(), first.LeaseID)
		return answeredWith(a, err, http.StatusOK)
	}, "the other gateway has taken over")
	two.hears(tokens, leases)
	t.Logf("taken over after %v", time.Since(began))
	writes, _, _ := c.take()
	assert.That(t, len(writes) == 1 && strings.Contains(writes[0], "/succession/"),
		"the takeover of %d leases cost %d writes:\n%s", len(leases), len(writes), strings.Join(writes, "\n"))
	entries := f.children("/lockkeeper/succession")
	assert.That(t, len(entries) == 1, "succession: %v", entries)
	two.unchanged(leases...)
	two.letGo(first.Token)
	next := two.beatUntil(tokens[1], api.StateHeld)
	assert.That(t, next.FencingToken > first.FencingToken, "fencing token %d follows %d", next.FencingToken, first.FencingToken)
}

// hears waits until the gateway confirms all leases in one bulk heartbeat. It may be unavailable for a while, and no lease may
// be lost or changed.
func (g *gateway) hears(tokens []string, leases []api.Lease) {
	g.t.Helper()
	eventually(g.t, patience, func() error {
		bulk, a, err := g.Heartbeats(g.t.Context(), tokens)
		if err := answeredWith(a, err, http.StatusOK); err != nil {
			return err
		}
		for i, item := range bulk.Items {
			switch {
			case item.Problem == nil:
				if item.State != leases[i].State || item.FencingToken != leases[i].FencingToken || item.Position != leases[i].Position {
					g.t.Fatalf("a lease was %+v and is %+v", leases[i], item)
				}
			case item.Problem.Status == http.StatusServiceUnavailable:
				return unexpected(a)
			default:
				g.t.Fatalf("a lease is lost: %+v", item.Problem)
			}
		}
		return nil
	}, "the gateway answers for all leases")
}

// beatUntil heartbeats until the lease is in that state.
func (g *gateway) beatUntil(token string, state api.State) (beat api.Heartbeat) {
	g.t.Helper()
	eventually(g.t, patience, func() error {
		var a *apitest.Answer
		var err error
		beat, a, err = g.Heartbeat(g.t.Context(), token)
		if err == nil && beat.State != state {
			err = unexpected(a)
		}
		return err
	}, "the lease is %s", state)
	return beat
}

func TestTheSameKeyAtTwoGatewaysAtOnceQueuesOnce(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	gateways := []*gateway{startGateway(t, addr+chroot), startGateway(t, addr+chroot)}
	f := newForeign(t, addr, chroot)
	for i := range 25 {
		lock, key := fmt.Sprint("lock-", i), apitest.Key(fmt.Sprintf("a-fresh-random-key-%d", i))
		var asked []*pending
		for range 2 {
			for _, g := range gateways {
				asked = append(asked, g.acquiring(t.Context(), lock, "ttl=1m&wait=20s&owner=me", key))
			}
		}
		created, id := 0, ""
		for _, p := range asked {
			p.answered(patience)
			assert.NoError(t, p.err)
			switch {
			case p.a.Status == http.StatusCreated:
				created++
			case p.a.Status == http.StatusOK:
			default:
				t.Errorf("answered %d %s", p.a.Status, p.a.Body)
			}
			if got := p.lease.LeaseID; got != "" && id != "" && got != id {
				t.Errorf("two leases: %s and %s", id, got)
			} else if got != "" {
				id = got
			}
		}
		names := f.children("/lockkeeper/locks/" + lock)
		assert.Must(t, created == 1 && len(names) == 1, "%d were told that they had created it, and the queue is %v", created, names)
	}
}

func TestWithAnIdentityNoOtherClientReadsSecretsOrJoinsTheFleet(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	write := func(line string) string {
		file := filepath.Join(t.TempDir(), "auth")
		assert.NoError(t, os.WriteFile(file, []byte(line+"\n"), 0o600))
		return file
	}
	g := startGateway(t, addr+chroot, "--zk-auth-file="+write("digest fleet:sesame"))
	lease := g.hold("deploy", "ttl=1m&owner=me", apitest.Key("a-fresh-random-key-0001"))
	f := newForeign(t, addr, chroot)

	unreadable := []string{"/lockkeeper/secret"}
	for _, key := range f.children("/lockkeeper/keys") {
		unreadable = append(unreadable, "/lockkeeper/keys/"+key)
	}
	assert.That(t, len(unreadable) == 2, "keys: %v", unreadable)
	for _, path := range unreadable {
		_, _, err := f.Get(chroot + path)
		assert.Equal(t, err, zk.ErrNoAuth, "a stranger reads %s", path)
	}
	for _, path := range []string{"/lockkeeper", "/lockkeeper/version", "/lockkeeper/guards", "/lockkeeper/gateways", "/lockkeeper/succession", "/lockkeeper/fence_base"} {
		_, _, err := f.Get(chroot + path)
		assert.Nil(t, err, "a stranger may look at %s", path)
		_, err = f.Set(chroot+path, []byte("x"), -1)
		assert.Equal(t, err, zk.ErrNoAuth, "a stranger writes %s", path)
	}
	for _, path := range []string{"/lockkeeper/guards", "/lockkeeper/gateways"} {
		for _, id := range f.children(path) {
			assert.Equal(t, f.Delete(chroot+path+"/"+id, -1), zk.ErrNoAuth, "a stranger deletes %s/%s", path, id)
		}
	}
	acl, _, err := f.GetACL(chroot + "/lockkeeper/version")
	assert.NoError(t, err)
	// ZooKeeper shows a digest's user and not its password.
	fleet := func(a zk.ACL) bool {
		return a.Scheme == "digest" && strings.HasPrefix(a.ID, "fleet:") && a.Perms == zk.PermAll
	}
	others := func(a zk.ACL) bool { return a.Scheme == "world" && a.Perms == zk.PermRead }
	assert.That(t, len(acl) == 2 && slices.ContainsFunc(acl, fleet) && slices.ContainsFunc(acl, others),
		"the ACL of the version is %+v", acl)
	// Where programs share a queue, every program can queue in it.
	lock := zk.NewLock(f.Conn, chroot+"/lockkeeper/locks/deploy", zk.WorldACL(zk.PermAll))
	locked := make(chan error, 1)
	go func() { locked <- lock.Lock() }()
	g.awaitLock(patience, "deploy", 1, 1)
	g.letGo(lease.Token)
	assert.Nil(t, <-locked, "go-zookeeper's lock")
	g.awaitLock(patience, "deploy", 1, 0)
	assert.Nil(t, lock.Unlock())

	for name, line := range map[string]string{"another password": "digest fleet:tahini", "another user": "digest fleat:sesame"} {
		code, out := exitCode(t, "--zk="+addr+chroot, "--listen="+freeAddr(t), "--zk-auth-file="+write(line))
		assert.That(t, code == 78 && strings.Contains(out, "error: ") && strings.Contains(out, "hint: "),
			"%s: exit code %d\n%s", name, code, out)
		assert.That(t, !strings.Contains(out, "tahini") && !strings.Contains(out, "sesame"), "%s: a password is printed\n%s", name, out)
	}
	code, out := exitCode(t, "--zk="+addr+chroot, "--listen="+freeAddr(t))
	assert.That(t, code == 78, "without an identity: exit code %d\n%s", code, out)
	g.letGo(g.hold("after", "").Token)
}

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
func TestD29ALeaseOfAKilledGatewayIsReleasedAtAnotherOneAtOnce(t *testing.T) {
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
