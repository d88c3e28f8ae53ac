package httpapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// Defects that a newcomer met with plain curl, each by its number.

func TestD4RemovingALockInUseNamesTheReleaseAndNoDestruction(t *testing.T) {
	g := serve(t)
	g.admin = &locks.Error{Code: locks.CodeLockInUse, Holders: queue().Holders, RetryAfter: locks.RetryAfter(queue().Holders)}
	a := g.expect(t, 409, "lock_in_use", "DELETE", "/v1/locks/x")
	assert.That(t, a.Header.Get("Retry-After") == "5", "%v %s", a.Header, a.Body)
}

func TestD5AWaitForNothingIsRefused(t *testing.T) {
	g := serve(t)
	for path, names := range map[string][]string{
		"/v1/leases/self?wait=30s":                      {"wait", "since", "until=granted|ended|changed"},
		"/v1/locks/x?wait=30s":                          {"wait", "since", "until=free|changed"},
		"/v1/locks/x?until=free":                        {"until", "wait"},
		"/v1/leases/self?wait=1s&until=free":            {"until", "granted, ended or changed"},
		"/v1/leases/self?wait=1s&until=ended&since=abc": {"since", "until=changed"},
	} {
		a := g.expect(t, 422, "invalid_field", "GET", path, apitest.Token(someToken))
		if a.Problem == nil || a.Problem.Field != names[0] {
			t.Errorf("%s: %s", path, a.Body)
			continue
		}
		for _, name := range names[1:] {
			assert.That(t, strings.Contains(a.Problem.Detail, name), "%s: %q lacks %s", path, a.Problem.Detail, name)
		}
	}
	calls := g.asked()
	assert.That(t, len(calls) <= 0, "asked %q", calls)
}

func TestD5ALookWaitsUntilTheLeaseIsGranted(t *testing.T) {
	g := serve(t)
	states := []locks.State{locks.Waiting, locks.Waiting, locks.Held}
	var asked []locks.LeaseRequest
	g.lease = func(_ context.Context, req locks.LeaseRequest) (locks.Lease, error) {
		l := waiting()
		l.State, l.Token = states[len(asked)], ""
		l.Rev = string(rune('a' + len(asked)))
		asked = append(asked, req)
		return l, nil
	}
	a := g.send(t, "GET", "/v1/leases/self?wait=50s&until=granted", apitest.Token(someToken))
	assert.Must(t, a.Status == 200 && a.Header.Get("ETag") == `"c"` && len(asked) == 3, "%d %s after %+v", a.Status, a.Body, asked)
	if asked[0].Wait != 0 || asked[1].Since != "a" || asked[2].Since != "b" || asked[2].Wait <= 0 || asked[2].Wait > asked[1].Wait || asked[1].Wait > 50*time.Second {
		t.Errorf("asked %+v", asked)
	}
}

func TestD5AnAwaitEndsWithTheWaitOrWhatItWaitsFor(t *testing.T) {
	for _, c := range []struct {
		until, since string
		states       string // of the lock, one at each second from now: f is free, h held, g held with another rev
		wait         time.Duration
		after        time.Duration
		last         string
	}{
		{until: "free", states: "f", wait: time.Minute, last: "f"},
		{until: "free", states: "hhf", wait: time.Minute, after: 2 * time.Second, last: "f"},
		{until: "free", states: "hgh", wait: time.Minute, after: time.Minute, last: "h"},
		{until: "changed", states: "hhg", wait: time.Minute, after: 2 * time.Second, last: "g"},
		{until: "changed", states: "h", wait: time.Minute, after: time.Minute, last: "h"},
		{until: "changed", since: "h", states: "hg", wait: time.Minute, after: time.Second, last: "g"},
		{since: "g", states: "h", wait: time.Minute, last: "h"},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			look := func(wait time.Duration, since string) (locks.Lock, error) {
				for {
					at := min(int(time.Since(begun)/time.Second), len(c.states)-1)
					rev := c.states[at : at+1]
					if rev != since || wait <= 0 {
						return locks.Lock{Rev: rev, State: map[string]locks.LockState{"f": locks.LockFree, "h": locks.LockHeld, "g": locks.LockHeld}[rev]}, nil
					}
					step := min(wait, time.Second)
					time.Sleep(step)
					wait -= step
				}
			}
			p := &poll{until: c.until}
			l, err := await(p, c.wait, c.since, look, p.free)
			took := time.Since(begun)
			assert.That(t, err == nil && l.Rev == c.last && took == c.after, "%+v: %v %v after %s", c, l.Rev, err, took)
		})
	}
}

