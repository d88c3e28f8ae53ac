package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// spread has a gateway run the leases whose tokens begin with its name, and know the owners of the others.
func (g *gateway) spread(addresses map[string]string) {
	g.many = func(tokens []string) []locks.HeartbeatResult {
		results := make([]locks.HeartbeatResult, len(tokens))
		for i, token := range tokens {
			whose, name, _ := strings.Cut(token, "/")
			results[i].LeaseID = name
			switch address, known := addresses[whose]; {
			case whose == g.id && name == "gone":
				results[i].Err = &locks.Error{Code: locks.CodeEnded, Reason: locks.ReasonExpired}
			case whose == g.id:
				results[i].Heartbeat = locks.Heartbeat{LeaseID: name, State: locks.Held, ExpiresIn: time.Minute, TTL: time.Minute, FencingToken: 7}
			case known:
				results[i].Err = &locks.Error{Code: locks.CodeNotOwner, RetryAfter: time.Second,
					Owner: &locks.Route{Gateway: whose, Address: address, Zxid: int64(i), Lease: name}}
			default:
				results[i].Err = &locks.Error{Code: locks.CodeNotFound}
			}
		}
		return results
	}
}

func (g *gateway) beats(t *testing.T, tokens ...string) ([]string, *apitest.Answer) {
	t.Helper()
	body, err := json.Marshal(api.HeartbeatsRequest{Tokens: tokens})
	assert.NoError(t, err)
	a := g.send(t, "POST", "/v1/heartbeats", apitest.JSON(string(body)))
	var list api.HeartbeatList
	assert.NoError(t, json.Unmarshal(a.Body, &list))
	var told []string
	for _, item := range list.Items {
		if item.Problem != nil {
			told = append(told, item.LeaseID+" "+string(item.Problem.Code))
		} else {
			told = append(told, fmt.Sprint(item.LeaseID, " ", item.FencingToken))
		}
	}
	return told, a
}

func TestABulkHeartbeatIsSplitByOwnerAndPutTogetherInOrder(t *testing.T) {
	one, _ := member(t, "one", "secret")
	two, _ := member(t, "two", "secret")
	three, _ := member(t, "three", "secret")
	addresses := map[string]string{"two": two.address(), "three": three.address()}
	for _, g := range []*gateway{one, two, three} {
		g.spread(addresses)
	}
	tokens := []string{"three/a", "one/b", "two/c", "unknown/d", "two/gone", "one/gone", "three/e", "two/f"}
	want := []string{"a 7", "b 7", "c 7", "d lease_not_found", "gone lease_ended", "gone lease_ended", "e 7", "f 7"}
	told, _ := one.beats(t, tokens...)
	assert.That(t, slices.Equal(told, want), "told %q", told)
	assert.Slices(t, two.asked(), []string{"arrive  7", "heartbeats 3"}, "two was asked")
	assert.Slices(t, three.asked(), []string{"arrive  6", "heartbeats 2"}, "three was asked")
	// One hop: what two does not run it does not ask three for.
	at := func(lease string) *locks.Error {
		return &locks.Error{Code: locks.CodeNotOwner, Owner: &locks.Route{Gateway: "two", Address: two.address(), Zxid: 1, Lease: lease}}
	}
	one.many = func([]string) []locks.HeartbeatResult {
		return []locks.HeartbeatResult{{LeaseID: "a", Err: at("a")}, {LeaseID: "c", Err: at("c")}}
	}
	told, _ = one.beats(t, "three/a", "two/c")
	assert.That(t, slices.Equal(told, []string{"a owned_by_other_gateway", "c 7"}) && len(three.asked()) == 0, "told %q", told)
}

