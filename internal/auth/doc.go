// Package auth says which caller sent a request, and which rules (internal/locks/access) hold for the caller.
//
// # The file
//
// The rules are in one YAML file (--auth-file): issuers of OIDC tokens, which name of a client certificate counts, roles, and
// who has which role. Read compiles it. An unknown key, a wrong type, a bad glob, an unknown role or verb is an error with line
// and column that says what to write instead. A file that other users may write is refused, for who writes it is
// administrator.
//
// Authenticator.Run looks at the file every 5 s. A new content that is in order is in force from then on. A broken one leaves
// the old rules in force, and Options.Refused is told the line at fault.
//
// # Callers
//
// A request may show several credentials. The first of this list that it shows counts, and the others are not looked at:
//
//  1. Authorization: Bearer, with an API token (lkt_...) or a JWT of an issuer. Below /compat, whose clients have user and
//     password alone, the same as the password of Authorization: Basic;
//  2. the session of a browser that has logged in to the dashboard, in a cookie;
//  3. a client certificate, which the TLS listener has verified, until it expires;
//  4. the user id of the process at the other end of a Unix socket.
//
// A request that shows none is anonymous. What counts and is wrong is refused (*Error), and never taken for anonymous: so a
// typing error is no silent loss of rights. (internal/httpapi lets a request pass whose lease token is all the right that it needs.) Two Authorization headers are refused. A lease token has a header of its own,
// Lease-Token; in Authorization it is refused with a sentence that says so.
//
// Every caller may do what the file gives to anonymous. A caller that no entry of the file names has no more than that.
//
// A caller's name begins with the kind of its credential (token:ci-shop, corp:ann@example.com, cert:backup.example.com,
// uid:1000), so no credential of one kind can take the name of another kind's. Issuers have names that are no kind.
//
// # JWTs
//
// A JWT must be signed with RS256, ES256 or EdDSA by a key of the issuer that it names, be for the issuer's audience, have an
// expiry, and be within its times; clocks may differ by 30 s. One that has been verified is remembered by its SHA-256 until
// it expires, so the requests that follow cost no signature check. At most 4096 are remembered.
//
// Wrong credentials cost little. A JWT that says that it has expired is refused unchecked. Signature checks use half of the
// processors at most. An address whose JWTs fail their check more than twice in a second, after the first ten, is refused with
// RetryAfter, unless it shows a JWT that is remembered, or another credential. Refusals of an address are marked Repeated when
// they come all the time.
//
// Each issuer has a goroutine that reads its discovery document and keys, begun by Run. Keys are read again every hour, and
// when a token names an unknown key, at most every 10 s. An issuer that is away stops no start and no request of a token that is
// remembered or signed with a known key; a token that needs keys that have never been read is refused with 503.
//
// # Sessions
//
// LogIn begins a session of an API token, Begin and Finish one of a user that an issuer logs in: authorization code with
// PKCE, bound to the browser by a cookie with state, nonce and verifier. A session is a sealed cookie (internal/auth/session) that names the
// token's id, or the issuer with the user's name and those of its groups and claims that the rules named at the login. It ends after
// maxSession, and never later than the API token or the ID token. Each request looks again: at the token's record, at the
// issuer as the file has it, at the key that signed the ID token if the issuer's keys have been read, and at the rules. A gateway keeps no
// sessions, so a logout ends one in its browser alone.
//
// # What lives long
//
// Again looks at a caller once more: its token may have been revoked, have expired, or have other roles by now. Forwarded
// gives the caller of a request that another gateway has authenticated: that gateway names the roles, and this one applies
// the rules that it has for them.
//
// # Ownership
//
// Run owns the goroutine that looks at the file, and one for each issuer. All other work is done on the caller's goroutine,
// without I/O: a policy is immutable and taken from an atomic pointer.
package auth
