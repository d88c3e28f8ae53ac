package docsite

import (
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/net/html"

	"lockkeeper"
	"lockkeeper/docs"
	"lockkeeper/internal/test/assert"
	"lockkeeper/web/static"
)

// ours is the documentation of the gateway.
var ours = &Site{Files: docs.Files, OpenAPI: lockkeeper.OpenAPI, Version: "v1.2.3"}

// pageOf reads a page, which must be there.
func pageOf(t *testing.T, s *Site, at string) *html.Node {
	t.Helper()
	a := assert.Value(s.Get(at))(t)
	assert.Must(t, a.Status == http.StatusOK && a.Type == typeHTML && a.Tag != "", "%s: %d %s", at, a.Status, a.Type)
	return parsed(t, a)
}

func parsed(t *testing.T, a *Answer) *html.Node {
	t.Helper()
	return assert.Value(html.Parse(strings.NewReader(string(a.Body))))(t)
}

// elements are all that have one of the names.
func elements(n *html.Node, names ...string) (list []*html.Node) {
	for d := range n.Descendants() {
		if d.Type == html.ElementNode && slices.Contains(names, d.Data) {
			list = append(list, d)
		}
	}
	return list
}

// htmlPages are the paths of all pages.
func htmlPages(t *testing.T, s *Site) (list []string) {
	t.Helper()
	for _, at := range assert.Value(s.Paths())(t) {
		if assert.Value(s.Get(at))(t).Type == typeHTML {
			list = append(list, at)
		}
	}
	slices.Sort(list)
	return list
}

func TestEveryDocumentIsAPage(t *testing.T) {
	n := 0
	err := fs.WalkDir(docs.Files, ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".md" {
			return err
		}
		n++
		source := assert.Value(fs.ReadFile(docs.Files, name))(t)
		a := assert.Value(ours.Get(Root + "/" + name))(t)
		assert.That(t, a.Type == typeMarkdown && string(a.Body) == string(source), "%s: its Markdown is %d %s", name, a.Status, a.Type)
		at := Root + "/" + strings.TrimSuffix(name, ".md")
		if isIndex(name) {
			at = path.Dir(at)
		}
		page := pageOf(t, ours, at)
		headings := elements(page, "h1")
		assert.That(t, len(headings) == 1 && textOf(headings[0]) == firstHeading(source), "%s must have one heading at its top", at)
		current := 0
		for _, a := range elements(page, "a") {
			if get(a, "aria-current") == "page" {
				current++
				assert.Equal(t, get(a, "href"), at, "%s: the current page of the navigation", at)
			}
		}
		assert.Equal(t, current, 2, "%s: how often the navigation, for narrow windows and for wide ones, marks it", at)
		return nil
	})
	assert.NoError(t, err)
	assert.That(t, n > 10, "there are %d documents", n)
}

// elsewhere are the pages of the gateway that are not the documentation's.
var elsewhere = []string{"/", "/namespaces", "/gateways", "/webhooks", "/openapi.yaml"}

func TestEveryLinkLeadsSomewhere(t *testing.T) {
	ids := map[string]map[string]bool{}
	pages := htmlPages(t, ours)
	for _, at := range pages {
		ids[at] = map[string]bool{}
		for d := range pageOf(t, ours, at).Descendants() {
			if id := get(d, "id"); id != "" {
				assert.That(t, !ids[at][id], "%s: the id %q must be there once", at, id)
				ids[at][id] = true
			}
		}
	}
	for _, at := range pages {
		for _, a := range elements(pageOf(t, ours, at), "a", "link") {
			u := assert.Value(url.Parse(get(a, "href")))(t)
			to := u.Path
			switch {
			case u.Host != "":
				assert.That(t, a.Data == "a" && (u.Scheme == "https" || u.Scheme == "http"), "%s: a link to %s", at, u)
				continue
			case slices.Contains(elsewhere, to) || strings.HasPrefix(to, "/problems/") || isStatic(to):
				continue
			case to == "":
				to = at
			}
			found := assert.Value(ours.Get(to))(t)
			assert.That(t, found.Status == http.StatusOK, "%s: the link to %s must lead to a page", at, u)
			assert.That(t, u.Fragment == "" || ids[to][u.Fragment], "%s: the link to %s must lead to a heading", at, u)
		}
	}
}

