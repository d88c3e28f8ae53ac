package httpapi

import (
	"net/http"
	"strings"
)

// direct are the handlers of the requests that come most: an acquire of one lock, and a release and a heartbeat of the lease
// that the token names. They are found without the router, which would copy the request for its parameters. All other
// requests, and those with anything odd about their path, are the router's.
type direct struct{ acquire, release, heartbeat func(*exchange) }

// add takes the handler of an operation that is one of them.
func (d *direct) add(operation string, handle func(*exchange)) {
	switch operation {
	case "Acquire":
		d.acquire = handle
	case "Release":
		d.release = handle
	case "Heartbeat":
		d.heartbeat = handle
	}
}

// find returns a request's handler, nil when it is for the router. lock is what the path names.
func (d *direct) find(r *http.Request) (handle func(*exchange), lock string) {
	path := r.URL.Path
	switch {
	case r.URL.RawPath != "":
	case r.Method == http.MethodDelete && path == "/v1/leases/self":
		return d.release, ""
	case r.Method == http.MethodPost && path == "/v1/leases/self/heartbeat":
		return d.heartbeat, ""
	case r.Method == http.MethodPost:
		rest, below := strings.CutPrefix(path, "/v1/locks/")
		name, leases := strings.CutSuffix(rest, "/leases")
		if below && leases && name != "" && strings.IndexByte(name, '/') < 0 {
			return d.acquire, name
		}
	}
	return nil, ""
}
