package httpapi

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

func TestARecipeReachesTheManagerAsItWasAsked(t *testing.T) {
	one := locks.AcquireRequest{Principal: locks.Anonymous, NS: "default", Lock: "deploy", TTL: 30 * time.Second, Mode: locks.Exclusive}
	more := locks.AcquireRequest{Principal: locks.Anonymous, NS: "default", TTL: 30 * time.Second}
	with := func(r locks.AcquireRequest, change func(*locks.AcquireRequest)) locks.AcquireRequest {
		change(&r)
		return r
	}
	const path, group = "/v1/locks/deploy/leases", "/v1/leases"
	tok := apitest.Token(someToken)
	for _, c := range []struct {
		path    string
		options []apitest.Option
		want    locks.AcquireRequest
	}{
		{path + "?mode=shared", nil, with(one, func(r *locks.AcquireRequest) { r.Mode = locks.Shared })},
		{path + "?mode=semaphore&limit=5&permits=2", nil, with(one, func(r *locks.AcquireRequest) { r.Mode, r.Limit, r.Permits = locks.Semaphore, 5, 2 })},
		{path + "?mode=semaphore", nil, with(one, func(r *locks.AcquireRequest) { r.Mode, r.Permits = locks.Semaphore, 1 })},
		{path, opt(apitest.JSON(`{"permits":3,"limit":1048576,"mode":"semaphore"}`)), with(one, func(r *locks.AcquireRequest) { r.Mode, r.Limit, r.Permits = locks.Semaphore, 1<<20, 3 })},
		{path + "?at_least=10m", nil, with(one, func(r *locks.AcquireRequest) { r.AtLeast = 10 * time.Minute })},
		{path + "?lock_delay=15s", nil, with(one, func(r *locks.AcquireRequest) { r.LockDelay, r.LockDelayOn = 15*time.Second, locks.DelayOnExpiry })},
		{path, opt(apitest.JSON(`{"lock_delay":"1h","lock_delay_on":"always"}`)), with(one, func(r *locks.AcquireRequest) { r.LockDelay, r.LockDelayOn = time.Hour, locks.DelayAlways })},
		{path + "?ephemeral=true", nil, with(one, func(r *locks.AcquireRequest) { r.Ephemeral = true })},
		{path + "?notify_url=https://example.com/a%3Fb%3Dc", nil, with(one, func(r *locks.AcquireRequest) { r.NotifyURL = "https://example.com/a?b=c" })},
		{path, opt(apitest.JSON(`{"notify_url":"https://example.com/"}`)), with(one, func(r *locks.AcquireRequest) { r.NotifyURL = "https://example.com/" })},
		{group + "?locks=only", opt(apitest.JSON(`{"notify_url":"https://example.com/"}`)), with(more, func(r *locks.AcquireRequest) {
			r.Group, r.NotifyURL = []locks.Want{{NS: "default", Lock: "only", Mode: locks.Exclusive}}, "https://example.com/"
		})},
		{path + "?hold=outer", nil, with(one, func(r *locks.AcquireRequest) { r.Hold = "outer" })},
		{path + "?hold=outer", opt(apitest.Key(someKey)), with(one, func(r *locks.AcquireRequest) { r.Hold, r.IdempotencyKey = "outer", someKey })},
		// With a token nothing but the hold is said, also not what others leave unsaid.
		{path + "?hold=inner", opt(tok), locks.AcquireRequest{Principal: locks.Anonymous, NS: "default", Lock: "deploy", Hold: "inner", Token: someToken}},
		{path + "?hold=inner&format=env", opt(tok, apitest.JSON(`{"ns":"other"}`)), locks.AcquireRequest{Principal: locks.Anonymous, NS: "other", Lock: "deploy", Hold: "inner", Token: someToken}},

		{group + "?locks=only&hold=outer", nil, with(more, func(r *locks.AcquireRequest) {
			r.Group, r.Hold = []locks.Want{{NS: "default", Lock: "only", Mode: locks.Exclusive}}, "outer"
		})},
		{group + "?locks=b,a:1", nil, with(more, func(r *locks.AcquireRequest) {
			r.Group = []locks.Want{{NS: "default", Lock: "b", Mode: locks.Exclusive}, {NS: "default", Lock: "a:1", Mode: locks.Exclusive}}
		})},
		{group + "?locks=only&ttl=1m&wait=forever&owner=me", nil, with(more, func(r *locks.AcquireRequest) {
			r.Group = []locks.Want{{NS: "default", Lock: "only", Mode: locks.Exclusive}}
			r.TTL, r.Wait, r.Owner = time.Minute, locks.WaitForever, "me"
		})},
		{group + "?wait=5s", opt(apitest.JSON(` {"locks" : [ {"lock":"a"}, {"mode":"shared","lock":"a","ns":"other"},
			{"lock":"b","mode":"semaphore","limit":4,"permits":2}, {"lock":"c","mode":"semaphore"}],"metadata":"m","lock_delay":"1s"} `), apitest.Key(someKey)),
			with(more, func(r *locks.AcquireRequest) {
				r.Group = []locks.Want{{NS: "default", Lock: "a", Mode: locks.Exclusive}, {NS: "other", Lock: "a", Mode: locks.Shared},
					{NS: "default", Lock: "b", Mode: locks.Semaphore, Limit: 4, Permits: 2}, {NS: "default", Lock: "c", Mode: locks.Semaphore, Permits: 1}}
				r.Wait, r.Metadata, r.LockDelay, r.LockDelayOn, r.IdempotencyKey = 5*time.Second, "m", time.Second, locks.DelayOnExpiry, someKey
			})},
	} {
		g := serve(t)
		var got locks.AcquireRequest
		g.acquire = func(_ context.Context, req locks.AcquireRequest) (locks.AcquireResult, error) {
			got = req
			if req.Group != nil {
				return locks.AcquireResult{Lease: several()}, nil
			}
			return locks.AcquireResult{Lease: held()}, nil
		}
		a := g.send(t, "POST", c.path, c.options...)
		assert.That(t, a.Status == 201 && reflect.DeepEqual(got, c.want),
			"%s: %d %s\n got %+v\nwant %+v", c.path, a.Status, a.Body, got, c.want)
	}
}

