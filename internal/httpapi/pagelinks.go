package httpapi

import (
	"hash/fnv"
	"io"
	"net/url"
	"strconv"
)

// listed tags the answer to a list by the revs of what it shows, and links to the next page. A list holds no secret.
func listed[T any](x *exchange, items []T, rev func(*T) (name, rev string), cursor string) {
	h := fnv.New64a()
	for i := range items {
		name, rev := rev(&items[i])
		_, _ = io.WriteString(h, name+"\x00"+rev+"\x00")
	}
	_, _ = io.WriteString(h, cursor)
	x.tagWeakly(strconv.FormatUint(h.Sum64(), 36))
	x.next(cursor)
	x.open = true
}

// next links to the page at a cursor; "" is none. That page does not wait.
func (x *exchange) next(cursor string) {
	if cursor == "" {
		return
	}
	query := x.r.URL.Query()
	for _, name := range [...]string{"wait", "since", "until"} {
		query.Del(name)
	}
	query.Set("cursor", cursor)
	to := url.URL{Path: x.r.URL.Path, RawPath: x.r.URL.RawPath, RawQuery: query.Encode()}
	x.Header()["Link"] = []string{"<" + to.String() + `>; rel="next"`}
}
