package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockkeeper/internal/fleet"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/zk/layout"
)

// logbook is where a gateway of a fleet writes its log.
type logbook struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logbook) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSpace(l.b.String()), "\n")
}

func secretOf(key string) func() []layout.TokenKey {
	return func() []layout.TokenKey { return []layout.TokenKey{{ID: "k1", Key: []byte(key)}} }
}

// member is a gateway of the fleet with that secret.
func member(t *testing.T, id, secret string, change ...func(*Options)) (*gateway, *logbook) {
	t.Helper()
	book := &logbook{}
	f := fleet.New(fleet.Options{Secret: secretOf(secret), Self: func() (string, int64) { return id, 1 }})
	t.Cleanup(f.Close)
	access := accessLogTo(t, book)
	access.Level = slog.LevelDebug
	g := serve(t, append(change, func(o *Options) {
		o.Fleet, o.Logger, o.Access = f, slog.New(slog.NewTextHandler(book, &slog.HandlerOptions{Level: slog.LevelDebug})), access
	})...)
	g.id = id
	return g, book
}

func (g *gateway) address() string { return strings.TrimPrefix(g.url, "http://") }

const routeZxid = 42

// sendsTo has a gateway say of every lease that another one runs it.
func (g *gateway) sendsTo(gateway, address string) {
	not := func() *locks.Error {
		return &locks.Error{Code: locks.CodeNotOwner, RetryAfter: time.Second,
			Owner: &locks.Route{Gateway: gateway, Address: address, Zxid: routeZxid, Lease: someID, Seals: g.seals}}
	}
	g.acquire = func(context.Context, locks.AcquireRequest) (locks.AcquireResult, error) {
		return locks.AcquireResult{}, not()
	}
	g.lease = func(context.Context, locks.LeaseRequest) (locks.Lease, error) { return locks.Lease{}, not() }
	g.heartbeat = func(string, string, time.Duration) (locks.Heartbeat, error) { return locks.Heartbeat{}, not() }
	g.many = func(tokens []string) []locks.HeartbeatResult {
		results := make([]locks.HeartbeatResult, len(tokens))
		for i := range results {
			results[i] = locks.HeartbeatResult{LeaseID: someID, Err: not()}
		}
		return results
	}
	g.release = func(string, string) error { return not() }
	g.hold = func(string, string, string) error { return not() }
	g.update = func(locks.UpdateRequest) (locks.Lease, error) { return locks.Lease{}, not() }
	g.downgrade = func(string, string) (locks.Lease, error) { return locks.Lease{}, not() }
	g.ended = func(string) (locks.Postmortem, error) { return locks.Postmortem{}, not() }
	g.breaks = func(req locks.BreakRequest) error {
		if req.AtOwner {
			return not()
		}
		return nil
	}
}

func pair(t *testing.T) (asked, owner *gateway) {
	t.Helper()
	asked, _ = member(t, "asked", "secret")
	owner, _ = member(t, "owner", "secret")
	asked.sendsTo("owner", owner.address())
	return asked, owner
}

// call is a request about one lease.
type call struct {
	name, method, path string
	options            []apitest.Option
	changes            bool // something besides a clock
}

