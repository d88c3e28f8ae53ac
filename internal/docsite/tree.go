package docsite

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"lockkeeper/web/templates"
)

// Names are as in the repository: the documents are in docs, the specification is beside it.
const (
	docsDir  = "docs"
	specName = "openapi.yaml"
)

// tree is the documents and what belongs to them.
type tree struct {
	pages  []*page // in order of their names
	assets []asset
	byName map[string]string // the URL of each file that is served, and of each directory with an index
	index  *page             // nil when there is none
}

// page is a document.
type page struct {
	name     string // docs/guides/cron.md
	url      string // /docs/guides/cron
	source   string // /docs/guides/cron.md
	markdown []byte
	article
}

// asset is a file that documents show.
type asset struct {
	url, contentType string
	content          []byte
}

// images are the types that documents may show.
var images = map[string]string{".png": "image/png", ".svg": "image/svg+xml", ".jpg": "image/jpeg", ".webp": "image/webp", ".gif": "image/gif"}

// readTree reads all documents and renders them.
func readTree(files fs.FS) (*tree, error) {
	t := &tree{byName: map[string]string{specName: templates.ReferencePath, "README.md": Root, docsDir: Root}}
	if files == nil {
		return t, nil
	}
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, name)
		if err == nil {
			t.add(path.Join(docsDir, name), content)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the documents: %w", err)
	}
	titles := map[string]string{specName: "API reference"}
	for _, p := range t.pages {
		titles[p.name] = firstHeading(p.markdown)
	}
	for _, p := range t.pages {
		r := renderer{resolve: func(href string) link { return t.resolve(p.name, href) }, titles: titles, trusted: true}
		if p.article, err = r.render(p.markdown); err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return t, nil
}

// firstHeading is the text of a document's heading at the top.
func firstHeading(markdown []byte) string {
	for line := range bytes.Lines(markdown) {
		if text, ok := bytes.CutPrefix(line, []byte("# ")); ok {
			return string(bytes.TrimSpace(text))
		}
	}
	return ""
}

func (t *tree) add(name string, content []byte) {
	at := "/" + name
	switch ext := path.Ext(name); {
	case ext == ".md":
		p := &page{name: name, url: strings.TrimSuffix(at, ext), source: at, markdown: content}
		if isIndex(name) {
			p.url = path.Dir(at)
			t.byName[path.Dir(name)] = p.url
			if path.Dir(name) == docsDir {
				t.index = p
			}
		}
		t.pages = append(t.pages, p)
		t.byName[name] = p.url
		return
	case images[ext] != "":
		t.assets = append(t.assets, asset{at, images[ext], content})
	case utf8.Valid(content) && ext != ".go":
		t.assets = append(t.assets, asset{at, "text/plain; charset=utf-8", content})
	default:
		return
	}
	t.byName[name] = at
}

// link is where a link in a document leads.
type link struct {
	url  string // "": to a file that is not served
	file string // the file's name in the repository; "" when it leads to another site
}

// resolve finds what href in the document called from leads to.
func (t *tree) resolve(from, href string) link {
	u, err := url.Parse(href)
	switch {
	case err != nil:
		return link{}
	case u.Scheme != "" || u.Host != "" || strings.HasPrefix(u.Path, "/"):
		return link{url: href}
	case u.Path == "":
		return link{url: href, file: from}
	}
	name := path.Join(path.Dir(from), u.Path)
	to := t.byName[name]
	if to != "" && u.Fragment != "" {
		to += "#" + u.Fragment
	}
	return link{to, name}
}

// find returns the address of the page with that name at the top, and of the first of the anchors that it has; "" without a
// page.
func (t *tree) find(name string, anchors ...string) string {
	for _, p := range t.pages {
		if p.url != path.Join(Root, name) {
			continue
		}
		for _, anchor := range anchors {
			if slices.ContainsFunc(p.headings, func(h heading) bool { return h.id == anchor }) {
				return p.url + "#" + anchor
			}
		}
		return p.url
	}
	return ""
}

