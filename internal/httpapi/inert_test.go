package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

// forbidden is the first character of an answer that a shell, a terminal or a reader could take for something else.
func forbidden(doc []byte) (rune, bool) {
	for i := 0; i < len(doc); {
		r, size := utf8.DecodeRune(doc[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return rune(doc[i]), true
		case r == '\n' || r == '\t' || r == '\r':
		case r == '$', r == '`', !unicode.IsPrint(r), unicode.In(r, unicode.Cf, unicode.Cc):
			return r, true
		}
		i += size
	}
	return 0, false
}

func TestJSONIsInertAndMeansTheSame(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":"b"}`:                           `{"a":"b"}`,
		`{"a":"$(id)` + "`id`" + `"}`:         `{"a":"\u0024(id)\u0060id\u0060"}`,
		`{"$":"1234567$"}`:                    `{"\u0024":"1234567\u0024"}`,
		`"\\$\\\""`:                           `"\\\u0024\\\""`,
		"\"\u0080\u009b\u009f\u00a0\x7f\"":    `"\u0080\u009b\u009f\u00a0\u007f"`,
		"\"\u202e\u2066\u200b\u200d\ufeff\"":  `"\u202e\u2066\u200b\u200d\ufeff"`,
		"\"\U000e0001é漢😀\"":                   `"\udb40\udc01é漢😀"`,
		"\"12345678é1234567\u202e\"":          `"12345678é1234567\u202e"`,
		"\"\xff\xc3\"":                        `"\ufffd\ufffd"`,
		"{\n\t\"a\": [1, true, null]\r\n}\n":  "{\n\t\"a\": [1, true, null]\r\n}\n",
		`"` + strings.Repeat("x", 64) + "`\"": `"` + strings.Repeat("x", 64) + `\u0060"`,
	} {
		assert.Equal(t, string(appendInert(nil, []byte(in))), want, "%q becomes", in)
	}
	// Each byte at each place of a word.
	for _, c := range []byte("$`\x7f\xff") {
		for i := range 24 {
			doc := bytes.Repeat([]byte("#"), 24) // next to $
			doc[i] = c
			assert.Equal(t, hazard(doc), i, "%q at %d is found at", c, i)
		}
	}
	for c := range byte(0x7f) {
		doc := bytes.Repeat([]byte{c}, 20)
		assert.That(t, c == '$' || c == '`' || hazard(doc) == len(doc), "%q is escaped", c)
	}
}