func calls() []call {
	token, key := apitest.Token(someToken), apitest.Key(someKey)
	return []call{
		{"repeat", "POST", "/v1/locks/deploy/leases?ttl=10s&wait=1s", []apitest.Option{key, apitest.JSON(`{"owner":"me"}`)}, true},
		{"repeat for a shell", "POST", "/v1/locks/deploy/leases?ttl=10s", []apitest.Option{key, apitest.Header("Accept", "text/plain")}, true},
		{"repeat of several", "POST", "/v1/leases", []apitest.Option{key, apitest.JSON(`{"locks":[{"lock":"a"},{"lock":"b"}]}`)}, true},
		{"hold", "POST", "/v1/locks/deploy/leases?hold=a", []apitest.Option{token}, true},
		{"look", "GET", "/v1/leases/" + someID, nil, false},
		{"look by token", "GET", "/v1/leases/self?verify=true", []apitest.Option{token}, false},
		{"long poll", "GET", "/v1/leases/self?wait=1s&since=abc", []apitest.Option{token}, false},
		{"head", "HEAD", "/v1/leases/" + someID, nil, false},
		{"heartbeat", "POST", "/v1/leases/" + someID + "/heartbeat", []apitest.Option{token, apitest.JSON(`{"ttl":"1m"}`)}, false},
		{"heartbeat by token", "POST", "/v1/leases/self/heartbeat?ttl=1m", []apitest.Option{token}, false},
		{"release", "DELETE", "/v1/leases/self", []apitest.Option{token}, true},
		{"release of a hold", "DELETE", "/v1/leases/" + someID + "?hold=a", []apitest.Option{token}, true},
		{"update", "PATCH", "/v1/leases/self", []apitest.Option{token, apitest.JSON(`{"metadata":"\u00fc","ttl":"1m"}`)}, true},
		{"downgrade", "POST", "/v1/leases/self/downgrade", []apitest.Option{token}, true},
		{"postmortem", "GET", "/v1/leases/" + someID + "/postmortem", nil, false},
		{"postmortem by token", "GET", "/v1/leases/self/postmortem", []apitest.Option{token}, false},
	}
}

func TestWhicheverGatewayIsAskedTheOwnerAnswers(t *testing.T) {
	asked, owner := pair(t)
	var metadata string
	owner.update = func(req locks.UpdateRequest) (locks.Lease, error) {
		metadata, req.Metadata = *req.Metadata, nil // a pointer tells nothing
		owner.calls[len(owner.calls)-1] = fmt.Sprintf("update %q %+v", metadata, req)
		return held(), nil
	}
	for _, o := range calls() {
		t.Run(o.name, func(t *testing.T) {
			want := owner.send(t, o.method, o.path, o.options...)
			direct := owner.asked()
			got := asked.send(t, o.method, o.path, o.options...)
			forwarded := owner.asked()
			assert.Must(t, len(forwarded) != 0 && forwarded[0] == fmt.Sprintf("arrive %s %d", someID, routeZxid),
				"the owner was not asked to arrive first: %q", forwarded)
			assert.That(t, slices.Equal(direct, forwarded[1:]),
				"the owner was asked %q and, by the other gateway, %q", direct, forwarded[1:])
			assert.That(t, got.Status == want.Status && bytes.Equal(got.Body, want.Body),
				"the owner answers %d %s\nand the other one %d %s", want.Status, want.Body, got.Status, got.Body)
			for name := range want.Header {
				assert.That(t, name == "Date" || name == "Lockkeeper-Request-Id" || slices.Equal(want.Header[name], got.Header[name]),
					"%s is %q at the owner and %q at the other one", name, want.Header[name], got.Header[name])
			}
			assert.That(t, got.Header.Get(fleet.Header) == "", "the client is shown the seal")
		})
	}
}

func TestTheOwnersRefusalIsPassedOn(t *testing.T) {
	asked, owner := pair(t)
	for _, e := range []*locks.Error{
		{Code: locks.CodeEnded, Reason: locks.ReasonRevoked, Detail: "maintenance"},
		{Code: locks.CodeTokenWrong}, {Code: locks.CodeUnavailable, RetryAfter: 2 * time.Second}, {Code: locks.CodeOutcomeUnknown}, {Code: locks.CodeNotFound},
	} {
		owner.heartbeat = func(string, string, time.Duration) (locks.Heartbeat, error) { return locks.Heartbeat{}, e }
		want := owner.send(t, "POST", "/v1/leases/self/heartbeat", apitest.Token(someToken))
		got := asked.send(t, "POST", "/v1/leases/self/heartbeat", apitest.Token(someToken))
		if got.Status != want.Status || got.Code() != want.Code() || got.Problem.Detail != want.Problem.Detail || got.Problem.Reason != want.Problem.Reason ||
			got.Header.Get("Retry-After") != want.Header.Get("Retry-After") || got.Header.Get("Content-Type") != want.Header.Get("Content-Type") {
			t.Errorf("the owner answers %s\nand the other one %s", want.Body, got.Body)
		}
		assert.That(t, got.Problem.RequestID == got.Header.Get("Lockkeeper-Request-Id"),
			"the request's id is %s and, in the problem, %s", got.Header.Get("Lockkeeper-Request-Id"), got.Problem.RequestID)
	}
	// An owner that is being stopped.
	owner.server.Drain()
	a := asked.send(t, "GET", "/v1/leases/self?wait=1s&since=x", apitest.Token(someToken))
	assert.That(t, a.Code() == "draining" && a.Header.Get("Retry-After") == "0", "answered %d %s", a.Status, a.Body)
}

