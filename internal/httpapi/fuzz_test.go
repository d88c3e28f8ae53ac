package httpapi

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

// FuzzAcquire feeds the decoder any request. A request that it accepts keeps every limit of the specification; a refusal
// is a problem of the catalogue.
func FuzzAcquire(f *testing.F) {
	f.Add("deploy", "ttl=10s&owner=me", "")
	f.Add("a@b:c", "wait=forever", `{"owner":"x","metadata":"{}"}`)
	f.Add("deploy", "&&=&ttl", `{"ttl":30,"ttl":"x"}`)
	f.Add("deploy", "%zz=%ff", "{\"\xff\":[{}]}")
	f.Add("deploy", "mode=semaphore&limit=5&permits=2&lock_delay=1m&lock_delay_on=always", `{"hold":"a","ephemeral":true}`)
	f.Add("deploy", "limit=05&permits=1e3", `{"limit":1.0,"permits":"7"}`)
	f.Add("a/b", "", `{"wait":"1h","async":true,"mode":"exclusive","ns":"n"} `)
	f.Fuzz(func(t *testing.T, lock, query, body string) {
		x := newExchange(New(Options{Locks: newFake()}))
		r := httptest.NewRequest("POST", "/v1/locks/x/leases", strings.NewReader(body))
		r.URL.RawQuery = query
		r.Header.Set("Content-Type", "application/json")
		route := chi.NewRouteContext()
		route.URLParams.Add("lock", lock)
		x.w, x.r = httptest.NewRecorder(), r.WithContext(context.WithValue(r.Context(), chi.RouteCtxKey, route))
		var in acquireInput
		err := decode(x, &acquireOne, &in)
		if err == nil {
			err = in.Normalize()
		}
		if err != nil {
			checkProblem(t, err)
			return
		}
		req := in.AcquireRequest
		if req.TTL < locks.MinTTL || req.TTL > locks.MaxTTL || req.Wait < 0 || req.Wait > locks.MaxWait && req.Wait != locks.WaitForever {
			t.Errorf("durations: %+v", req)
		}
		if len(req.Owner) > locks.MaxOwner || len(req.Metadata) > locks.MaxMetadata || strings.ContainsAny(req.Owner, "\n\r\t") || strings.ContainsAny(req.Owner+req.Metadata, "\x00\x1b\x7f") || req.NS == "" {
			t.Errorf("texts: %+v", req)
		}
		if req.LockDelay < 0 || req.LockDelay > locks.MaxLockDelay || len(req.Hold) > locks.MaxHoldName || !inRange(req.Limit) || !inRange(req.Permits) {
			t.Errorf("recipes: %+v", req)
		}
		// encoding/json, which is laxer, must agree about what was accepted.
		if strings.TrimSpace(body) != "" {
			var members map[string]any
			assert.Nil(t, json.Unmarshal([]byte(body), &members), "accepted %q, which is no JSON object", body)
			owner, ok := members["owner"].(string)
			assert.That(t, !ok || owner == req.Owner, "owner %q became %q", owner, req.Owner)
		}
		if values, err := url.ParseQuery(query); err == nil && values.Has("owner") && values.Get("owner") != req.Owner {
			t.Errorf("owner of %q became %q", query, req.Owner)
		}
		assert.That(t, len(req.Lock) <= 200 && !strings.ContainsAny(req.Lock, "/ %\x00") && !strings.ContainsAny(req.Lock[:1], "._~@:=+-"),
			"accepted the name %q as %q", lock, req.Lock)
	})
}

func inRange(n int) bool { return 0 <= n && n <= locks.MaxLimit }

// FuzzSeveral does the same for objects within an array.
func FuzzSeveral(f *testing.F) {
	f.Add(`{"locks":[{"lock":"a"},{"lock":"b","mode":"shared","ns":"n"}]}`)
	f.Add(`{"locks":[{"lock":"a","mode":"semaphore","limit":5,"permits":2},{"lock":"a","lock":"b"}],"ttl":"1m"}`)
	f.Add(`{"locks":[{"lock":"a","x":[{}]},null,7,"a",[]]}`)
	f.Add(`{"locks":{"lock":"a"}}`)
	f.Add(`{"locks":[ {"lock" : "\u0061"} ] , "locks":[]}`)
	f.Fuzz(func(t *testing.T, body string) {
		var in acquireInput
		d := decoder[acquireInput]{op: &acquireGroup, into: &in}
		err := decodeObject([]byte(body), d.take)
		if err == nil && in.Group != nil {
			in.Token = "" // not of a body
			err = in.Normalize()
		}
		if err != nil {
			checkProblem(t, err)
			return
		}
		var want struct {
			Locks []struct {
				Lock, NS, Mode string
				Limit, Permits int
			}
		}
		assert.NoError(t, json.Unmarshal([]byte(body), &want), "accepted %q", body)
		assert.Must(t, len(want.Locks) == len(in.Group) && len(in.Group) <= locks.MaxGroup,
			"%q has %d locks, and %d were read", body, len(want.Locks), len(in.Group))
		for i, got := range in.Group {
			w := want.Locks[i]
			if got.Lock != w.Lock || w.NS != "" && got.NS != w.NS || w.Mode != "" && string(got.Mode) != w.Mode || got.Limit != w.Limit || w.Permits != 0 && got.Permits != w.Permits {
				t.Errorf("lock %d of %q is %+v", i, body, got)
			}
			assert.That(t, got.NS != "" && got.Mode != "" && (got.Mode == locks.Semaphore || got.Limit+got.Permits == 0),
				"lock %d of %q is accepted as %+v", i, body, got)
		}
	})
}

// FuzzHeartbeats does the same for an array of strings.
func FuzzHeartbeats(f *testing.F) {
	f.Add(`{"tokens":["a","b"]}`)
	f.Add(`{"tokens":[["a"],{}]}`)
	f.Add(`{"tokens":[1e999]}`)
	f.Add(`{"tokens":["\ud800"],"tokens":[]}`)
	f.Fuzz(func(t *testing.T, body string) {
		var tokens tokensInput
		d := decoder[tokensInput]{op: &heartbeatMany, into: &tokens}
		if err := decodeObject([]byte(body), d.take); err != nil {
			checkProblem(t, err)
			return
		}
		var want struct {
			Tokens []string `json:"tokens"`
		}
		assert.NoError(t, json.Unmarshal([]byte(body), &want), "accepted %q", body)
		assert.That(t, len(want.Tokens) == len(tokens), "%q has %d tokens, and %d were read", body, len(want.Tokens), len(tokens))
		for i := range tokens {
			assert.That(t, tokens[i] == want.Tokens[i], "token %d is %q, want %q", i, tokens[i], want.Tokens[i])
		}
	})
}

// checkProblem: a refusal can be written, and its words are fit to be shown.
func checkProblem(t *testing.T, err error) {
	t.Helper()
	p := problemOf(err)
	assert.Must(t, kinds[p.code] != nil, "a problem that is not in the catalogue: %+v", p)
	assert.That(t, len(p.field) <= 64+3 && !strings.ContainsAny(p.field, "\n\r\x00\x1b"), "field %q", p.field)
	if _, err := json.Marshal(p.document()); err != nil {
		t.Error(err)
	}
}
