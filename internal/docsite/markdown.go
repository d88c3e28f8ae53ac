package docsite

import (
	"bytes"
	"fmt"
	"path"
	"strconv"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	goldhtml "github.com/yuin/goldmark/renderer/html"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// The dialect is GitHub's, which the documents are written for. Columns are aligned by an attribute: a style would be refused
// by the content security policy.
var (
	extensions = goldmark.WithExtensions(extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)),
		extension.Strikethrough, extension.TaskList)
	plain    = goldmark.New(extensions)                                                      // leaves out HTML
	withHTML = goldmark.New(extensions, goldmark.WithRendererOptions(goldhtml.WithUnsafe())) // passes it on
)

// renderer makes HTML of Markdown.
type renderer struct {
	resolve func(href string) link
	titles  map[string]string // of the documents, by their names
	trusted bool              // the Markdown may hold HTML
}

// article is a rendered text.
type article struct {
	title    string // of its first heading
	html     string
	headings []heading
	links    []linkIn
}

type heading struct {
	level    int
	id, text string
}

// linkIn is a link of an article to another page.
type linkIn struct{ section, text, to string }

func (r *renderer) render(markdown []byte) (article, error) {
	var out bytes.Buffer
	m := plain
	if r.trusted {
		m = withHTML
	}
	if err := m.Convert(markdown, &out); err != nil {
		return article{}, fmt.Errorf("reading Markdown: %w", err)
	}
	body := &html.Node{Type: html.ElementNode, Data: "body", DataAtom: atom.Body}
	nodes, err := html.ParseFragment(&out, body)
	if err != nil {
		return article{}, fmt.Errorf("reading HTML: %w", err)
	}
	for _, n := range nodes {
		body.AppendChild(n)
	}
	w := &walk{renderer: r, ids: map[string]bool{}}
	w.children(body)
	var rendered strings.Builder
	for n := range body.ChildNodes() {
		if err := html.Render(&rendered, n); err != nil {
			return article{}, fmt.Errorf("writing HTML: %w", err)
		}
	}
	w.html = rendered.String()
	return w.article, nil
}

// walk makes of what a renderer of Markdown writes what a page of the site is.
type walk struct {
	*renderer
	article
	section string
	ids     map[string]bool
}

func (w *walk) children(n *html.Node) {
	for c := n.FirstChild; c != nil; {
		next := c.NextSibling
		w.node(c)
		c = next
	}
}

func (w *walk) node(n *html.Node) {
	if n.Type == html.CommentNode { // notes for the documentation's tests
		n.Parent.RemoveChild(n)
		return
	}
	w.children(n)
	switch n.DataAtom {
	case atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6:
		w.heading(n)
	case atom.A:
		w.link(n)
	case atom.Strong: // the beginning of a paragraph stands for a heading
		if n.PrevSibling == nil && (n.Parent.DataAtom == atom.P || n.Parent.DataAtom == atom.Li) {
			w.section = strings.TrimRight(textOf(n), ".:")
		}
	case atom.Img, atom.Source:
		w.image(n)
	case atom.Pre:
		set(n, "tabindex", "0") // it may be wider than the page, and is moved with the keyboard
	case atom.Th:
		if n.FirstChild == nil { // a header that says nothing is none
			n.Data, n.DataAtom = "td", atom.Td
		}
	case atom.Table:
		wrap := element(atom.Div, "class", "table", "tabindex", "0")
		n.Parent.InsertBefore(wrap, n)
		n.Parent.RemoveChild(n)
		wrap.AppendChild(n)
	}
}

// heading gives a heading the id that it has on GitHub, and a link to itself.
func (w *walk) heading(n *html.Node) {
	h := heading{level: int(n.Data[1] - '0'), text: textOf(n)}
	if w.title == "" {
		w.title = h.text
	}
	if h.level <= 2 {
		w.section = ""
		if h.level == 2 {
			w.section = h.text
		}
	}
	h.id = slug(h.text)
	for i := 1; w.ids[h.id]; i++ {
		h.id = slug(h.text) + "-" + strconv.Itoa(i)
	}
	w.ids[h.id] = true
	w.headings = append(w.headings, h)
	set(n, "id", h.id)
	if h.level == 1 {
		return
	}
	anchor := element(atom.A, "class", "anchor", "href", "#"+h.id, "aria-hidden", "true", "tabindex", "-1")
	anchor.AppendChild(&html.Node{Type: html.TextNode, Data: "#"})
	n.AppendChild(anchor)
}

// slug is the id of a heading with that text.
func slug(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, text)
}

// link makes a link lead to the page of what it names, or text of a link to a file that is not served.
func (w *walk) link(n *html.Node) {
	to := w.resolve(get(n, "href"))
	switch {
	case to.url == "":
		text := textOf(n)
		n.Data, n.DataAtom, n.Attr = "span", atom.Span, nil
		if to.file != "" && !strings.Contains(text, strings.TrimSuffix(to.file[strings.LastIndex(to.file, "/")+1:], ".md")) {
			file := element(atom.Code)
			file.AppendChild(&html.Node{Type: html.TextNode, Data: to.file})
			n.AppendChild(&html.Node{Type: html.TextNode, Data: " ("})
			n.AppendChild(file)
			n.AppendChild(&html.Node{Type: html.TextNode, Data: ")"})
		}
		return
	case to.file != "":
		if title := w.titles[to.file]; title != "" && strings.HasSuffix(textOf(n), path.Base(to.file)) {
			rename(n, title) // a reader of the site knows no files
		}
		w.links = append(w.links, linkIn{w.section, textOf(n), to.url})
	default:
		set(n, "rel", "noreferrer")
	}
	set(n, "href", to.url)
}

// image shows an image that the site serves. Of any other the description is left.
func (w *walk) image(n *html.Node) {
	key := "src"
	if n.DataAtom == atom.Source {
		key = "srcset"
	}
	to := w.resolve(get(n, key))
	if to.url == "" || to.file == "" {
		n.Parent.InsertBefore(&html.Node{Type: html.TextNode, Data: get(n, "alt")}, n)
		n.Parent.RemoveChild(n)
		return
	}
	set(n, key, to.url)
	if key == "src" {
		set(n, "loading", "lazy")
	}
}

func textOf(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// rename replaces the content of a node.
func rename(n *html.Node, text string) {
	for n.FirstChild != nil {
		n.RemoveChild(n.FirstChild)
	}
	n.AppendChild(&html.Node{Type: html.TextNode, Data: text})
}

func get(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

func set(n *html.Node, key, value string) {
	for i := range n.Attr {
		if n.Attr[i].Key == key {
			n.Attr[i].Val = value
			return
		}
	}
	n.Attr = append(n.Attr, html.Attribute{Key: key, Val: value})
}

func element(a atom.Atom, attributes ...string) *html.Node {
	n := &html.Node{Type: html.ElementNode, Data: a.String(), DataAtom: a}
	for i := 0; i < len(attributes); i += 2 {
		set(n, attributes[i], attributes[i+1])
	}
	return n
}
