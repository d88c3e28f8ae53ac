package e2e

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zkreal"
)

func TestASemaphoreHasAsManyPermitsAsWasAgreedOrSet(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	g := startGateway(t, addr+chroot)
	post[api.Lease](g, "POST", "/v1/locks/gpu/leases?mode=semaphore", 422, "invalid_field")
	first := g.hold("gpu", "ttl=1m&mode=semaphore&limit=3&permits=2")
	assert.That(t, first.Permits == 2 && first.Limit == 3 && first.Mode == api.ModeSemaphore, "%+v", first)
	g.hold("gpu", "ttl=1m&mode=semaphore")
	full := g.queue("gpu", "ttl=1m&mode=semaphore&limit=3")
	a, err := g.Send(t.Context(), "POST", "/v1/locks/gpu/leases?mode=semaphore&limit=4")
	expect(t, a, err, 409, "settings_differ")
	assert.That(t, a.Problem.Limit == 3, "the limit in force is not told: %s", a.Body)
	post[api.Lease](g, "POST", "/v1/locks/gpu/leases?mode=semaphore&permits=4", 422, "invalid_field")
	if q := g.awaitLock(patience, "gpu", 2, 1); q.Settings == nil || q.Settings.Limit != 3 || !q.Settings.Agreed || q.Holders[0].Permits != 2 || q.Holders[0].Limit != 3 {
		t.Errorf("%+v %+v", q, q.Settings)
	}
	q := post[api.Lock](g, "PUT", "/v1/locks/gpu?limit=5", 200, "")
	assert.That(t, q.Settings != nil && q.Settings.Limit == 5 && !q.Settings.Agreed && q.QueueLength == 1, "%+v", q)
	g.letGo(first.Token)
	g.awaitHeld(full) // a contender in the queue keeps the limit that it came with
	post[api.Lock](g, "DELETE", "/v1/locks/gpu", 409, "lock_in_use")
	post[api.Lock](g, "PUT", "/v1/locks/other", 200, "", apitest.JSON(`{"limit":2}`))
	post[struct{}](g, "DELETE", "/v1/locks/other", 204, "")
	post[struct{}](g, "DELETE", "/v1/locks/other", 204, "")
	if q := post[api.Lock](g, "GET", "/v1/locks/other", 200, ""); q.Settings != nil {
		t.Errorf("after its removal: %+v", q.Settings)
	}
}

func TestAHoldMoreAndAHoldLess(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	g := startGateway(t, addr+chroot)
	l := g.hold("deploy", "ttl=1m&hold=outer")
	for range 2 {
		got := post[api.Lease](g, "POST", "/v1/locks/deploy/leases?hold=inner", 200, "", apitest.Token(l.Token))
		if got.LeaseID != l.LeaseID || got.FencingToken != l.FencingToken || !reflect.DeepEqual(got.Holds, []string{"outer", "inner"}) {
			t.Errorf("%+v", got)
		}
	}
	post[api.Lease](g, "POST", "/v1/locks/another/leases?hold=inner", 422, "invalid_field", apitest.Token(l.Token))
	a, err := g.Send(t.Context(), "POST", "/v1/locks/deploy/leases?hold=inner&format=env", apitest.Token(l.Token))
	expect(t, a, err, 200, "")
	assert.That(t, strings.Contains(string(a.Body), "LEASE_TOKEN="+l.Token+"\n"), "%s", a.Body)
	for range 2 {
		post[struct{}](g, "DELETE", "/v1/leases/self?hold=inner", 204, "", apitest.Token(l.Token))
	}
	post[api.Lease](g, "POST", "/v1/locks/deploy/leases?hold=inner", 409, "hold_released", apitest.Token(l.Token))
	if got := post[api.Lease](g, "GET", "/v1/leases/"+l.LeaseID, 200, ""); got.State != api.StateHeld || !reflect.DeepEqual(got.Holds, []string{"outer"}) {
		t.Errorf("%+v", got)
	}
	post[struct{}](g, "DELETE", "/v1/leases/self?hold=outer", 204, "", apitest.Token(l.Token))
	g.awaitLock(patience, "deploy", 0, 0)
	m := post[api.Postmortem](g, "GET", "/v1/leases/self/postmortem", 200, "", apitest.Token(l.Token))
	assert.That(t, m.Reason == api.ReasonReleased && m.FencingToken == l.FencingToken && m.HeldMS != nil && m.Next == nil, "%+v", m)
}