// here are the sections of a page.
func (p *page) here() []templates.DocLink {
	var list []templates.DocLink
	for _, h := range p.headings {
		if h.level == 2 {
			list = append(list, templates.DocLink{Title: h.text, URL: "#" + h.id})
		}
	}
	return list
}

// navigation is the index as a list: see the package's doc.
func (t *tree) navigation(ref *reference) []templates.DocGroup {
	n := navigation{groups: []templates.DocGroup{{}}, tree: t, ref: ref, placed: map[string]int{}, pages: map[string]*page{}}
	for _, p := range t.pages {
		n.pages[p.url] = p
	}
	if len(t.pages) > 0 || ref != nil {
		n.put(0, Root, "Overview")
	}
	if t.index != nil {
		for _, l := range t.index.links {
			n.place(l)
		}
	}
	for _, p := range slices.SortedStableFunc(slices.Values(t.pages), byDirectory) {
		n.leftOver(p)
	}
	if ref != nil {
		n.put(0, templates.ReferencePath, "")
	}
	return slices.DeleteFunc(n.groups, func(g templates.DocGroup) bool { return len(g.Links) == 0 })
}

// byDirectory puts the top first, and an index before what is beside it.
func byDirectory(a, b *page) int {
	return cmp.Or(cmp.Compare(path.Dir(a.name), path.Dir(b.name)), cmp.Compare(a.url, b.url))
}

// navigation is made of the index's links.
type navigation struct {
	groups []templates.DocGroup
	tree   *tree
	ref    *reference
	pages  map[string]*page // by their URL
	placed map[string]int   // the group of each URL
}

// place adds what a link of the index leads to.
func (n *navigation) place(l linkIn) {
	to, _, _ := strings.Cut(l.to, "#")
	group := l.section
	if p := n.pages[to]; p != nil && group == "" {
		group = n.directory(p)
	}
	if n.pages[to] != nil || to == templates.ReferencePath {
		n.put(n.group(group), to, l.text)
	}
}

// directory is the title of a page's directory: that of its index, or its name. The top has none.
func (n *navigation) directory(p *page) string {
	dir := path.Dir(p.name)
	if dir == docsDir {
		return ""
	}
	if index := n.pages["/"+dir]; index != nil {
		return index.title
	}
	return sentence(strings.ReplaceAll(path.Base(dir), "-", " "))
}

// group finds the group with a title, or begins it.
func (n *navigation) group(title string) int {
	for i, g := range n.groups {
		if g.Title == title {
			return i
		}
	}
	n.groups = append(n.groups, templates.DocGroup{Title: title})
	return len(n.groups) - 1
}

// put adds a page, once. It is called as the index calls it, unless that is a file's name or long.
func (n *navigation) put(group int, to, text string) {
	if _, twice := n.placed[to]; twice {
		return
	}
	n.placed[to] = group
	l := templates.DocLink{URL: to}
	p := n.pages[to]
	if p != nil {
		l.Title = p.title
	}
	if text != "" && len(text) <= 40 && !strings.Contains(text, ".md") {
		if l.Title = text; p == nil || !strings.HasSuffix(p.title, " "+text) { // etcd is written so
			l.Title = sentence(text)
		}
	}
	if p != nil && p.title == n.groups[group].Title {
		l.Title = "Overview"
	}
	if to == templates.ReferencePath && n.ref != nil {
		l.Title, l.Links = "API reference", n.ref.links()
	}
	n.groups[group].Links = append(n.groups[group].Links, l)
}

// leftOver adds a page that the index does not link to: beside the others of its directory, else under the directory's name.
func (n *navigation) leftOver(p *page) {
	dir := path.Dir(p.name)
	for _, other := range n.tree.pages {
		if group, ok := n.placed[other.url]; ok && other.url != Root && path.Dir(other.name) == dir {
			n.put(group, p.url, "")
			return
		}
	}
	n.put(n.group(n.directory(p)), p.url, "")
}

// sentence begins a name with a capital letter.
func sentence(name string) string {
	first, n := utf8.DecodeRuneInString(name)
	return strings.ToUpper(string(first)) + name[n:]
}
