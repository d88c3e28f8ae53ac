package authtest

import (
	"fmt"
	"net/http"
	"path"
	"strconv"
	"strings"

	"lockkeeper/internal/test/apitest"
)

// row is a request for each caller.
type row struct {
	// route is the method and the pattern of the router. Where it is a GET, HEAD is asked for as well.
	route string
	// at fills in the pattern.
	at func(*Scene) string
	// with is the rest of the request.
	with func(*Scene) []apitest.Option
	// want are the statuses of the columns: none read elsewhere acquire operate admin everything.
	want string
	// open: callers are not asked who they are, so a wrong credential changes nothing.
	open bool
	// byToken: the lease token is all the right that it needs, so a wrong credential is as good as none.
	byToken bool
	// socket: the request is the handshake of a WebSocket.
	socket bool
}

// everyone is for what says nothing of locks and leases.
const everyone = "200 200 200 200 200 200 200"

func at(path string) func(*Scene) string { return func(*Scene) string { return path } }

func ofLock(format string) func(*Scene) string {
	return func(s *Scene) string { return fmt.Sprintf(format, s.Lock) }
}

func ofLease(format string) func(*Scene) string {
	return func(s *Scene) string { return fmt.Sprintf(format, s.Held.LeaseID) }
}

func ofHook(format string) func(*Scene) string {
	return func(s *Scene) string { return fmt.Sprintf(format, s.Hook) }
}

func leaseToken(s *Scene) []apitest.Option { return []apitest.Option{apitest.Token(s.Held.Token)} }

func body(text string) func(*Scene) []apitest.Option {
	return func(*Scene) []apitest.Option { return []apitest.Option{apitest.JSON(text)} }
}

// rows of the table: every route, and some twice, where the request decides which verb it needs.
func rows() []row {
	var all []row
	for _, some := range [][]row{processRows, acquireRows, leaseRows, lockRows, eventRows, webhookRows, pageRows, compatRows} {
		all = append(all, some...)
	}
	return all
}

var processRows = []row{
	{route: "GET /healthz", want: everyone, open: true},
	{route: "GET /readyz", want: everyone, open: true},
	{route: "GET /openapi.yaml", want: everyone},
	{route: "GET /problems/{code}", at: at("/problems/forbidden"), want: everyone},
	{route: "GET /docs", want: everyone},
	{route: "GET /docs/*", at: at("/docs/start"), want: everyone},
	{route: "GET /v1/whoami", want: everyone},
	{route: "GET /v1/info", want: "401 200 200 200 200 200 200"},
	{route: "GET /v1/gateways", want: "401 200 200 200 200 200 200"},
	{route: "GET /v1/namespaces", want: "401 200 200 200 200 200 200"},
	{route: "GET /metrics", want: "401 403 403 403 403 403 200"},
	{route: "GET /internal/v1/ends", want: "404 404 404 404 404 404 404"}, // but for a gateway's seal
}

var acquireRows = []row{
	{route: "POST /v1/locks/{lock}/leases", at: func(s *Scene) string { return "/v1/locks/" + s.Free + "/leases?ttl=1m" }, want: "401 403 403 201 403 403 201"},
	{route: "POST /v1/leases", at: at("/v1/leases"), with: func(s *Scene) []apitest.Option {
		return []apitest.Option{apitest.JSON(fmt.Sprintf(`{"locks":[{"lock":%q},{"lock":%q}],"ttl":"1m"}`, s.Free, s.Lock+"-ended"))}
	}, want: "401 403 403 201 403 403 201"},
	{route: "GET /v1/locks/{lock}/preview", at: ofLock("/v1/locks/%s/preview"), want: "401 403 403 200 403 403 200"},
}

