package docsite

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"

	"github.com/a-h/templ"

	"lockkeeper/web/static"
	"lockkeeper/web/templates"
)

// Root is where the index is; all other pages are below it.
const Root = templates.DocsPath

// ContentPolicy lets a page use the gateway's own styles, scripts and images, and nothing else.
const ContentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

const (
	typeHTML     = "text/html; charset=utf-8"
	typeMarkdown = "text/markdown; charset=utf-8"
)

// Site is the documentation. The zero value has no pages. Its methods are safe for concurrent use.
type Site struct {
	Files   fs.FS  // the documents
	OpenAPI []byte // the specification
	Version string // of the gateway
	// Pages are those of the dashboard, for the navigation.
	Pages []templates.Link

	once  sync.Once
	built *built
	err   error
}

// built is what a site has made.
type built struct {
	answers map[string]*Answer // by path
	nav     []templates.DocGroup
	tree    *tree
	version string
	pages   []templates.Link
}

// Answer is what is served at a path.
type Answer struct {
	Status   int
	Type     string // of its content
	Tag      string // differs when the body does
	Location string // of the page, when Status is 308
	Body     []byte
}

// Get returns what is served at a path, Root or below it.
func (s *Site) Get(at string) (*Answer, error) {
	b, err := s.build()
	if err != nil {
		return nil, err
	}
	if a := b.answers[at]; a != nil {
		return a, nil
	}
	if short := strings.TrimRight(at, "/"); short != at && b.answers[short] != nil {
		return &Answer{Status: http.StatusPermanentRedirect, Location: short}, nil
	}
	return b.render(http.StatusNotFound, templates.NoDocPage(b.page("There is no such page", at), at))
}

// Problem renders the page of a problem of the API, which has the site's navigation and a link to its page of errors.
func (s *Site) Problem(p templates.ProblemKind) (*Answer, error) {
	b, err := s.build()
	if err != nil {
		return nil, err
	}
	p.DocPage = b.page(p.Title, "")
	p.Errors = b.tree.find("errors", p.Code, slug(p.Status))
	return b.render(http.StatusOK, templates.ProblemKindPage(p))
}

// Paths returns every path that is served, in no order.
func (s *Site) Paths() ([]string, error) {
	b, err := s.build()
	if err != nil {
		return nil, err
	}
	var paths []string
	for at := range b.answers {
		paths = append(paths, at)
	}
	return paths, nil
}

func (s *Site) build() (*built, error) {
	s.once.Do(func() {
		s.built, s.err = build(s.Files, s.OpenAPI, s.Version, s.Pages)
		if s.err != nil {
			s.err = fmt.Errorf("making the documentation: %w", s.err)
		}
	})
	return s.built, s.err
}

func build(files fs.FS, openAPI []byte, version string, pages []templates.Link) (*built, error) {
	t, err := readTree(files)
	if err != nil {
		return nil, err
	}
	var ref *reference
	if len(openAPI) > 0 {
		if ref, err = readReference(openAPI, t); err != nil {
			return nil, err
		}
	}
	b := &built{answers: map[string]*Answer{}, nav: t.navigation(ref), tree: t, version: version, pages: pages}
	for _, asset := range t.assets {
		b.add(asset.url, asset.contentType, asset.content)
	}
	for _, p := range t.pages {
		if err := b.addPage(p); err != nil {
			return nil, err
		}
	}
	if b.answers[Root] == nil {
		if err := b.addRendered(Root, templates.DocIndexPage(b.page("Documentation", Root))); err != nil {
			return nil, err
		}
	}
	if ref == nil {
		return b, nil
	}
	return b, ref.addTo(b)
}

// addPage adds a document, and its Markdown beside it.
func (b *built) addPage(p *page) error {
	view := b.page(p.title, p.url)
	view.Source, view.Here = p.source, p.here()
	b.add(p.source, typeMarkdown, p.markdown)
	return b.addRendered(p.url, templates.DocumentPage(view, p.html))
}

func (b *built) addRendered(at string, c templ.Component) error {
	if b.answers[at] != nil {
		return fmt.Errorf("%s: there must be one page of this address", at)
	}
	a, err := b.render(http.StatusOK, c)
	b.answers[at] = a
	return err
}

func (b *built) add(at, contentType string, body []byte) {
	b.answers[at] = &Answer{Status: http.StatusOK, Type: contentType, Tag: tag(body), Body: body}
}

func (b *built) render(status int, c templ.Component) (*Answer, error) {
	var out bytes.Buffer
	if err := c.Render(context.Background(), &out); err != nil {
		return nil, fmt.Errorf("rendering a page: %w", err)
	}
	return &Answer{Status: status, Type: typeHTML, Tag: tag(out.Bytes()), Body: out.Bytes()}, nil
}

func tag(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:8])
}

// page is the frame of the page at a path.
func (b *built) page(title, at string) templates.DocPage {
	p := templates.DocPage{Title: title, Version: b.version, Assets: static.URLs(), Pages: b.pages}
	p.Nav, p.Prev, p.Next = mark(b.nav, at)
	return p
}

// mark returns the navigation as the page at a path shows it, and the pages before and after that page.
func mark(nav []templates.DocGroup, at string) (marked []templates.DocGroup, prev, next *templates.DocLink) {
	var before *templates.DocLink
	found := false
	var links func(list []templates.DocLink) []templates.DocLink
	links = func(list []templates.DocLink) (out []templates.DocLink) {
		for _, l := range list {
			l.Current = l.URL == at
			if found && next == nil {
				next = &templates.DocLink{Title: l.Title, URL: l.URL}
			}
			if l.Current {
				found, prev = true, before
			}
			before = &templates.DocLink{Title: l.Title, URL: l.URL}
			l.Open = l.Current || strings.HasPrefix(at, l.URL+"/")
			l.Links = links(l.Links)
			out = append(out, l)
		}
		return out
	}
	for _, g := range nav {
		g.Links = links(g.Links)
		marked = append(marked, g)
	}
	return marked, prev, next
}

// isIndex reports whether a file stands for its directory.
func isIndex(name string) bool {
	base := strings.ToLower(path.Base(name))
	return base == "readme.md" || base == "index.md"
}
