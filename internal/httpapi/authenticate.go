package httpapi

import (
	"errors"
	"net/http"
	"strings"

	"lockkeeper/internal/auth"
	"lockkeeper/internal/fleet"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
)

// Authenticator says who sends a request; internal/auth has it.
type Authenticator interface {
	// Authenticate says who sends the request. Its error is an *auth.Error.
	Authenticate(r *http.Request) (auth.Caller, error)
	// Again is the same caller as of now. Its error is an *auth.Error: the caller is not let in any more.
	Again(c auth.Caller) (auth.Caller, error)
	// Forwarded is a caller that another gateway has authenticated; the name is "" when it authenticates none.
	Forwarded(name string, roles []string) auth.Caller
}

// principal is who asks, and what it may do.
func (x *exchange) principal() locks.Principal { return x.caller.Principal }

// authenticate finds out who asks. Probes of the process are not asked who they are: a wrong credential must restart no gateway.
func (x *exchange) authenticate() *problem {
	if x.s.auth == nil {
		x.caller = auth.Caller{Principal: locks.Anonymous, Kind: auth.Anonymous}
		return nil
	}
	if path := x.r.URL.Path; path == "/healthz" || path == "/readyz" {
		return nil
	}
	caller, err := x.s.auth.Authenticate(x.r)
	wrong, ok := errors.AsType[*auth.Error](err)
	switch {
	case err == nil:
		x.caller = caller
		return x.forged()
	case ok && x.lapses(wrong):
		if wrong.Session {
			x.lapsed = wrong
		}
		x.caller = auth.Caller{Kind: auth.Anonymous} // it may do nothing
		return nil
	case !byLeaseToken(x.r):
		x.line.repeated = ok && wrong.Repeated
		return unauthenticated(err)
	}
	x.unproved = unauthenticated(err)
	x.caller = x.s.auth.Forwarded(locks.Anonymous.Name, nil)
	x.caller.Kind = auth.Anonymous
	return nil
}

// byLeaseToken reports whether a lease token is all the right that the request needs. Then a credential that has expired, or
// cannot be judged now, is as good as none: leaving it out would help, and a job whose JWT lives five minutes must not lose its
// lease by sending it along. What needs more than the lease token is refused with what is wrong with the credential.
func byLeaseToken(r *http.Request) bool {
	below, ofLease := strings.CutPrefix(r.URL.Path, "/v1/leases/")
	switch {
	case r.URL.Path == "/v1/heartbeats": // its tokens are in the body
		return r.Method == http.MethodPost
	case !ofLease || r.Header.Get("Lease-Token") == "":
		return false
	}
	_, action, deeper := strings.Cut(below, "/")
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPatch, http.MethodDelete:
		return !deeper
	case http.MethodPost:
		return action == "heartbeat" || action == "downgrade"
	}
	return false
}

// challenge is what a request without, or with a wrong credential is told about those that there are (RFC 6750, section 3).
const challenge = `Bearer realm="lockkeeper"`

// unauthenticated is the refusal of a caller.
func unauthenticated(err error) *problem {
	wrong, ok := errors.AsType[*auth.Error](err)
	switch {
	case !ok:
		return internal(err)
	case wrong.TooMany:
		return &problem{code: codeRateLimited, detail: wrong.Detail, retryAfter: wrong.RetryAfter}
	case wrong.Unavailable:
		return &problem{code: codeAuthUnavailable, detail: wrong.Detail, cause: wrong.Err}
	}
	return &problem{code: codeUnauthenticated, detail: wrong.Detail, cause: wrong.Err}
}

// challenge tells in a refusal which credentials there are.
func (x *exchange) challenge() {
	if h := x.Header(); h["Www-Authenticate"] == nil {
		h["Www-Authenticate"] = []string{challenge + `, error="invalid_token"`}
	}
}

