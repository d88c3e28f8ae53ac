package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"lockkeeper"
	"lockkeeper/docs"
	"lockkeeper/internal/docsite"
	"lockkeeper/internal/test/assert"
)

// documentation are the addresses of all pages of the documentation, and of one page of each other kind in its look.
func documentation(t *testing.T) []string {
	t.Helper()
	site := &docsite.Site{Files: docs.Files, OpenAPI: lockkeeper.OpenAPI}
	pages := []string{"/problems/held_by_other"}
	for _, at := range assert.Value(site.Paths())(t) {
		if strings.HasPrefix(assert.Value(site.Get(at))(t).Type, "text/html") {
			pages = append(pages, at)
		}
	}
	slices.Sort(pages)
	return pages
}

// Each kind of page is shown in each window and each scheme of colours, all others in one of them; with LOCKKEEPER_FULL all
// in each. The browser itself notes each request to another host, each refusal of the policy, and each error (check).
func TestEveryPageOfTheDocumentationIsAccessible(t *testing.T) {
	t.Parallel()
	g := startStandalone(t)
	b := openBrowser(t, g.url())
	kinds := []string{"/docs", "/docs/glossary", "/docs/api", "/docs/api/leases", "/problems/held_by_other"}
	for i, at := range documentation(t) {
		b.visit(g.url() + at)
		shown := everyLook
		if !slices.Contains(kinds, at) && os.Getenv("LOCKKEEPER_FULL") == "" {
			shown = everyLook[i%len(everyLook):][:1]
		}
		for _, l := range shown {
			b.resize(l.window, l.scheme)
			b.flawless(at + " " + l.String())
			b.shot("docs" + strings.ReplaceAll(at, "/", "-") + "-" + l.String())
			width := eval[int64](b, "innerWidth")
			wide := eval[int64](b, "document.documentElement.scrollWidth")
			assert.That(t, wide <= width, "%s is %d wide in a window of %d", at, wide, width)
		}
	}
}

func TestABlockOfTheDocumentationIsCopied(t *testing.T) {
	t.Parallel()
	g := startStandalone(t)
	b := openBrowser(t, g.url())
	b.visit(g.url() + "/docs/api")
	link := eval[string](b, `[...document.querySelectorAll(".operations a")].map((a) => a.href).find((h) => h.endsWith("#ListLocks"))`)
	b.visit(link)
	const block = `document.querySelector("[aria-labelledby=ListLocks] .code")`
	assert.Equal(t, eval[string](b, block+`.querySelector("pre").textContent`), "curl localhost:8080/v1/locks", "the line")
	eval[int](b, `(navigator.clipboard.writeText = async (text) => { window.copied = text }, `+block+`.querySelector("button").click(), 1)`)
	b.until(`window.copied === "curl localhost:8080/v1/locks"`, "the button copies the line")
}

// Without a script nothing is lost but the buttons.
func TestTheDocumentationNeedsNoScript(t *testing.T) {
	t.Parallel()
	g := startStandalone(t)
	for at, want := range map[string]string{"/docs": `href="/docs/api"`, "/docs/api/leases": "localhost:8080/v1/locks/", "/": `href="/docs"`} {
		response := assert.Value(http.Get(g.url() + at))(t)
		defer response.Body.Close()
		body := string(assert.Value(io.ReadAll(response.Body))(t))
		assert.That(t, response.StatusCode == http.StatusOK && strings.Contains(body, want), "%s lacks %s: %s", at, want, fmt.Sprintf("%.500s", body))
	}
}