func TestALeaseHasUpTo64Locks(t *testing.T) {
	g := serve(t)
	names := make([]string, locks.MaxGroup)
	objects := make([]string, locks.MaxGroup)
	for i := range names {
		names[i] = fmt.Sprintf("l%d", i)
		objects[i] = fmt.Sprintf(`{"lock":"l%d"}`, i)
	}
	asked := 0
	g.acquire = func(_ context.Context, req locks.AcquireRequest) (locks.AcquireResult, error) {
		asked += len(req.Group)
		return locks.AcquireResult{Lease: several()}, nil
	}
	g.send(t, "POST", "/v1/leases?locks="+strings.Join(names, ","))
	g.send(t, "POST", "/v1/leases", apitest.JSON(`{"locks":[`+strings.Join(objects, ",")+`]}`))
	assert.That(t, asked == 2*locks.MaxGroup, "%d locks reached the manager", asked)
}

func TestALeaseOfSeveralLocksTellsThemInPlaceOfOne(t *testing.T) {
	g := serve(t)
	g.acquire = func(context.Context, locks.AcquireRequest) (locks.AcquireResult, error) {
		return locks.AcquireResult{Lease: several()}, nil
	}
	a := g.send(t, "POST", "/v1/leases?locks=a,b")
	want := `"locks":[{"lock":"a","ns":"default","mode":"exclusive","fencing_token":8589934592,"znode":"/lockkeeper/locks/a/write-x"},` +
		`{"lock":"a","ns":"other","mode":"shared","fencing_token":8589934592,"znode":"/lockkeeper/locks/a/read-x"},` +
		`{"lock":"b","ns":"default","mode":"semaphore","permits":2,"limit":5,"fencing_token":8589934592,"znode":"/lockkeeper/locks/b/permit-x"}],"state":"held"`
	if a.Status != 201 || a.Header.Get("Location") != "/v1/leases/"+someID || !strings.Contains(string(a.Body), want) || strings.Contains(string(a.Body), `"lock":""`) {
		t.Errorf("%d %s\nwant in it %s", a.Status, a.Body, want)
	}
	g.acquire = func(context.Context, locks.AcquireRequest) (locks.AcquireResult, error) {
		l := several()
		l.State, l.FencingToken = locks.Waiting, 0
		for i := range l.Locks {
			l.Locks[i].FencingToken, l.Locks[i].Position = 0, i
		}
		return locks.AcquireResult{Lease: l}, nil
	}
	a = g.send(t, "POST", "/v1/leases?locks=a,b&async=true")
	if a.Status != 202 || !strings.Contains(string(a.Body), `"limit":5,"position":2,"znode"`) || strings.Contains(string(a.Body), "fencing_token") {
		t.Errorf("a waiting one: %d %s", a.Status, a.Body)
	}
}

