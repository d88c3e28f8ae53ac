package httpapi

import (
	"hash/fnv"
	"io"
	"net/url"
	"strconv"
	"strings"

	"lockkeeper/internal/httpapi/api"
)

// listed tags the answer to a list by the revs of what it shows and by the gateways that could not be asked, and links to the next
// page. A list holds no secret.
func listed[T any](x *exchange, items []T, rev func(*T) (name, rev string), unreached []api.UnreachedGateway, cursor string) {
	h := fnv.New64a()
	for i := range items {
		name, rev := rev(&items[i])
		_, _ = io.WriteString(h, name+"\x00"+rev+"\x00")
	}
	for _, gateway := range unreached {
		_, _ = io.WriteString(h, gateway.GatewayID+"\x00"+gateway.Detail+"\x00")
	}
	_, _ = io.WriteString(h, cursor)
	x.tagWeakly(strconv.FormatUint(h.Sum64(), 36))
	x.next(cursor)
	x.open = true
}

// query is the request's query as decode reads it. URL.Query leaves out each field with a semicolon.
func (x *exchange) query() url.Values {
	values, _ := url.ParseQuery(strings.ReplaceAll(x.r.URL.RawQuery, ";", "%3B")) // decode has refused what cannot be parsed
	return values
}

// next links to the page at a cursor; "" is none. That page does not wait.
func (x *exchange) next(cursor string) {
	if cursor == "" {
		return
	}
	query := x.query()
	for _, name := range [...]string{"wait", "since", "until"} {
		query.Del(name)
	}
	query.Set("cursor", cursor)
	to := url.URL{Path: x.r.URL.Path, RawPath: x.r.URL.RawPath, RawQuery: query.Encode()}
	x.Header()["Link"] = []string{"<" + to.String() + `>; rel="next"`}
}