func isStatic(at string) bool {
	for _, url := range static.URLs() {
		if url == at {
			return true
		}
	}
	return false
}

func TestNoPageNeedsAnotherHostOrAnInlineScriptOrStyle(t *testing.T) {
	images := 0
	for _, at := range append(htmlPages(t, ours), Root+"/nothing") {
		for d := range parsed(t, assert.Value(ours.Get(at))(t)).Descendants() {
			for _, a := range d.Attr {
				switch {
				case a.Key == "src" || a.Key == "srcset" || a.Key == "href" && d.Data == "link":
					served := isStatic(a.Val) || assert.Value(ours.Get(a.Val))(t).Status == http.StatusOK
					assert.That(t, served, "%s: %s must come from the gateway: %s", at, d.Data, a.Val)
				case a.Key == "style" || strings.HasPrefix(a.Key, "on"):
					t.Errorf("%s: the content security policy refuses the attribute %s=%q", at, a.Key, a.Val)
				}
			}
			if d.Data == "img" {
				images++
			}
			if d.Type == html.ElementNode && (d.Data == "style" || d.Data == "iframe" || d.Data == "script" && (get(d, "src") == "" || d.FirstChild != nil)) {
				t.Errorf("%s: the content security policy refuses <%s>", at, d.Data)
			}
			assert.That(t, d.Type != html.CommentNode || strings.Contains(d.Data, "templ"), "%s shows a note: %s", at, d.Data)
		}
	}
}

func TestWhatIsNotThereIsAPageThatLeadsToTheIndex(t *testing.T) {
	for _, at := range []string{Root + "/nothing", Root + "/<script>", Root + "/images", Root + "/docs.go"} {
		a := assert.Value(ours.Get(at))(t)
		assert.Equal(t, a.Status, http.StatusNotFound, "status of %s", at)
		links := elements(elements(parsed(t, a), "main")[0], "a")
		assert.That(t, len(links) > 0 && get(links[0], "href") == Root, "%s must lead to the index", at)
	}
	a := assert.Value(ours.Get(Root + "/"))(t)
	assert.That(t, a.Status == http.StatusPermanentRedirect && a.Location == Root, "%s/: %d %s", Root, a.Status, a.Location)
}

func tree1() fstest.MapFS {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	return fstest.MapFS{
		"README.md": file("# Manual\n\nSee [start.md](start.md) and [the code](../internal/x.go).\n\n## Doing\n\n[second job](jobs/b.md#part), [first job](jobs/a.md)\n\n**Coming.** From [elsewhere](from/README.md), [etcd](from/etcd.md).\n"),
		"start.md": file("# Start\n\n<!-- a note -->\n\n## Part\n\n## Part\n\n[up](README.md), [b](jobs/b.md#the-part), [x.go](../internal/x.go), [more](../deploy/y.yaml), [spec](../openapi.yaml), [dir](jobs), " +
			"[out](https://example.org/), [readme](../README.md)\n\n![one](images/1.png) ![two](https://example.org/2.png)\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n"),
		"jobs/a.md":      file("# A\n"),
		"jobs/b.md":      file("# B\n\n## The `part`\n"),
		"jobs/c.md":      file("# C\n"),
		"from/README.md": file("# Coming from elsewhere\n"),
		"from/d.md":      file("# D\n"),
		"from/etcd.md":   file("# Coming from etcd\n"),
		"more/README.md": file("# More of it\n"),
		"images/1.png":   {Data: []byte{0x89, 'P', 'N', 'G', 0xff}},
		"x.sh":           file("echo\n"),
	}
}

