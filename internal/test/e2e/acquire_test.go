package e2e

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
	"lockkeeper/internal/test/zkreal"
)

// onShared starts a gateway on the ZooKeeper that the tests share, in a chroot of its own.
func onShared(t *testing.T, flags ...string) *gateway {
	t.Helper()
	addr, chroot := zkreal.SharedT(t)
	return startGateway(t, addr+chroot, flags...)
}

func TestAnAcquireIsAnsweredWithTheWholeLease(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	lease, a, err := g.Acquire(t.Context(), "deploy", apitest.Query("ttl=10s&owner=me&metadata=job+17"))
	expect(t, a, err, http.StatusCreated, "")
	assert.Equal(t, a.Header.Get("Location"), "/v1/leases/"+lease.LeaseID, "Location")
	assert.Equal(t, a.Header.Get("Cache-Control"), "no-store", "Cache-Control")
	assert.That(t, a.Header.Get("Lockkeeper-Request-Id") != "", "there is no Lockkeeper-Request-Id")
	if lease.Lock != "deploy" || lease.NS != "default" || lease.Mode != api.ModeExclusive || lease.State != api.StateHeld ||
		lease.Owner != "me" || lease.Metadata != "job 17" || lease.TTLMS != 10_000 || !lease.FailoverSafe ||
		lease.FencingToken <= 0 || lease.Rev == "" || lease.Position != 0 || lease.Reason != "" {
		t.Errorf("the lease is %s", a.Body)
	}
	assert.That(t, lease.ExpiresInMS != nil && *lease.ExpiresInMS > 8000 && *lease.ExpiresInMS <= 10_000, "expires_in_ms in %s", a.Body)
	assert.That(t, lease.QueueLength != nil && *lease.QueueLength == 0, "queue_length in %s", a.Body)
	assert.That(t, strings.HasPrefix(lease.Token, "lk1."+lease.LeaseID+"."), "the token %q does not name its lease", lease.Token)
	want := "/lockkeeper/locks/deploy/write-v1." + lease.LeaseID + "-lock-0000000000"
	assert.That(t, lease.Znode == want, "znode is %q, want %q", lease.Znode, want)

	seen, a, err := g.Lease(t.Context(), lease.LeaseID)
	expect(t, a, err, http.StatusOK, "")
	assert.That(t, a.Header.Get("ETag") == `"`+seen.Rev+`"`, "ETag is %q, rev %q", a.Header.Get("ETag"), seen.Rev)
	assert.That(t, seen.Token == "" && seen.FencingToken == lease.FencingToken, "an outsider sees %s", a.Body)
	brief, a, err := g.Acquire(t.Context(), "brief", apitest.Query("ttl=5s"))
	expect(t, a, err, http.StatusCreated, "")
	assert.That(t, !brief.FailoverSafe, "5s do not ride over a crash with a session timeout of %v: %s", sessionTimeout, a.Body)
}

func TestTheRefusalOfASecondAcquireHasTheHolder(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	first := g.hold("deploy", "ttl=20s&owner=me&metadata=build")
	g.queue("deploy", "ttl=20s&owner=third")
	_, a, err := g.Acquire(t.Context(), "deploy", apitest.Query("ttl=10s&owner=you"))
	expect(t, a, err, http.StatusConflict, "held_by_other")
	p := a.Problem
	assert.That(t, p.QueueLength != nil && *p.QueueLength == 1, "queue_length in %s", a.Body)
	assert.Must(t, len(p.Holders) == 1, "holders in %s", a.Body)
	h := p.Holders[0]
	if h.LeaseID != first.LeaseID || h.Owner != "me" || h.Metadata != "build" || h.FencingToken != first.FencingToken ||
		h.Znode != first.Znode || h.AgeMS == nil || h.ExpiresInMS <= 0 || h.Mode != api.ModeExclusive || h.Position != 0 {
		t.Errorf("the holder is %+v", h)
	}
	if after, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || after < 1 {
		t.Errorf("Retry-After is %q", a.Header.Get("Retry-After"))
	}
	// The try left nothing behind: one holds, one waits.
	g.awaitLock(patience, "deploy", 1, 1)
}

func TestAWaitingAcquireIsAnsweredWhenTheHolderLetsGo(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	first := g.hold("deploy", "ttl=30s&owner=me")
	second := g.acquiring(t.Context(), "deploy", "ttl=10s&owner=you&wait=30s")
	g.awaitLock(patience, "deploy", 1, 1)
	second.waits()
	began := time.Now()
	g.letGo(first.Token)
	lease := second.granted(patience)
	took := time.Since(began)
	assert.That(t, took <= required(3*time.Second), "the hand-over took %v", took)
	assert.That(t, lease.FencingToken > first.FencingToken, "fencing token %d follows %d", lease.FencingToken, first.FencingToken)
	assert.That(t, *lease.ExpiresInMS >= 8000, "a grant that was waited for has %d ms", *lease.ExpiresInMS)
}

