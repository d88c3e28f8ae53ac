package dashboard

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"lockkeeper/internal/locks"
)

// Paths of what keeps pages live.
const (
	uiPrefix = "/ui/"
	livePath = uiPrefix + "live"
	pollPath = uiPrefix + "fragments"
)

// maxParameter bounds a parameter's length in bytes.
const maxParameter = 8192 // a cursor is as long as the directory of a lock that another program has made

// refusal is why there is no page.
type refusal struct {
	status        int
	title, detail string
	logIn         string // URL of a login that may help; ""
}

func (r *refusal) Error() string { return r.detail }

func wrongParameter(status int, format string, args ...any) *refusal {
	return &refusal{status: status, title: "Invalid URL", detail: fmt.Sprintf(format, args...)}
}

// pageAt reads the page of its own address, which has the row and the subject.
func pageAt(r *http.Request, at *row, subject string) (page, *refusal) {
	values, wrong := parameters(r)
	if wrong != nil {
		return nil, wrong
	}
	return at.page(subject, values, at.parameters)
}

// livePage reads the page that a socket or a poll is about.
func livePage(r *http.Request) (page, *refusal) {
	values, wrong := parameters(r)
	if wrong != nil {
		return nil, wrong
	}
	at := rowNamed(values.Get("page"))
	if at == nil {
		return nil, wrongParameter(http.StatusUnprocessableEntity, "page is %s, not %s.", rowNames(), quoted(values.Get("page")))
	}
	allowed := []string{"page"}
	if at.subject != "" {
		allowed = append(allowed, at.subject)
	}
	return at.page(values.Get(at.subject), values, append(allowed, at.parameters...))
}

// page makes a page of the row, whose address may have the parameters that are allowed.
func (r *row) page(subject string, values url.Values, allowed []string) (page, *refusal) {
	p, wrong := r.parse(subject, values)
	if wrong == nil {
		wrong = only(values, allowed)
	}
	if wrong != nil {
		return nil, wrong
	}
	return p, nil
}

// rowNames are the names of all pages, as a sentence has them.
func rowNames() string {
	var names []string
	for i := range table {
		names = append(names, table[i].name)
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// parameters reads the query; each parameter may be there once.
func parameters(r *http.Request) (url.Values, *refusal) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, wrongParameter(http.StatusBadRequest, "The query must be valid.")
	}
	for name, list := range values {
		switch value := list[0]; {
		case len(list) > 1:
			return nil, wrongParameter(http.StatusBadRequest, "The parameter %s is there more than once.", quoted(name))
		case len(value) > maxParameter:
			return nil, wrongParameter(http.StatusUnprocessableEntity, "The parameter %s is longer than %d bytes.", quoted(name), maxParameter)
		case !utf8.ValidString(value) || visible(value) != value:
			return nil, wrongParameter(http.StatusUnprocessableEntity, "The parameter %s has invisible characters: %s.", quoted(name), quoted(value))
		}
	}
	return values, nil
}

// only refuses parameters other than those that are allowed: one that is
// mistyped must not look as if it had been obeyed.
func only(values url.Values, allowed []string) *refusal {
	for name := range values {
		if !slices.Contains(allowed, name) {
			return wrongParameter(http.StatusBadRequest, "There is no parameter %s; there are %s.", quoted(name), strings.Join(allowed, ", "))
		}
	}
	return nil
}

func namespaceOf(values url.Values) string {
	if ns := values.Get("ns"); ns != "" {
		return ns
	}
	return locks.DefaultNamespace
}

func quoted(s string) string {
	const most = 64
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strconv.Quote(visible(s))
}

// differing are the parameters that differ from their defaults, of triples of name, value and default.
func differing(triples ...[3]string) url.Values {
	values := url.Values{}
	for _, t := range triples {
		if t[1] != t[2] {
			values.Set(t[0], t[1])
		}
	}
	return values
}

// urlOf is the address of a page.
func urlOf(p page) string {
	subject, values := p.own()
	return withQuery(rowNamed(p.name()).path+url.PathEscape(subject), values)
}

// liveURL and pollURL are the addresses of what keeps a page live.
func liveURL(p page) string { return withQuery(livePath, liveParameters(p)) }
func pollURL(p page) string { return withQuery(pollPath, liveParameters(p)) }

func liveParameters(p page) url.Values {
	at := rowNamed(p.name())
	subject, own := p.own()
	values := url.Values{"page": {at.name}}
	for name, list := range own {
		values[name] = list
	}
	if at.subject != "" {
		values.Set(at.subject, subject)
	}
	return values
}

func withQuery(path string, values url.Values) string {
	if len(values) == 0 {
		return path
	}
	return path + "?" + values.Encode()
}