func TestD10And11ARefusalTellsWhenAnAnswerCanChange(t *testing.T) {
	g := serve(t)
	for _, c := range []struct {
		code    locks.Code
		holders []locks.Contender
		seconds string
		ms      int64
	}{
		{locks.CodeHeldByOther, []locks.Contender{{ExpiresIn: time.Hour}}, "5", 5000},
		{locks.CodeHeldByOther, []locks.Contender{{ExpiresIn: 2300 * time.Millisecond}, {ExpiresIn: time.Hour}}, "3", 2300},
		{locks.CodeHeldByOther, []locks.Contender{{ExpiresIn: time.Millisecond}}, "1", 1000},
		{locks.CodeHeldByOther, []locks.Contender{{ExpiresIn: time.Hour}, {}}, "1", 1000}, // the second runs elsewhere
		{locks.CodeHeldByOther, nil, "1", 1000},
		{locks.CodeLockDelayed, []locks.Contender{{Delayed: true, ExpiresIn: 90*time.Second + 10*time.Millisecond}}, "91", 90_010},
		{locks.CodeLockDelayed, []locks.Contender{{Delayed: true, ExpiresIn: 10 * time.Millisecond}}, "1", 10},
		{locks.CodeHeldByOther, []locks.Contender{{Delayed: true, ExpiresIn: time.Hour}, {ExpiresIn: time.Minute}}, "5", 5000},
	} {
		for i := range c.holders {
			c.holders[i].Mode, c.holders[i].Znode = locks.Exclusive, "/x"
		}
		g.acquire = refuse(&locks.Error{Code: c.code, Holders: c.holders, RetryAfter: locks.RetryAfter(c.holders)})
		a := g.expect(t, 409, string(c.code), "POST", "/v1/locks/x/leases")
		assert.That(t, a.Header.Get("Retry-After") == c.seconds && a.Problem.RetryAfterMS != nil && *a.Problem.RetryAfterMS == c.ms,
			"%+v: Retry-After %q, %s", c.holders, a.Header.Get("Retry-After"), a.Body)
	}
}

func TestD12NaturalGuessesGetTheLineThatWorks(t *testing.T) {
	g := serve(t)
	const acquire, release = "POST /v1/locks/x/leases", "DELETE /v1/leases/self"
	for path, line := range map[string]string{
		"/v1/locks/x/acquire": acquire, "/v1/locks/x/lock": acquire, "/v1/locks/x": acquire,
		"/v1/locks/x/release": release, "/v1/locks/x/unlock": release,
		"/v1/locks/$(x)/acquire": "POST /v1/locks/NAME/leases",
	} {
		a := g.send(t, http.MethodPost, path)
		assert.That(t, a.Problem != nil && strings.Contains(a.Problem.Detail, line), "POST %s: %d %s", path, a.Status, a.Body)
	}
}

func TestD6AClientThatHasItIsAnswered304(t *testing.T) {
	g := serve(t)
	g.locks = func(locks.LockFilter) (locks.LockPage, error) {
		return locks.LockPage{Items: []locks.Lock{{NS: "default", Name: "x", State: locks.LockHeld, Rev: "1"}}}, nil
	}
	for _, path := range []string{"/v1/locks/x", "/v1/leases/self", "/v1/locks", "/v1/leases", "/openapi.yaml"} {
		tag := g.send(t, "GET", path, apitest.Token(someToken)).Header.Get("ETag")
		assert.That(t, tag != "", "%s has no ETag", path)
		for condition, status := range map[string]int{tag: 304, `"a", W/` + strings.TrimPrefix(tag, "W/"): 304, "*": 304, `"other"`: 200, "broken": 200} {
			for _, method := range []string{"GET", "HEAD"} {
				a := g.send(t, method, path, apitest.Token(someToken), apitest.Header("If-None-Match", condition))
				assert.That(t, a.Status == status && a.Header.Get("ETag") == tag && (status != 304 || len(a.Body) <= 0),
					"%s %s with %s: %d %s %q", method, path, condition, a.Status, a.Header.Get("ETag"), a.Body)
			}
		}
	}
	g.lease = func(context.Context, locks.LeaseRequest) (locks.Lease, error) { return waiting(), nil }
	g.expect(t, 200, "", "GET", "/v1/leases/self", apitest.Token(someToken), apitest.Header("If-None-Match", "*")) // its place may have changed
	g.lease = func(context.Context, locks.LeaseRequest) (locks.Lease, error) { return held(), nil }
	g.untrusted.Store(true) // it would confirm that the lease is held
	g.expect(t, 503, "zookeeper_unavailable", "GET", "/v1/leases/self", apitest.Token(someToken), apitest.Header("If-None-Match", "*"))
}

