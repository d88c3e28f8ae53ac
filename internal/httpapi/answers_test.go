package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
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

func TestAnAcquireReachesTheManagerAsItWasAsked(t *testing.T) {
	defaults := locks.AcquireRequest{Principal: locks.Anonymous, NS: "default", Lock: "deploy", TTL: 30 * time.Second, Mode: locks.Exclusive}
	with := func(change func(*locks.AcquireRequest)) locks.AcquireRequest {
		r := defaults
		change(&r)
		return r
	}
	for _, c := range []struct {
		path    string
		options []apitest.Option
		want    locks.AcquireRequest
	}{
		{"deploy/leases", nil, defaults},
		{"deploy/leases?ttl=10s&owner=me", nil, with(func(r *locks.AcquireRequest) { r.TTL, r.Owner = 10*time.Second, "me" })},
		{"deploy/leases", opt(apitest.JSON(`{"ttl":"1m30s","wait":"5s"}`)), with(func(r *locks.AcquireRequest) { r.TTL, r.Wait = 90*time.Second, 5*time.Second })},
		{"deploy/leases?ttl=24h&wait=forever", nil, with(func(r *locks.AcquireRequest) { r.TTL, r.Wait = 24*time.Hour, locks.WaitForever })},
		{"deploy/leases?wait=0&async=false", nil, defaults},
		{"deploy/leases?wait=0s&async=true", nil, with(func(r *locks.AcquireRequest) { r.Async = true })},
		{"deploy/leases?&mode=exclusive&", nil, defaults},
		{"deploy/leases?owner=a+b%26c&metadata=%7B%22x%22:1%7D", nil, with(func(r *locks.AcquireRequest) { r.Owner, r.Metadata = "a b&c", `{"x":1}` })},
		{"deploy/leases?owner=a", opt(apitest.JSON(`{"metadata":"m","ns":"other","async":true,"mode":"exclusive"}`)), with(func(r *locks.AcquireRequest) {
			r.Owner, r.Metadata, r.NS, r.Async = "a", "m", "other", true
		})},
		{"deploy/leases", opt(apitest.Key(someKey)), with(func(r *locks.AcquireRequest) { r.IdempotencyKey = someKey })},
		{"deploy/leases", opt(apitest.Header("Content-Type", "application/x-www-form-urlencoded")), defaults},
		{"deploy/leases", opt(apitest.Header("Content-Type", "application/json")), defaults},
		{"deploy/leases", opt(apitest.JSON(`{}`), apitest.Header("Content-Type", "Application/JSON; charset=UTF-8")), defaults},
		{"a%40b%3Ac%3Dd%2Be~f/leases", nil, with(func(r *locks.AcquireRequest) { r.Lock = "a@b:c=d+e~f" })},
		{"a@b:c=d+e~f/leases", nil, with(func(r *locks.AcquireRequest) { r.Lock = "a@b:c=d+e~f" })},
		{"%64eploy/leases", nil, defaults},
	} {
		g := serve(t)
		var got locks.AcquireRequest
		g.acquire = func(_ context.Context, req locks.AcquireRequest) (locks.AcquireResult, error) {
			got = req
			return locks.AcquireResult{Lease: held()}, nil
		}
		a := g.send(t, "POST", "/v1/locks/"+c.path, c.options...)
		assert.That(t, a.Status == 201 && reflect.DeepEqual(got, c.want), "%s: %d\n got %+v\nwant %+v", c.path, a.Status, got, c.want)
	}
}

func TestAGrantedLeaseIsCreatedAndSaysWhereItIs(t *testing.T) {
	g := serve(t)
	lease, a, err := g.client.Acquire(g.ctx, "deploy", apitest.Query("ttl=10s&owner=me"))
	assert.NoError(t, err)
	if a.Status != 201 || a.Header.Get("Location") != "/v1/leases/"+someID || a.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%d %v", a.Status, a.Header)
	}
	if lease.Token != someToken || lease.State != api.StateHeld || lease.TTLMS != 10_000 || lease.FencingToken != 1<<33 || *lease.ExpiresInMS != 30_000 || *lease.QueueLength != 0 {
		t.Errorf("%+v", lease)
	}
	if !bytes.HasPrefix(a.Body, []byte(`{"lease_id":"`+someID+`","token":"`+someToken+`","lock":"deploy","ns":"default","mode":"exclusive","state":"held",`)) {
		t.Errorf("the order of members: %s", a.Body)
	}
}

