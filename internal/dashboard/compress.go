package dashboard

import (
	"net/http"
	"strings"

	"lockkeeper/internal/gzipped"
)

// Pages and polls are compressed when no other site has made the browser ask for them.
//
// A page repeats what its address says (q, a lock's name) beside what others wrote (owners, metadata). An observer of the network who
// can also choose the address, by a link or a window that another site opens, could guess the latter letter by letter from the
// length of compressed answers (BREACH). Nothing of a page is a credential, and yet it is not for that observer. A browser says which
// site a request comes from (Sec-Fetch-Site), also after redirects, and no script can change that. So a page that another site has asked for
// comes uncompressed; what it then loads by itself is of the same origin.
//
// Browsers leave the header out of requests over plain HTTP to other hosts than their own. There an observer reads everything, compressed or not. A request over
// TLS without it is from a browser of before 2023, or from a program; it gets no compression.
//
// Sockets are compressed, too: the upgrade refuses other origins. Login pages and refusals never are.

// packed is html in gzip, where that is safe and the request accepts it.
func packed(r *http.Request, h http.Header, html []byte) []byte {
	if len(html) < gzipped.Least {
		return html
	}
	gzipped.Varies(h)
	if !gzipped.Accepts(r.Header) || !ownRequest(r) {
		return html
	}
	h.Set("Content-Encoding", "gzip")
	return gzipped.Small(html)
}

// ownRequest reports whether no other site can have chosen the request's address, or its length hides nothing.
func ownRequest(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none": // none: a user has typed it, or keeps it
		return true
	case "":
		return r.TLS == nil && !strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
	}
	return false
}