func TestD7AChangeOfWhatIsNotAsItWasSeenIs412(t *testing.T) {
	g := serve(t)
	g.configure = func(req locks.SettingsRequest) (locks.Lock, error) {
		if req.IfMatch != nil && !slices.Contains(req.IfMatch, "7f-1") {
			return locks.Lock{}, locks.Changed()
		}
		return locks.Lock{NS: req.NS, Name: req.Lock, State: locks.LockFree, Limit: req.Limit, Rev: "7f-2"}, nil
	}
	g.update = func(req locks.UpdateRequest) (locks.Lease, error) {
		if req.IfMatch != nil && !slices.Contains(req.IfMatch, "7f-1") {
			return locks.Lease{}, locks.Changed()
		}
		return held(), nil
	}
	for condition, want := range map[string]struct {
		status int
		code   string
	}{
		`"nope"`: {412, "precondition_failed"}, `W/"7f-1"`: {412, "precondition_failed"}, `"a", "b"`: {412, "precondition_failed"},
		`"7f-1"`: {200, ""}, `"a", "7f-1"`: {200, ""}, `*`: {200, ""}, `nope`: {422, "invalid_field"}, `"open`: {422, "invalid_field"},
	} {
		g.expect(t, want.status, want.code, "PUT", "/v1/locks/s?limit=4", apitest.Header("If-Match", condition))
		g.expect(t, want.status, want.code, "PATCH", "/v1/leases/self?owner=me", apitest.Token(someToken), apitest.Header("If-Match", condition))
	}
}

func TestD18AnIdempotencyKeyIsOneKeyInBothSpellings(t *testing.T) {
	g := serve(t)
	var asked []string
	g.acquire = func(_ context.Context, req locks.AcquireRequest) (locks.AcquireResult, error) {
		asked = append(asked, req.IdempotencyKey)
		return locks.AcquireResult{Lease: held()}, nil
	}
	for _, key := range []string{someKey, `"` + someKey + `"`, ` "` + someKey + `" `, `"0123456789\"\\cdef"`} {
		g.expect(t, 201, "", "POST", "/v1/locks/x/leases", apitest.Key(key))
	}
	want := []string{someKey, someKey, someKey, `0123456789"\cdef`}
	assert.That(t, slices.Equal(asked, want), "asked with %q", asked)
	for _, key := range []string{`"` + someKey, `"` + someKey + `";a=1`, `"0123456789\x"`, `""`, `"short"`, `"`} {
		a := g.expect(t, 422, "invalid_field", "POST", "/v1/locks/x/leases", apitest.Key(key))
		assert.That(t, a.Problem == nil || a.Problem.Field == "Idempotency-Key", "%s: %s", key, a.Body)
	}
}

func TestD19AStreamFromAnUnknownPlaceHasNoUnderflowedID(t *testing.T) {
	hub := events.New(events.Options{})
	sub, err := hub.Subscribe(events.Filter{Rules: access.Everything()}, "zzz")
	assert.NoError(t, err)
	defer sub.Close()
	g := serve(t, func(o *Options) { o.Events = hub })
	req, _ := http.NewRequestWithContext(t.Context(), "GET", g.url+"/v1/events?since=zzz", nil)
	response, err := http.DefaultClient.Do(req)
	assert.NoError(t, err)
	defer response.Body.Close()
	begin := make([]byte, 40)
	n, err := io.ReadAtLeast(response.Body, begin, 30)
	if id := sub.Position(); err != nil || strings.Contains(string(begin[:n]), "-1844") || !strings.Contains(string(begin[:n]), "id: ") || strings.Contains(id, "-1844") {
		t.Errorf("%q %v, position %s", begin[:n], err, id)
	}
	again, err := hub.Subscribe(events.Filter{Rules: access.Everything()}, sub.Position())
	assert.NoError(t, err)
	defer again.Close()
	if batch, err := again.Next(t.Context()); err != nil || len(batch) != 1 || batch[0].Type != events.Resync {
		t.Errorf("resuming there gives %v %v", batch, err)
	}
}

func TestD20OptionsTellsTheMethods(t *testing.T) {
	_, with := withWebhooks(t, newShelf())
	g := serve(t, with)
	for _, r := range routeTable() {
		path := strings.NewReplacer("{lock}", "deploy", "{id}", someID, "{name}", "n", "{code}", "internal").Replace(r.pattern)
		a := g.send(t, "OPTIONS", path)
		if allow := strings.Split(a.Header.Get("Allow"), ", "); a.Status != 204 || !slices.Contains(allow, r.method) || !slices.Contains(allow, "OPTIONS") {
			t.Errorf("OPTIONS %s: %d %v", path, a.Status, allow)
		}
	}
	g.expect(t, 403, "cross_origin", "OPTIONS", "/v1/locks", apitest.Header("Origin", "http://evil.example"))
}