func TestBothLogLinesTellOfOneRequest(t *testing.T) {
	asked, askedLog := member(t, "asked", "secret")
	owner, ownerLog := member(t, "owner", "secret")
	asked.sendsTo("owner", owner.address())
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	a := asked.send(t, "DELETE", "/v1/leases/self", apitest.Token(someToken), apitest.Header("Traceparent", trace))
	id := a.Header.Get("Lockkeeper-Request-Id")
	waitFor(t, func() bool { return askedLog.lines()[0] != "" && ownerLog.lines()[0] != "" })
	for line, words := range map[string][]string{
		askedLog.lines()[0]: {"forwarded_to=owner"}, ownerLog.lines()[0]: {"forwarded_by=asked"},
	} {
		for _, word := range append(words, "request_id="+id, "traceparent="+trace, "trace_id="+trace[3:35], "client_ip=127.0.0.1", "lease_id="+someID, "status=204") {
			assert.That(t, strings.Contains(line, word), "%q is not in %s", word, line)
		}
		assert.That(t, !strings.Contains(line, someToken) && !strings.Contains(line, "mac="), "a secret is logged: %s", line)
	}
}

func TestARequestGoesOnOnceAtMost(t *testing.T) {
	asked, owner := pair(t)
	third, _ := member(t, "third", "secret")
	owner.sendsTo("third", third.address())
	a := asked.send(t, "DELETE", "/v1/leases/self", apitest.Token(someToken))
	assert.That(t, a.Status == 503 && a.Code() == "owned_by_other_gateway", "answered %d %s", a.Status, a.Body)
	calls := third.asked()
	assert.That(t, len(calls) == 0, "the third was asked %q", calls)
	asked.route = func(string) (locks.Route, bool) { // it is still thought to be the same one
		return locks.Route{Gateway: "owner", Address: owner.address(), Lease: someID, Zxid: 43}, true
	}
	owner.asked()
	if a := asked.send(t, "DELETE", "/v1/leases/self", apitest.Token(someToken)); a.Status != 503 || len(owner.asked()) != 2 {
		t.Errorf("answered %d %s", a.Status, a.Body)
	}
	// But who asked may look up once more who runs it.
	lookups := 0
	asked.route = func(string) (locks.Route, bool) {
		lookups++
		return locks.Route{Gateway: "third", Address: third.address(), Lease: someID, Zxid: 43}, true
	}
	if a := asked.send(t, "DELETE", "/v1/leases/self", apitest.Token(someToken)); a.Status != 204 || lookups != 1 {
		t.Errorf("answered %d %s after %d look-ups", a.Status, a.Body, lookups)
	}
	third.sendsTo("owner", owner.address())
	if a := asked.send(t, "DELETE", "/v1/leases/self", apitest.Token(someToken)); a.Code() != "owned_by_other_gateway" || lookups != 2 {
		t.Errorf("answered %d %s after %d look-ups", a.Status, a.Body, lookups)
	}
}

// An address that leads back: a load balancer's, or a wrong one.
func TestARequestThatComesBackIsRefused(t *testing.T) {
	asked, _ := pair(t)
	asked.sendsTo("owner", asked.address())
	a := asked.send(t, "DELETE", "/v1/leases/self", apitest.Token(someToken))
	assert.That(t, a.Code() == "owned_by_other_gateway" && len(asked.asked()) == 1, "answered %d %s", a.Status, a.Body)
}