func TestAHoldIsAddedToTheLeaseThatIsThere(t *testing.T) {
	g := serve(t)
	g.acquire = func(context.Context, locks.AcquireRequest) (locks.AcquireResult, error) {
		l := held()
		l.Holds = []string{"outer", "inner"}
		return locks.AcquireResult{Lease: l, HoldAdded: true}, nil
	}
	a := g.send(t, "POST", "/v1/locks/deploy/leases?hold=inner", apitest.Token(someToken))
	if a.Status != 200 || a.Header.Get("Idempotency-Replayed") != "" || !strings.Contains(string(a.Body), `"holds":["outer","inner"]`) {
		t.Errorf("%d %v %s", a.Status, a.Header, a.Body)
	}
	a = g.send(t, "POST", "/v1/locks/deploy/leases?hold=inner&format=env", apitest.Token(someToken))
	if want := "LEASE_ID=" + someID + "\nLEASE_TOKEN=" + someToken + "\nFENCING_TOKEN=8589934592\nLEASE_STATE=held\nLEASE_TTL_MS=30000\nLEASE_WAITED_MS=\nNOTIFY_SECRET=\nLEASE_ERROR=\nLEASE_STATUS=200\n"; a.Status != 200 || string(a.Body) != want {
		t.Errorf("%d %q", a.Status, a.Body)
	}
	assert.That(t, strings.Contains(string(g.send(t, "GET", "/metrics").Body), `acquire_seconds_count{result="hold_added"} 2`),
		"the metrics do not tell of holds that were added")
}

func TestAHoldIsReleasedByItsName(t *testing.T) {
	g := serve(t)
	g.send(t, "DELETE", "/v1/leases/self?hold=a%2Bb", apitest.Token(someToken))
	g.expect(t, 204, "", "DELETE", "/v1/leases/"+someID+"?hold=c", apitest.Token(someToken))
	want := []string{`release "" ` + someToken + ` hold a+b`, `release "` + someID + `" ` + someToken + ` hold c`}
	got := g.asked()
	assert.That(t, reflect.DeepEqual(got, want), "asked %q", got)
}

func TestAPreviewCreatesNothingAndShowsTheHoldersInTheWay(t *testing.T) {
	g := serve(t)
	g.acquire = func(_ context.Context, req locks.AcquireRequest) (locks.AcquireResult, error) {
		want := locks.AcquireRequest{Principal: locks.Anonymous, NS: "other", Lock: "deploy", TTL: locks.DefaultTTL, Mode: locks.Semaphore, Limit: 3, Permits: 2, DryRun: true}
		assert.That(t, reflect.DeepEqual(req, want), "the manager is asked %+v", req)
		return locks.AcquireResult{DryRun: &locks.DryRun{State: locks.Waiting, QueueLength: 3, Holders: queue().Holders}}, nil
	}
	a := g.send(t, "GET", "/v1/locks/deploy/preview?ns=other&mode=semaphore&limit=3&permits=2")
	want := `{"state":"waiting","queue_length":3,"holders":[{"lease_id":"` + someID
	assert.That(t, a.Status == 200 && a.Header.Get("Location") == "" && strings.HasPrefix(string(a.Body), want), "%d %v %s", a.Status, a.Header, a.Body)
	g.expect(t, 422, "unknown_field", "POST", "/v1/locks/deploy/leases?dry_run=true")
}

func TestALeaseTellsEverythingThatItIs(t *testing.T) {
	g := serve(t)
	g.lease = func(context.Context, locks.LeaseRequest) (locks.Lease, error) {
		l := held()
		l.Token, l.Mode, l.Permits, l.Limit = "", locks.Semaphore, 2, 5
		l.Holds, l.LockDelay, l.LockDelayOn, l.Ephemeral = []string{"a"}, 15*time.Second, locks.DelayAlways, true
		l.Revoke, l.Warning = &locks.Revocation{Reason: "maintenance", Forced: true, ForceIn: 1500 * time.Millisecond}, "too short"
		return l, nil
	}
	l, a, err := g.client.Lease(g.ctx, someID)
	assert.NoError(t, err)
	if l.Permits != 2 || l.Limit != 5 || l.LockDelayMS != 15_000 || l.LockDelayOn != api.Always || !l.Ephemeral || l.Warning != "too short" ||
		!reflect.DeepEqual(l.Holds, []string{"a"}) || l.RevokeRequested == nil || l.RevokeRequested.Reason != "maintenance" || *l.RevokeRequested.ForceInMS != 1500 {
		t.Errorf("%s", a.Body)
	}
}

