package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"

	"lockkeeper/internal/auth"
	"lockkeeper/internal/auth/session"
	"lockkeeper/internal/ratelimit"
)

// Pages are the dashboard.
type Pages interface {
	http.Handler
	// Paths are the patterns of its addresses but those of logins; what is below one with a star at its end is its own to answer.
	Paths() []string
}

// openPaths are those of them that need no credential. Those of logins are there with authentication alone.
var openPaths = [...]string{"/static/*", "/login", "/login/*", "/logout"}

// Operations of pages.
const (
	opPage   = "Page"
	opLogIn  = "LogIn"
	opLogOut = "LogOut"
)

// mountPages gives the dashboard its paths, behind the same guard and in the same log as the rest. Its handler sets its
// own headers, and decides what a visitor may see (auth.VisitorOf). It returns the handler. It may hijack the connection (http.Hijacker); the request's context then ends when the server drains,
// and Wait waits until the handler returns. No bound of this package applies to what it does.
func (s *Server) mountPages(pages Pages) http.HandlerFunc {
	s.pages = pages.Paths()
	handler := func(w http.ResponseWriter, r *http.Request) {
		x := w.(*exchange)
		x.operation = pageOperation(r)
		x.r = r
		if x.refusedFormat() {
			return
		}
		if p := x.account(); p != nil {
			x.refuse(p)
			return
		}
		if err := x.moveTo(ratelimit.Stream); err != nil { // a page stays open
			x.fail(err)
			return
		}
		x.line.quiet = strings.HasPrefix(r.URL.Path, "/static/") || strings.HasPrefix(r.URL.Path, "/ui/")
		visitor := &auth.Visitor{Caller: x.caller, Refused: x.lapsed}
		ctx, cancel := context.WithCancelCause(auth.WithVisitor(r.Context(), visitor))
		defer cancel(nil)
		x.endPage, x.r = cancel, r.WithContext(ctx)
		defer s.rechecks.add(&recheck{caller: x.caller, end: func(why *problem) {
			cancel(&auth.Error{Detail: why.detail, Unavailable: why.code != codeUnauthenticated})
		}})()
		pages.ServeHTTP(x, x.r)
		x.caller = visitor.Caller // a user who has logged in: the logs have the name
		x.line.repeated = x.status == http.StatusUnauthorized && visitor.Refused != nil && visitor.Refused.Repeated
		x.line.code = cmp.Or(x.line.code, pageCodes[x.status])
	}
	paths := s.pages
	if s.auth != nil {
		paths = slices.Concat(paths, openPaths[1:])
		s.router.Post("/login", handler)
		s.router.Post("/logout", handler)
	}
	for _, path := range paths {
		s.router.Get(path, handler)
		s.router.Head(path, handler)
	}
	return handler
}

// forBrowsers hands addresses at which there is nothing to the dashboard, for users who have mistyped one: it has a page that says so. What
// looks like a request of a program gets the problem document of others.
func forBrowsers(page, others http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		browses := strings.Contains(strings.Join(r.Header["Accept"], ","), "text/html") && !strings.HasPrefix(r.URL.Path, "/v1/")
		if reads && (browses || r.URL.Path == faviconPath) {
			page(w, r)
			return
		}
		others(w, r)
	}
}

// faviconPath is what browsers ask for beside pages that name no icon, such as problem documents.
const faviconPath = "/favicon.ico"

// pageCodes are what the logs say of pages that were refused.
var pageCodes = map[int]code{http.StatusUnauthorized: codeUnauthenticated, http.StatusForbidden: codeForbidden}

func pageOperation(r *http.Request) string {
	switch {
	case r.URL.Path == auth.CallbackPath, r.URL.Path == "/login" && r.Method == http.MethodPost:
		return opLogIn
	case r.URL.Path == "/logout" && r.Method == http.MethodPost:
		return opLogOut
	}
	return opPage
}

// among reports whether a path is one of the patterns, of which those with a star at their end are prefixes.
func among(path string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		prefix, below := strings.CutSuffix(pattern, "*")
		return path == pattern || below && strings.HasPrefix(path, prefix)
	})
}

// lapses reports whether a page is to say what is wrong with its visitor's credential, in place of a problem document.
func (x *exchange) lapses(wrong *auth.Error) bool {
	path := x.r.URL.Path
	return x.s.pages != nil && (among(path, openPaths[:]) || wrong.Session && among(path, x.s.pages))
}

// forged refuses what changes something for a caller with a session, unless a page of this gateway has surely sent it: a browser shows its
// session to requests that other sites made it send, too. A page that came over plain HTTP is another site than one over TLS.
func (x *exchange) forged() *problem {
	if !x.caller.Session() || x.reads() || x.r.Method == http.MethodOptions {
		return nil
	}
	switch origin := x.r.Header.Get("Origin"); {
	case strings.HasPrefix(origin, "https://"), origin != "" && session.OnLoopback(x.r):
		return nil // its host is this one: the guard has compared it
	case origin == "" && x.r.Header.Get("Sec-Fetch-Site") == "same-origin":
		return nil
	}
	return &problem{code: codeCrossOrigin, detail: "with the session of a browser, a page of this gateway must send this; programs send Authorization"}
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
