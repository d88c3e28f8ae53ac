package session

import (
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// names of the cookies, without the prefix.
var names = map[Purpose]string{Session: "lockkeeper", Login: "lockkeeper-login"}

// overTLS is the prefix that browsers take over TLS alone.
const overTLS = "__Host-"

// OnLoopback reports whether the request came for a name of this machine, and not over TLS.
func OnLoopback(r *http.Request) bool {
	if r.TLS != nil {
		return false
	}
	host := r.Host
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		host = host[:i]
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || err == nil && addr.IsLoopback()
}

// Origin is where the browser that sent the request has found the gateway.
func Origin(r *http.Request) string {
	if OnLoopback(r) {
		return "http://" + r.Host
	}
	return "https://" + r.Host
}

func nameFor(r *http.Request, p Purpose) string {
	if OnLoopback(r) {
		return names[p]
	}
	return overTLS + names[p]
}

// Given is the value of the cookie that the request shows; "" when it shows none. several: it shows more than one, of which all but
// one have been planted.
func Given(r *http.Request, p Purpose) (value string, several bool) {
	if len(r.Header["Cookie"]) == 0 {
		return "", false
	}
	given := r.CookiesNamed(nameFor(r, p))
	if len(given) == 0 {
		return "", false
	}
	return given[0].Value, len(given) > 1
}

// Keep lets the browser keep a value until it expires.
func Keep(w http.ResponseWriter, r *http.Request, p Purpose, value string, until time.Time) {
	c := cookieFor(r, p)
	c.Value, c.MaxAge = value, max(int(time.Until(until).Seconds()), 1)
	http.SetCookie(w, c)
}

// Forget lets the browser forget the value.
func Forget(w http.ResponseWriter, r *http.Request, p Purpose) {
	c := cookieFor(r, p)
	c.MaxAge = -1
	http.SetCookie(w, c)
}

func cookieFor(r *http.Request, p Purpose) *http.Cookie {
	return &http.Cookie{Name: nameFor(r, p), Path: "/", HttpOnly: true, Secure: !OnLoopback(r), SameSite: http.SameSiteLaxMode}
}
