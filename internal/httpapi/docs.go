package httpapi

import (
	"net/http"
	"strings"

	"lockkeeper/internal/docsite"
)

// docsHeaders are those of the documentation's pages besides what every answer has.
var docsHeaders = map[string][]string{
	"Content-Security-Policy":    {docsite.ContentPolicy},
	"X-Frame-Options":            {"DENY"},
	"Referrer-Policy":            sameOrigin,
	"Cross-Origin-Opener-Policy": sameOrigin,
	"Permissions-Policy":         {"camera=(), geolocation=(), microphone=(), payment=(), usb=()"},
}

// mountDocs gives the documentation its paths, behind the same guard and in the same log as the rest.
func (s *Server) mountDocs(docs *docsite.Site) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		x := w.(*exchange)
		x.operation, x.r = "Docs", r
		if p := x.account(); p != nil {
			x.refuse(p)
			return
		}
		if x.refusedFormat() {
			return
		}
		a, err := docs.Get(r.URL.Path)
		if err == nil {
			err = x.document(a)
		}
		if err != nil {
			x.fail(internal(err))
		}
	}
	for _, path := range []string{docsite.Root, docsite.Root + "/*"} {
		s.router.Get(path, handler)
		s.router.Head(path, handler)
	}
}

// document sends what the documentation has at a path. A page may be kept, and is asked about each time.
func (x *exchange) document(a *docsite.Answer) error {
	h := x.Header()
	if a.Location != "" {
		h["Location"] = []string{a.Location}
		x.WriteHeader(a.Status)
		return nil
	}
	for name, values := range docsHeaders {
		h[name] = values
	}
	if a.Status == http.StatusOK {
		x.keep(a.Tag)
		x.open = strings.HasPrefix(a.Type, "text/") // images are compressed already
	}
	x.raw(a.Body)
	return x.send(a.Status, []string{a.Type})
}