var leaseRows = []row{
	{route: "GET /v1/leases", want: "401 200 200 200 200 200 200"},
	{route: "GET /v1/graph", want: "401 200 200 200 200 200 200"},
	{route: "GET /v1/graph", at: ofLock("/v1/graph?lock=%s"), want: "401 200 403 200 200 403 200"},
	{route: "GET /v1/history", want: "401 200 200 200 200 200 200"},
	{route: "GET /v1/history", at: ofLock("/v1/history?lock=%s"), want: "401 200 403 200 200 403 200"},
	{route: "GET /v1/stats", want: "401 200 200 200 200 200 200"},
	{route: "GET /v1/stats", at: ofLock("/v1/stats?lock=%s"), want: "401 200 403 200 200 403 200"},
	{route: "GET /v1/leases/{id}", at: ofLease("/v1/leases/%s"), want: "401 200 404 200 200 404 200"},
	{route: "GET /v1/leases/{id}/postmortem", at: func(s *Scene) string { return "/v1/leases/" + s.Ended.LeaseID + "/postmortem" }, want: "401 200 404 200 200 404 200"},
	{route: "POST /v1/leases/{id}/break", at: ofLease("/v1/leases/%s/break?reason=why"), want: "401 403 404 403 204 404 204"},
	// The lease token alone is the right: a credential beside it changes nothing, a wrong one included.
	{route: "GET /v1/leases/self", with: leaseToken, byToken: true, want: everyone},
	{route: "GET /v1/leases/{id}", at: ofLease("/v1/leases/%s"), with: leaseToken, byToken: true, want: everyone},
	{route: "GET /v1/leases/self/postmortem", with: func(s *Scene) []apitest.Option { return []apitest.Option{apitest.Token(s.Ended.Token)} }, want: "404 200 404 200 200 404 200"},
	{route: "POST /v1/leases/self/break", with: leaseToken, at: at("/v1/leases/self/break?reason=why"), want: "404 404 404 404 404 404 404"}, // needs the id
	{route: "POST /v1/leases/self/heartbeat", with: leaseToken, byToken: true, want: everyone},
	{route: "POST /v1/leases/{id}/heartbeat", at: ofLease("/v1/leases/%s/heartbeat"), with: leaseToken, byToken: true, want: everyone},
	{route: "POST /v1/heartbeats", with: func(s *Scene) []apitest.Option {
		return []apitest.Option{apitest.JSON(fmt.Sprintf(`{"tokens":[%q]}`, s.Held.Token))}
	}, byToken: true, want: everyone},
	{route: "PATCH /v1/leases/self", with: leaseToken, byToken: true, at: at("/v1/leases/self?metadata=changed"), want: everyone},
	{route: "PATCH /v1/leases/{id}", with: leaseToken, byToken: true, at: ofLease("/v1/leases/%s?metadata=changed"), want: everyone},
	{route: "POST /v1/leases/self/downgrade", with: leaseToken, byToken: true, want: everyone},
	{route: "POST /v1/leases/{id}/downgrade", at: ofLease("/v1/leases/%s/downgrade"), with: leaseToken, byToken: true, want: everyone},
	{route: "DELETE /v1/leases/self", with: leaseToken, byToken: true, want: "204 204 204 204 204 204 204"},
	{route: "DELETE /v1/leases/{id}", at: ofLease("/v1/leases/%s"), with: leaseToken, byToken: true, want: "204 204 204 204 204 204 204"},
	// Without one no right of the caller stands in for it.
	{route: "POST /v1/leases/{id}/heartbeat", at: ofLease("/v1/leases/%s/heartbeat"), want: "403 403 403 403 403 403 403"},
	{route: "PATCH /v1/leases/{id}", at: ofLease("/v1/leases/%s?metadata=changed"), want: "403 403 403 403 403 403 403"},
	{route: "POST /v1/leases/{id}/downgrade", at: ofLease("/v1/leases/%s/downgrade"), want: "403 403 403 403 403 403 403"},
	{route: "DELETE /v1/leases/{id}", at: ofLease("/v1/leases/%s"), want: "403 403 403 403 403 403 403"},
}