func TestATicketIsAcceptedAndTellsItsPlace(t *testing.T) {
	g := serve(t)
	g.acquire = func(context.Context, locks.AcquireRequest) (locks.AcquireResult, error) {
		return locks.AcquireResult{Lease: waiting()}, nil
	}
	lease, a, err := g.client.Acquire(g.ctx, "deploy", apitest.Query("async=true"))
	assert.NoError(t, err)
	if a.Status != 202 || lease.Position != 2 || *lease.QueueLength != 3 || lease.FencingToken != 0 || strings.Contains(string(a.Body), "fencing_token") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

func TestARepeatIsAnsweredWithTheLeaseAsItIs(t *testing.T) {
	g := serve(t)
	g.acquire = func(context.Context, locks.AcquireRequest) (locks.AcquireResult, error) {
		return locks.AcquireResult{Lease: waiting(), Replayed: true}, nil
	}
	lease, a, err := g.client.Acquire(g.ctx, "deploy", apitest.Key(someKey))
	assert.NoError(t, err)
	assert.That(t, a.Status == 200 && a.Header.Get("Idempotency-Replayed") == "true" && lease.Token == someToken,
		"%d %v %s", a.Status, a.Header, a.Body)
}

func TestShellLinesNeedNoQuoting(t *testing.T) {
	g := serve(t)
	for _, options := range [][]apitest.Option{
		opt(apitest.Query("format=env")),
		opt(apitest.Header("Accept", "text/plain")),
		opt(apitest.Header("Accept", "text/plain;q=0.9, application/json;q=0.5, */*;q=0.1")),
	} {
		a := g.send(t, "POST", "/v1/locks/deploy/leases", options...)
		want := "LEASE_ID=" + someID + "\nLEASE_TOKEN=" + someToken + "\nFENCING_TOKEN=8589934592\nLEASE_STATE=held\nLEASE_TTL_MS=30000\nLEASE_WAITED_MS=\nNOTIFY_SECRET=\nLEASE_ERROR=\nLEASE_STATUS=201\n"
		assert.That(t, a.Status == 201 && string(a.Body) == want && a.Header.Get("Content-Type") == "text/plain; charset=utf-8",
			"%d %q", a.Status, a.Body)
	}
	g.acquire = func(context.Context, locks.AcquireRequest) (locks.AcquireResult, error) {
		return locks.AcquireResult{Lease: waiting()}, nil
	}
	if a := g.send(t, "POST", "/v1/locks/deploy/leases?format=env"); !strings.HasSuffix(string(a.Body), "\nFENCING_TOKEN=\nLEASE_STATE=waiting\nLEASE_TTL_MS=30000\nLEASE_WAITED_MS=\nNOTIFY_SECRET=\nLEASE_ERROR=\nLEASE_STATUS=202\n") {
		t.Errorf("a waiting lease's lines: %q", a.Body)
	}
	g.acquire = func(context.Context, locks.AcquireRequest) (locks.AcquireResult, error) {
		l := held()
		l.NotifyURL, l.NotifySecret = "https://example.com/", "whsec_a+/="
		return locks.AcquireResult{Lease: l}, nil
	}
	if a := g.send(t, "POST", "/v1/locks/deploy/leases?format=env"); !strings.Contains(string(a.Body), "\nLEASE_WAITED_MS=\nNOTIFY_SECRET=whsec_a+/=\nLEASE_ERROR=\n") {
		t.Errorf("with a notify_url: %q", a.Body)
	}
	if a := g.send(t, "POST", "/v1/locks/deploy/leases"); !strings.Contains(string(a.Body), `"notify_url":"https://example.com/"`) || !strings.Contains(string(a.Body), `"notify_secret":"whsec_a+/="`) {
		t.Errorf("with a notify_url: %s", a.Body)
	}
	for _, accept := range []string{"*/*", "application/json", "text/html, */*;q=0.8", "text/plain, application/json", "text/plain;q=0.1, */*", "text/plain;q=0"} {
		a := g.send(t, "POST", "/v1/locks/deploy/leases", apitest.Header("Accept", accept))
		assert.That(t, a.Header.Get("Content-Type") == "application/json",
			"Accept: %s is answered with %s", accept, a.Header.Get("Content-Type"))
	}
	if a := g.send(t, "POST", "/v1/locks/deploy/leases?format=json", apitest.Header("Accept", "text/plain")); a.Header.Get("Content-Type") != "application/json" {
		t.Errorf("format is weaker than Accept: %s", a.Header.Get("Content-Type"))
	}
}

func TestALeaseIsShownWithItsRevision(t *testing.T) {
	g := serve(t)
	var got locks.LeaseRequest
	g.lease = func(_ context.Context, req locks.LeaseRequest) (locks.Lease, error) {
		got = req
		l := held()
		l.Token = ""
		return l, nil
	}
	a := g.send(t, "GET", "/v1/leases/"+someID+"?wait=30s&since=7f&verify=true", apitest.Token(someToken))
	want := locks.LeaseRequest{Principal: locks.Anonymous, ID: someID, Token: someToken, Wait: 30 * time.Second, Since: "7f", Verify: true}
	assert.That(t, got == want && a.Header.Get("ETag") == `"7f"`, "%+v %v", got, a.Header)
	g.send(t, "GET", "/v1/leases/self", apitest.Token(someToken))
	assert.That(t, got == (locks.LeaseRequest{Principal: locks.Anonymous, Token: someToken}), "%+v", got)
}

func TestAnEndedLeaseIsShownWithItsReason(t *testing.T) {
	g := serve(t)
	g.lease = func(context.Context, locks.LeaseRequest) (locks.Lease, error) {
		l := held()
		l.Token, l.State, l.Reason, l.ExpiresIn = "", locks.Ended, locks.ReasonExpired, 0
		return l, nil
	}
	lease, a, err := g.client.Lease(g.ctx, someID)
	assert.NoError(t, err)
	if a.Status != 200 || lease.State != api.StateEnded || lease.Reason != api.ReasonExpired || lease.ExpiresInMS != nil || lease.QueueLength != nil {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

func TestAHeartbeatThatWaitsRenewsFirst(t *testing.T) {
	g := serve(t, func(o *Options) { o.MaxWaiting = 1 })
	g.fake.change = func(context.Context) (locks.Heartbeat, error) {
		return locks.Heartbeat{}, &locks.Error{Code: locks.CodeEnded, Reason: locks.ReasonRevoked}
	}
	g.expect(t, http.StatusGone, "lease_ended", "POST", "/v1/leases/self/heartbeat?wait=5s", apitest.Token(someToken))
	want := []string{`heartbeat "" ` + someToken + ` 0s`, `await change "" ` + someToken + ` 5s`}
	assert.Equal(t, strings.Join(g.asked(), "\n"), strings.Join(want, "\n"), "asked")
	g.expect(t, http.StatusUnprocessableEntity, "invalid_field", "POST", "/v1/leases/self/heartbeat?wait=6m", apitest.Token(someToken))
	assert.Equal(t, len(g.asked()), 0, "a refused heartbeat was passed on")
	g.server.waiting.take()
	g.expect(t, http.StatusOK, "", "POST", "/v1/leases/self/heartbeat?wait=5s", apitest.Token(someToken)) // renewed, and answered at once
}

// A gateway that stops while it holds an answer must not keep the renewal from its client's lease.
func TestAForwardedHeartbeatThatWaitsRenewsFirst(t *testing.T) {
	asked, _ := member(t, "asked", "secret", func(o *Options) { o.MaxWaiting = 1 })
	owner, _ := member(t, "owner", "secret")
	asked.sendsTo("owner", owner.address())
	asked.expect(t, http.StatusOK, "", "POST", "/v1/leases/self/heartbeat?wait=5s", apitest.Token(someToken))
	beat := `heartbeat "" ` + someToken + ` 0s`
	arrives := fmt.Sprintf("arrive %s %d", someID, routeZxid)
	want := []string{arrives, beat, arrives, beat, `await change "" ` + someToken + ` 5s`}
	assert.Equal(t, strings.Join(owner.asked(), "\n"), strings.Join(want, "\n"), "asked of the owner")
	asked.server.waiting.take()
	asked.expect(t, http.StatusOK, "", "POST", "/v1/leases/self/heartbeat?wait=5s", apitest.Token(someToken))
	assert.Equal(t, strings.Join(owner.asked(), "\n"), arrives+"\n"+beat, "asked of the owner, without a place to wait")
}

func TestAHeartbeatRenewsByIdOrByTokenAlone(t *testing.T) {
	g := serve(t)
	h, a, err := g.client.Heartbeat(g.ctx, someToken)
	assert.That(t, err == nil && a.Status == 200 && h.ExpiresInMS == 30_000 && h.Waiters == 2 && h.FencingToken == 1<<33, "%v %+v", err, h)
	g.send(t, "POST", "/v1/leases/"+someID+"/heartbeat?ttl=1h", apitest.Token(someToken))
	g.send(t, "POST", "/v1/leases/"+someID+"/heartbeat", apitest.Token(someToken), apitest.JSON(`{"ttl":"2h"}`))
	want := []string{
		`heartbeat "" ` + someToken + ` 0s`, `heartbeat "` + someID + `" ` + someToken + ` 1h0m0s`, `heartbeat "` + someID + `" ` + someToken + ` 2h0m0s`,
	}
	got := g.asked()
	assert.That(t, strings.Join(got, "\n") == strings.Join(want, "\n"), "asked %q", got)
}

func TestABulkHeartbeatTellsWhatBecameOfEach(t *testing.T) {
	g := serve(t)
	g.many = func(tokens []string) []locks.HeartbeatResult {
		return []locks.HeartbeatResult{
			{LeaseID: someID, Heartbeat: locks.Heartbeat{LeaseID: someID, State: locks.Held, TTL: time.Minute, FencingToken: 9}},
			{LeaseID: "lost", Err: &locks.Error{Code: locks.CodeEnded, Reason: locks.ReasonRemoved, Detail: "gone"}},
			{Err: &locks.Error{Code: locks.CodeTokenWrong}},
			{LeaseID: "away", Err: &locks.Error{Code: locks.CodeUnavailable, RetryAfter: 1500 * time.Millisecond}},
		}
	}
	list, a, err := g.client.Heartbeats(g.ctx, []string{"a", "b", "c", "d"})
	assert.Must(t, err == nil && a.Status == 200 && len(list.Items) == 4, "%v %+v", err, a)
	if i := list.Items[0]; i.Problem != nil || i.State != api.StateHeld || *i.ExpiresInMS != 0 || *i.Waiters != 0 {
		t.Errorf("the first: %+v", i)
	}
	if i := list.Items[1]; i.LeaseID != "lost" || i.Problem == nil || i.Problem.Status != 410 || i.Problem.Reason != api.ReasonRemoved || i.ExpiresInMS != nil {
		t.Errorf("the second: %+v", i)
	}
	if i := list.Items[2]; i.LeaseID != "" || i.Problem.Code != "lease_token_wrong" {
		t.Errorf("the third: %+v", i)
	}
	if i := list.Items[3]; *i.Problem.RetryAfterMS != 1500 {
		t.Errorf("the fourth: %+v", i.Problem)
	}
}

func TestAReleaseHasNothingToSay(t *testing.T) {
	g := serve(t)
	a, err := g.client.Release(g.ctx, someToken)
	assert.That(t, err == nil && a.Status == 204 && len(a.Body) == 0, "%v %+v", err, a)
	g.send(t, "DELETE", "/v1/leases/"+someID, apitest.Token(someToken))
	got := g.asked()
	assert.That(t, strings.Join(got, "\n") == `release "" `+someToken+"\n"+`release "`+someID+`" `+someToken, "asked %q", got)
}

func TestListsCarryNoTokensAndTellWhereToGoOn(t *testing.T) {
	g := serve(t)
	var got locks.LeaseFilter
	page := g.leases
	g.leases = func(f locks.LeaseFilter) (locks.LeasePage, error) { got = f; return page(f) }
	list, a, err := g.client.Leases(g.ctx, apitest.Query("ns=default&owner=me&state=held&limit=5&cursor=c1"))
	assert.NoError(t, err)
	if want := (locks.LeaseFilter{Principal: locks.Anonymous, NS: "default", Owner: "me", State: locks.Held, Limit: 5, Cursor: "c1"}); got != want {
		t.Errorf("asked %+v", got)
	}
	assert.That(t, len(list.Items) == 2 && list.NextCursor == "c2" && !strings.Contains(string(a.Body), someToken), "%s", a.Body)
	var asked locks.LockFilter
	g.locks = func(f locks.LockFilter) (locks.LockPage, error) { asked = f; return locks.LockPage{}, nil }
	names, _, err := g.client.Locks(g.ctx, apitest.Query("prefix=de%2B&contains=pl&state=queued"))
	if want := (locks.LockFilter{Principal: locks.Anonymous, NS: locks.DefaultNamespace, Prefix: "de+", Contains: "pl", State: locks.LockQueued, Limit: locks.DefaultPage}); err != nil || asked != want || names.Items == nil {
		t.Errorf("asked %+v, answered %+v", asked, names)
	}
}

// queue has one of everything.
func queue() locks.Lock {
	return locks.Lock{
		NS: "default", Name: "deploy", State: locks.LockHeld, QueueLength: 3, Rev: "1a-2", NextCursor: "c9",
		Holders: []locks.Contender{{LeaseID: someID, Znode: "/lockkeeper/locks/deploy/write-x", Owner: "me", Mode: locks.Exclusive,
			FencingToken: 8589934592, Age: 65*time.Second + 300*time.Millisecond, AgeKnown: true, HeldFor: time.Minute, HeldLonger: true, ExpiresIn: 12340 * time.Millisecond, LastHeartbeat: 5300 * time.Millisecond, Metadata: `{"job":7}`}},
		Waiters: []locks.Contender{
			{Znode: "/lockkeeper/locks/deploy/_c_1-lock-0000000001", Mode: locks.Exclusive, Position: 1, HeldFor: time.Second, HeldLonger: true, // which no waiter has
				Foreign: &locks.Foreign{Program: "curator", Session: 0x10000abcd, Data: []byte("10.0.0.1")}},
			{Znode: "/lockkeeper/locks/deploy/odd-\u202e0000000002", Mode: locks.Shared, Position: 2,
				Foreign: &locks.Foreign{Data: []byte{0xff, 0}}, Age: 0, AgeKnown: true},
			{LeaseID: "other", Znode: "/lockkeeper/locks/deploy/write-y", Owner: "an owner\u009b with a very long name that goes on and on and on, as some do", Mode: locks.Exclusive, Position: 3},
		},
		Hazards: []locks.Hazard{{Code: "stray_child", Detail: "remove it"}},
	}
}

func TestAQueueIsShownWhole(t *testing.T) {
	g := serve(t)
	var got locks.LockRequest
	g.lock = func(_ context.Context, req locks.LockRequest) (locks.Lock, error) { got = req; return queue(), nil }
	lock, a, err := g.client.Lock(g.ctx, "deploy", apitest.Query("ns=default&wait=1s&since=x&consistent=true&limit=3&cursor=c1"))
	assert.NoError(t, err)
	if want := (locks.LockRequest{Principal: locks.Anonymous, NS: "default", Lock: "deploy", Wait: time.Second, Since: "x", Consistent: true, Limit: 3, Cursor: "c1"}); got != want {
		t.Errorf("asked %+v", got)
	}
	if a.Header.Get("ETag") != `"1a-2"` || len(lock.Holders) != 1 || len(lock.Waiters) != 3 || lock.QueueLength != 3 || lock.NextCursor != "c9" || len(lock.Hazards) != 1 {
		t.Errorf("%s", a.Body)
	}
	if h, w := lock.Holders[0], lock.Waiters[0]; h.HeldMS != 60_000 || !h.HeldLonger || w.HeldMS != 0 || w.HeldLonger {
		t.Errorf("held for %d, longer %v; a waiter for %d", h.HeldMS, h.HeldLonger, w.HeldMS)
	}
	if h, w := lock.Holders[0], lock.Waiters[2]; h.LastHeartbeatMS == nil || *h.LastHeartbeatMS != 5300 || w.LastHeartbeatMS != nil {
		t.Errorf("the last heartbeats: %v and %v", h.LastHeartbeatMS, w.LastHeartbeatMS)
	}
	if c := lock.Waiters[0]; c.Foreign.Session != "0x10000abcd" || c.Foreign.Data.Text != "10.0.0.1" || c.AgeMS != nil || c.LeaseID != "" {
		t.Errorf("a foreign contender: %+v", c)
	}
	if c := lock.Waiters[1]; c.Foreign.Data.Base64 != "/wA=" || c.Foreign.Session != "" || *c.AgeMS != 0 {
		t.Errorf("a foreign contender with bytes: %+v", c)
	}
}

func TestAFreeLockIsNoError(t *testing.T) {
	g := serve(t)
	lock, a, err := g.client.Lock(g.ctx, "nobody:knows+it")
	if err != nil || a.Status != 200 || lock.State != api.LockStateFree || lock.Holders == nil || lock.Lock != "nobody:knows+it" {
		t.Errorf("%v %s", err, a.Body)
	}
}

func TestAQueueIsATableForPeople(t *testing.T) {
	g := serve(t)
	g.lock = func(context.Context, locks.LockRequest) (locks.Lock, error) { return queue(), nil }
	a := g.send(t, "GET", "/v1/locks/deploy?format=text")
	want, err := os.ReadFile("testdata/table.txt")
	assert.NoError(t, err)
	assert.That(t, string(a.Body) == string(want), "got\n%s\nwant\n%s", a.Body, want)
	b := g.send(t, "GET", "/v1/locks/deploy", apitest.Header("Accept", "text/plain"))
	assert.That(t, string(b.Body) == string(a.Body), "Accept: text/plain gives %s", b.Body)
}

func TestTheGatewayTellsAboutItself(t *testing.T) {
	g := serve(t)
	info, _, err := g.client.Info(g.ctx)
	if err != nil || info.Version != "test" || info.Leases.Held != 2 || *info.Locks != 3 || *info.Contenders != 5 || info.Limits.MaxStreams != DefaultMaxStreams || info.Limits.MaxTTLMS != 86_400_000 || info.Zookeeper.LastZxid != "0x100000002" {
		t.Errorf("%v %+v", err, info)
	}
	if a := g.send(t, "GET", "/openapi.yaml"); !strings.HasPrefix(string(a.Body), "openapi: 3.1.0") {
		t.Errorf("%.60s", a.Body)
	}
	a := g.send(t, "GET", "/metrics")
	for _, name := range []string{`lockkeeper_build_info{`, `lockkeeper_http_requests_total{operation="GetInfo",status="200"} 1`, "go_goroutines"} {
		assert.That(t, strings.Contains(string(a.Body), name), "the metrics lack %s", name)
	}
}

func TestTheNamespacesAreListed(t *testing.T) {
	g := serve(t)
	g.namespaces = []locks.NamespaceInfo{{Name: "default", Root: "/lockkeeper/locks", Dialect: "native", Ready: true, Swept: true, Locks: 3},
		{Name: "new", Problem: "of a newer release"}, {Name: "python", Root: "/app/locks", Dialect: "kazoo"}, {Name: "zoo", Root: "/zoo", Dialect: "custom"}}
	g.namespaces[3].Names.Exclusive, g.namespaces[3].Names.Shared, g.namespaces[3].Names.ForeignShared = "{id}-W-", "{id}-R-", "-R-$"
	want := `{"items":[{"dialect":"native","locks":3,"ns":"default","ready":true,"root":"/lockkeeper/locks","swept":true},` +
		`{"locks":0,"ns":"new","problem":"of a newer release","ready":false,"swept":false},` +
		`{"dialect":"kazoo","locks":0,"ns":"python","ready":false,"root":"/app/locks","swept":false},` +
		`{"dialect":"custom","locks":0,"names":{"exclusive":"{id}-W-","foreign_shared":"-R-\u0024","shared":"{id}-R-"},"ns":"zoo","ready":false,"root":"/zoo","swept":false}]}` + "\n"
	if a := g.send(t, "GET", "/v1/namespaces"); a.Status != 200 || string(a.Body) != want {
		t.Errorf("%d %s\nwant %s", a.Status, a.Body, want)
	}
	g.namespaces, g.namespacesErr = nil, &locks.Error{Code: locks.CodeUnavailable, Detail: "not read yet", RetryAfter: time.Second}
	if a := g.send(t, "GET", "/v1/namespaces"); a.Status != 503 || a.Header.Get("Retry-After") != "1" {
		t.Errorf("%d %v %s", a.Status, a.Header, a.Body)
	}
}

func TestMetricsCanBeElsewhere(t *testing.T) {
	g := serve(t, func(o *Options) { o.ServeMetrics = false })
	a := g.send(t, "GET", "/metrics")
	assert.That(t, a.Status == 404 && strings.Contains(a.Problem.Detail, "--metrics-listen"), "%d %s", a.Status, a.Body)
}

func TestHealthAndReadinessAreDifferentQuestions(t *testing.T) {
	g := serve(t)
	g.ready = &locks.Error{Code: locks.CodeUnavailable}
	if h, r := g.send(t, "GET", "/healthz"), g.send(t, "GET", "/readyz"); h.Status != 200 || r.Status != 503 || r.Code() != "not_ready" {
		t.Errorf("healthz %d, readyz %d %s", h.Status, r.Status, r.Code())
	}
	g.ready, g.alive = nil, context.DeadlineExceeded
	if h, r := g.send(t, "GET", "/healthz"), g.send(t, "GET", "/readyz"); h.Status != 503 || h.Code() != "not_alive" || r.Status != 200 {
		t.Errorf("healthz %d %s, readyz %d", h.Status, h.Code(), r.Status)
	}
}

func TestTheGeneratedClientSpeaksTheSameLanguage(t *testing.T) {
	g := serve(t)
	client := g.client.API()
	response, err := client.Acquire(g.ctx, "a@b:c=d+e~f", &api.AcquireParams{IdempotencyKey: new(someKey)}, api.AcquireRequest{TTL: "10s", Owner: "me"})
	assert.NoError(t, err)
	var lease api.Lease
	if err := json.NewDecoder(response.Body).Decode(&lease); err != nil || response.StatusCode != 201 || lease.Lock != "a@b:c=d+e~f" || lease.Owner != "me" {
		t.Errorf("%v %d %+v", err, response.StatusCode, lease)
	}
	if response, err := client.Release(g.ctx, "self", &api.ReleaseParams{LeaseToken: someToken}); err != nil || response.StatusCode != 204 {
		t.Errorf("%v %+v", err, response)
	}
	if response, err := client.GetLease(g.ctx, someID, &api.GetLeaseParams{Wait: new("1s"), Since: new("x")}); err != nil || response.StatusCode != 200 {
		t.Errorf("%v %+v", err, response)
	}
}

// The memory of an acquire is used again: nothing of the one before may be in the next.
func TestAnAcquireHasNothingOfTheOneBefore(t *testing.T) {
	g := serve(t)
	var got locks.AcquireRequest
	g.acquire = func(_ context.Context, req locks.AcquireRequest) (locks.AcquireResult, error) {
		got = req
		result := locks.AcquireResult{Lease: held()}
		result.Replayed = req.Owner != ""
		return result, nil
	}
	want := locks.AcquireRequest{Principal: locks.Anonymous, NS: "default", Lock: "deploy", TTL: 30 * time.Second, Mode: locks.Exclusive}
	for i := range 20 { // a pool may drop what it is given
		a := g.send(t, "POST", "/v1/locks/other/leases?owner=me&ttl=10s&async=true&mode=shared&metadata=m", apitest.Key(someKey))
		assert.That(t, a.Status == 200, "the repeat of an acquire: %d", a.Status)
		a = g.send(t, "POST", "/v1/locks/deploy/leases")
		assert.Must(t, a.Status == 201 && reflect.DeepEqual(got, want), "acquire %d: %d\n got %+v\nwant %+v", i, a.Status, got, want)
	}
}
