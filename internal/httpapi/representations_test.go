package httpapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/apitest"
	"lockkeeper/internal/test/assert"
)

// How an answer is represented: its tag, its text for people, its coding, its next page.

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
