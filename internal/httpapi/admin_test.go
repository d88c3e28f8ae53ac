package httpapi

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

func TestWhatAnAdministratorAsksForReachesTheManager(t *testing.T) {
	const lock = "/v1/locks/a:b"
	for _, c := range []struct {
		method, path string
		options      []apitest.Option
		status       int
		asked        any
	}{
		{"POST", "/v1/leases/" + someID + "/break", nil, 204, locks.BreakRequest{ID: someID}},
		{"POST", "/v1/leases/" + someID + "/break", opt(apitest.JSON(`{"reason":"gone mad"}`)), 204, locks.BreakRequest{ID: someID, Reason: "gone mad"}},
		{"POST", lock + "/contenders/_c_1-lock-0000000001/break?reason=r", nil, 204, locks.BreakRequest{NS: "default", Lock: "a:b", Name: "_c_1-lock-0000000001", Reason: "r"}},
		{"POST", lock + "/contenders/caf%C3%A9%20%25-0000000001/break?ns=other", nil, 204, locks.BreakRequest{NS: "other", Lock: "a:b", Name: "café %-0000000001"}},
		{"PUT", lock + "?limit=5", nil, 200, locks.SettingsRequest{NS: "default", Lock: "a:b", Limit: 5}},
		{"PUT", lock, opt(apitest.JSON(`{"limit":1048576,"ns":"other"}`)), 200, locks.SettingsRequest{NS: "other", Lock: "a:b", Limit: 1 << 20}},
		{"DELETE", lock + "?ns=other", nil, 204, "remove other a:b"},
		{"POST", lock + "/revoke", nil, 200, locks.RevokeRequest{NS: "default", Lock: "a:b"}},
		{"POST", lock + "/revoke?force_after=30s", opt(apitest.JSON(`{"reason":"maintenance","ns":"other"}`)), 200,
			locks.RevokeRequest{NS: "other", Lock: "a:b", Reason: "maintenance", ForceAfter: 30 * time.Second}},
		{"POST", lock + "/revoke?lease_ids=" + someID + "," + someID, nil, 200,
			locks.RevokeRequest{NS: "default", Lock: "a:b", Shown: locks.Shown{LeaseIDs: []string{someID, someID}}}},
		{"POST", lock + "/revoke", opt(apitest.JSON(`{"znodes":["/lockkeeper/locks/a:b/x,y-0000000001"]}`)), 200,
			locks.RevokeRequest{NS: "default", Lock: "a:b", Shown: locks.Shown{Znodes: []string{"/lockkeeper/locks/a:b/x,y-0000000001"}}}},
		{"DELETE", lock + "/revoke?ns=other", nil, 200, locks.WithdrawRequest{NS: "other", Lock: "a:b"}},
		{"DELETE", lock + "/revoke?znodes=/a,/b&lease_ids=" + someID, nil, 200,
			locks.WithdrawRequest{NS: "default", Lock: "a:b", Shown: locks.Shown{LeaseIDs: []string{someID}, Znodes: []string{"/a", "/b"}}}},
		{"POST", lock + "/reap?state=waiting", opt(apitest.JSON(`{"lease_ids":["` + someID + `"],"znodes":["/a"]}`)), 200,
			locks.ReapRequest{NS: "default", Lock: "a:b", State: locks.Waiting, Shown: locks.Shown{LeaseIDs: []string{someID}, Znodes: []string{"/a"}}}},
		{"POST", lock + "/reap?older_than=0s", nil, 200, locks.ReapRequest{NS: "default", Lock: "a:b"}},
		{"POST", lock + "/reap?older_than=87600h&mode=semaphore&state=held&owner=me&dry_run=true&reason=r&ns=other", nil, 200,
			locks.ReapRequest{NS: "other", Lock: "a:b", OlderThan: 87600 * time.Hour, Mode: locks.Semaphore, State: locks.Held, Owner: "me", DryRun: true, Reason: "r"}},
		{"POST", lock + "/destroy?reason=the+end", nil, 200, locks.DestroyRequest{NS: "default", Lock: "a:b", Reason: "the end"}},
	} {
		g := serve(t)
		a := g.send(t, c.method, c.path, c.options...)
		want := fmt.Sprint(c.asked)
		if r := reflect.ValueOf(c.asked); r.Kind() == reflect.Struct {
			verb := strings.ToLower(strings.TrimSuffix(r.Type().Name(), "Request"))
			if verb == "settings" {
				verb = "configure"
			}
			whole := reflect.New(r.Type()).Elem()
			whole.Set(r)
			whole.FieldByName("Principal").Set(reflect.ValueOf(locks.Anonymous))
			if client := whole.FieldByName("Client"); client.IsValid() { // names who asks where there is no principal
				client.SetString("127.0.0.1")
			}
			want = fmt.Sprintf("%s %+v", verb, whole.Interface())
		}
		if got := g.asked(); a.Status != c.status || len(got) != 1 || got[0] != want {
			t.Errorf("%s %s: %d %s\nasked %q\nwant  %q", c.method, c.path, a.Status, a.Body, got, want)
		}
	}
}

