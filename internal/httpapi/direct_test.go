package httpapi

import (
	"net/http"
	"net/url"
	"reflect"
	"testing"

	"github.com/go-chi/chi/v5"

	"lockkeeper/internal/test/assert"
)

// asTheRouter holds what is found for a request against what the router finds.
func asTheRouter(t *testing.T, s *Server, method, target string) (found bool) {
	t.Helper()
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return false // net/http answers it
	}
	handle, lock := s.direct.find(&http.Request{Method: method, URL: u})
	if handle == nil {
		return false
	}
	path := u.RawPath
	if path == "" {
		path = u.Path
	}
	at := chi.NewRouteContext()
	assert.That(t, s.router.Match(at, method, path), "%s %s: the router finds nothing", method, target)
	want, named := map[string]func(*exchange){
		"/v1/locks/{lock}/leases": s.direct.acquire, "/v1/leases/self": s.direct.release, "/v1/leases/self/heartbeat": s.direct.heartbeat,
	}[at.RoutePattern()], at.URLParam("lock")
	assert.That(t, reflect.ValueOf(handle).Pointer() == reflect.ValueOf(want).Pointer() && lock == named, "%s %s: found for lock %q, the router has %s for %q", method, target, lock, at.RoutePattern(), named)
	return true
}

var oddTargets = []string{
	"/v1/locks/deploy/leases", "/v1/locks/deploy/leases?ttl=10s", "/v1/locks/a:b/leases", "/v1/locks/%61/leases", "/v1/locks/a%2Fb/leases", "/v1/locks//leases",
	"/v1/locks/leases", "/v1/locks/a/b/leases", "/v1/locks/leases/leases", "/v1/locks/../leases", "/v1/locks/{lock}/leases", "/v1/locks/*/leases", "/v1/locks/ü/leases",
	"/v1/leases/self", "/v1/leases/self/", "/v1/leases/%73elf", "/v1/leases/self/heartbeat", "/v1/leases/self/heartbeat?ttl=1m", "/v1//leases/self", "//v1/leases/self", "*",
	"http://other/v1/leases/self", "/v1/locks/deploy/leases/", "/V1/locks/deploy/leases", "/v1/locks/deploy/leases;x",
}

func TestWhatIsFoundDirectlyIsWhatTheRouterFinds(t *testing.T) {
	s := New(Options{Locks: newFake()})
	found := 0
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "post"} {
		for _, target := range oddTargets {
			if asTheRouter(t, s, method, target) {
				found++
			}
		}
	}
	assert.That(t, found >= 8, "only %d were found directly", found)
}

func FuzzWhatIsFoundDirectlyIsWhatTheRouterFinds(f *testing.F) {
	for _, target := range oddTargets {
		f.Add("POST", target)
		f.Add("DELETE", target)
	}
	s := New(Options{Locks: newFake()})
	f.Fuzz(func(t *testing.T, method, target string) { asTheRouter(t, s, method, target) })
}
