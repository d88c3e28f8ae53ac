package httpapi

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/ratelimit"
)

// pagePaths are the dashboard's. What is below them is its own to answer.
var pagePaths = [...]string{"/", "/namespaces", "/gateways", "/webhooks", "/webhooks/*", "/locks/*", "/ui/*", "/static/*"}

// mountPages gives the dashboard its paths, behind the same guard and in the same log as the rest. Its handler sets its
// own headers. It may hijack the connection (http.Hijacker); the request's context then ends when the server drains,
// and Wait waits until the handler returns. No bound of this package applies to what it does.
func (s *Server) mountPages(pages http.Handler) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		x := w.(*exchange)
		x.operation = "Page"
		x.r = r
		if x.refusedFormat() || x.refusedPage() {
			return
		}
		if err := x.moveTo(ratelimit.Stream); err != nil { // a page stays open
			x.fail(err)
			return
		}
		x.line.quiet = strings.HasPrefix(r.URL.Path, "/static/") || strings.HasPrefix(r.URL.Path, "/ui/")
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		x.endPage, x.r = cancel, r.WithContext(ctx)
		defer s.rechecks.add(&recheck{caller: x.caller, end: func(why *problem) { cancel(why) }})()
		pages.ServeHTTP(x, x.r)
	}
	for _, path := range pagePaths {
		s.router.Get(path, handler)
		s.router.Head(path, handler)
	}
}

// refusedPage refuses a page to a caller that may not see every lock: a page is rendered once for all viewers.
func (x *exchange) refusedPage() bool {
	p := x.account()
	if p == nil {
		p = x.mayAsk(needsDecision)
	}
	if p == nil && x.s.auth != nil && !x.caller.Principal.Rules.MayAll(access.Read) && !strings.HasPrefix(x.r.URL.Path, "/static/") {
		p = x.lacks(access.Read)
		p.detail = "the pages show every lock: they need the verb read for all of them, which " + x.caller.Principal.Name + " has not"
	}
	if p == nil {
		return false
	}
	x.refuse(p)
	return true
}

// refusedFormat refuses a page that is asked for with a format: it would be HTML for a shell to eval.
func (x *exchange) refusedFormat() bool {
	asked, _ := formatIn(x.r.URL.RawQuery, false)
	if asked {
		x.problem(&problem{code: codeUnknownField, field: "format", detail: "pages have no format; locks are acquired with POST /v1/locks/{lock}/leases"})
	}
	return asked
}

// sockets counts hijacked connections, which http.Server has forgotten.
type sockets struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when n falls to 0; nil while no call waits
}

func (s *sockets) entered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
}

func (s *sockets) left() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n--; s.n == 0 && s.none != nil {
		close(s.none)
		s.none = nil
	}
}

// wait returns when there is none.
func (s *sockets) wait(ctx context.Context) error {
	s.mu.Lock()
	if s.n == 0 {
		s.mu.Unlock()
		return nil
	}
	if s.none == nil {
		s.none = make(chan struct{})
	}
	none := s.none
	s.mu.Unlock()
	select {
	case <-none:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