func TestAReapSaysWhetherOthersAreMeant(t *testing.T) {
	g := serve(t)
	var got *bool
	g.reap = func(req locks.ReapRequest) (locks.ReapAnswer, error) {
		got = req.Foreign
		return locks.ReapAnswer{}, nil
	}
	for query, want := range map[string]*bool{"": nil, "&foreign=true": new(true), "&foreign=false": new(false)} {
		a := g.send(t, "POST", "/v1/locks/deploy/reap?older_than=1m"+query)
		assert.That(t, reflect.DeepEqual(got, want), "%q asks with %v", query, got)
		assert.That(t, string(a.Body) == `{"reaped":[],"unreached":[],"dry_run":false,"more":false}`+"\n", "nothing was ended: %s", a.Body)
	}
}

func TestTheAnswerHasEachContenderAndItsEnd(t *testing.T) {
	g := serve(t)
	for path, want := range map[string]string{
		"revoke":                          `{"asked":[{"lease_id":"` + someID + `",`,
		"reap?older_than=1m":              `{"reaped":[{"foreign":{"program":"curator",`,
		"reap?older_than=1m&dry_run=true": `,"unreached":[],"dry_run":true,"more":true}`,
		"destroy":                         `{"ended":4,"foreign":2}`,
	} {
		if a := g.send(t, "POST", "/v1/locks/deploy/"+path); a.Status != 200 || !strings.Contains(string(a.Body), want) {
			t.Errorf("%s: %d %s\nwant in it %s", path, a.Status, a.Body, want)
		}
	}
	a := g.send(t, "POST", "/v1/locks/deploy/revoke")
	if want := `"unreached":[{"contender":{"foreign":{"program":"curator",`; !strings.Contains(string(a.Body), want) || !strings.Contains(string(a.Body), `"detail":"why"}],"more":false}`) {
		t.Errorf("who could not be asked: %s", a.Body)
	}
}

func TestALockInUseIsNotRemoved(t *testing.T) {
	g := serve(t)
	g.admin = &locks.Error{Code: locks.CodeLockInUse, Detail: "destroy it", Holders: queue().Holders, QueueLength: 2}
	a := g.send(t, "DELETE", "/v1/locks/deploy")
	assert.That(t, a.Status == 409 && a.Code() == "lock_in_use" && len(a.Problem.Holders) == 1 && *a.Problem.QueueLength == 2,
		"%d %s", a.Status, a.Body)
	g.admin = &locks.Error{Code: locks.CodeNoContender}
	g.expect(t, 404, "contender_not_found", "POST", "/v1/locks/deploy/contenders/x-0000000001/break")
}

func TestAFenceTellsWhetherATokenIsCurrent(t *testing.T) {
	g := serve(t)
	a := g.send(t, "GET", "/v1/locks/deploy/fence?fencing_token=8589934592&ns=other")
	assert.That(t, a.Status == 200 && string(a.Body) == `{"current":true,"highest":8589934592}`+"\n", "%d %s", a.Status, a.Body)
	if got, want := g.asked(), fmt.Sprintf("fence %+v", locks.FenceRequest{Principal: locks.Anonymous, NS: "other", Lock: "deploy", Token: 1 << 33}); len(got) != 1 || got[0] != want {
		t.Errorf("asked %q", got)
	}
	a = g.send(t, "GET", "/v1/locks/deploy/fence?fencing_token=7")
	assert.That(t, a.Status == 200 && string(a.Body) == `{"current":false,"reason":"superseded","highest":8589934592}`+"\n",
		"%d %s", a.Status, a.Body)
}

