package httpapi

import (
	"context"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/apitest"
)

// The trust window closes after the manager has answered and before the answer is
// written: the answer must not promise time.
func TestASuccessIsWrittenOnlyWhileTheGatewayIsTrusted(t *testing.T) {
	tok := apitest.Token(someToken)
	for _, c := range []struct {
		what, method, path string
		options            []apitest.Option
		code               string // "" for what may be said without the trust window
	}{
		{"a grant", "POST", "/v1/locks/deploy/leases", nil, "outcome_unknown"},
		{"a grant as shell lines", "POST", "/v1/locks/deploy/leases?format=env", nil, "outcome_unknown"},
		{"a heartbeat", "POST", "/v1/leases/self/heartbeat", opt(tok), "zookeeper_unavailable"},
		{"a heartbeat by id", "POST", "/v1/leases/" + someID + "/heartbeat", opt(tok), "zookeeper_unavailable"},
		{"a bulk heartbeat", "POST", "/v1/heartbeats", opt(apitest.JSON(`{"tokens":["a"]}`)), "zookeeper_unavailable"},
		{"a held lease", "GET", "/v1/leases/" + someID, nil, "zookeeper_unavailable"},
		{"a verification", "GET", "/v1/leases/" + someID + "?verify=true", nil, "zookeeper_unavailable"},
		{"a grant of several locks", "POST", "/v1/leases?locks=a,b", nil, "outcome_unknown"},
		{"a hold more", "POST", "/v1/locks/deploy/leases?hold=b", opt(tok), "outcome_unknown"},
		{"a longer time to live", "PATCH", "/v1/leases/self?ttl=1h", opt(tok), "outcome_unknown"},
		{"a change by id", "PATCH", "/v1/leases/" + someID + "?owner=me", opt(tok), "outcome_unknown"},
		{"a downgrade", "POST", "/v1/leases/self/downgrade", opt(tok), "outcome_unknown"},
		{"a downgrade by id", "POST", "/v1/leases/" + someID + "/downgrade", opt(tok), "outcome_unknown"},
		{"a current token", "GET", "/v1/locks/deploy/fence?fencing_token=8589934592", nil, "zookeeper_unavailable"},
		{"a current token, for a proxy", "GET", "/v1/check-fence?lock=deploy&fencing_token=8589934592", nil, "zookeeper_unavailable"},
		{"a token that is not current", "GET", "/v1/locks/deploy/fence?fencing_token=7", nil, ""},
		{"a released hold", "DELETE", "/v1/leases/self?hold=a", opt(tok), ""},
		{"a break", "POST", "/v1/leases/" + someID + "/break", nil, ""},
		{"a release", "DELETE", "/v1/leases/self", opt(tok), ""},
		{"a queue", "GET", "/v1/locks/deploy", nil, ""},
		{"a list", "GET", "/v1/leases", nil, ""},
	} {
		g := serve(t)
		close := func() { g.untrusted.Store(true) }
		acquire, lease, heartbeat, many, release := g.acquire, g.lease, g.heartbeat, g.many, g.release
		g.acquire = func(ctx context.Context, r locks.AcquireRequest) (locks.AcquireResult, error) {
			defer close()
			return acquire(ctx, r)
		}
		g.lease = func(ctx context.Context, r locks.LeaseRequest) (locks.Lease, error) {
			defer close()
			return lease(ctx, r)
		}
		g.release = func(id, token string) error { defer close(); return release(id, token) }
		g.heartbeat = func(id, token string, ttl time.Duration) (locks.Heartbeat, error) {
			defer close()
			return heartbeat(id, token, ttl)
		}
		fence, update, downgrade := g.fence, g.update, g.downgrade
		g.fence = func(r locks.FenceRequest) (locks.FenceAnswer, error) { defer close(); return fence(r) }
		g.update = func(r locks.UpdateRequest) (locks.Lease, error) { defer close(); return update(r) }
		g.downgrade = func(id, token string) (locks.Lease, error) { defer close(); return downgrade(id, token) }
		g.many = func(tokens []string) []locks.HeartbeatResult { defer close(); return many(tokens) }
		a := g.send(t, c.method, c.path, c.options...)
		if c.code == "" && a.Status >= 300 || c.code != "" && (a.Status != 503 || a.Code() != c.code || a.Header.Get("Retry-After") == "") {
			t.Errorf("%s: %d %s", c.what, a.Status, a.Body)
		}
		if a.Status == 503 && (a.Header.Get("Location") != "" || a.Header.Get("ETag") != "" || a.Header.Get("Fencing-Token") != "") {
			t.Errorf("%s: the refusal still says where the lease is: %v", c.what, a.Header)
		}
	}
}

// A waiter relies on its place for the time in the answer. A successor does not know the answers that a gateway gave while
// it was not trusted. An answer to a request without the token promises nothing.
func TestATicketIsVouchedForLikeALease(t *testing.T) {
	g := serve(t)
	g.untrusted.Store(true)
	g.acquire = func(context.Context, locks.AcquireRequest) (locks.AcquireResult, error) {
		return locks.AcquireResult{Lease: waiting()}, nil
	}
	g.lease = func(context.Context, locks.LeaseRequest) (locks.Lease, error) { return waiting(), nil }
	for _, c := range []struct {
		method, path string
		token        bool
		status       int
	}{
		{"POST", "/v1/locks/deploy/leases?async=true", false, 503},
		{"GET", "/v1/leases/self", true, 503},
		{"GET", "/v1/leases/" + waiting().ID, false, 200},
	} {
		var options []apitest.Option
		if c.token {
			options = append(options, apitest.Token(someToken))
		}
		g.expect(t, c.status, "", c.method, c.path, options...)
	}
}