func TestAWaitThatElapsesLeavesTheQueueAndShowsTheHolder(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	first := g.hold("deploy", "ttl=30s")
	_, a, err := g.Acquire(t.Context(), "deploy", apitest.Query("wait=300ms"))
	expect(t, a, err, http.StatusConflict, "wait_elapsed")
	assert.That(t, len(a.Problem.Holders) == 1 && a.Problem.Holders[0].LeaseID == first.LeaseID && *a.Problem.QueueLength == 0,
		"%s", a.Body)
	q := g.awaitLock(patience, "deploy", 1, 0)
	assert.That(t, len(q.Waiters) == 0, "still there: %+v", q.Waiters)
}

func TestATicketKeepsItsPlaceAndIsPolled(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	first := g.hold("deploy", "ttl=30s")
	second := g.queue("deploy", "ttl=30s&owner=second")
	third := g.queue("deploy", "ttl=30s&owner=third")
	assert.That(t, second.Position == 1 && third.Position == 2 && *third.QueueLength == 2 && third.FencingToken == 0,
		"places: %+v, %+v", second, third)
	if beat := g.beat(third.Token, api.StateWaiting); beat.Position != 2 || beat.FencingToken != 0 {
		t.Errorf("heartbeat of the third: %+v", beat)
	}

	// Nothing changes: the poll ends with its wait, with the same state.
	still, a, err := g.Lease(t.Context(), second.LeaseID, apitest.Token(second.Token), apitest.Query("wait=200ms&since="+second.Rev))
	expect(t, a, err, http.StatusOK, "")
	assert.That(t, still.State == api.StateWaiting && still.Rev == second.Rev, "a poll without a change: %s", a.Body)
	// A mark that is not known differs.
	_, a, err = g.Lease(t.Context(), second.LeaseID, apitest.Query("wait=30s&since=invented"))
	expect(t, a, err, http.StatusOK, "")

	type polled struct {
		lease api.Lease
		a     *apitest.Answer
		err   error
	}
	answers := make(chan polled, 1)
	go func() {
		lease, a, err := g.Lease(t.Context(), "self", apitest.Token(second.Token), apitest.Query("wait=30s&since="+still.Rev))
		answers <- polled{lease, a, err}
	}()
	g.letGo(first.Token)
	got := <-answers
	expect(t, got.a, got.err, http.StatusOK, "")
	assert.That(t, got.lease.State == api.StateHeld && got.lease.FencingToken > first.FencingToken && got.lease.Position == 0,
		"the poll says %s", got.a.Body)
	if beat := g.beat(second.Token, api.StateHeld); beat.FencingToken != got.lease.FencingToken || beat.Waiters != 1 || beat.TTLMS != 30_000 {
		t.Errorf("the confirming heartbeat: %+v", beat)
	}
	// Leaving the queue, twice.
	g.letGo(third.Token)
	g.letGo(third.Token)
	ended, a, err := g.Lease(t.Context(), third.LeaseID)
	expect(t, a, err, http.StatusOK, "")
	assert.That(t, ended.State == api.StateEnded && ended.Reason == api.ReasonCancelled, "a ticket that was given back: %s", a.Body)
}

func TestAShellGetsLinesToEvaluate(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	lines := regexp.MustCompile(`^LEASE_ID=(\S+)\nLEASE_TOKEN=(lk1\.\S+)\nFENCING_TOKEN=([0-9]+)\nLEASE_STATE=held\nLEASE_TTL_MS=30000\nLEASE_WAITED_MS=[0-9]+\nNOTIFY_SECRET=\nLEASE_ERROR=\nLEASE_STATUS=201\n$`)
	for i, option := range []apitest.Option{apitest.Query("format=env"), apitest.Header("Accept", "text/plain")} {
		_, a, err := g.Acquire(t.Context(), fmt.Sprintf("shell-%d", i), option)
		expect(t, a, err, http.StatusCreated, "")
		m := lines.FindSubmatch(a.Body)
		assert.Must(t, m != nil && strings.HasPrefix(a.Header.Get("Content-Type"), "text/plain"),
			"%s %q", a.Header.Get("Content-Type"), a.Body)
		lease, a, err := g.Lease(t.Context(), "self", apitest.Token(string(m[2])))
		expect(t, a, err, http.StatusOK, "")
		assert.That(t, lease.LeaseID == string(m[1]) && fmt.Sprint(lease.FencingToken) == string(m[3]), "the lines and %s", a.Body)
		g.letGo(string(m[2]))
	}
}

