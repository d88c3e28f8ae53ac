// Package session seals what the gateway lets a browser keep: the session of a user who has logged in, and the state of a login
// through an issuer. It knows the cookies' names and attributes.
//
// # Promises
//
// A cookie is encrypted and authenticated (AES-256-GCM) under a key that is derived from a key of the cluster secret (HKDF, RFC 5869), with
// an info of its own: no seal between gateways and no lease token is a cookie, nor the other way round. So each gateway of the fleet
// opens what another one has sealed, and no gateway keeps sessions. The key of the secret that signs seals; every key that the
// secret has opens, so that a rotation ends no session before the old key is dropped. Each of the two cookies is bound to its purpose: a login's state is never taken for a session.
//
// # Names and attributes
//
// Over TLS the names have the prefix __Host-, with Secure, HttpOnly and Path=/: browsers take such a cookie from this host alone, over TLS alone,
// and no other host of the domain can plant one. Browsers treat http://localhost and loopback addresses differently: not all of
// them keep a cookie with Secure there. So a request for a loopback name without TLS gets the cookie without the prefix and without Secure. There
// cookies are per host and not per port: other programs of this machine that serve HTTP on loopback are sent it, and can plant
// one. Every other request counts as TLS. A proxy in front of the gateway may have ended it, and over plain HTTP the browser does not
// keep the cookie: no session crosses a network in the clear.
//
// SameSite is Lax. A link from a chat to a lock, and the issuer's redirect back, are navigations that another site begins. With Strict
// the browser leaves the cookie out of them, so that users who have logged in would see the login page. What Strict would add is
// not needed. A navigation is a GET, and no GET of the gateway changes anything for a caller with a cookie. Its answer cannot be framed, and
// the other site cannot read it. Each other request with a session must prove that a page of this gateway sent it (internal/httpapi).
//
// # Failure
//
// A cookie that does not open, because it was changed, is too old, or its key has been dropped, is no session: the user logs in again. While the
// secret has not been read nothing opens, and ErrNotReady says so.
//
// The package starts no goroutine and keeps nothing.
package session