var lockRows = []row{
	{route: "GET /v1/locks", want: "401 200 200 200 200 403 200"},
	{route: "GET /v1/locks/{lock}", at: ofLock("/v1/locks/%s"), want: "401 200 403 200 200 403 200"},
	{route: "GET /v1/locks/{lock}/leader", at: ofLock("/v1/locks/%s/leader"), want: "401 200 403 200 200 403 200"},
	{route: "GET /v1/locks/{lock}/history", at: ofLock("/v1/locks/%s/history"), want: "401 200 403 200 200 403 200"},
	{route: "GET /v1/locks/{lock}/fence", at: ofLock("/v1/locks/%s/fence?fencing_token=1"), want: "401 200 403 200 200 403 200"},
	checkFence("GET"), checkFence("HEAD"), checkFence("POST"), checkFence("PUT"), checkFence("PATCH"), checkFence("DELETE"),
	{route: "PUT /v1/locks/{lock}", at: ofLock("/v1/locks/%s?limit=3"), want: "401 403 403 403 200 403 200"},
	{route: "GET /v1/locks/{lock}/periods", at: ofLock("/v1/locks/%s/periods"), want: "401 403 403 403 200 403 200"},
	{route: "DELETE /v1/locks/{lock}/periods/{period}", at: ofLock("/v1/locks/%s/periods/2026-11-22"), want: "401 403 403 403 404 403 404"},
	{route: "DELETE /v1/locks/{lock}", at: func(s *Scene) string { return "/v1/locks/" + s.Lock + "-ended" }, want: "401 403 403 403 204 403 204"},
	{route: "POST /v1/locks/{lock}/revoke", at: ofLock("/v1/locks/%s/revoke?reason=please"), want: "401 403 403 200 403 403 200"},
	{route: "POST /v1/locks/{lock}/revoke", at: ofLock("/v1/locks/%s/revoke?reason=now&force_after=1m"), want: "401 403 403 403 200 403 200"},
	{route: "DELETE /v1/locks/{lock}/revoke", at: ofLock("/v1/locks/%s/revoke"), want: "401 403 403 403 200 403 200"},
	{route: "POST /v1/locks/{lock}/reap", at: ofLock("/v1/locks/%s/reap"), with: body(`{"older_than":"1ms","reason":"old"}`), want: "401 403 403 403 200 403 200"},
	{route: "POST /v1/locks/{lock}/reap", at: ofLock("/v1/locks/%s/reap"), with: body(`{"older_than":"1ms","dry_run":true,"reason":"old"}`), want: "401 403 403 403 200 403 200"},
	{route: "POST /v1/locks/{lock}/destroy", at: ofLock("/v1/locks/%s/destroy"), with: body(`{"reason":"over"}`), want: "401 403 403 403 200 403 200"},
	{route: "POST /v1/locks/{lock}/contenders/{name}/break", at: func(s *Scene) string {
		return "/v1/locks/" + s.Lock + "/contenders/" + path.Base(s.Waiter.Znode) + "/break?reason=why"
	}, want: "401 403 403 403 204 403 204"},
}

// lockInfo is what Terraform's HTTP backend sends.
func lockInfo(info string) func(*Scene) []apitest.Option {
	return func(*Scene) []apitest.Option { return []apitest.Option{apitest.JSON(info)} }
}

func fleetLock(s *Scene) []apitest.Option {
	return []apitest.Option{apitest.JSON(fmt.Sprintf(`{"client_params":{"id":"machine-1","group":%q}}`, s.Group)), apitest.Header("fleet-lock-protocol", "true")}
}

// applying is the info of a command that locks.
const applying = `{"ID":"7b2c","Operation":"OperationTypeApply","Who":"ann@laptop","Created":"2026-11-23T10:00:00Z"}`

func ofFree(s *Scene) string { return "/compat/terraform/" + s.Free }