func TestWhatIsKnownOfALeaseCanBeChanged(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	g := startGateway(t, addr+chroot)
	l := g.hold("leader", "ttl=1m&owner=node-1&metadata=old")
	got := post[api.Lease](g, "PATCH", "/v1/leases/self?ttl=2m", 200, "", apitest.Token(l.Token), apitest.JSON(`{"metadata":"new","owner":""}`))
	assert.That(t, got.Metadata == "new" && got.Owner == "" && got.TTLMS == 120_000 && got.Rev != l.Rev && got.Token == "", "%+v", got)
	if q := g.awaitLock(patience, "leader", 1, 0); q.Holders[0].Metadata != "new" || q.Holders[0].Owner != "" {
		t.Errorf("%+v", q.Holders[0])
	}
	again := post[api.Lease](g, "PATCH", "/v1/leases/"+l.LeaseID, 200, "", apitest.Token(l.Token))
	assert.That(t, again.Metadata == "new" && again.TTLMS == got.TTLMS, "nothing was to be changed: %+v", again)
}

func TestAHolderIsAskedToReleaseAndThenForced(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	g := startGateway(t, addr+chroot)
	l := g.hold("deploy", "ttl=1m&owner=me")
	next := g.queue("deploy", "ttl=1m&owner=you")
	asked := post[api.RevokeAnswer](g, "POST", "/v1/locks/deploy/revoke", 200, "", apitest.JSON(`{"reason":"maintenance"}`))
	assert.That(t, len(asked.Asked) == 1 && asked.Asked[0].LeaseID == l.LeaseID && len(asked.Unreached) == 0, "%+v", asked)
	if h := g.beat(l.Token, api.StateHeld); h.RevokeRequested == nil || h.RevokeRequested.Reason != "maintenance" || h.RevokeRequested.ForceInMS != nil {
		t.Errorf("%+v", h.RevokeRequested)
	}
	q := g.awaitLock(patience, "deploy", 1, 1)
	assert.That(t, q.Holders[0].RevokeRequested != nil, "%+v", q.Holders[0])
	post[api.RevokeAnswer](g, "POST", "/v1/locks/deploy/revoke?force_after=300ms&reason=now", 200, "")
	g.awaitHeld(next)
	a, err := g.Send(t.Context(), "POST", "/v1/leases/self/heartbeat", apitest.Token(l.Token))
	expect(t, a, err, 410, "lease_ended")
	assert.That(t, a.Problem.Reason == api.ReasonRevoked, "%s", a.Body)
	eventually(t, patience, func() error {
		m := post[api.Postmortem](g, "GET", "/v1/leases/"+l.LeaseID+"/postmortem", 200, "")
		if m.Reason != api.ReasonRevoked || m.Detail != "now" || m.Next == nil || m.Next.LeaseID != next.LeaseID {
			return fmt.Errorf("%+v", m)
		}
		return nil
	}, "the postmortem tells who came next")
	post[api.Postmortem](g, "GET", "/v1/leases/"+next.LeaseID+"/postmortem", 404, "lease_not_found")
}

func TestADryRunTellsAndDoesNothing(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	g := startGateway(t, addr+chroot)
	l := g.hold("deploy", "ttl=1m")
	if d := post[api.DryRun](g, "POST", "/v1/locks/free/leases?dry_run=true", 200, ""); d.State != "held" || len(d.Holders) != 0 {
		t.Errorf("%+v", d)
	}
	d := post[api.DryRun](g, "POST", "/v1/leases?locks=free,deploy&dry_run=true&wait=1m", 200, "")
	assert.That(t, d.State == "waiting" && len(d.Holders) == 1 && d.Holders[0].LeaseID == l.LeaseID && d.QueueLength == 0, "%+v", d)
	g.awaitLock(patience, "deploy", 1, 0)
	g.awaitLock(patience, "free", 0, 0)
}

