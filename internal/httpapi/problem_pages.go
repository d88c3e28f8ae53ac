package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"lockkeeper/web/templates"
)

// problemPath is where the page of each problem is: a problem's type is a reference to it (RFC 9457, section 3.1.1).
const problemPath = "/problems/"

// page describes a kind of problem. It is made of the catalogue alone: nothing in it is a client's.
func (k *kind) page() templates.ProblemKind {
	p := &problem{code: k.code, detail: k.help, retryAfter: 3 * time.Second}
	doc := p.document()
	doc.RequestID = "0123456789abcdef"
	var example bytes.Buffer
	e := json.NewEncoder(&example)
	e.SetEscapeHTML(false) // the page does it
	e.SetIndent("", "  ")
	if err := e.Encode(&doc); err != nil {
		panic(fmt.Errorf("encoding the example of a problem: %w", err)) // our own types
	}
	page := templates.ProblemKind{DocPage: templates.DocPage{Title: k.title}, Code: k.code, Cause: k.cause, Help: k.help,
		Example: example.String(), Status: fmt.Sprintf("%d %s", k.status, http.StatusText(k.status))}
	switch k.again {
	case never:
		page.Again = "The same request gets the same answer."
	case atOnce:
		page.Again = "The same request may be repeated at once."
	default:
		page.Again = "The same request may be repeated after Retry-After seconds."
	}
	return page
}

// getProblem serves the page of a problem: HTML for a browser, text for others.
func (p *process) getProblem(x *exchange) error {
	var in problemCode
	if err := decode(x, &aProblem, &in); err != nil {
		return err
	}
	k := kinds[code(in)]
	page := k.page()
	x.Header()["Vary"] = []string{"Accept"}
	if strings.Contains(strings.Join(x.r.Header["Accept"], ","), "text/html") {
		a, err := p.docs.Problem(page)
		if err != nil {
			return internal(err)
		}
		return x.document(a)
	}
	x.keep(p.openapiTag + "-" + k.code)
	x.out.Reset()
	fmt.Fprintf(&x.out, "%s\n%s, status %s\n\nCause\n  %s\n\nWhat to do\n  %s\n  %s\n\nExample\n%s", page.Title, page.Code, page.Status,
		page.Cause, page.Help, page.Again, page.Example)
	return x.send(http.StatusOK, typeText)
}

// problemCode is a code of the catalogue in a path.
type problemCode code

func (c *problemCode) read(_ string, v value) error {
	if kinds[v.text] == nil {
		return &problem{code: codeRouteNotFound, detail: "there is no problem of this code; openapi.yaml lists them"}
	}
	*c = problemCode(v.text)
	return nil
}

var aProblem = operation[problemCode]{fields: []field[problemCode]{{name: "code", in: inPath, to: func(c *problemCode) any { return c }}}}