// Elsewhere it would be another request, and queue a second time.
func TestAnAcquireWithoutAKeyIsNeverSentOn(t *testing.T) {
	asked, owner := pair(t)
	for _, path := range []string{"/v1/locks/deploy/leases", "/v1/locks/deploy/leases?wait=1s", "/v1/leases?locks=a,b"} {
		a := asked.send(t, "POST", path)
		assert.That(t, a.Code() == "owned_by_other_gateway", "%s: answered %d %s", path, a.Status, a.Body)
	}
	calls := owner.asked()
	assert.That(t, len(calls) == 0, "the other one was asked %q", calls)
}

// Attack 46: a gateway that gets a forwarded request and does not own the lease answers 503, without asking its manager.
func TestOnlyTheOwnerSaysThatALeaseIsGone(t *testing.T) {
	asked, owner := pair(t)
	owner.arrive = func(ctx context.Context, lease string, zxid int64) error {
		deadline, ok := ctx.Deadline()
		assert.That(t, ok && time.Until(deadline) <= time.Second, "it may wait for longer than a second")
		return &locks.Error{Code: locks.CodeNotOwner, Detail: "not yet"}
	}
	gone := &locks.Error{Code: locks.CodeEnded, Reason: locks.ReasonUnknown}
	owner.heartbeat = func(string, string, time.Duration) (locks.Heartbeat, error) { return locks.Heartbeat{}, gone }
	owner.release = func(string, string) error { return gone }
	for _, path := range []string{"POST /v1/leases/self/heartbeat", "DELETE /v1/leases/self"} {
		method, path, _ := strings.Cut(path, " ")
		a := asked.send(t, method, path, apitest.Token(someToken))
		assert.That(t, a.Status == 503 && a.Header.Get("Retry-After") == "0", "%s %s: answered %d %s", method, path, a.Status, a.Body)
	}
	// A client that found no place to wait there is not sent back at once: it would come again at once.
	owner.arrive = func(context.Context, string, int64) error {
		return &locks.Error{Code: locks.CodeNotOwner, RetryAfter: time.Second, Detail: "too many wait"}
	}
	a := asked.send(t, "POST", "/v1/leases/self/heartbeat", apitest.Token(someToken))
	assert.That(t, a.Status == 503 && a.Header.Get("Retry-After") == "1", "answered %d %v %s", a.Status, a.Header, a.Body)
}

func TestAForgedSealIsRefusedAndNothingIsAsked(t *testing.T) {
	owner, book := member(t, "owner", "secret")
	other, err := fleet.NewKeys(secretOf("another secret")())
	assert.NoError(t, err)
	forged := httptest.NewRequest("DELETE", owner.url+"/v1/leases/self", nil)
	forged.Header.Set("Lease-Token", someToken)
	other.Close(&fleet.Seal{From: "asked", To: "owner", Zxid: 1, Lease: someID, Request: "0123456789abcdef"}, forged, nil)
	for name, seal := range map[string]string{"another fleet's": forged.Header.Get(fleet.Header), "none": "", "words": "1 key=k1 let me in"} {
		a := owner.send(t, "DELETE", "/v1/leases/self", apitest.Token(someToken), apitest.Header(fleet.Header, seal))
		assert.That(t, a.Status == 403 && a.Code() == "fleet_seal_refused", "%s: answered %d %s", name, a.Status, a.Body)
	}
	calls := owner.asked()
	assert.That(t, len(calls) == 0, "the manager was asked %q", calls)
	waitFor(t, func() bool { return len(book.lines()) >= 4 }) // three, and their sum
	for _, line := range book.lines() {
		if !strings.Contains(line, "the seal is not genuine") && !strings.Contains(line, "requests refused") || strings.Contains(line, "mac=") || strings.Contains(line, "let me in") {
			t.Errorf("the log says %s", line)
		}
	}
	// A gateway that belongs to no fleet.
	g := serve(t)
	a := g.send(t, "GET", "/v1/info", apitest.Header(fleet.Header, ""))
	assert.That(t, a.Code() == "fleet_seal_refused", "answered %d %s", a.Status, a.Body)
}

