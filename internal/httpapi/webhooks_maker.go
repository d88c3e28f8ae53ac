package httpapi

import (
	"slices"
	"strings"

	"lockkeeper/internal/auth"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/webhooks"
)

// A webhook belongs to the caller that made it: to others there is none. An administrator has all of them. What a webhook is sent is
// decided where it is sent, by what its maker may read then (internal/webhooks).

// maker is the caller as the maker of a webhook; nil where no caller is authenticated.
func (x *exchange) maker() *webhooks.Maker {
	if x.s.auth == nil {
		return nil
	}
	c := &x.caller
	m := &webhooks.Maker{Name: c.Principal.Name, Kind: string(c.Kind), Roles: slices.Clone(c.Roles)}
	if c.Kind == auth.Token {
		m.Credential = c.ID
	}
	return m
}

// maySee reports whether a webhook is there for the principal.
func maySee(p locks.Principal, sub *webhooks.Subscription) bool {
	return p.Rules.MayAll(access.Admin) || madeBy(p, sub)
}

func madeBy(p locks.Principal, sub *webhooks.Subscription) bool {
	return sub.Maker != nil && sub.Maker.Name == p.Name
}

// mayGet refuses a webhook for one lock that its maker may not read: it would stay silent.
func mayGet(p locks.Principal, sub *webhooks.Subscription) error {
	if sub.NS == "" || sub.Locks == "" || strings.Contains(sub.NS+sub.Locks, "*") {
		return nil
	}
	if err := p.Check(access.Read, sub.NS, sub.Locks); err != nil {
		return err
	}
	return nil
}

// seesWebhook reports whether a webhook is there for the caller.
func (x *exchange) seesWebhook(sub *webhooks.Subscription) bool { return maySee(x.principal(), sub) }

// by changes a webhook as the caller asks. What its maker changes belongs to the credential and the roles that the maker has now: so a
// webhook goes on when the API token that it was made with is replaced.
func (c *change) by(x *exchange, sub *webhooks.Subscription) error {
	if !x.seesWebhook(sub) {
		return webhooks.ErrNotFound
	}
	if err := c.apply(sub); err != nil {
		return err
	}
	if x.s.auth == nil || !madeBy(x.principal(), sub) {
		return nil
	}
	sub.Maker = x.maker()
	return mayGet(x.principal(), sub)
}