func TestAnAdministratorBreaksALeaseAndAnotherProgramsContender(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	g := startGateway(t, addr+chroot)
	f := newForeign(t, addr, chroot)
	l := g.hold("deploy", "ttl=1m")
	f.put("/lockkeeper/locks/deploy/_c_12345678-1234-1234-1234-1234567890ab-lock-", []byte("10.0.0.1"))
	last := g.queue("deploy", "ttl=1m")
	q := g.awaitLock(patience, "deploy", 1, 2)
	post[struct{}](g, "POST", "/v1/leases/"+l.LeaseID+"/break", 204, "", apitest.JSON(`{"reason":"its owner is gone"}`))
	m := post[api.Postmortem](g, "GET", "/v1/leases/"+l.LeaseID+"/postmortem", 200, "")
	assert.That(t, m.Reason == api.ReasonRevoked && m.Detail == "its owner is gone", "%+v", m)
	post[struct{}](g, "POST", "/v1/leases/self/heartbeat", 410, "lease_ended", apitest.Token(l.Token))
	name := q.Waiters[0].Znode[strings.LastIndexByte(q.Waiters[0].Znode, '/')+1:]
	assert.Must(t, q.Waiters[0].Foreign != nil, "the first who waits is %+v", q.Waiters[0])
	post[struct{}](g, "POST", "/v1/locks/deploy/contenders/"+name+"/break", 204, "")
	g.awaitHeld(last)
	post[struct{}](g, "POST", "/v1/locks/deploy/contenders/"+name+"/break", 404, "contender_not_found")
	post[struct{}](g, "POST", "/v1/locks/deploy/contenders/absent-lock-0000000007/break", 404, "contender_not_found")
}

func TestWhatIsOldIsReapedAndAQueueIsDestroyed(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	g := startGateway(t, addr+chroot)
	f := newForeign(t, addr, chroot)
	old := g.hold("deploy", "ttl=1m&owner=me")
	f.put("/lockkeeper/locks/deploy/_c_12345678-1234-1234-1234-1234567890ab-lock-", []byte("10.0.0.1"))
	g.queue("deploy", "ttl=1m&owner=you&mode=shared")
	last := g.queue("deploy", "ttl=1m&owner=me")
	g.awaitLock(patience, "deploy", 1, 3)
	none := post[api.ReapAnswer](g, "POST", "/v1/locks/deploy/reap?older_than=1h", 200, "")
	assert.That(t, len(none.Reaped)+len(none.Unreached) == 0 && !none.More, "%+v", none)
	would := post[api.ReapAnswer](g, "POST", "/v1/locks/deploy/reap?older_than=0s&dry_run=true&foreign=false&owner=me", 200, "")
	assert.That(t, would.DryRun && len(would.Reaped) == 2, "%+v", would)
	g.awaitLock(patience, "deploy", 1, 3)
	did := post[api.ReapAnswer](g, "POST", "/v1/locks/deploy/reap", 200, "", apitest.JSON(`{"older_than":"0s","state":"waiting","owner":"me","reason":"too many"}`))
	assert.That(t, !did.DryRun && len(did.Reaped) == 1 && did.Reaped[0].LeaseID == last.LeaseID, "%+v", did)
	g.awaitLock(patience, "deploy", 1, 2)
	all := post[api.DestroyAnswer](g, "POST", "/v1/locks/deploy/destroy?reason=the+end", 200, "")
	assert.That(t, all.Ended == 3 && all.Foreign == 1, "%+v", all)
	m := post[api.Postmortem](g, "GET", "/v1/leases/"+old.LeaseID+"/postmortem", 200, "")
	assert.That(t, m.Reason == api.ReasonDestroyed && m.Detail == "the end", "%+v", m)
	g.awaitLock(patience, "deploy", 0, 0)
	post[api.DestroyAnswer](g, "POST", "/v1/locks/deploy/destroy", 200, "")
}

func TestALockDelayIsSeenInTheQueueUntilItIsOver(t *testing.T) {
	t.Parallel()
	addr, chroot := zkreal.SharedT(t)
	g := startGateway(t, addr+chroot)
	l := g.hold("deploy", "ttl=1m&owner=me&lock_delay=3s&lock_delay_on=always")
	assert.That(t, l.LockDelayMS == 3000 && l.LockDelayOn == "always", "%+v", l)
	next := g.queue("deploy", "ttl=1m")
	g.letGo(l.Token)
	q := g.awaitLock(patience, "deploy", 1, 1)
	if c := q.Holders[0]; q.State != api.LockStateDelayed || !c.Delayed || c.Reason != api.ReasonReleased || c.ExpiresInMS <= 0 || c.ExpiresInMS > 3000 {
		t.Errorf("%s %+v", q.State, c)
	}
	f := post[api.Fence](g, "GET", "/v1/locks/deploy/fence?fencing_token="+tokenOf(l), 200, "")
	assert.That(t, !f.Current && f.Reason == "delayed", "%+v", f)
	post[api.LockList](g, "GET", "/v1/locks?state=delayed", 200, "")
	g.awaitHeld(next)
}
