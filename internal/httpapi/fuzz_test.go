package httpapi

import (
	"encoding/json"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"lockkeeper/internal/locks"
)

// FuzzAcquire feeds the decoder whatever a client could send. What it lets
// through keeps every limit of the specification; what it refuses is a problem
// of the catalogue.
func FuzzAcquire(f *testing.F) {
	f.Add("deploy", "ttl=10s&owner=me", "")
	f.Add("a@b:c", "wait=forever", `{"owner":"x","metadata":"{}"}`)
	f.Add("deploy", "&&=&ttl", `{"ttl":30,"ttl":"x"}`)
	f.Add("deploy", "%zz=%ff", "{\"\xff\":[{}]}")
	f.Add("a/b", "", `{"wait":"1h","async":true,"mode":"exclusive","ns":"n"} `)
	f.Fuzz(func(t *testing.T, lock, query, body string) {
		x := newExchange(New(Options{Locks: newFake()}))
		r := httptest.NewRequest("POST", "/v1/locks/x/leases", strings.NewReader(body))
		r.URL.RawQuery = query
		r.Header.Set("Content-Type", "application/json")
		x.w, x.r = httptest.NewRecorder(), r
		form := acquireForm{req: locks.AcquireRequest{NS: "default", TTL: locks.DefaultTTL}}
		if p := x.fields(&form, maxBody); p != nil {
			checkProblem(t, p)
			return
		}
		req := form.req
		if req.TTL < locks.MinTTL || req.TTL > locks.MaxTTL || req.Wait < 0 || req.Wait > maxWait && req.Wait != locks.WaitForever {
			t.Errorf("durations: %+v", req)
		}
		if len(req.Owner) > locks.MaxOwner || len(req.Metadata) > locks.MaxMetadata || strings.ContainsAny(req.Owner+req.Metadata, "\n\r\t\x00\x1b\x7f") || req.NS == "" {
			t.Errorf("texts: %+v", req)
		}
		// encoding/json, which is laxer, must agree about what was accepted.
		if strings.TrimSpace(body) != "" {
			var members map[string]any
			if err := json.Unmarshal([]byte(body), &members); err != nil {
				t.Errorf("accepted %q, which is no JSON object: %v", body, err)
			}
			if owner, ok := members["owner"].(string); ok && owner != req.Owner {
				t.Errorf("owner %q became %q", owner, req.Owner)
			}
		}
		if values, err := url.ParseQuery(query); err == nil && values.Has("owner") && values.Get("owner") != req.Owner {
			t.Errorf("owner of %q became %q", query, req.Owner)
		}
		if p := lockName(lock); p != nil {
			checkProblem(t, p)
		} else if len(lock) > 200 || strings.ContainsAny(lock, "/ %\x00") || !isAlphanumeric(lock[0]) {
			t.Errorf("accepted the name %q", lock)
		}
	})
}

// FuzzHeartbeats does the same for the one body that is not flat.
func FuzzHeartbeats(f *testing.F) {
	f.Add(`{"tokens":["a","b"]}`)
	f.Add(`{"tokens":[["a"],{}]}`)
	f.Add(`{"tokens":[1e999]}`)
	f.Add(`{"tokens":["\ud800"],"tokens":[]}`)
	f.Fuzz(func(t *testing.T, body string) {
		var form heartbeatsForm
		d := decoder{form: &form}
		if p := decodeObject([]byte(body), d.take); p != nil {
			checkProblem(t, p)
			return
		}
		var want struct {
			Tokens []string `json:"tokens"`
		}
		if err := json.Unmarshal([]byte(body), &want); err != nil {
			t.Fatalf("accepted %q: %v", body, err)
		}
		if len(want.Tokens) != len(form.tokens) {
			t.Errorf("%q has %d tokens, and %d were read", body, len(want.Tokens), len(form.tokens))
		}
		for i := range form.tokens {
			if form.tokens[i] != want.Tokens[i] {
				t.Errorf("token %d is %q, want %q", i, form.tokens[i], want.Tokens[i])
			}
		}
	})
}

// checkProblem: a refusal can be written, and its words are fit to be shown.
func checkProblem(t *testing.T, p *problem) {
	t.Helper()
	if kinds[p.code] == nil {
		t.Fatalf("a problem that is not in the catalogue: %+v", p)
	}
	if len(p.field) > maxEchoed+3 || strings.ContainsAny(p.field, "\n\r\x00\x1b") {
		t.Errorf("field %q", p.field)
	}
	if _, err := json.Marshal(p.document()); err != nil {
		t.Error(err)
	}
}
