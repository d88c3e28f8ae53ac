package manager

import (
	"context"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
)

// Arrive waits until this gateway knows that it runs a lease, for a request that another gateway forwarded.
// zxid is how far that gateway's replica had come (Route.Zxid). Before this replica has come as far, it may not show
// the lease or its owner, so this gateway cannot say that the lease is gone or never existed.
// Arrive returns CodeNotOwner if ctx ends first, and nil if this gateway remembers the lease's end.
func (m *Manager) Arrive(ctx context.Context, lease string, zxid int64) error {
	id, err := recipe.ParseLeaseID(lease)
	if err != nil {
		return notFound()
	}
	if err := m.Reached(ctx, zxid); err != nil {
		e := &locks.Error{Code: locks.CodeNotOwner, Err: err,
			Detail: "this gateway has not seen yet that the lease is its own; nothing was done, repeat the request"}
		if ctx.Err() == nil {
			e.RetryAfter = retryAfter // the request has not waited: too many do, or it has nothing to wait for
		}
		return e
	}
	return locked(m, func() error {
		for m.leases.byID[id] == nil && !m.history.Has(id) && !m.members.Owns(id.Gateway()) {
			if m.sleep(ctx, m.members.Changed(), answerWithin) != nil {
				return &locks.Error{Code: locks.CodeNotOwner, Detail: "this gateway does not run that lease; nothing was done, repeat the request"}
			}
		}
		return nil
	})
}

// Identity returns the id of the present session and a zxid not before its registration; "" without a session.
func (m *Manager) Identity() (gateway string, registered int64) {
	if ref := m.port.Present(); ref != nil {
		return ref.Session.ID(), ref.Session.LastZxid()
	}
	return "", 0
}

// Registered reports whether the replica shows the registration of a gateway.
func (m *Manager) Registered(gateway string) bool {
	return locked(m, func() bool {
		return m.members.Registered(recipe.GatewayID(gateway))
	})
}

// GatewayID returns the id of the present session, or "" without one.
func (m *Manager) GatewayID() string {
	if ref := m.port.Present(); ref != nil {
		return ref.Session.ID()
	}
	return ""
}