func FuzzInert(f *testing.F) {
	for _, s := range []string{`{"owner":"$(touch x)","m":["` + "`id`" + `"]}`, "\"\u009b31m\u202e\U000e0001\x7f\"", `"\\\"$"`, "[1e9,\n\ttrue]", "\"\xf0\x9f\"", `{"$":null}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if !json.Valid(doc) {
			return
		}
		escaped := appendInert(nil, doc)
		r, found := forbidden(escaped)
		assert.Must(t, !found, "%q has %U as it is: %q", doc, r, escaped)
		var want, got any
		if err := json.Unmarshal(doc, &want); err != nil {
			return // a number that is too large
		}
		if err := json.Unmarshal(escaped, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q becomes %q: %v", doc, escaped, err)
		}
		again := appendInert(nil, escaped)
		assert.Must(t, bytes.Equal(again, escaped), "escaped again, %q becomes %q", escaped, again)
	})
}

// BenchmarkInert is what the second look at an answer costs: one without, and one with names from elsewhere.
func BenchmarkInert(b *testing.B) {
	shape := leaseShape(new(held()))
	doc, err := json.Marshal(&shape)
	if err != nil {
		b.Fatal(err)
	}
	for name, doc := range map[string][]byte{
		"plain": doc,
		"names": bytes.ReplaceAll(doc, []byte(`"me"`), []byte(`"Zoë 漢字"`)),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(doc)))
			for b.Loop() {
				if hazard(doc) != len(doc) {
					b.Fatal("there is nothing to escape")
				}
			}
		})
	}
}

// Every JSON answer goes through the one encoder, and what it encodes reads as it was.
func TestEveryAnswerWithWordsOfOthersIsInertJSON(t *testing.T) {
	const words = "$(id)`id`\x7f\u009b31m\u202e\u200b\U000e0001\"\\ é漢"
	f := newFake()
	s := New(Options{Locks: quietLocks{f}})
	all := []locks.Contender{{LeaseID: someID, Znode: "/z/" + words, Owner: words, Metadata: words, Mode: locks.Exclusive, Holds: []string{words}, Group: []string{words},
		Revoke: &locks.Revocation{Reason: words}, Foreign: &locks.Foreign{Data: []byte(words), Decoded: &locks.Decoded{Identifier: words}}}}
	lease := held()
	lease.Owner, lease.Metadata, lease.Warning = words, words, words
	f.lock = func(context.Context, locks.LockRequest) (locks.Lock, error) {
		return locks.Lock{NS: "default", Name: "deploy", Holders: all, Waiters: all, Hazards: []locks.Hazard{{Detail: words}}, Rev: "7"}, nil
	}
	f.locks = func(locks.LockFilter) (locks.LockPage, error) {
		return locks.LockPage{Items: []locks.Lock{{Name: words, Holders: all}}}, nil
	}
	f.leases = func(locks.LeaseFilter) (locks.LeasePage, error) {
		return locks.LeasePage{Items: []locks.Lease{lease}}, nil
	}
	f.lease = func(context.Context, locks.LeaseRequest) (locks.Lease, error) { return lease, nil }
	f.acquire = func(_ context.Context, req locks.AcquireRequest) (locks.AcquireResult, error) {
		if req.DryRun {
			return locks.AcquireResult{DryRun: &locks.DryRun{Holders: all}}, nil
		}
		return locks.AcquireResult{}, &locks.Error{Code: locks.CodeHeldByOther, Detail: words, Holders: all}
	}
	f.many = func([]string) []locks.HeartbeatResult {
		return []locks.HeartbeatResult{{Err: &locks.Error{Code: locks.CodeHeldByOther, Detail: words, Holders: all}}}
	}
	f.heartbeat = func(string, string, time.Duration) (locks.Heartbeat, error) {
		return locks.Heartbeat{Revoke: &locks.Revocation{Reason: words}}, nil
	}
	f.reap = func(locks.ReapRequest) (locks.ReapAnswer, error) { return locks.ReapAnswer{Reaped: all}, nil }
	f.revoke = func(locks.RevokeRequest) (locks.RevokeAnswer, error) { return locks.RevokeAnswer{Asked: all}, nil }
	f.ended = func(string) (locks.Postmortem, error) {
		p := postmortem(someID)
		p.Owner, p.Detail = words, words
		return p, nil
	}
	f.namespaces = []locks.NamespaceInfo{{Name: words, Problem: words}}
	for _, request := range []string{"GET /v1/locks/deploy", "GET /v1/locks", "GET /v1/leases", "GET /v1/leases/" + someID, "POST " + aLock, "GET /v1/locks/deploy/preview", "POST /v1/leases/self/heartbeat",
		"POST /v1/heartbeats", "POST /v1/locks/deploy/revoke", "POST /v1/locks/deploy/reap?older_than=0s", "GET /v1/leases/" + someID + "/postmortem", "GET /v1/namespaces"} {
		method, path, _ := strings.Cut(request, " ")
		body := ""
		if path == "/v1/heartbeats" {
			body = `{"tokens":["a"]}`
		}
		r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost"+path, strings.NewReader(body))
		if path != aLock {
			r.Header.Set("Lease-Token", someToken)
		}
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		doc := w.Body.Bytes()
		c, found := forbidden(doc)
		assert.That(t, !found, "%s: %U is in %d %s", request, c, w.Code, doc)
		if got := w.Header().Get("Content-Length"); got != strconv.Itoa(len(doc)) && (got != "" || len(doc) >= mostBuffered) {
			t.Errorf("%s: the length is said to be %s of %d", request, got, len(doc))
		}
		if !json.Valid(doc) || !strings.Contains(string(doc), `\u0024(id)\u0060id\u0060\u007f\u009b31m\u202e\u200b\udb40\udc01\"\\ é漢`) {
			t.Errorf("%s: answered %d %s", request, w.Code, doc)
		}
		assert.That(t, strings.Contains(fmt.Sprint(decodedWords(t, doc)), words), "%s: the words read otherwise: %s", request, doc)
	}
}

func decodedWords(t *testing.T, doc []byte) (value any) {
	t.Helper()
	assert.Nil(t, json.Unmarshal(doc, &value))
	return value
}