// credentialMissing is the refusal of a request that shows no credential, and needs one.
func credentialMissing(x *exchange) *problem {
	x.Header()["Www-Authenticate"] = []string{challenge}
	return &problem{code: codeUnauthenticated,
		detail: "this needs a credential: send Authorization: Bearer with an API token (lkt_...) or a JWT, as curl -H @FILE does, where FILE has that line; gateway token create makes a token"}
}

// need is what an operation needs of its caller before it is decoded. What is about a lock is decided by the manager, which
// alone knows the lock of a lease.
type need int

const (
	// needsDecision: the manager, or the handler, decides. A caller that shows nothing and may do nothing is told so at once.
	needsDecision   need = iota
	needsNothing         // it says nothing of locks and leases
	needsLeaseToken      // the lease token is the right; the manager checks it
	needsRead            // of any lock
	needsReadAll         // of every lock: it counts all
	needsAcquire         // of any lock; or the verb admin
)

// needs is what operations need; what is not in it needs a decision.
var needs = map[string]need{
	"Healthz": needsNothing, "Readyz": needsNothing, "GetOpenAPI": needsNothing, "GetProblem": needsNothing, "WhoAmI": needsNothing,
	"Heartbeat": needsLeaseToken, "HeartbeatMany": needsLeaseToken, "Release": needsLeaseToken, "Downgrade": needsLeaseToken, "UpdateLease": needsLeaseToken,
	"GetInfo": needsRead, "ListGateways": needsRead, "ListNamespaces": needsRead, "ListLeases": needsRead, "GetGraph": needsRead, "ListHistory": needsRead, "GetStats": needsRead, "WatchEvents": needsRead, "WatchEventsSocket": needsRead, "Metrics": needsReadAll,
	// Another caller's webhook does not exist; a maker that may acquire nothing any more may still look at its own, and remove it.
	"ListWebhooks": needsRead, "GetWebhook": needsRead, "DeleteWebhook": needsRead, "ListWebhookAttempts": needsRead, "ListWebhookDeadLetters": needsRead,
	"CreateWebhook": needsAcquire, "UpdateWebhook": needsAcquire, "ReplayWebhook": needsAcquire, "RotateWebhook": needsAcquire, "TestWebhook": needsAcquire,
}

// mayAsk refuses a caller that lacks what the operation needs of every caller.
func (x *exchange) mayAsk(needed need) *problem {
	if x.s.auth == nil || needed == needsNothing || needed == needsLeaseToken {
		return nil
	}
	rules := x.caller.Principal.Rules
	if x.peer != nil && x.peer.Caller == "" && len(x.r.Header["Lease-Token"]) == 0 {
		return &problem{code: codeAuthUnavailable,
			detail: "the gateway that was asked does not ask who its clients are: it has no --auth-file, or is of an earlier release; nothing was done. Give it the same --auth-file, or ask another gateway"}
	}
	anonymous := x.caller.Kind == auth.Anonymous && x.peer == nil
	switch {
	case anonymous && rules.Nothing() && len(x.r.Header["Lease-Token"]) == 0:
		return credentialMissing(x)
	case needed == needsRead && rules.Nothing():
		return x.lacks(access.Read, "")
	case needed == needsReadAll && !rules.MayAll(access.Read):
		return x.lacks(access.Read, " for every lock in every namespace")
	case needed == needsAcquire && !rules.MaySome(access.Acquire) && !rules.MayAll(access.Admin):
		return x.lacks(access.Acquire, " for some lock")
	}
	return nil
}

// lacks is the refusal of what has no lock.
func (x *exchange) lacks(verb access.Verb, what string) *problem {
	return &problem{code: codeForbidden, detail: "this needs the verb " + verb.String() + what + ", which " + x.caller.Principal.Name + " has not"}
}

// forwardedCaller takes over the caller that the gateway that sent the request has authenticated.
func (x *exchange) forwardedCaller(proof *fleet.Seal) {
	if x.s.auth == nil {
		x.caller = auth.Caller{Principal: locks.Anonymous, Kind: auth.Anonymous}
		return
	}
	x.caller = x.s.auth.Forwarded(proof.Caller, proof.Roles)
}