// compatRows are the protocols of other programs. The lock of the scene is held by a lease of the API; its id is an ID to them.
var compatRows = []row{
	{route: "POST /compat/fleetlock/v1/pre-reboot", with: fleetLock, want: "401 403 403 200 403 403 200"},
	{route: "POST /compat/fleetlock/v1/steady-state", with: fleetLock, want: "401 403 403 200 403 403 200"},
	{route: "LOCK /compat/terraform/{lock}", at: ofFree, with: lockInfo(applying), want: "401 403 403 200 403 403 200"},
	{route: "POST /compat/terraform/{lock}", at: ofFree, with: lockInfo(applying), want: "401 403 403 200 403 403 200"},
	{route: "PUT /compat/terraform/{lock}", at: ofFree, with: lockInfo(applying), want: "401 403 403 200 403 403 200"},
	{route: "LOCK /compat/terraform/{lock}", at: ofLock("/compat/terraform/%s"), with: lockInfo(applying), want: "401 403 403 423 403 403 423"},
	{route: "UNLOCK /compat/terraform/{lock}", at: ofLock("/compat/terraform/%s"), with: lockInfo(applying), want: "401 403 403 409 403 403 409"},
	{route: "DELETE /compat/terraform/{lock}", at: ofFree, with: lockInfo(applying), want: "401 403 403 200 403 403 200"},
	// force-unlock is a break.
	{route: "UNLOCK /compat/terraform/{lock}", at: ofLock("/compat/terraform/%s"), want: "401 403 403 403 200 403 200"},
	{route: "UNLOCK /compat/terraform/{lock}", at: ofLock("/compat/terraform/%s"), with: func(s *Scene) []apitest.Option {
		return []apitest.Option{apitest.JSON(`{"ID":"` + s.Held.LeaseID + `"}`)}
	}, want: "401 403 403 403 200 403 200"},
}

// checkFence is what proxies ask, with the method of the request that they have got.
func checkFence(method string) row {
	return row{route: method + " /v1/check-fence", at: func(s *Scene) string {
		return fmt.Sprintf("/v1/check-fence?lock=%s&fencing_token=%d", s.Lock, s.Held.FencingToken)
	}, want: "401 204 403 204 204 403 204"}
}

var eventRows = []row{
	{route: "GET /v1/events", want: "401 200 200 200 200 200 200"},
	{route: "GET /v1/events", at: at("/v1/events?ns=default"), want: "401 200 200 200 200 403 200"},
	{route: "GET /v1/events/ws", socket: true, want: "401 101 101 101 101 101 101"},
}

var webhookRows = []row{
	{route: "GET /v1/webhooks", want: "401 200 200 200 200 200 200"},
	{route: "POST /v1/webhooks", with: body(`{"url":"https://hooks.example.com/y","locks":"shop:*"}`), want: "401 403 201 201 403 201 201"},
	{route: "GET /v1/webhooks/{id}", at: ofHook("/v1/webhooks/%s"), want: "401 404 404 404 404 200 200"},
	{route: "PATCH /v1/webhooks/{id}", at: ofHook("/v1/webhooks/%s"), with: body(`{"description":"changed"}`), want: "401 403 404 404 403 200 200"},
	{route: "DELETE /v1/webhooks/{id}", at: ofHook("/v1/webhooks/%s"), want: "401 404 404 404 404 204 204"},
	{route: "POST /v1/webhooks/{id}/rotate", at: ofHook("/v1/webhooks/%s/rotate"), want: "401 403 404 404 403 200 200"},
	{route: "POST /v1/webhooks/{id}/test", at: ofHook("/v1/webhooks/%s/test"), want: "401 403 404 404 403 200 200"},
	{route: "POST /v1/webhooks/{id}/replay", at: ofHook("/v1/webhooks/%s/replay"), want: "401 403 404 404 403 200 200"},
	{route: "GET /v1/webhooks/{id}/attempts", at: ofHook("/v1/webhooks/%s/attempts"), want: "401 404 404 404 404 200 200"},
	{route: "GET /v1/webhooks/{id}/dead-letters", at: ofHook("/v1/webhooks/%s/dead-letters"), want: "401 404 404 404 404 200 200"},
}