// A genuine seal replaces the guard, under any name of the gateway; the gateway ignores what the seal does not cover.
func TestWhatASealDoesNotCoverIsNotLookedAt(t *testing.T) {
	owner, _ := member(t, "owner", "secret")
	keys, err := fleet.NewKeys(secretOf("secret")())
	assert.NoError(t, err)
	send := func(change func(*http.Request)) int {
		r, err := http.NewRequest("GET", owner.url+"/v1/check-fence?lock=deploy", nil)
		assert.NoError(t, err)
		r.Host = "gateway-2.example.com"
		keys.Close(&fleet.Seal{From: "asked", To: "owner"}, r, nil)
		change(r)
		response, err := http.DefaultTransport.RoundTrip(r)
		assert.NoError(t, err)
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, response.Body)
		return response.StatusCode
	}
	status := send(func(r *http.Request) { r.Header.Set("Fencing-Token", fmt.Sprint(int64(1)<<33)) })
	assert.That(t, status == 403 && len(owner.asked()) == 0, "a fencing token that was added to a sealed request counts: %d", status)
	assert.Equal(t, send(func(r *http.Request) { r.Header.Del(fleet.Header) }), 421, "without a seal")
	assert.Equal(t, send(func(r *http.Request) { r.URL.RawQuery += "&fencing_token=1" }), 403, "with a query that was changed")
}

// peer is what stands at an owner's address.
func peer(t *testing.T, handle http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return strings.TrimPrefix(server.URL, "http://")
}

func TestWhatStandsAtTheOwnersAddressIsNotListenedToUnlessItIsTheOwner(t *testing.T) {
	lease := `{"lease_id":"` + someID + `","state":"held","expires_in_ms":30000,"ttl_ms":30000,"waiters":0}`
	write := func(status int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	foreign, _ := member(t, "owner", "another secret")
	elsewhere := ""
	addresses := map[string]string{
		"a program that says yes": peer(t, write(200, "application/json", lease)),
		"a page":                  peer(t, write(200, "text/html", "<h1>It works!</h1>")),
		"nothing here":            peer(t, write(404, "application/problem+json", `{"type":"x","title":"x","status":404,"code":"lease_not_found"}`)),
		"gone":                    peer(t, write(410, "application/problem+json", `{"type":"x","title":"x","status":410,"code":"lease_ended"}`)),
		"no content":              peer(t, write(204, "", "")),
		"very much":               peer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, fleet.MaxAnswer+1)) }),
		"the seal of the request": peer(t, func(w http.ResponseWriter, r *http.Request) { w.Header()[fleet.Header] = r.Header[fleet.Header] }),
		"half an answer": peer(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("{"))
		}),
		"another fleet's gateway": foreign.address(),
		"a redirect": peer(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere, http.StatusTemporaryRedirect)
		}),
		"a connection that closes": peer(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
	}
	asked, owner := pair(t)
	elsewhere = owner.url + "/v1/leases/self/heartbeat"
	for name, address := range addresses {
		asked.sendsTo("owner", address)
		for _, o := range calls() {
			a := asked.send(t, o.method, o.path, o.options...)
			want := "owner_unreachable"
			if o.changes {
				want = "outcome_unknown"
			}
			assert.That(t, a.Status == 503 && (o.method == "HEAD" || a.Code() == want) && a.Header.Get("Retry-After") != "",
				"%s, %s: answered %d %s", name, o.name, a.Status, a.Body)
		}
	}
	calls := append(owner.asked(), foreign.asked()...)
	assert.That(t, len(calls) == 0, "a manager was asked: %q", calls)
}

// noListener is an address without a listener for good: a port that was just closed may be given to a test beside this one.
const noListener = "127.0.0.1:1"

func TestAnOwnerThatCannotBeReachedHasDoneNothing(t *testing.T) {
	asked, _ := pair(t)
	for _, address := range []string{noListener, "not an address", "ftp://" + noListener, noListener + "/v1"} {
		asked.sendsTo("owner", address)
		for _, o := range calls() {
			a := asked.send(t, o.method, o.path, o.options...)
			assert.That(t, a.Status == 503 && (o.method == "HEAD" || a.Code() == "owner_unreachable") && a.Header.Get("Retry-After") == "1",
				"%s at %s: answered %d %s", o.name, address, a.Status, a.Body)
		}
	}
	// The address of a gateway is unknown while its registration has not been read.
	asked.sendsTo("owner", "")
	a := asked.send(t, "DELETE", "/v1/leases/self", apitest.Token(someToken))
	assert.That(t, a.Code() == "owned_by_other_gateway", "answered %d %s", a.Status, a.Body)
	assert.That(t, strings.Contains(string(asked.send(t, "GET", "/metrics").Body), `lockkeeper_forwarded_total{result="unreachable"}`),
		"it is not counted")
}