func TestAHolderLearnsFromItsHeartbeatThatItIsAskedToRelease(t *testing.T) {
	g := serve(t)
	g.heartbeat = func(_, _ string, ttl time.Duration) (locks.Heartbeat, error) {
		return locks.Heartbeat{LeaseID: someID, State: locks.Held, TTL: ttl, Revoke: &locks.Revocation{Reason: "maintenance", Forced: true}}, nil
	}
	a := g.send(t, "POST", "/v1/leases/self/heartbeat", apitest.Token(someToken))
	if want := `"revoke_requested":{"reason":"maintenance","force_in_ms":0}`; !strings.Contains(string(a.Body), want) {
		t.Errorf("%s, want in it %s", a.Body, want)
	}
	a = g.send(t, "POST", "/v1/heartbeats", apitest.JSON(`{"tokens":["a"]}`))
	if want := `"revoke_requested":{"reason":"maintenance","force_in_ms":0}`; !strings.Contains(string(a.Body), want) {
		t.Errorf("%s, want in it %s", a.Body, want)
	}
	g.heartbeat = func(_, _ string, ttl time.Duration) (locks.Heartbeat, error) {
		return locks.Heartbeat{LeaseID: someID, State: locks.Held, TTL: ttl, Revoke: new(locks.Revocation)}, nil
	}
	if a = g.send(t, "POST", "/v1/leases/self/heartbeat", apitest.Token(someToken)); !strings.Contains(string(a.Body), `"revoke_requested":{}`) {
		t.Errorf("a revocation without reason and force: %s", a.Body)
	}
}

func TestAChangeOfALeaseSaysOnlyWhatWasGiven(t *testing.T) {
	g := serve(t)
	var got locks.UpdateRequest
	g.update = func(req locks.UpdateRequest) (locks.Lease, error) { got = req; return held(), nil }
	for _, c := range []struct {
		path    string
		options []apitest.Option
		want    locks.UpdateRequest
	}{
		{"self?owner=", nil, locks.UpdateRequest{Owner: new("")}},
		{someID + "?owner=you&ttl=1h", nil, locks.UpdateRequest{ID: someID, Owner: new("you"), TTL: time.Hour}},
		{"self", opt(apitest.JSON(`{"metadata":"{\"phase\":2}"}`)), locks.UpdateRequest{Metadata: new(`{"phase":2}`)}},
		{"self", nil, locks.UpdateRequest{}},
	} {
		a := g.send(t, "PATCH", "/v1/leases/"+c.path, append(c.options, apitest.Token(someToken))...)
		c.want.Principal, c.want.Token = locks.Anonymous, someToken
		if a.Status != 200 || !reflect.DeepEqual(got, c.want) || a.Header.Get("ETag") != `"7f"` || strings.Contains(string(a.Body), someToken) {
			t.Errorf("%s: %d %s\n got %+v\nwant %+v", c.path, a.Status, a.Body, got, c.want)
		}
	}
}

func TestADowngradeIsAnsweredWithTheSharedLease(t *testing.T) {
	g := serve(t)
	for _, who := range []string{"self", someID} {
		a := g.send(t, "POST", "/v1/leases/"+who+"/downgrade", apitest.Token(someToken))
		if a.Status != 200 || a.Header.Get("ETag") != `"7f"` || !strings.Contains(string(a.Body), `"mode":"shared"`) || strings.Contains(string(a.Body), someToken) {
			t.Errorf("%d %s", a.Status, a.Body)
		}
	}
	if got, want := g.asked(), []string{`downgrade "" ` + someToken, `downgrade "` + someID + `" ` + someToken}; !reflect.DeepEqual(got, want) {
		t.Errorf("asked %q", got)
	}
}

