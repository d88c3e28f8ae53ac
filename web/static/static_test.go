package static

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"lockkeeper/internal/test/assert"
)

func get(t *testing.T, method, path string) *http.Response {
	t.Helper()
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w.Result()
}

func TestEveryFileIsServedForEverUnderItsHash(t *testing.T) {
	urls := URLs()
	want := map[string]string{
		"activity.css": "text/css; charset=utf-8", "overview.css": "text/css; charset=utf-8", "follow.js": "text/javascript; charset=utf-8", "favicon-open.svg": "image/svg+xml", "app.css": "text/css; charset=utf-8", "docs.css": "text/css; charset=utf-8", "more.css": "text/css; charset=utf-8", "copy.js": "text/javascript; charset=utf-8", "docs.js": "text/javascript; charset=utf-8",
		"hooks.js": "text/javascript; charset=utf-8", "owner.js": "text/javascript; charset=utf-8", "queue.js": "text/javascript; charset=utf-8", "search.js": "text/javascript; charset=utf-8", "login.js": "text/javascript; charset=utf-8", "theme.js": "text/javascript; charset=utf-8",
		"favicon.svg": "image/svg+xml", "vendor/htmx.min.js": "text/javascript; charset=utf-8", "pages.js": "text/javascript; charset=utf-8",
	}
	assert.That(t, len(urls) == len(want), "files %v, want those of %v", urls, want)
	for name, contentType := range want {
		r := get(t, http.MethodGet, urls[name])
		body, _ := io.ReadAll(r.Body)
		onDisk := served(t, name)
		assert.That(t, r.StatusCode == http.StatusOK && string(body) == string(onDisk),
			"%s: status %d, %d bytes, want 200 and %d bytes", urls[name], r.StatusCode, len(body), len(onDisk))
		assert.Equal(t, r.Header.Get("Content-Type"), contentType, "%s: content type", name)
		assert.Equal(t, r.Header.Get("Cache-Control"), "public, max-age=31536000, immutable", "%s: Cache-Control", name)
		assert.Equal(t, r.Header.Get("X-Content-Type-Options"), "nosniff", "%s: X-Content-Type-Options", name)
		if head := get(t, http.MethodHead, urls[name]); head.StatusCode != http.StatusOK || head.ContentLength != int64(len(onDisk)) {
			t.Errorf("HEAD %s: status %d, length %d", name, head.StatusCode, head.ContentLength)
		}
	}
}

// served is what a file is served as: those of others as they are.
func served(t *testing.T, name string) []byte {
	t.Helper()
	if name == pagesScript {
		var all []byte
		for _, one := range together {
			all = append(append(all, served(t, one)...), '\n')
		}
		return all
	}
	onDisk := assert.Value(os.ReadFile(filepath.FromSlash(name)))(t)
	if strings.HasPrefix(name, "vendor/") {
		return onDisk
	}
	return assert.Value(minified(path.Ext(name), onDisk))(t)
}

func TestOurFilesAreMinifiedAndNoOthers(t *testing.T) {
	files := fstest.MapFS{
		"a.js":        {Data: []byte("// What.\n\"use strict\";\n(() => {\n  // Why.\n  const longName = document.title; // ten\n  put(longName, `https://${longName}`, longName);\n})();\n")},
		"b.js":        {Data: []byte("globalThis.acts = ({ show }) => {\n  show(\"x // y\");\n};\n")},
		"a.css":       {Data: []byte("/* What, in\n   two lines. */\n\n.a > .b {\n  --a: 1px; /* one */\n  margin: 0.50rem 0;\n}\n")},
		"a.svg":       {Data: []byte("<svg>\n</svg>\n")},
		"vendor/a.js": {Data: []byte("// As published.\nvar a = 1;\n")},
	}
	got := load(files)
	for name, want := range map[string]string{
		"a.js": "\"use strict\";(()=>{const e=document.title;put(e,`https://${e}`,e)})()", "b.js": `globalThis.acts=({show:e})=>{e("x // y")}`,
		"a.css": ".a>.b{--a:1px;margin:.5rem 0}", "a.svg": "<svg>\n</svg>\n", "vendor/a.js": "// As published.\nvar a = 1;\n",
	} {
		assert.Equal(t, string(got[name]), want, "%s", name)
	}
}

// A mistake in a file is found by whatever starts first, and not by a browser.
func TestAFileThatCannotBeServedStopsTheProcess(t *testing.T) {
	for name, content := range map[string]string{"a.js": "const = 1;", "a.txt": "text"} {
		says := func() (says any) {
			defer func() { says = recover() }()
			load(fstest.MapFS{name: {Data: []byte(content)}})
			return nil
		}()
		assert.That(t, says != nil && strings.Contains(fmt.Sprint(says), name), "%s: it says %v", name, says)
	}
}