func TestHeartbeatsRenewAndReleasesMayBeRepeated(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	lease := g.hold("deploy", "ttl=6s")
	pulse := g.keepAlive(lease.Token)
	elapse(t, 7*time.Second) // longer than the TTL
	pulse.halt()
	pulse.mustNotHaveLost(t)
	beat := g.beat(lease.Token, api.StateHeld)
	if beat.LeaseID != lease.LeaseID || beat.FencingToken != lease.FencingToken || beat.TTLMS != 6000 || beat.ExpiresInMS > 6000 {
		t.Errorf("%+v", beat)
	}
	longer, a, err := g.Heartbeat(t.Context(), lease.Token, apitest.Query("ttl=1h"))
	expect(t, a, err, http.StatusOK, "")
	assert.That(t, longer.TTLMS == 3_600_000 && longer.ExpiresInMS >= 3_590_000, "a longer TTL: %+v", longer)
	other := g.hold("other", "ttl=30s")
	bulk, a, err := g.Heartbeats(t.Context(), []string{lease.Token, other.Token, other.Token + "x"})
	expect(t, a, err, http.StatusOK, "")
	if len(bulk.Items) != 3 || bulk.Items[0].LeaseID != lease.LeaseID || bulk.Items[1].LeaseID != other.LeaseID ||
		bulk.Items[2].Problem == nil || bulk.Items[2].Problem.Code != api.ProblemCodeLeaseTokenWrong {
		t.Errorf("%s", a.Body)
	}

	for range 3 {
		a, err := g.Send(t.Context(), http.MethodDelete, "/v1/leases/"+lease.LeaseID, apitest.Token(lease.Token))
		expect(t, a, err, http.StatusNoContent, "")
		g.letGo(lease.Token)
	}
	_, a, err = g.Heartbeat(t.Context(), lease.Token)
	expect(t, a, err, http.StatusGone, "lease_ended")
	assert.That(t, a.Problem.Reason == api.ReasonReleased, "reason %q", a.Problem.Reason)
	if verified, a, err := g.Lease(t.Context(), other.LeaseID, apitest.Query("verify=true")); err != nil || verified.State != api.StateHeld {
		t.Errorf("verify: %v %+v", err, a)
	}
}

func TestALeaseWithoutHeartbeatsExpiresAndTheNextOneIsServed(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	began := time.Now()
	first := g.hold("deploy", "ttl=2s")
	second := g.acquiring(t.Context(), "deploy", "wait=30s&ttl=30s").granted(patience)
	took := time.Since(began)
	assert.That(t, took >= 2*time.Second, "a lease of 2 s was over after %v", took)
	assert.That(t, second.FencingToken > first.FencingToken, "fencing token %d follows %d", second.FencingToken, first.FencingToken)
	_, a, err := g.Heartbeat(t.Context(), first.Token)
	expect(t, a, err, http.StatusGone, "lease_ended")
	assert.That(t, a.Problem.Reason == api.ReasonExpired, "reason %q", a.Problem.Reason)
	a, err = g.Release(t.Context(), first.Token)
	expect(t, a, err, http.StatusGone, "lease_ended")
}