func TestAPostmortemHasTheReasonAndTheNextHolder(t *testing.T) {
	g := serve(t)
	want := `{"lease_id":"` + someID + `","lock":"deploy","ns":"default","mode":"exclusive","owner":"me","reason":"revoked","detail":"maintenance",` +
		`"fencing_token":8589934592,"ended_at":"2026-11-21T09:30:00.123456Z","ended_ago_ms":2000,"waited_ms":1000,"held_ms":60000,"ttl_ms":30000,` +
		`"last_heartbeat_ms":5000,"next":{"lease_id":"other","fencing_token":8589934597,"after_ms":7}}` + "\n"
	for _, a := range []*apitest.Answer{
		g.send(t, "GET", "/v1/leases/"+someID+"/postmortem"),
		g.send(t, "GET", "/v1/leases/self/postmortem", apitest.Token(someToken)),
	} {
		assert.That(t, a.Status == 200 && string(a.Body) == want, "%d %s", a.Status, a.Body)
	}
	g.ended = func(id string) (locks.Postmortem, error) {
		return locks.Postmortem{LeaseID: id, NS: "default", Lock: "deploy", Mode: locks.Shared, Reason: locks.ReasonCancelled}, nil
	}
	a := g.send(t, "GET", "/v1/leases/"+someID+"/postmortem")
	for _, member := range []string{"held_ms", "last_heartbeat_ms", "next", "fencing_token", "detail", "owner"} {
		assert.That(t, !strings.Contains(string(a.Body), member), "of a lease that never held it tells %s: %s", member, a.Body)
	}
	g.ended = func(string) (locks.Postmortem, error) {
		return locks.Postmortem{}, &locks.Error{Code: locks.CodeNotFound, Detail: "it lives"}
	}
	g.expect(t, 404, "lease_not_found", "GET", "/v1/leases/"+someID+"/postmortem")
}

// recipes is a queue with all that few contenders have.
func recipes() locks.Lock {
	return locks.Lock{
		NS: "default", Name: "gpu", State: locks.LockDelayed, QueueLength: 3, Rev: "1", Limit: 5, LimitAgreed: true,
		Holders: []locks.Contender{
			{LeaseID: "gone", Owner: "me", Mode: locks.Semaphore, Permits: 2, Limit: 5, Delayed: true, Reason: locks.ReasonExpired, ExpiresIn: 9 * time.Second},
			{LeaseID: someID, Owner: "you", Mode: locks.Semaphore, Permits: 1, Limit: 4, FencingToken: 77, Holds: []string{"outer", "inner"}, Ephemeral: true,
				Revoke: &locks.Revocation{Reason: "maintenance", Forced: true, ForceIn: 12340 * time.Millisecond}, Metadata: "m"},
		},
		Waiters: []locks.Contender{
			{LeaseID: "waits", Mode: locks.Exclusive, Position: 1, Group: []string{"disk\u202e", "other/net"}},
			{Znode: "/lockkeeper/locks/gpu/_c_1-lease-0000000001", Mode: locks.Semaphore, Permits: 1, Position: 2, Foreign: &locks.Foreign{Program: "curator"}, Revoke: new(locks.Revocation)},
			{LeaseID: "plain", Mode: locks.Shared, Position: 3},
		},
	}
}

func TestAQueueTellsWhySomeoneWaits(t *testing.T) {
	g := serve(t)
	g.lock = func(context.Context, locks.LockRequest) (locks.Lock, error) { return recipes(), nil }
	lock, a, err := g.client.Lock(g.ctx, "gpu")
	assert.NoError(t, err)
	assert.That(t, lock.State == api.LockStateDelayed && lock.Settings != nil && lock.Settings.Limit == 5 && lock.Settings.Agreed,
		"%s", a.Body)
	if c := lock.Holders[0]; !c.Delayed || c.Reason != api.ReasonExpired || c.Permits != 2 || c.Limit != 5 || c.ExpiresInMS != 9000 {
		t.Errorf("whose delay runs: %+v", c)
	}
	if c := lock.Holders[1]; len(c.Holds) != 2 || !c.Ephemeral || c.RevokeRequested == nil || *c.RevokeRequested.ForceInMS != 12_340 {
		t.Errorf("which holder is asked to release: %+v", c)
	}
	if c := lock.Waiters[0]; !reflect.DeepEqual(c.Group, []string{"disk\u202e", "other/net"}) {
		t.Errorf("who waits for several: %+v", c)
	}
	a = g.send(t, "GET", "/v1/locks/gpu?format=text")
	want, err := os.ReadFile("testdata/recipes.txt")
	assert.NoError(t, err)
	assert.That(t, string(a.Body) == string(want), "got\n%s\nwant\n%s", a.Body, want)
}

func TestALimitThatDiffersIsTold(t *testing.T) {
	g := serve(t)
	g.acquire = func(context.Context, locks.AcquireRequest) (locks.AcquireResult, error) {
		return locks.AcquireResult{}, &locks.Error{Code: locks.CodeSettingsDiffer, Limit: 5, Detail: "it is 5"}
	}
	a := g.send(t, "POST", "/v1/locks/gpu/leases?mode=semaphore&limit=4")
	assert.That(t, a.Status == 409 && a.Code() == "settings_differ" && a.Problem.Limit == 5 && a.Header.Get("Retry-After") == "",
		"%d %s", a.Status, a.Body)
}
