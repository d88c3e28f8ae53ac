package dashboard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"

	"github.com/gorilla/websocket"

	"lockkeeper/internal/auth"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/web/templates"
)

const (
	gatewayStops = "the gateway is shutting down"
	// closeUnauthenticated is the close code of a socket whose viewer is not let in any more.
	closeUnauthenticated = 4401
)

// sight is a page by a set of rules: all who have both equal see the same.
type sight struct {
	page
	rules string // access.Rules.Key
	name  string // of the viewer, on personal pages
}

func sightOf(p page, who locks.Principal) sight {
	return sight{p, who.Rules.Key(), shared(p, who).Name}
}

// shared is the principal that a topic reads as: without the name of one viewer where others see the same.
func shared(p page, who locks.Principal) locks.Principal {
	if p.personal() {
		return who
	}
	return locks.Principal{Rules: who.Rules}
}

// visitor is who asks for a page. A request that says nothing of its visitor has one that may do nothing.
func visitor(r *http.Request) locks.Principal { return auth.VisitorOf(r.Context()).Principal }

// shownViewer is what the page says of its viewer.
func (d *Dashboard) shownViewer(r *http.Request) *templates.Viewer {
	if d.opt.Logins == nil {
		return nil
	}
	v := auth.VisitorOf(r.Context())
	shown := &templates.Viewer{Name: visible(v.Principal.Name), LogOut: v.Session()}
	if v.Kind == auth.Anonymous {
		shown.Name, shown.LogIn = "not logged in", loginURL(r)
	}
	return shown
}

// turnedAway answers a visitor that may see nothing, and reports whether it did.
func (d *Dashboard) turnedAway(w http.ResponseWriter, r *http.Request) bool {
	v := auth.VisitorOf(r.Context())
	switch {
	case v.Refused != nil && v.Refused.Unavailable:
		w.Header().Set("Retry-After", retryAfter)
		d.refuse(w, r, &refusal{status: http.StatusServiceUnavailable, title: "Not ready yet", detail: sentence(v.Refused.Detail)})
	case v.Refused != nil:
		d.sendToLogin(w, r, "ended=1")
	case !v.Principal.Rules.Nothing():
		return false
	case v.Kind == auth.Anonymous:
		d.sendToLogin(w, r, "")
	default:
		d.refuse(w, r, &refusal{status: http.StatusForbidden, title: "Nothing here is yours to see", logIn: loginURL(r),
			detail: "You are " + visible(v.Principal.Name) + ". No role of the gateway's file of rules lets you read a lock: ask its operator for one."})
	}
	return true
}

// sendToLogin leads a browser to the login page and back. What a page's script asks for is refused: it follows no redirect.
func (d *Dashboard) sendToLogin(w http.ResponseWriter, r *http.Request, why string) {
	if d.opt.Logins == nil {
		d.refuse(w, r, &refusal{status: http.StatusUnauthorized, title: "Nothing here is yours to see", detail: "This needs a credential in the Authorization header."})
		return
	}
	if strings.HasPrefix(r.URL.Path, uiPrefix) || r.Header.Get("HX-Request") != "" || r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "log in at "+loginPath, http.StatusUnauthorized)
		return
	}
	to := loginURL(r)
	switch {
	case why != "" && strings.Contains(to, "?"):
		to += "&" + why
	case why != "":
		to += "?" + why
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// readableInstead is the overview of a namespace that the visitor may read, when none was asked for and the visitor may not read
// the default one. "" when the page stays as it is.
func (d *Dashboard) readableInstead(r *http.Request, p page, who locks.Principal) string {
	o, is := p.(overviewPage)
	if !is || o.ns != locks.DefaultNamespace || r.URL.Query().Has("ns") || who.Rules.MayIn(access.Read, o.ns) {
		return ""
	}
	if readable := d.status.get(r.Context()).For(who).Namespaces; len(readable) > 0 {
		o.ns = readable[0]
		return urlOf(o)
	}
	return ""
}

// nameOf tells one set of rules from another, and nothing about them.
func nameOf(rules *access.Rules) string {
	sum := sha256.Sum256([]byte(rules.Key()))
	return hex.EncodeToString(sum[:6])
}

// endOf is how a socket is closed whose context has ended.
func endOf(ctx context.Context) (code int, reason string) {
	why, ok := errors.AsType[*auth.Error](context.Cause(ctx))
	switch {
	case !ok:
		return websocket.CloseGoingAway, gatewayStops
	case why.Unavailable:
		return websocket.CloseTryAgainLater, why.Detail
	}
	return closeUnauthenticated, why.Detail
}