var pageRows = []row{
	{route: "GET /", want: "303 200 200 200 200 403 200"},
	{route: "GET /namespaces", want: "303 200 200 200 200 200 200"},
	{route: "GET /pinned", at: at("/pinned?pin=default/x"), want: "303 200 200 200 200 200 200"},
	{route: "GET /wall", want: "303 200 200 200 200 403 200"},
	{route: "GET /activity", want: "303 200 200 200 200 200 200"},
	{route: "GET /gateways", want: "303 200 200 200 200 200 200"},
	// cmd/gateway gives the dashboard its view of webhooks, and nothing does here: the pages are not there.
	{route: "GET /webhooks", want: "303 404 404 404 404 404 404"},
	{route: "GET /webhooks/*", at: ofHook("/webhooks/%s"), want: "303 404 404 404 404 404 404"},
	{route: "GET /locks/*", at: ofLock("/locks/%s"), want: "303 200 403 200 200 403 200"},
	// Of an owner they show what the caller may read, and of all others nothing.
	{route: "GET /owners/*", at: at("/owners/alice"), want: "303 200 200 200 200 200 200"},
	{route: "GET /hosts/*", at: at("/hosts/ci-1"), want: "303 200 200 200 200 200 200"},
	{route: "GET /graph", want: "303 200 200 200 200 200 200"},
	{route: "GET /graph", at: ofLock("/graph?lock=%s"), want: "303 200 403 200 200 403 200"},
	{route: "GET /ui/*", at: ofLock("/ui/search?q=%s"), want: "401 200 200 200 200 200 200"},
	{route: "GET /ui/*", at: at("/ui/fragments?page=overview"), want: "401 200 200 200 200 200 200"},
	{route: "GET /static/*", at: func(s *Scene) string { return s.Asset }, want: everyone, open: true},
	{route: "GET /login", want: everyone, open: true},
	{route: "GET /login/*", at: at("/login/with/corp"), want: "401 401 401 401 401 401 401", open: true},        // it has no client
	{route: "GET /login/*", at: at("/login/callback?state=x"), want: "401 401 401 401 401 401 401", open: true}, // of no login
	{route: "POST /login", want: "401 401 401 401 401 401 401", open: true},                                     // without a token
	{route: "GET /logout", want: "303 303 303 303 303 303 303", open: true},
	{route: "POST /logout", want: "303 303 303 303 303 303 303", open: true},
}

// Unproved is what a request without a credential is answered with.
type Unproved struct {
	Method, Path string
	Status       int
	Open         bool // callers are not asked who they are, so a wrong credential gets the same
}

// anyLease is an id of the form that ids of leases have.
const anyLease = "lkxnvgfrf3ou7ds4hoppij4m46ai3ajyzuyxeub"

// Unasked are the requests of the table that need no scene. With a wrong credential each is 401, but those that are Open.
func Unasked() (list []Unproved) {
	scene := &Scene{Lock: "shop:1", Free: "shop:2", Hook: "wh_aaaaaaaaaaaaaaaa"}
	scene.Held.LeaseID, scene.Held.Znode, scene.Waiter.Znode, scene.Ended.LeaseID = anyLease, "/x", "/x", anyLease
	for _, r := range rows() {
		if r.with != nil || r.byToken || r.socket || strings.HasPrefix(r.pattern(), "/static/") {
			continue
		}
		status, err := strconv.Atoi(strings.Fields(r.want)[0])
		if err != nil {
			panic(err) // it is a literal
		}
		list = append(list, Unproved{r.method(), r.path(scene), status, r.open})
	}
	return list
}

// path is the row's path in a scene.
func (r *row) path(s *Scene) string {
	if r.at != nil {
		return r.at(s)
	}
	return r.pattern()
}

func (r *row) method() string { m, _, _ := strings.Cut(r.route, " "); return m }

func (r *row) pattern() string { _, p, _ := strings.Cut(r.route, " "); return p }

// reads: the request asks for no change, so a success changes nothing either.
func (r *row) reads() bool {
	return r.method() == http.MethodGet || r.method() == http.MethodHead || strings.HasPrefix(r.pattern(), "/v1/check-fence")
}
