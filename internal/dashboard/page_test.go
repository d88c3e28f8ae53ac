package dashboard

import (
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/test/assert"
)

// example is a page of a row without parameters.
func example(t *testing.T, r *row) page {
	t.Helper()
	for _, subject := range []string{"deploy", "wh_aaaaaaaaaaaaaaaa"} {
		if r.subject == "" {
			subject = ""
		}
		if p, wrong := r.parse(subject, url.Values{}); wrong == nil {
			return p
		}
	}
	t.Fatalf("%s: no subject is one of its own", r.name)
	return nil
}

// What holds for the pages of the table: those that are added later get it with their row.
func TestEachRowOfTheTableIsAPage(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Webhooks = hooksOf{} })
	seen := map[string]bool{}
	for i := range table {
		at := &table[i]
		t.Run(at.name, func(t *testing.T) {
			p := example(t, at)
			assert.That(t, reflect.ValueOf(p).Comparable(), "%T cannot be the key of a topic", p)
			assert.Equal(t, p.name(), at.name)
			assert.That(t, !seen[at.name] && p.title() != "", "its name is another's, or it has no title")
			seen[at.name] = true

			request := httptest.NewRequest("GET", urlOf(p), nil)
			found, subject := rowAt(request.URL.Path)
			assert.Must(t, found == at, "%s leads to the row %+v", urlOf(p), found)
			got, wrong := pageAt(request, found, subject)
			assert.That(t, wrong == nil && got == p, "%s leads to %+v, %v", urlOf(p), got, wrong)
			got, wrong = livePage(httptest.NewRequest("GET", liveURL(p), nil))
			assert.That(t, wrong == nil && got == p, "%s leads to %+v, %v", liveURL(p), got, wrong)
			_, wrong = pageAt(httptest.NewRequest("GET", at.path+"?no_such=1", nil), at, subject)
			assert.That(t, wrong != nil, "it takes a parameter that it does not have")
			assert.That(t, slices.ContainsFunc(r.Paths(), func(pattern string) bool {
				prefix, below := strings.CutSuffix(pattern, "*")
				return pattern == request.URL.Path || below && strings.HasPrefix(request.URL.Path, prefix)
			}), "%s has no route", request.URL.Path)

			c, _ := r.read(t.Context(), p, locks.Anonymous, nil)
			document := string(assert.Value(render(t.Context(), c.document()))(t))
			parts := map[string]bool{statusID: true}
			for _, part := range c.parts() {
				html := string(assert.Value(render(t.Context(), part.component))(t))
				assert.That(t, !parts[part.id], "two fragments are %s", part.id)
				parts[part.id] = true
				assert.That(t, strings.Contains(html, ` id="`+part.id+`"`) && strings.Contains(html, `hx-swap-oob="outerMorph"`), "no page finds the place of\n%s", html)
				assert.That(t, strings.Contains(document, html), "the document lacks its fragment %s", part.id)
			}
			assert.That(t, len(parts) > 1 && strings.Contains(document, "<title>"+p.title()+" · Lockkeeper</title>"), "%s", document)
		})
	}
}

func TestAPathHasOneRowAndItsSubject(t *testing.T) {
	for path, want := range map[string][2]string{
		"/": {pageOverview, ""}, "/webhooks": {pageWebhooks, ""}, "/webhooks/": {pageWebhook, ""}, "/webhooks/wh_1": {pageWebhook, "wh_1"},
		"/locks/a/b": {pageLock, "a/b"}, "/gateways/x": {}, "/gateways/": {}, "/nothing": {}, "": {},
	} {
		at, subject := rowAt(path)
		name := ""
		if at != nil {
			name = at.name
		}
		assert.Equal(t, [2]string{name, subject}, want, "%s", path)
	}
}

func TestTheNavigationLeadsToPagesOfTheTable(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Webhooks = hooksOf{} })
	links := r.Navigation()
	assert.Must(t, len(links) > 1, "it leads nowhere")
	for _, link := range links {
		for _, from := range []string{link.URL, "/nowhere"} {
			w := r.get(t, from)
			assert.That(t, strings.Contains(strings.Replace(w.Body.String(), ` aria-current="page"`, "", 1), `<a href="`+link.URL+`">`+link.Name+`</a>`), "%s does not lead to %s", from, link.URL)
			assert.That(t, from != link.URL || w.Code == 200, "%s: %d", from, w.Code)
			here := strings.Contains(w.Body.String(), `<a href="`+link.URL+`" aria-current="page">`)
			assert.That(t, here == (from == link.URL), "%s says that it is %s: %v", from, link.URL, here)
		}
	}
}