func TestD21AListOfLocksIsATableForPeople(t *testing.T) {
	g := serve(t)
	g.locks = func(locks.LockFilter) (locks.LockPage, error) {
		l := queue()
		l.HolderCount, l.Holders[0].Owner = 1, "me\x1b[31m\u202e"
		return locks.LockPage{Items: []locks.Lock{l, {NS: "default", Name: "idle", State: locks.LockFree, Limit: 3}}, NextCursor: "c9"}, nil
	}
	a := g.send(t, "GET", "/v1/locks?format=text")
	want := "LOCK    NS       STATE  HOLDERS  WAITING  LIMIT  HELD BY\n" +
		"deploy  default  held   1        3        -      me?[31m?\nidle    default  free   0        0        3      -\nmore: cursor=c9\n"
	assert.That(t, string(a.Body) == want, "got\n%s\nwant\n%s", a.Body, want)
	b := g.send(t, "GET", "/v1/locks", apitest.Header("Accept", "text/plain"))
	assert.That(t, string(b.Body) == want, "Accept: text/plain gives %s", b.Body)
}

func TestD22LargeAnswersAreCompressedAndSecretsNever(t *testing.T) {
	g := serve(t)
	long := strings.Repeat("a", 100)
	g.lock = func(context.Context, locks.LockRequest) (locks.Lock, error) {
		q := queue()
		for range 100 {
			q.Waiters = append(q.Waiters, locks.Contender{LeaseID: "x", Znode: "/x", Owner: long, Mode: locks.Shared, Position: 4})
		}
		return q, nil
	}
	g.acquire = func(context.Context, locks.AcquireRequest) (locks.AcquireResult, error) {
		l := held()
		l.Metadata = strings.Repeat(long, 200)
		return locks.AcquireResult{Lease: l}, nil
	}
	g.lease = func(context.Context, locks.LeaseRequest) (locks.Lease, error) {
		l := held()
		l.Metadata = strings.Repeat(long, 200)
		return l, nil
	}
	for _, c := range []struct {
		method, path, accept string
		compressed           bool
	}{
		{"GET", "/openapi.yaml", "gzip", true}, {"GET", "/v1/locks/x", "gzip", true}, {"GET", "/v1/locks/x", "br, GZIP;q=0.5", true},
		{"GET", "/v1/locks/x", "identity", false}, {"GET", "/v1/locks/x", "gzip;q=0", false}, {"GET", "/v1/locks", "gzip", false}, // it is small
		{"POST", "/v1/locks/x/leases", "gzip", false}, {"GET", "/v1/leases/self", "gzip", false},
	} {
		req := rawRequest(t, g, c.method, c.path)
		req.Header.Set("Accept-Encoding", c.accept)
		plain := rawSend(t, rawRequest(t, g, c.method, c.path))
		a := rawSend(t, req)
		body := a.body
		if a.header.Get("Content-Encoding") == "gzip" {
			unzip, err := gzip.NewReader(bytes.NewReader(a.body))
			assert.NoError(t, err)
			if body, err = io.ReadAll(unzip); err != nil {
				t.Fatal(err)
			}
		}
		if got := a.header.Get("Content-Encoding") == "gzip"; got != c.compressed || len(body) != len(plain.body) {
			t.Errorf("%s %s with %s: compressed %v, %d bytes in place of %d", c.method, c.path, c.accept, got, len(body), len(plain.body))
		}
	}
	assert.Equal(t, g.send(t, "GET", "/openapi.yaml").Header.Get("Cache-Control"), "no-cache", "Cache-Control")
}