func TestFilesAreCompressedForThoseThatAcceptIt(t *testing.T) {
	for name, url := range URLs() {
		ask := func(method string) *httptest.ResponseRecorder {
			w, r := httptest.NewRecorder(), httptest.NewRequest(method, url, nil)
			r.Header.Set("Accept-Encoding", "br, gzip")
			r.Header.Set("Range", "bytes=0-1") // of the compressed file it would be of no use
			Handler().ServeHTTP(w, r)
			return w
		}
		w := ask(http.MethodGet)
		h := w.Header()
		assert.That(t, w.Code == http.StatusOK && h.Get("Content-Encoding") == "gzip" && h.Get("Vary") == "Accept-Encoding", "%s: %d, %v", name, w.Code, h)
		assert.Equal(t, h.Get("Content-Length"), strconv.Itoa(w.Body.Len()), "%s: Content-Length", name)
		unzip, err := gzip.NewReader(w.Body)
		assert.NoError(t, err, name)
		body, err := io.ReadAll(unzip)
		onDisk := served(t, name)
		assert.That(t, err == nil && string(body) == string(onDisk), "%s: %v, %d bytes of %d", name, err, len(body), len(onDisk))
		head := ask(http.MethodHead)
		assert.That(t, head.Body.Len() == 0 && head.Header().Get("Content-Length") == h.Get("Content-Length"), "HEAD %s: %d bytes, %v", name, head.Body.Len(), head.Header())
	}
}

func TestNothingElseIsServed(t *testing.T) {
	root := strings.TrimSuffix(URLs()["app.css"], "app.css")
	for _, path := range []string{
		"/static/", "/static/0123456789abcdef/app.css", "/static/app.css", root, root + "vendor", root + "vendor/", root + "README.md",
		root + "static.go", root + "vendor/LICENSE.htmx", root + "../static.go", root + "/app.css", "/app.css",
	} {
		r := get(t, http.MethodGet, path)
		assert.That(t, r.StatusCode == http.StatusNotFound, "%s: status %d, want 404", path, r.StatusCode)
		assert.Equal(t, r.Header.Get("Cache-Control"), "", "%s: a 404 may not be kept, got Cache-Control", path)
	}
	if r := get(t, http.MethodPost, URLs()["app.css"]); r.StatusCode != http.StatusMethodNotAllowed || r.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: status %d, Allow %q", r.StatusCode, r.Header.Get("Allow"))
	}
}

func TestAnyChangeOfAnyFileChangesEveryURL(t *testing.T) {
	version := func(files fstest.MapFS) string { return hash(pack(load(files))) }
	file := func(content string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(content)} }
	seen := map[string]int{}
	for i, files := range []fstest.MapFS{
		{"a.js": file("1"), "b.js": file("2")},
		{"a.js": file("1"), "b.js": file("3")},
		{"a.js": file("1"), "c.js": file("2")},
		{"a.js": file("12"), "b.js": file("")},
		{"a.js": file("1")},
	} {
		v := version(files)
		before, ok := seen[v]
		assert.That(t, !ok, "contents %d and %d have the same version %s", before, i, v)
		seen[v] = i
	}
}

func TestVendoredFilesAreWhatTheReadmeSays(t *testing.T) {
	readme := assert.Value(os.ReadFile("README.md"))(t)
	listed := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(vendor/[^`]+)` .*`([0-9a-f]{64})` \\|$").FindAllStringSubmatch(string(readme), -1) {
		listed[m[1]] = m[2]
	}
	entries := assert.Value(filepath.Glob("vendor/*"))(t)
	for _, name := range entries {
		content := assert.Value(os.ReadFile(name))(t)
		sum := sha256.Sum256(content)
		if got := hex.EncodeToString(sum[:]); got != listed[filepath.ToSlash(name)] {
			t.Errorf("%s: sha256 %s, README.md says %q", name, got, listed[filepath.ToSlash(name)])
		}
		delete(listed, filepath.ToSlash(name))
	}
	for name := range listed {
		t.Errorf("README.md lists %s, which is not there", name)
	}
}

// A browser that keeps to the content security policy would refuse it, and some
// page would stand still.
func TestOurScriptsNeedNoEval(t *testing.T) {
	for _, name := range []string{"actions.js", "app.js", "copy.js", "curl.js", "docs.js", "hooks.js", "order.js", "owner.js", "queue.js", "reservation.js", "tell.js", "theme.js", "zone.js"} {
		content := assert.Value(os.ReadFile(name))(t)
		found := regexp.MustCompile(`\beval\(|new Function|innerHTML|insertAdjacentHTML|document\.write|https?://`).FindString(string(content))
		assert.Equal(t, found, "", "%s has", name)
	}
}

func TestStylesAskNoOtherHost(t *testing.T) {
	for _, name := range []string{"app.css", "docs.css"} {
		content := assert.Value(os.ReadFile(name))(t)
		assert.Equal(t, regexp.MustCompile(`url\(|@import|https?:|//`).FindString(string(content)), "", "%s has", name)
	}
}
