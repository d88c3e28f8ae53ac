package dashboard

import (
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"lockkeeper/internal/auth"
	"lockkeeper/web/templates"
)

// Paths of logins. The return from an issuer is at auth.CallbackPath.
const (
	loginPath  = "/login"
	withPath   = loginPath + "/with/"
	logoutPath = "/logout"
)

const (
	maxLoginForm = 16 << 10 // bytes
	maxNext      = 2 << 10  // bytes of the place to which a login leads back
)

// Logins let users log in; internal/auth has them. Their errors are *auth.Error.
type Logins interface {
	// Issuers are the names of those through which users log in.
	Issuers() []string
	// LogIn lets the browser keep a session of an API token.
	LogIn(w http.ResponseWriter, r *http.Request, token string) (auth.Caller, error)
	// LogOut lets the browser forget its session.
	LogOut(w http.ResponseWriter, r *http.Request)
	// Begin gives the address of the issuer at which the user logs in, Finish ends that login and gives next again.
	Begin(w http.ResponseWriter, r *http.Request, issuer, next string) (to string, err error)
	Finish(w http.ResponseWriter, r *http.Request) (c auth.Caller, next string, err error)
}

// serveLogin answers a request for the pages on which users log in and out, and reports whether it was one.
func (d *Dashboard) serveLogin(w http.ResponseWriter, r *http.Request) bool {
	path := r.URL.Path
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case path == loginPath && reads:
		d.loginPage(w, r)
	case path == loginPath && r.Method == http.MethodPost:
		d.logIn(w, r)
	case path == logoutPath && r.Method == http.MethodPost:
		d.opt.Logins.LogOut(w, r)
		http.Redirect(w, r, loginPath+"?out=1", http.StatusSeeOther)
	case path == logoutPath && reads: // a GET changes nothing
		http.Redirect(w, r, "/", http.StatusSeeOther)
	case path == auth.CallbackPath && reads:
		c, next, err := d.opt.Logins.Finish(w, r)
		d.loggedIn(w, r, c, next, err)
	case strings.HasPrefix(path, withPath) && reads:
		d.beginLogin(w, r, strings.TrimPrefix(path, withPath))
	default:
		return false
	}
	return true
}

// loginURL leads to the login page, and from there to what r asks for.
func loginURL(r *http.Request) string {
	next := localPath(r.URL.RequestURI())
	if next == "/" {
		return loginPath
	}
	return withQuery(loginPath, url.Values{"next": {next}})
}

func (d *Dashboard) loginPage(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	v := templates.Login{Next: localPath(query.Get("next"))}
	switch who := auth.VisitorOf(r.Context()); {
	case query.Has("out"):
		v.Notice, v.Out = "You have logged out.", true
	case who.Refused != nil || query.Has("ended"):
		v.Notice = "The session has ended. Log in again."
	case who.Session():
		v.Notice = "You are logged in as " + visible(who.Principal.Name) + ". Another login replaces this session."
	}
	d.showLogin(w, r, http.StatusOK, v)
}

func (d *Dashboard) showLogin(w http.ResponseWriter, r *http.Request, status int, v templates.Login) {
	v.Page = templates.Page{Title: "Log in · Lockkeeper", Assets: d.assets, Bare: true}
	v.Issuers = d.opt.Logins.Issuers()
	html, err := render(r.Context(), templates.LoginPage(v))
	d.answer(w, r, status, html, err)
}

// logIn takes the form of the login page.
func (d *Dashboard) logIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxLoginForm)
	if err := r.ParseForm(); err != nil {
		d.showLogin(w, r, http.StatusBadRequest, templates.Login{Next: "/", Problem: "The form must have an API token."})
		return
	}
	c, err := d.opt.Logins.LogIn(w, r, strings.TrimSpace(r.PostForm.Get("token")))
	d.loggedIn(w, r, c, localPath(r.PostForm.Get("next")), err)
}

func (d *Dashboard) beginLogin(w http.ResponseWriter, r *http.Request, issuer string) {
	next := localPath(r.URL.Query().Get("next"))
	to, err := d.opt.Logins.Begin(w, r, issuer, next)
	if err != nil {
		d.loggedIn(w, r, auth.Caller{}, next, err)
		return
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// loggedIn ends a login: it leads to next, or says what went wrong.
func (d *Dashboard) loggedIn(w http.ResponseWriter, r *http.Request, c auth.Caller, next string, err error) {
	if err == nil {
		*auth.VisitorOf(r.Context()) = auth.Visitor{Caller: c}
		http.Redirect(w, r, next, http.StatusSeeOther)
		return
	}
	status, problem := http.StatusInternalServerError, "The gateway could not do this. See its log."
	level := slog.LevelInfo
	if wrong, ok := errors.AsType[*auth.Error](err); ok {
		auth.VisitorOf(r.Context()).Refused = wrong
		if wrong.Repeated {
			level = slog.LevelDebug
		}
		status, problem = http.StatusUnauthorized, sentence(visible(wrong.Detail))
		if wrong.Unavailable {
			status = http.StatusServiceUnavailable
			w.Header().Set("Retry-After", retryAfter)
		}
	}
	d.opt.Logger.Log(r.Context(), level, "a login was refused", "error", err)
	d.showLogin(w, r, status, templates.Login{Next: localPath(next), Problem: problem})
}

// localPath is a path of this gateway, from text that anyone may have written: "/" where it could lead elsewhere, and where it leads
// to no page.
func localPath(text string) string {
	u, err := url.Parse(text)
	if err != nil || len(text) > maxNext || u.Scheme != "" || u.Opaque != "" || u.User != nil || u.Host != "" || strings.Contains(text, `\`) ||
		!strings.HasPrefix(u.Path, "/") || strings.HasPrefix(u.Path, "//") {
		return "/"
	}
	for _, none := range []string{loginPath, logoutPath, uiPrefix} {
		if strings.HasPrefix(u.Path, none) {
			return "/"
		}
	}
	return (&url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery}).String()
}
