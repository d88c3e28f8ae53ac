package httpapi

import (
	"lockkeeper/internal/httpapi/api"
	"lockkeeper/internal/locks/access"
)

// whoAmI answers with the caller's name and rules at this gateway.
func (p *process) whoAmI(x *exchange) error {
	c := &x.caller
	shape := api.WhoAmI{Authentication: p.s.auth != nil, Name: c.Principal.Name, Kind: api.WhoAmIKind(c.Kind), CredentialID: c.ID, Session: c.Session(), Roles: c.Roles}
	if shape.Roles == nil {
		shape.Roles = []string{}
	}
	if !c.Expires.IsZero() {
		shape.ExpiresAt = moment(c.Expires)
	}
	grants := c.Principal.Rules.Grants()
	shape.Grants = each(grants, grantShape)
	return x.answer(&shape)
}

func grantShape(g *access.Grant) api.AccessGrant {
	shape := api.AccessGrant{NS: g.NS, Locks: g.Locks, MaxTTLMS: g.MaxTTL.Milliseconds(), Leases: g.Leases, Rate: g.Rate}
	if g.NotifyHosts != nil {
		shape.NotifyURL = &g.NotifyHosts
	}
	for _, v := range g.Verbs {
		shape.Verbs = append(shape.Verbs, api.AccessGrantVerbs(v.String()))
	}
	return shape
}