// An owner that hangs is given up after a while, soon for a heartbeat.
func TestAnOwnerThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	asked, _ := pair(t)
	let := make(chan struct{})
	asked.sendsTo("owner", peer(t, func(http.ResponseWriter, *http.Request) { <-let }))
	defer close(let)
	begun := time.Now()
	a := asked.send(t, "POST", "/v1/leases/self/heartbeat", apitest.Token(someToken))
	if took := time.Since(begun); a.Code() != "owner_unreachable" || took < heartbeatTimeout || took > heartbeatTimeout+2*time.Second {
		t.Errorf("after %v answered %d %s", took, a.Status, a.Body)
	}
}

// An owner that stands still is taken over, and says nothing of it to those who wait there.
func TestAWaitAtAnOwnerThatIsSucceededGoesOnAtItsSuccessor(t *testing.T) {
	asked, owner := pair(t)
	third, _ := member(t, "third", "secret")
	asked.server.forwarder.lookAgain = 20 * time.Millisecond
	var now atomic.Pointer[locks.Route]
	runs := func(g *gateway) {
		now.Store(&locks.Route{Gateway: g.id, Address: g.address(), Lease: someID, Zxid: 1})
	}
	asked.route = func(string) (locks.Route, bool) { return *now.Load(), true }
	begun, ended := blocking(owner)
	for _, o := range []call{
		{method: "GET", path: "/v1/leases/self?wait=5m&since=x", options: []apitest.Option{apitest.Token(someToken)}},
		{method: "POST", path: "/v1/locks/deploy/leases?wait=forever", options: []apitest.Option{apitest.Key(someKey)}},
	} {
		answers := make(chan *apitest.Answer, 1)
		ask := func(successor *gateway) *apitest.Answer {
			runs(owner)
			go func() {
				a, err := asked.client.Send(t.Context(), o.method, o.path, o.options...)
				assert.Nil(t, err)
				answers <- a
			}()
			<-begun
			runs(successor)
			<-ended
			return <-answers
		}
		if a := ask(third); a == nil || a.Status/100 != 2 {
			t.Errorf("%s: answered %+v", o.path, a)
		}
		// Or it is the one that was asked.
		if a := ask(asked); a.Code() != "owned_by_other_gateway" || a.Header.Get("Retry-After") != "0" {
			t.Errorf("%s: answered %+v", o.path, a)
		}
	}
}

// When the client has gone, the owner must not count it as listening.
func TestAClientThatGoesAwayEndsItsPollAtTheOwner(t *testing.T) {
	for name, leave := range map[string]func(asked *gateway, cancel func()){
		"the client goes away": func(_ *gateway, cancel func()) { cancel() },
		"the gateway drains":   func(asked *gateway, _ func()) { asked.server.Drain() },
	} {
		t.Run(name, func(t *testing.T) {
			asked, owner := pair(t)
			begun, ended := blocking(owner)
			for _, o := range []call{
				{method: "GET", path: "/v1/leases/self?wait=5m&since=x", options: []apitest.Option{apitest.Token(someToken)}},
				{method: "POST", path: "/v1/locks/deploy/leases?wait=forever", options: []apitest.Option{apitest.Key(someKey)}},
			} {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				answers := make(chan *apitest.Answer, 1)
				go func() {
					a, _ := asked.client.Send(ctx, o.method, o.path, o.options...)
					answers <- a
				}()
				if name == "the gateway drains" && asked.server.drained.Err() != nil {
					a := <-answers
					assert.That(t, a.Code() == "draining", "while it drains: answered %d %s", a.Status, a.Body)
					continue
				}
				<-begun
				leave(asked, cancel)
				<-ended
				a := <-answers
				assert.That(t, a == nil || a.Code() == "draining" && a.Header.Get("Retry-After") == "0", "answered %+v", a)
			}
		})
	}
}
