package httpapi

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"

	"lockkeeper"
	"lockkeeper/docs"
	"lockkeeper/internal/docsite"
	"lockkeeper/internal/test/assert"
)

func withDocs(t *testing.T) *gateway {
	t.Helper()
	return serve(t, func(o *Options) {
		o.Docs = &docsite.Site{Files: docs.Files, OpenAPI: lockkeeper.OpenAPI, Version: "test"}
	})
}

func TestTheDocumentationIsServedAsTheDashboardIs(t *testing.T) {
	g := withDocs(t)
	for path, contentType := range map[string]string{"/docs": "text/html; charset=utf-8", "/docs/api": "text/html; charset=utf-8",
		"/docs/glossary": "text/html; charset=utf-8", "/docs/glossary.md": "text/markdown; charset=utf-8", "/docs/images/lock-dark.png": "image/png"} {
		a := get(t, g, "GET", path, "Accept-Encoding", "identity")
		assert.Must(t, a.status == 200 && a.header.Get("Content-Type") == contentType && len(a.body) > 500, "%s: %d %v", path, a.status, a.header)
		policy := a.header.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"} {
			assert.That(t, strings.Contains(policy, part) && !strings.Contains(policy, "unsafe"), "%s: the policy is %s", path, policy)
		}
		for name, want := range map[string]string{"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "same-origin"} {
			assert.Equal(t, a.header.Get(name), want, "%s: %s", path, name)
		}
		again := get(t, g, "GET", path, "If-None-Match", a.header.Get("ETag"))
		assert.That(t, again.status == 304 && len(again.body) == 0 && a.header.Get("ETag") != "", "%s again: %d", path, again.status)
		head := get(t, g, "HEAD", path, "Accept-Encoding", "identity")
		assert.That(t, head.status == 200 && len(head.body) == 0 && head.header.Get("Content-Length") == a.header.Get("Content-Length"), "HEAD %s: %d %v", path, head.status, head.header)
		post := get(t, g, "POST", path)
		assert.That(t, post.status == 405 && post.header.Get("Allow") == "GET, HEAD, OPTIONS", "POST %s: %d %v", path, post.status, post.header)
		assert.Equal(t, get(t, g, "GET", path, "Origin", "http://evil.example").status, 403, "%s from another origin", path)
		assert.Equal(t, get(t, g, "GET", path+"?format=env").status, 422, "%s for a shell", path)
	}
}

func TestLargePagesOfTheDocumentationAreCompressed(t *testing.T) {
	g := withDocs(t)
	for path, compressed := range map[string]bool{"/docs/api/schemas": true, "/docs/images/lock-dark.png": false} {
		plain := get(t, g, "GET", path, "Accept-Encoding", "identity")
		a := get(t, g, "GET", path, "Accept-Encoding", "gzip")
		assert.Must(t, (a.header.Get("Content-Encoding") == "gzip") == compressed, "%s: %v", path, a.header)
		if compressed {
			unzip := assert.Value(gzip.NewReader(bytes.NewReader(a.body)))(t)
			a.body = assert.Value(io.ReadAll(unzip))(t)
		}
		assert.That(t, bytes.Equal(a.body, plain.body), "%s: %d bytes in place of %d", path, len(a.body), len(plain.body))
	}
}

func TestADocumentThatIsNotThereIsAPage(t *testing.T) {
	g := withDocs(t)
	a := get(t, g, "GET", "/docs/no/such<page>")
	assert.That(t, a.status == 404 && a.header.Get("Content-Type") == "text/html; charset=utf-8" && a.header.Get("Cache-Control") == "no-store", "%d %v", a.status, a.header)
	assert.That(t, strings.Contains(string(a.body), `<a href="/docs">index</a>`) && strings.Contains(string(a.body), "/docs/no/such&lt;page&gt;"), "%s", a.body)
	a = get(t, g, "GET", "/docs/")
	assert.That(t, a.status == 308 && a.header.Get("Location") == "/docs", "with a slash: %d %v", a.status, a.header)
	serve(t).expect(t, 404, "route_not_found", "GET", "/docs")
}

func TestThePageOfAProblemIsOneOfTheDocumentation(t *testing.T) {
	g := withDocs(t)
	a := get(t, g, "GET", "/problems/held_by_other", "Accept", "text/html")
	assert.That(t, a.status == 200 && strings.Contains(a.header.Get("Content-Security-Policy"), "style-src 'self'"), "%d %v", a.status, a.header)
	for _, part := range []string{"/docs.css", `<a href="/docs/glossary"`, "Another client holds the lock", "409 Conflict", `href="/docs/errors#409-conflict"`} {
		assert.That(t, strings.Contains(string(a.body), part), "the page lacks %s: %s", part, a.body)
	}
	vary := strings.Join(a.header.Values("Vary"), ",")
	assert.That(t, strings.Contains(vary, "Accept") && strings.Contains(get(t, g, "GET", "/problems/held_by_other").header.Get("Content-Type"), "text/plain"), "Vary: %s", vary)
}