func TestAWrongOrMissingTokenDoesTheLeaseNoHarm(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	lease, other := g.hold("deploy", "ttl=30s"), g.hold("other", "ttl=30s")
	path := "/v1/leases/" + lease.LeaseID
	forged := lease.Token[:len(lease.Token)-2] + "AA"
	if forged == lease.Token {
		forged = lease.Token[:len(lease.Token)-2] + "BB"
	}
	for name, c := range map[string]struct {
		method, path string
		token        string
		status       int
		code         string
	}{
		"no token on a heartbeat":      {http.MethodPost, path + "/heartbeat", "", 403, "lease_token_missing"},
		"no token on a release":        {http.MethodDelete, path, "", 403, "lease_token_missing"},
		"no token at self":             {http.MethodGet, "/v1/leases/self", "", 403, "lease_token_missing"},
		"a forged token":               {http.MethodDelete, path, forged, 403, "lease_token_wrong"},
		"a forged heartbeat":           {http.MethodPost, path + "/heartbeat", forged, 403, "lease_token_wrong"},
		"another lease's token":        {http.MethodDelete, path, other.Token, 403, "lease_token_wrong"},
		"another lease's heartbeat":    {http.MethodPost, path + "/heartbeat", other.Token, 403, "lease_token_wrong"},
		"something that is no token":   {http.MethodDelete, path, "sesame", 403, "lease_token_wrong"},
		"a token in the URL":           {http.MethodDelete, path + "?token=" + lease.Token, lease.Token, 422, "unknown_field"},
		"a lease that never was":       {http.MethodGet, "/v1/leases/nosuchlease", "", 404, "lease_not_found"},
		"a method that does not exist": {http.MethodPut, path, lease.Token, 405, "method_not_allowed"},
		"a lock's name with a slash":   {http.MethodGet, "/v1/locks/a/b", "", 404, "route_not_found"},
		"a Host of another DNS name":   {http.MethodGet, "/v1/locks", "host", 421, "host_not_allowed"},
		"a page of another origin":     {http.MethodGet, "/v1/locks", "origin", 403, "cross_origin"},
	} {
		options := []apitest.Option{apitest.Token(c.token)}
		switch c.token {
		case "host":
			options = []apitest.Option{func(r *http.Request) { r.Host = "rebound.example" }}
		case "origin":
			options = []apitest.Option{apitest.Header("Origin", "https://evil.example")}
		}
		a, err := g.Send(t.Context(), c.method, c.path, options...)
		assert.That(t, err == nil && a.Status == c.status && a.Code() == c.code,
			"%s: %v, answered %d %s, want %d %s", name, err, a.Status, a.Code(), c.status, c.code)
	}
	g.beat(lease.Token, api.StateHeld)
	g.beat(other.Token, api.StateHeld)
}

func TestBadInputIsRefusedByNameAndCreatesNothing(t *testing.T) {
	t.Parallel()
	g := onShared(t)
	big := strings.Repeat("x", 200<<10)
	for name, c := range map[string]struct {
		lock, query, body string
		status            int
		code, field       string
	}{
		"an unknown parameter":        {"l", "tll=10s", "", 422, "unknown_field", "tll"},
		"a repeated parameter":        {"l", "ttl=10s&ttl=20s", "", 422, "repeated_field", "ttl"},
		"a duration without a unit":   {"l", "ttl=10", "", 422, "duration_needs_unit", "ttl"},
		"a TTL that is too short":     {"l", "ttl=10ms", "", 422, "invalid_field", "ttl"},
		"a TTL that is too long":      {"l", "ttl=25h", "", 422, "invalid_field", "ttl"},
		"a wait that is negative":     {"l", "wait=-1s", "", 422, "invalid_field", "wait"},
		"a name that is none":         {".hidden", "", "", 422, "invalid_field", "lock"},
		"an owner that is too long":   {"l", "owner=" + strings.Repeat("o", 129), "", 422, "invalid_field", "owner"},
		"metadata that is too large":  {"l", "", `{"metadata":"` + strings.Repeat("m", 4097) + `"}`, 422, "invalid_field", "metadata"},
		"an unknown member":           {"l", "", `{"tll":"10s"}`, 422, "unknown_field", "tll"},
		"a field given twice":         {"l", "ttl=10s", `{"ttl":"10s"}`, 422, "repeated_field", "ttl"},
		"a number for a duration":     {"l", "", `{"ttl":10}`, 422, "duration_needs_unit", "ttl"},
		"data behind the body":        {"l", "", `{"ttl":"10s"} {}`, 400, "malformed_request", ""},
		"a body that is no JSON":      {"l", "", `{"ttl":`, 400, "malformed_request", ""},
		"a body that is too large":    {"l", "", `{"owner":"` + big + `"}`, 413, "body_too_large", ""},
		"a namespace that is unknown": {"l", "ns=elsewhere", "", 404, "namespace_unknown", "ns"},
		"a mode that is none":         {"l", "mode=greedy", "", 422, "invalid_field", "mode"},
	} {
		options := []apitest.Option{apitest.Query(c.query)}
		if c.body != "" {
			options = append(options, apitest.JSON(c.body))
		}
		_, a, err := g.Acquire(t.Context(), c.lock, options...)
		assert.That(t, err == nil && a.Status == c.status && a.Code() == c.code && (c.field == "" || a.Problem.Field == c.field),
			"%s: %v, answered %+v, want %d %s %s", name, err, a.Problem, c.status, c.code, c.field)
	}
	list, a, err := g.Locks(t.Context())
	expect(t, a, err, http.StatusOK, "")
	assert.That(t, len(list.Items) == 0, "something was created: %s", a.Body)
}