func TestAProxyLearnsWhetherARequestMayPass(t *testing.T) {
	const current, stale = "8589934592", "7"
	header := apitest.Header
	for _, c := range []struct {
		what, query string
		options     []apitest.Option
		status      int
		code, asked string
	}{
		{"all in the query", "?lock=deploy&ns=other&fencing_token=" + current, nil, 204, "", "other deploy"},
		{"all in headers", "", opt(header("Lockkeeper-Lock", "deploy"), header("Lockkeeper-Namespace", "other"), header("Fencing-Token", current)), 204, "", "other deploy"},
		{"the token in a header", "?lock=deploy", opt(header("Fencing-Token", current)), 204, "", "default deploy"},
		{"both, and the same", "?lock=deploy&ns=other", opt(header("Fencing-Token", current), header("Lockkeeper-Lock", "deploy"), header("Lockkeeper-Namespace", "other")), 204, "", "other deploy"},
		{"a body, which is the proxied request's", "?lock=deploy", opt(header("Fencing-Token", current), apitest.Body("a=b")), 204, "", "default deploy"},
		{"a stale token", "?lock=deploy", opt(header("Fencing-Token", stale)), 403, "fencing_token_stale", "default deploy"},
		{"no token", "?lock=deploy", nil, 403, "fencing_token_needed", ""},
		{"an empty token", "?lock=deploy", opt(header("Fencing-Token", "")), 403, "fencing_token_needed", ""},
		{"an empty token in the query", "?lock=deploy&fencing_token=", nil, 403, "fencing_token_needed", ""},
		{"a token that is no number", "?lock=deploy", opt(header("Fencing-Token", "0x7")), 403, "fencing_token_needed", ""},
		{"a token of 0", "?lock=deploy", opt(header("Fencing-Token", "0")), 403, "fencing_token_needed", ""},
		{"a token with a sign", "?lock=deploy", opt(header("Fencing-Token", "+"+current)), 403, "fencing_token_needed", ""},
		{"a token beyond all numbers", "?lock=deploy", opt(header("Fencing-Token", "9223372036854775808")), 403, "fencing_token_needed", ""},
		{"two tokens", "?lock=deploy", opt(twice("Fencing-Token", current)), 403, "fencing_token_needed", ""},
		{"another token than the query's", "?lock=deploy&fencing_token=" + current, opt(header("Fencing-Token", stale)), 403, "fencing_token_needed", ""},
		// What the proxy's own configuration says cannot be said otherwise by a client.
		{"another lock than the query's", "?lock=deploy", opt(header("Fencing-Token", current), header("Lockkeeper-Lock", "mine")), 422, "repeated_field", ""},
		{"another namespace than the query's", "?lock=deploy&ns=other", opt(header("Fencing-Token", current), header("Lockkeeper-Namespace", "mine")), 422, "repeated_field", ""},
		{"two locks", "", opt(header("Fencing-Token", current), twice("Lockkeeper-Lock", "deploy")), 422, "repeated_field", ""},
		{"no lock", "", opt(header("Fencing-Token", current)), 422, "invalid_field", ""},
		{"an empty lock", "", opt(header("Fencing-Token", current), header("Lockkeeper-Lock", "")), 422, "invalid_field", ""},
		{"a lock with a slash", "", opt(header("Fencing-Token", current), header("Lockkeeper-Lock", "a/b")), 422, "invalid_field", ""},
		{"a namespace with a slash", "?lock=deploy", opt(header("Fencing-Token", current), header("Lockkeeper-Namespace", "a/b")), 422, "invalid_field", ""},
		{"a field that is not there", "?lock=deploy&token=" + current, nil, 422, "unknown_field", ""},
		{"a lock given twice", "?lock=deploy&lock=deploy", opt(header("Fencing-Token", current)), 422, "repeated_field", ""},
	} {
		g := serve(t)
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			a := g.send(t, method, "/v1/check-fence"+c.query, c.options...)
			assert.That(t, a.Status == c.status && (method == http.MethodHead || a.Code() == c.code),
				"%s, %s: %d %s", c.what, method, a.Status, a.Body)
			asked := g.asked()
			ns, lock, _ := strings.Cut(c.asked, " ")
			if (len(asked) == 1) != (c.asked != "") || c.asked != "" && !strings.Contains(asked[0], "NS:"+ns+" Lock:"+lock+" ") {
				t.Errorf("%s, %s: asked %q", c.what, method, asked)
			}
			if c.status == 204 && (a.Header.Get("Fencing-Token") != current || a.Header.Get("Lockkeeper-Lock") != lock || a.Header.Get("Lockkeeper-Namespace") != ns) {
				t.Errorf("%s, %s: %v", c.what, method, a.Header)
			}
			if c.code == "fencing_token_stale" && method == http.MethodGet && (a.Problem.Fence == nil || a.Problem.Fence.Reason != "superseded" || a.Problem.Fence.Highest != 1<<33) {
				t.Errorf("%s: %s", c.what, a.Body)
			}
		}
	}
}

