package auth

import (
	"errors"
	"slices"
	"strings"

	"lockkeeper/internal/auth/token"
	"lockkeeper/internal/locks/access"
)

// Standing says what a caller may do now that does not ask, for what it has left behind: a webhook. name, kind, credential and
// roles are the Caller's as of when it asked (Principal.Name, Kind, ID and Roles). paused says why it is not let in any more.
// known is false while the API tokens have not been read.
//
// An API token counts by its id: another token of the same name does not revive what a revoked one has left. A certificate and a
// user count by their names, for the entries of the file say all about them. What a JWT said is over with it: of the roles that it
// had, those count that the file still gives to callers of its issuer.
func (a *Authenticator) Standing(name, kind, credential string, roles []string) (rules *access.Rules, paused string, known bool) {
	now := a.now.Load()
	var c Caller
	var err error
	_, own, _ := strings.Cut(name, ":")
	switch Kind(kind) {
	case Token:
		record, unusable := a.opt.Tokens.Lookup(credential)
		if errors.Is(unusable, token.ErrNotReady) {
			return nil, "", false
		}
		if unusable != nil || tokenPrefix+":"+record.Name != name {
			return nil, "the API token " + credential + " has expired or was revoked: what is changed with another token of that name goes on", true
		}
		c, err = now.tokenCaller(record)
	case Certificate, User:
		c, err = now.caller(&identity{kind: Kind(kind), name: own})
	case Anonymous:
		c, err = now.caller(unnamed)
	case JWT:
		return now.standingOfJWT(name, roles)
	default:
		return nil, "a newer gateway knows the kind of credential of " + name + ": upgrade this one", true
	}
	if err != nil {
		return nil, err.Error(), true
	}
	return c.Principal.Rules, "", true
}

// standingOfJWT is Standing for a caller that an issuer has named.
func (now *inForce) standingOfJWT(name string, roles []string) (rules *access.Rules, paused string, known bool) {
	issuer, own, _ := strings.Cut(name, ":")
	if now.issuers[issuer] == nil {
		return nil, "the rules have no issuer " + issuer + " any more", true
	}
	given := map[string]bool{}
	for i := range now.who {
		e := &now.who[i]
		if e.kind == JWT && e.issuer == issuer && (e.names == nil || slices.Contains(e.names, own)) {
			for _, role := range e.roles {
				given[role] = true
			}
		}
	}
	still := slices.DeleteFunc(slices.Clone(roles), func(role string) bool { return !given[role] })
	return now.rulesOf(still), "", true
}

// Gateway is the caller for what a gateway asks another one for itself. The seal proves it.
func Gateway() Caller {
	c := Caller{Kind: "gateway", Roles: []string{administrator}}
	c.Principal.Name, c.Principal.Rules = "gateway", access.Everything()
	return c
}