func TestTheNavigationIsTheIndex(t *testing.T) {
	s := &Site{Files: tree1()}
	pageOf(t, s, Root)
	var got []string
	for _, g := range s.built.nav {
		got = append(got, "= "+g.Title)
		for _, l := range g.Links {
			got = append(got, l.Title+" "+l.URL)
		}
	}
	assert.Slices(t, got, []string{
		"= ", "Overview /docs", "Start /docs/start",
		"= Doing", "Second job /docs/jobs/b", "First job /docs/jobs/a", "C /docs/jobs/c",
		"= Coming", "elsewhere /docs/from", "etcd /docs/from/etcd", "D /docs/from/d",
		"= More of it", "Overview /docs/more",
	})
	_, prev, next := mark(s.built.nav, "/docs/jobs/a")
	assert.That(t, prev.URL == "/docs/jobs/b" && next.URL == "/docs/jobs/c", "before and after: %v, %v", prev, next)
}

func TestLinksLeadToPages(t *testing.T) {
	s := &Site{Files: tree1(), OpenAPI: []byte("paths: {}")}
	page := elements(pageOf(t, s, "/docs/start"), "main")[0]
	var links []string
	for _, a := range elements(page, "a") {
		if get(a, "class") != "anchor" && get(a, "rel") != "prev" && get(a, "rel") != "next" {
			links = append(links, textOf(a)+" "+get(a, "href"))
		}
	}
	assert.Slices(t, links, []string{"up /docs", "b /docs/jobs/b#the-part", "spec /docs/api", "out https://example.org/", "readme /docs"})
	text := textOf(page)
	for _, want := range []string{"x.go,", "more (deploy/y.yaml)", "dir (docs/jobs)", "two"} {
		assert.That(t, strings.Contains(text, want), "the page lacks %q: %s", want, text)
	}
	cells := elements(page, "td")
	assert.That(t, get(cells[1], "align") == "right" && get(cells[1], "style") == "", "the cell on the right: %v", cells[1].Attr)
	images := elements(page, "img")
	assert.That(t, len(images) == 1 && get(images[0], "src") == "/docs/images/1.png", "%d images", len(images))
	var ids []string
	for _, h := range elements(page, "h1", "h2") {
		ids = append(ids, get(h, "id"))
	}
	assert.Slices(t, ids, []string{"start", "part", "part-1"})
	index := elements(pageOf(t, s, Root), "main")[0]
	assert.Equal(t, textOf(elements(index, "a")[0]), "Start", "a link that says the file's name")
	for at, want := range map[string]string{"/docs/images/1.png": "image/png", "/docs/x.sh": "text/plain; charset=utf-8", "/docs/start.md": typeMarkdown} {
		assert.Equal(t, assert.Value(s.Get(at))(t).Type, want, "type of %s", at)
	}
}

func TestWithoutAnIndexThePagesAreListed(t *testing.T) {
	files := tree1()
	delete(files, "README.md")
	page := pageOf(t, &Site{Files: files}, Root)
	var links []string
	for _, a := range elements(elements(page, "main")[0], "a") {
		links = append(links, get(a, "href"))
	}
	for _, at := range []string{"/docs/start", "/docs/jobs/c", "/docs/from"} {
		assert.That(t, slices.Contains(links, at), "the list lacks %s: %v", at, links)
	}
}

func TestTwoDocumentsCannotHaveOneAddress(t *testing.T) {
	files := tree1()
	files["from.md"] = &fstest.MapFile{Data: []byte("# From\n")}
	_, err := (&Site{Files: files}).Get(Root)
	assert.That(t, err != nil && strings.Contains(err.Error(), "/docs/from"), "the error is %v", err)
	_, err = (&Site{OpenAPI: []byte("[")}).Get(Root)
	assert.That(t, err != nil, "a specification that cannot be read must be an error")
}