func TestAProxyIsToldWhenTheGatewayCannotKnow(t *testing.T) {
	g := serve(t)
	g.fence = func(locks.FenceRequest) (locks.FenceAnswer, error) {
		return locks.FenceAnswer{}, &locks.Error{Code: locks.CodeUnavailable, RetryAfter: time.Second}
	}
	a := g.send(t, "GET", "/v1/check-fence?lock=deploy&fencing_token=7")
	assert.That(t, a.Status == 503 && a.Header.Get("Retry-After") == "1", "%d %s", a.Status, a.Body)
}

// Without authentication every client that reaches the gateway may do what
// administrators do, but no page of another origin in a browser.
func TestNoPageOfAnotherOriginEndsALease(t *testing.T) {
	g := serve(t)
	for _, r := range routeTable() {
		if r.method == http.MethodGet {
			continue
		}
		path := strings.NewReplacer("{lock}", "deploy", "{id}", someID, "{name}", "x-0000000001").Replace(r.pattern)
		for _, o := range []apitest.Option{apitest.Header("Origin", "http://evil.example"), apitest.Header("Sec-Fetch-Site", "cross-site")} {
			g.expect(t, 403, "cross_origin", r.method, path, o, apitest.Token(someToken))
		}
	}
	calls := g.asked()
	assert.That(t, len(calls) <= 0, "the manager was asked: %q", calls)
}

func TestAChangedHolderIsRefusedWithThePresentHolders(t *testing.T) {
	g := serve(t)
	for _, code := range []locks.Code{locks.CodeHolderChanged, locks.CodeNothingToAsk} {
		g.revoke = func(locks.RevokeRequest) (locks.RevokeAnswer, error) {
			return locks.RevokeAnswer{}, &locks.Error{Code: code, Detail: "why", Holders: queue().Holders, QueueLength: 3}
		}
		a := g.send(t, "POST", "/v1/locks/deploy/revoke?lease_ids="+someID)
		p := a.Problem
		if a.Status != http.StatusConflict || string(p.Code) != string(code) || len(p.Holders) != len(queue().Holders) || p.Holders[0].LeaseID != someID || *p.QueueLength != 3 {
			t.Errorf("%s: %d %s", code, a.Status, a.Body)
		}
	}
}

func TestWhatIsMeantIsNamedByAList(t *testing.T) {
	const lock = "/v1/locks/deploy"
	for _, c := range []struct {
		method, path, body, field string
	}{
		{"POST", "/revoke", `{"lease_ids":"` + someID + `"}`, "lease_ids"},
		{"POST", "/revoke", `{"lease_ids":[]}`, "lease_ids"},
		{"POST", "/revoke", `{"lease_ids":[1]}`, "lease_ids"},
		{"POST", "/revoke", `{"lease_ids":["` + someToken + `"]}`, "lease_ids"},
		{"DELETE", "/revoke?lease_ids=" + someToken, "", "lease_ids"},
		{"POST", "/reap", `{"znodes":{"a":1}}`, "znodes"},
		{"POST", "/reap", `{"state":"held"}`, "older_than"}, // nothing named, and nothing said of the age
	} {
		g := serve(t)
		var options []apitest.Option
		if c.body != "" {
			options = opt(apitest.JSON(c.body))
		}
		if a := g.send(t, c.method, lock+c.path, options...); a.Status != http.StatusUnprocessableEntity || a.Problem.Field != c.field || len(g.asked()) != 0 {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, a.Status, a.Body)
		}
	}
}
