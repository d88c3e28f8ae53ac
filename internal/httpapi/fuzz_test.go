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
	f.Add("deploy", "mode=semaphore&limit=5&permits=2&lock_delay=1m&lock_delay_on=always", `{"hold":"a","ephemeral":true,"dry_run":false}`)
	f.Add("deploy", "limit=05&permits=1e3", `{"limit":1.0,"permits":"7"}`)
	f.Add("a/b", "", `{"wait":"1h","async":true,"mode":"exclusive","ns":"n"} `)
	f.Fuzz(func(t *testing.T, lock, query, body string) {
		x := newExchange(New(Options{Locks: newFake()}))
		r := httptest.NewRequest("POST", "/v1/locks/x/leases", strings.NewReader(body))
		r.URL.RawQuery = query
		r.Header.Set("Content-Type", "application/json")
		x.w, x.r = httptest.NewRecorder(), r
		form := acquireForm{terms{req: locks.AcquireRequest{NS: "default"}}}
		p := x.fields(&form, maxBody)
		if p == nil {
			p = form.finish(r.Header)
		}
		if p != nil {
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
		if req.LockDelay < 0 || req.LockDelay > locks.MaxLockDelay || len(req.Hold) > locks.MaxHoldName || !inRange(req.Limit) || !inRange(req.Permits) {
			t.Errorf("recipes: %+v", req)
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
		if name, p := lockName(lock); p != nil {
			checkProblem(t, p)
		} else if again, p := lockName(name); p != nil || again != name || strings.ContainsAny(name, "/ \x00") {
			t.Errorf("%q is called %q, and that %q", lock, name, again)
		}
		if p := newLockName(lock); p != nil {
			checkProblem(t, p)
		} else if len(lock) > 200 || strings.ContainsAny(lock, "/ %\x00") || !isAlphanumeric(lock[0]) {
			t.Errorf("accepted the name %q", lock)
		}
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
		var form severalForm
		d := decoder{form: &form}
		if p := decodeObject([]byte(body), d.take); p != nil {
			checkProblem(t, p)
			return
		}
		var want struct {
			Locks []struct {
				Lock, NS, Mode string
				Limit, Permits int
			}
		}
		if err := json.Unmarshal([]byte(body), &want); err != nil {
			t.Fatalf("accepted %q: %v", body, err)
		}
		if len(want.Locks) != len(form.req.Group) || len(form.req.Group) > locks.MaxGroup {
			t.Fatalf("%q has %d locks, and %d were read", body, len(want.Locks), len(form.req.Group))
		}
		for i, got := range form.req.Group {
			w := want.Locks[i]
			if got.Lock != w.Lock || w.NS != "" && got.NS != w.NS || w.Mode != "" && string(got.Mode) != w.Mode || got.Limit != w.Limit || w.Permits != 0 && got.Permits != w.Permits {
				t.Errorf("lock %d of %q is %+v", i, body, got)
			}
			if got.NS == "" || got.Mode == "" || newLockName(got.Lock) != nil || got.Mode != locks.Semaphore && got.Limit+got.Permits != 0 {
				t.Errorf("lock %d of %q is accepted as %+v", i, body, got)
			}
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