func TestD23FormsAndMergePatchesAreTaken(t *testing.T) {
	g := serve(t)
	form := func(body string) apitest.Option {
		return func(r *http.Request) {
			apitest.Body(body)(r)
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=UTF-8")
		}
	}
	g.expect(t, 201, "", "POST", "/v1/locks/x/leases?owner=me", form("ttl=10s&wait=0&lock_delay=1s&ephemeral=false&metadata=a%26b+c"))
	if got := g.asked(); len(got) != 1 || !strings.Contains(got[0], "TTL:10s") || !strings.Contains(got[0], "Owner:me Client: Metadata:a&b c") || !strings.Contains(got[0], "LockDelay:1s") {
		t.Errorf("asked %q", got)
	}
	g.expect(t, 200, "", "PUT", "/v1/locks/x", form("limit=4"))
	g.expect(t, 200, "", "POST", "/v1/leases/self/heartbeat", form("ttl=10s"), apitest.Token(someToken))
	for body, code := range map[string]string{"ttl=10s&ttl=11s": "repeated_field", "owner=you": "repeated_field", "tll=10s": "unknown_field", "ttl=%zz": "malformed_request", "mode=%ff": "malformed_request", "limit=x": "invalid_field"} {
		a := g.send(t, "POST", "/v1/locks/x/leases?owner=me", form(body))
		assert.That(t, a.Code() == code, "%s: %s, want %s", body, a.Body, code)
	}
	g.expect(t, 422, "invalid_field", "POST", "/v1/heartbeats", form("tokens="+someToken))
	// A shell that would evaluate the answer gets lines, whatever else is wrong.
	for _, body := range []string{"format=env", "ttl=x&format=env", "ttl=%zz&format=env"} {
		a := g.send(t, "POST", "/v1/locks/x/leases", form(body))
		assert.That(t, a.Status >= 400 && strings.HasSuffix(string(a.Body), "\nfalse\n"), "%s: %d %s", body, a.Status, a.Body)
	}
	g.asked()
	patch := func(r *http.Request) {
		apitest.Body(`{"owner":"you","metadata":null}`)(r)
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	var change locks.UpdateRequest
	g.update = func(req locks.UpdateRequest) (locks.Lease, error) { change = req; return held(), nil }
	g.expect(t, 200, "", "PATCH", "/v1/leases/self", patch, apitest.Token(someToken))
	assert.That(t, change.Owner != nil && *change.Owner == "you" && change.Metadata != nil && *change.Metadata == "",
		"asked for %+v", change)
	g.expect(t, 415, "unsupported_media_type", "POST", "/v1/locks/x/leases", patch)
}

func TestD23AListLinksToItsNextPage(t *testing.T) {
	g := serve(t)
	g.locks = func(locks.LockFilter) (locks.LockPage, error) {
		return locks.LockPage{Items: []locks.Lock{{NS: "default", Name: "x", State: locks.LockHeld}}, NextCursor: "c+2"}, nil
	}
	if link := g.send(t, "GET", "/v1/locks?prefix=a%3E%22&cursor=c1").Header.Get("Link"); link != `</v1/locks?cursor=c%2B2&prefix=a%3E%22>; rel="next"` {
		t.Errorf("Link: %s", link)
	}
	assert.Equal(t, g.send(t, "GET", "/v1/leases?owner=me").Header.Get("Link"), `</v1/leases?cursor=c2&owner=me>; rel="next"`, "Link")
	g.lock = func(context.Context, locks.LockRequest) (locks.Lock, error) { return queue(), nil }
	if link := g.send(t, "GET", "/v1/locks/a%2525b?wait=1s&since=x&limit=2").Header.Get("Link"); link != `</v1/locks/a%2525b?cursor=c9&limit=2>; rel="next"` {
		t.Errorf("Link: %s", link)
	}
}

func TestD24And25TextsForPeopleNameCharactersAndRanges(t *testing.T) {
	g := serve(t)
	for path, words := range map[string]string{
		"/v1/locks/%C3%BC/leases":                                "must not contain 'ü'",
		"/v1/locks/a%20b/leases":                                 "must not contain ' '",
		"/v1/locks/a%E2%80%8Bb/leases":                           "the character U+200B",
		"/v1/locks/x/leases?ttl=9999999999999h":                  "ttl must be between 1s and 24h",
		"/v1/locks/x/leases?wait=9999999999999h":                 "wait must be between 0 and 24h",
		"/v1/locks/x/leases?ttl=-9999999999999h":                 "ttl must be between 1s and 24h",
		"/v1/locks/x/leases?lock_delay=99999999999999999999h30m": "lock_delay must be between 0 and 168h",
		"/v1/locks/x/revoke?force_after=9999999999999h":          "force_after must be at most 24h",
		"/v1/locks/x/leases?ttl=9x":                              "ttl must be a number with a unit",
	} {
		a := g.send(t, "POST", path)
		assert.That(t, a.Problem != nil && strings.Contains(a.Problem.Detail, words) && !strings.Contains(a.Problem.Detail, `\`),
			"%s: %s", path, a.Body)
	}
}

func TestD26ARequestKeepsItsID(t *testing.T) {
	log := new(lines)
	g := serve(t, logTo(t, log, slog.LevelInfo))
	for given, kept := range map[string]bool{
		"7b1f0e1c-2b3a-4c5d-8e6f-708192a3b4c5": true, "1-67891233:a/b@c+d~e.f_g": true, strings.Repeat("x", 64): true,
		strings.Repeat("x", 65): false, "a b": false, "$(x)": false, `"a"`: false, "ü": false,
	} {
		a := g.send(t, "POST", "/v1/nothing", apitest.Header("X-Request-Id", given))
		if id := a.Header.Get("Lockkeeper-Request-Id"); (id == given) != kept || id == "" || a.Problem.RequestID != id {
			t.Errorf("%q is %q, and in the problem %q", given, id, a.Problem.RequestID)
		} else if line := log.next(t); line["request_id"] != id {
			t.Errorf("%q is %v in the log", given, line["request_id"])
		}
	}
}

func TestD27MetadataMayBeAnObject(t *testing.T) {
	g := serve(t)
	for body, want := range map[string]string{
		`{"metadata":{ "b" : 1.50, "a":"x\ny" }}`: `{"b":1.50,"a":"x\ny"}`, `{"metadata":"{ }"}`: `{ }`, `{"metadata":{}}`: `{}`,
		`{"metadata":"two\n\tlines\r\n"}`: "two\n\tlines\r\n",
	} {
		a := g.expect(t, 201, "", "POST", "/v1/locks/x/leases", apitest.JSON(body))
		assert.Equal(t, read[api.Lease](t, a).Metadata, want, "%s is shown as", body)
		var change locks.UpdateRequest
		g.update = func(req locks.UpdateRequest) (locks.Lease, error) { change = req; return held(), nil }
		if g.expect(t, 200, "", "PATCH", "/v1/leases/self", apitest.JSON(body), apitest.Token(someToken)); change.Metadata == nil || *change.Metadata != want {
			t.Errorf("%s changes it to %v", body, change.Metadata)
		}
	}
	large := `{"metadata":{"a":"` + strings.Repeat("x", locks.MaxMetadata) + `"}}`
	for _, body := range []string{large, `{"metadata":[1]}`, `{"metadata":1}`, `{"metadata":{"a":}}`} {
		a := g.send(t, "POST", "/v1/locks/x/leases", apitest.JSON(body))
		assert.That(t, a.Status == 422 || a.Status == 400, "%.40s: %d", body, a.Status)
	}
}

func TestD27MetadataWithLinesIsOneLineInATable(t *testing.T) {
	g := serve(t)
	g.lock = func(context.Context, locks.LockRequest) (locks.Lock, error) {
		l := queue()
		l.Holders[0].Metadata = "two\nlines\tand\x1b[31m"
		return l, nil
	}
	a := g.send(t, "GET", "/v1/locks/deploy?format=text")
	assert.That(t, strings.Contains(string(a.Body), "  two lines and?[31m\n"), "%s", a.Body)
	a = g.send(t, "GET", "/v1/locks/deploy")
	assert.That(t, strings.Contains(string(a.Body), `"metadata":"two\nlines\tand\u001b[31m"`), "%s", a.Body)
}

func TestAMissingLeaseTokenIs403(t *testing.T) {
	g := serve(t)
	a := g.expect(t, 403, "lease_token_missing", "DELETE", "/v1/leases/self")
	assert.That(t, a.Header.Get("WWW-Authenticate") == "", "%v", a.Header)
}

func TestD9LeasesOfAllGatewaysAreOneList(t *testing.T) {
	page := func(next string, ids ...string) api.LeaseList {
		list := api.LeaseList{NextCursor: next}
		for _, id := range ids {
			list.Items = append(list.Items, api.Lease{LeaseID: id})
		}
		return list
	}
	for _, c := range []struct {
		pages []api.LeaseList
		limit int
		want  string
		after string // the lease behind which the next page begins
	}{
		{[]api.LeaseList{page("", "b", "d"), page("", "a", "c")}, 10, "abcd", ""},
		{[]api.LeaseList{page("", "b", "d"), page("", "a", "c")}, 3, "abc", "c"},
		{[]api.LeaseList{page("x", "b", "d"), page("", "a", "c", "e")}, 10, "abcd", "d"}, // there may be more before e
		{[]api.LeaseList{page("x", "b"), page("x", "a", "c")}, 10, "ab", "b"},
		{[]api.LeaseList{page("", "b"), page("", "b", "c")}, 10, "bc", ""},
		{[]api.LeaseList{page(""), page("")}, 10, "", ""},
	} {
		items, next := oneLeasePage(c.pages, c.limit)
		got, want := "", ""
		for _, l := range items {
			got += l.LeaseID
		}
		if c.after != "" {
			want = locks.LeaseCursor(c.after)
		}
		assert.That(t, got == c.want && next == want, "%+v: %q, then %q, want %q and %q", c.pages, got, next, c.want, want)
	}
}

func TestD9AGatewayThatDoesNotAnswerIsNamed(t *testing.T) {
	asked, other := pair(t)
	other.leases = func(f locks.LeaseFilter) (locks.LeasePage, error) {
		l := held()
		l.ID, l.Owner = "zz", f.Owner
		return locks.LeasePage{Items: []locks.Lease{l}}, nil
	}
	asked.leases = func(locks.LeaseFilter) (locks.LeasePage, error) {
		return locks.LeasePage{Items: []locks.Lease{held()}}, nil
	}
	asked.peers = []locks.Peer{{Gateway: "asked", Self: true, Registered: true}, {Gateway: other.id, Address: other.address(), Registered: true},
		{Gateway: "gone", Address: "127.0.0.1:1", Registered: true}}
	list, a, err := asked.client.Leases(asked.ctx, apitest.Query("owner=her"))
	if err != nil || len(list.Items) != 2 || list.Items[1].LeaseID != "zz" || list.Items[1].Owner != "her" || len(list.Unreached) != 1 || list.Unreached[0].GatewayID != "gone" {
		t.Errorf("%v %s", err, a.Body)
	}
}

// A list by owner or host asks every gateway: each gives what it knows, and the asked one makes the page.
func TestALockOfAnOwnerIsFoundAtEveryGateway(t *testing.T) {
	asked, other := pair(t)
	var given, passed locks.LockFilter
	other.locks = func(f locks.LockFilter) (locks.LockPage, error) {
		passed = f
		lock := queue()
		lock.Name, lock.Holders[0].Owner = "there", "her"
		return locks.LockPage{Items: []locks.Lock{lock}, NextCursor: "more"}, nil
	}
	asked.locks = func(f locks.LockFilter) (locks.LockPage, error) {
		given = f
		here, there := queue(), queue()
		here.Name, there.Name = "here", "there"
		there.Holders[0].Owner = ""
		return locks.LockPage{Items: []locks.Lock{here, there}}, nil
	}
	asked.peers = []locks.Peer{{Gateway: "asked", Self: true, Registered: true}, {Gateway: other.id, Address: other.address(), Registered: true},
		{Gateway: "gone", Address: "127.0.0.1:1", Registered: true}}
	list, a, err := asked.client.Locks(asked.ctx, apitest.Query("owner=her&mode=shared"))
	assert.Must(t, err == nil && len(list.Items) == 2 && list.Items[1].Holders[0].Owner == "her" && len(list.Unreached) == 1 && list.Unreached[0].GatewayID == "gone", "%v %s", err, a.Body)
	assert.That(t, passed.Owner == "her" && passed.Mode == locks.Shared && given.Elsewhere != nil && slices.Equal(given.Elsewhere.Names, []string{"there"}) && given.Elsewhere.To == "there", "%+v, then %+v", passed, given.Elsewhere)
	_, _, err = asked.client.Locks(asked.ctx, apitest.Query("host=h&sort=-held&cursor=abc"))
	assert.That(t, err == nil && passed.Host == "h" && passed.Sort == "" && passed.Cursor == "" && passed.Limit == locks.MaxPage && given.Elsewhere.To == "" && given.Sort == locks.SortHeld, "%v: %+v, then %+v", err, passed, given)
	passed = locks.LockFilter{}
	_, _, err = asked.client.Locks(asked.ctx, apitest.Query("sort=-held"))
	assert.That(t, err == nil && passed.NS == "" && given.Elsewhere == nil, "without an owner others are asked: %+v", passed)
}

func TestTheTypeOfAProblemIsAPageOfTheGateway(t *testing.T) {
	g := serve(t)
	if a := g.expect(t, 422, "duration_needs_unit", "POST", "/v1/locks/x/leases?ttl=30"); a.Problem.Type != "/problems/duration_needs_unit" {
		t.Errorf("%s", a.Body)
	}
	for _, k := range catalogue() {
		a := g.expect(t, 200, "", "GET", "/problems/"+k.code)
		for _, part := range []string{k.title, k.code, k.cause, k.help, `"type": "/problems/` + k.code + `"`} {
			assert.That(t, part != "" && strings.Contains(string(a.Body), part), "%s lacks %q:\n%s", k.code, part, a.Body)
		}
	}
	html := apitest.Header("Accept", "text/html,*/*;q=0.8")
	a := g.send(t, "GET", "/problems/held_by_other", html)
	if !strings.HasPrefix(string(a.Body), "<!doctype html>") || a.Header.Get("Content-Type") != "text/html; charset=utf-8" || a.Header.Get("Vary") != "Accept" {
		t.Errorf("%v %s", a.Header, a.Body)
	}
	page := apitest.Header("If-None-Match", a.Header.Get("ETag"))
	g.expect(t, 304, "", "GET", "/problems/held_by_other", html, page)
	g.expect(t, 200, "", "GET", "/problems/held_by_other", page) // the text is another representation
	g.expect(t, 404, "route_not_found", "GET", "/problems/nothing")
}

func TestD26HTTP2WithPriorKnowledge(t *testing.T) {
	g := serve(t)
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	response, err := client.Get(g.url + "/v1/info")
	assert.Must(t, err == nil && response.ProtoMajor == 2 && response.StatusCode == 200, "%v %+v", err, response)
	response.Body.Close()
	// A client that goes away gives its wait up, as over HTTP/1.
	asked, gone := make(chan bool, 1), make(chan bool, 1)
	g.lock = func(ctx context.Context, _ locks.LockRequest) (locks.Lock, error) {
		asked <- true
		<-ctx.Done()
		gone <- true
		return locks.Lock{}, &locks.Error{Code: locks.CodeCancelled}
	}
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "GET", g.url+"/v1/locks/x?wait=5m&since=a", nil)
	answered := make(chan error, 1)
	go func() {
		_, err := client.Do(req)
		answered <- err
	}()
	<-asked
	cancel()
	<-gone
	if err := <-answered; err == nil {
		t.Error("a request that was given up was answered")
	}
	req, _ = http.NewRequestWithContext(t.Context(), "GET", g.url+"/v1/locks", nil)
	req.Host = "evil.example"
	if response, err = client.Do(req); err != nil || response.StatusCode != 421 {
		t.Fatalf("%v %+v", err, response)
	}
	response.Body.Close()
}

// A refusal before the body is read ends the request, not the connection that other requests of the client share.
func TestARefusalEndsNoConnectionOfHTTP2(t *testing.T) {
	g := serve(t)
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	for i, path := range []string{"/v1/nothing", "/v1/locks/x/leases", "/v1/nothing", "/v1/locks/x/leases"} {
		trace := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) { assert.Equal(t, got.Reused, i > 0, path) }}
		req, _ := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), "POST", g.url+path, strings.NewReader(strings.Repeat("x", 1<<20)))
		response := assert.Value((&http.Client{Transport: transport}).Do(req))(t)
		assert.That(t, response.ProtoMajor == 2 && response.StatusCode >= 400, "%s: %+v", path, response)
		assert.NoError(t, response.Body.Close())
	}
}

func TestD16TheHistoryOfALockIsItsLastEventsTheNewestFirst(t *testing.T) {
	hub := events.New(events.Options{})
	g := serve(t, func(o *Options) { o.Events = hub })
	for i, lock := range []string{"x", "x%2A", "y", "x", "x"} {
		hub.Publish(&events.Event{Type: events.LeaseQueued, NS: "default", Lock: lock, LeaseID: string(rune('a' + i))})
	}
	hub.Publish(&events.Event{Type: events.LeaseQueued, NS: "other", Lock: "x"})
	for path, want := range map[string]string{"/v1/locks/x/history": "eda", "/v1/locks/x/history?limit=2": "ed", "/v1/locks/x%252A/history": "b", "/v1/locks/z/history": ""} {
		got := ""
		for _, e := range read[api.EventList](t, g.send(t, "GET", path)).Items {
			got += e.LeaseID
		}
		assert.That(t, got == want, "%s: %q, want %q", path, got, want)
	}
	g.expect(t, 422, "invalid_field", "GET", "/v1/locks/x/history?limit=1001")
}

func TestD17AWebhookTakesEventsBesidesEndsAndSaysHowTheyAreDelivered(t *testing.T) {
	_, with := withWebhooks(t, newShelf())
	g := serve(t, with)
	made := read[api.Webhook](t, g.send(t, "POST", "/v1/webhooks?url=https://example.com/&events=lease.granted,lease.queued,lock.hazard,lease.released"))
	assert.Slices(t, made.Delivery.Durable, []api.WebhookEventType{"lease.released"}, "durable")
	assert.Slices(t, made.Delivery.BestEffort, []api.WebhookEventType{"lease.granted", "lease.queued", "lock.hazard"}, "best effort")
	shown := read[api.Webhook](t, g.send(t, "PATCH", "/v1/webhooks/"+made.ID, apitest.JSON(`{"events":[]}`)))
	assert.That(t, len(shown.Delivery.Durable) == 7 && len(shown.Delivery.BestEffort) == 0 && shown.Delivery.BestEffort != nil, "without types: %+v", shown.Delivery)
	for _, w := range read[api.WebhookList](t, g.send(t, "GET", "/v1/webhooks")).Items {
		assert.That(t, len(w.Delivery.Durable) == 7, "in the list: %+v", w.Delivery)
	}
}
