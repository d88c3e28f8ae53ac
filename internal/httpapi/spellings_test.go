package httpapi

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// What a request may say in several spellings.

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