func TestABulkHeartbeatAnswersForOthersWhenOneOwnerIsGone(t *testing.T) {
	t.Parallel()
	let := make(chan struct{})
	defer close(let)
	one, _ := member(t, "one", "secret")
	two, _ := member(t, "two", "secret")
	fewer, _ := member(t, "fewer", "secret")
	addresses := map[string]string{"two": two.address(), "gone": noListener, "hangs": peer(t, func(http.ResponseWriter, *http.Request) { <-let }),
		"fewer": fewer.address(), "program": peer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"items":[{}]}`)) })}
	one.spread(addresses)
	two.spread(addresses)
	fewer.many = func([]string) []locks.HeartbeatResult { return nil }
	begun := time.Now()
	told, _ := one.beats(t, "gone/a", "one/b", "hangs/c", "two/d", "program/e", "fewer/f")
	want := []string{"a owner_unreachable", "b 7", "c owner_unreachable", "d 7", "e owner_unreachable", "f owner_unreachable"}
	assert.That(t, slices.Equal(told, want) && time.Since(begun) <= heartbeatTimeout+2*time.Second,
		"after %v told %q", time.Since(begun), told)
	// What this gateway renewed itself stands under its own trust window.
	one.untrusted.Store(true)
	if _, a := one.beats(t, "one/b", "two/d"); a.Status != 503 {
		t.Errorf("answered %d %s", a.Status, a.Body)
	}
	if told, _ := one.beats(t, "two/d"); !slices.Equal(told, []string{"d 7"}) {
		t.Errorf("told %q", told)
	}
	one.server.Drain()
	if _, a := one.beats(t, "one/b", "two/d"); a.Code() != "draining" {
		t.Errorf("answered %d %s", a.Status, a.Body)
	}
}

func TestALeaseWhoseOwnerCannotBeReachedIsRenewedInItsPlace(t *testing.T) {
	asked, owner := pair(t)
	asked.beatFor = func(token string) (locks.Heartbeat, error) {
		return locks.Heartbeat{LeaseID: someID, State: locks.Held, ExpiresIn: time.Second, TTL: time.Minute, FencingToken: 9}, nil
	}
	beat := func() *apitest.Answer {
		asked.asked()
		return asked.send(t, "POST", "/v1/leases/self/heartbeat", apitest.Token(someToken))
	}
	stoodIn := func() bool { return slices.Contains(asked.asked(), "heartbeat for "+someToken) }
	if a := beat(); a.Status != 200 || stoodIn() {
		t.Errorf("while the owner answers: %d %s", a.Status, a.Body)
	}
	owner.heartbeat = func(string, string, time.Duration) (locks.Heartbeat, error) {
		return locks.Heartbeat{}, &locks.Error{Code: locks.CodeEnded, Reason: locks.ReasonReleased}
	}
	if a := beat(); a.Status != 410 || stoodIn() {
		t.Errorf("when the owner says that it has ended: %d %s", a.Status, a.Body)
	}
	asked.sendsTo("owner", peer(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	if a := beat(); a.Status != 200 || !stoodIn() || !strings.Contains(string(a.Body), `"expires_in_ms":1000`) {
		t.Errorf("when it does not: %d %s", a.Status, a.Body)
	}
	asked.untrusted.Store(true)
	if a := beat(); a.Status != 503 || !stoodIn() {
		t.Errorf("while this gateway is not trusted: %d %s", a.Status, a.Body)
	}
	asked.untrusted.Store(false)
	asked.beatFor = func(string) (locks.Heartbeat, error) {
		return locks.Heartbeat{}, &locks.Error{Code: locks.CodeEnded, Reason: locks.ReasonExpired}
	}
	if a := beat(); a.Status != 410 {
		t.Errorf("when it has ended: %d %s", a.Status, a.Body)
	}
	asked.beatFor = func(string) (locks.Heartbeat, error) {
		return locks.Heartbeat{}, &locks.Error{Code: locks.CodeNotOwner}
	}
	if a := beat(); a.Code() != "owner_unreachable" {
		t.Errorf("when this gateway cannot either: %d %s", a.Status, a.Body)
	}
	// A longer TTL is the owner's to write down.
	asked.asked()
	if a := asked.send(t, "POST", "/v1/leases/self/heartbeat?ttl=1h", apitest.Token(someToken)); a.Code() != "owner_unreachable" || stoodIn() {
		t.Errorf("with another TTL: %d %s", a.Status, a.Body)
	}
	// Many at once.
	asked.beatFor = func(token string) (locks.Heartbeat, error) {
		if strings.HasSuffix(token, "gone") {
			return locks.Heartbeat{}, &locks.Error{Code: locks.CodeEnded, Reason: locks.ReasonExpired}
		}
		return locks.Heartbeat{LeaseID: strings.TrimPrefix(token, "owner/"), State: locks.Held, ExpiresIn: time.Second, FencingToken: 9}, nil
	}
	asked.spread(map[string]string{"owner": "127.0.0.1:1"})
	var tokens, want []string
	for i := range 100 {
		tokens, want = append(tokens, fmt.Sprint("owner/", i)), append(want, fmt.Sprint(i, " 9"))
	}
	told, _ := asked.beats(t, append(tokens, "owner/gone")...)
	assert.That(t, slices.Equal(told, append(want, "gone lease_ended")), "told %q", told)
}

func TestABreakIsTheOwnersUnlessThatOneCannotDoIt(t *testing.T) {
	asked, owner := pair(t)
	path := "/v1/leases/" + someID + "/break?reason=maintenance"
	here := func() bool {
		calls := asked.asked()
		assert.That(t, len(calls) != 0 && strings.Contains(calls[0], "AtOwner:true"), "it was asked %q", calls)
		return len(calls) == 2 && strings.Contains(calls[1], "AtOwner:false") && strings.Contains(calls[1], "maintenance")
	}
	if a := asked.send(t, "POST", path); a.Status != 204 || here() {
		t.Errorf("answered %d %s", a.Status, a.Body)
	}
	if calls := owner.asked(); len(calls) != 2 || !strings.Contains(calls[1], "Reason:maintenance") {
		t.Errorf("the owner was asked %q", calls)
	}
	owner.breaks = func(locks.BreakRequest) error {
		return &locks.Error{Code: locks.CodeEnded, Reason: locks.ReasonReleased}
	}
	if a := asked.send(t, "POST", path); a.Status != 410 || here() {
		t.Errorf("when it had ended: %d %s", a.Status, a.Body)
	}
	for _, code := range []locks.Code{locks.CodeUnavailable, locks.CodeNotOwner} {
		owner.breaks = func(locks.BreakRequest) error { return &locks.Error{Code: code} }
		a := asked.send(t, "POST", path)
		assert.That(t, a.Status == 204 && here(), "when the owner says %s: %d %s", code, a.Status, a.Body)
	}
	asked.sendsTo("owner", "127.0.0.1:1")
	if a := asked.send(t, "POST", path); a.Status != 204 || !here() {
		t.Errorf("when it cannot be reached: %d %s", a.Status, a.Body)
	}
	asked.sendsTo("owner", "")
	if a := asked.send(t, "POST", path); a.Status != 204 || !here() {
		t.Errorf("when its address is unknown: %d %s", a.Status, a.Body)
	}
}

func TestGatewaysAreListed(t *testing.T) {
	g := serve(t)
	g.peers = []locks.Peer{
		{Gateway: "gatewayone", Self: true, Registered: true, Address: "one:8080", Version: "1.0", Started: time.UnixMilli(1_700_000_000_000), Leases: 3,
			Succeeded: []string{"gatewaygone"}, GuardAge: 1500 * time.Millisecond},
		{Gateway: "gatewaytwo", Registered: true, GuardAge: -1},
	}
	a := g.send(t, "GET", "/v1/gateways")
	var list api.GatewayList
	err := json.Unmarshal(a.Body, &list)
	assert.Must(t, err == nil && len(list.Items) == 2, "%v %s", err, a.Body)
	one, two := list.Items[0], list.Items[1]
	if one.GatewayID != "gatewayone" || !one.Self || one.Address != "one:8080" || *one.Leases != 3 || one.Zookeeper == nil || *one.GuardAgeMS != 1500 ||
		one.Started.UnixMilli() != 1_700_000_000_000 || !slices.Equal(one.Succeeded, []string{"gatewaygone"}) {
		t.Errorf("%s", a.Body)
	}
	if two.Self || two.Zookeeper != nil || two.GuardAgeMS != nil || two.Started != nil || strings.Contains(string(a.Body), "guard_age_ms\":-") {
		t.Errorf("%s", a.Body)
	}
}

// The places for waiting requests are for those alone: when all are taken, a forwarded request that does not wait is
// still sent.
func TestAForwardedHeartbeatTakesNoPlaceOfWaitingRequests(t *testing.T) {
	asked, _ := member(t, "asked", "secret", func(o *Options) { o.MaxWaiting = 1 })
	owner, _ := member(t, "owner", "secret")
	asked.sendsTo("owner", owner.address())
	begun, _ := blocking(asked)
	waiter := make(chan struct{})
	go func() {
		defer close(waiter)
		_, _ = asked.client.Send(asked.ctx, "GET", "/v1/locks/deploy?wait=5m&since=x")
	}()
	<-begun
	defer func() {
		asked.server.Drain()
		<-waiter
	}()
	asked.expect(t, http.StatusOK, "", "POST", "/v1/leases/self/heartbeat", apitest.Token(someToken))
	asked.expect(t, http.StatusNoContent, "", "DELETE", "/v1/leases/self", apitest.Token(someToken))
	asked.spread(map[string]string{"owner": owner.address()})
	owner.spread(nil)
	if told, a := asked.beats(t, "owner/x"); a.Status != http.StatusOK || !slices.Equal(told, []string{"x 7"}) {
		t.Errorf("many heartbeats: %q %s", told, a.Body)
	}
	asked.sendsTo("owner", owner.address())
	if a := asked.send(t, "GET", "/v1/leases/self?wait=1s&since=x", apitest.Token(someToken)); a.Code() != "too_many_waiting" {
		t.Errorf("a long poll: %d %s", a.Status, a.Body)
	}
}

func TestALeaseIsReleasedWhenItsOwnerDoesNotAnswer(t *testing.T) {
	asked, owner := pair(t)
	asked.releaseFor = func(string) error { return nil }
	release := func(query string) (a *apitest.Answer, stoodIn bool) {
		asked.asked()
		a = asked.send(t, "DELETE", "/v1/leases/self"+query, apitest.Token(someToken))
		return a, slices.Contains(asked.asked(), "release for "+someToken)
	}
	if a, stoodIn := release(""); a.Status != 204 || stoodIn {
		t.Errorf("while the owner answers: %d %s", a.Status, a.Body)
	}
	owner.release = func(string, string) error { return &locks.Error{Code: locks.CodeEnded, Reason: locks.ReasonExpired} }
	if a, stoodIn := release(""); a.Status != 410 || stoodIn {
		t.Errorf("when the owner says that it has ended: %d %s", a.Status, a.Body)
	}
	for what, address := range map[string]string{"it cannot be reached": noListener,
		"it was asked and does not answer": peer(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })} {
		asked.sendsTo("owner", address)
		asked.releaseFor = func(string) error { return nil }
		if a, stoodIn := release(""); a.Status != 204 || !stoodIn {
			t.Errorf("%s: %d %s", what, a.Status, a.Body)
		}
		if a, stoodIn := release("?hold=job"); a.Status != 503 || stoodIn {
			t.Errorf("%s, one hold of several: %d %s", what, a.Status, a.Body)
		}
		asked.releaseFor = func(string) error { return &locks.Error{Code: locks.CodeEnded, Reason: locks.ReasonExpired} }
		if a, _ := release(""); a.Status != 410 {
			t.Errorf("%s, and it has ended: %d %s", what, a.Status, a.Body)
		}
		asked.releaseFor = nil
		if a, _ := release(""); a.Status != 503 {
			t.Errorf("%s, and this gateway cannot either: %d %s", what, a.Status, a.Body)
		}
	}
}
