package manager

import (
	"context"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
)

// Arrive waits until this gateway knows itself to run a lease, for a request that
// another gateway sent on: zxid is how far that one had seen (Route.Zxid). Only who
// has come so far may say that a lease is gone, or never was; until then it may
// know neither the lease nor that it is its own. It is CodeNotOwner when ctx ends first,
// and nil for an end that is remembered here.
func (m *Manager) Arrive(ctx context.Context, lease string, zxid int64) error {
	id, err := recipe.ParseLeaseID(lease)
	if err != nil {
		return notFound()
	}
	if err := m.Reached(ctx, zxid); err != nil {
		e := &locks.Error{Code: locks.CodeNotOwner, Err: err,
			Detail: "this gateway has not seen yet that the lease is its own; nothing was done, repeat the request"}
		if ctx.Err() == nil {
			e.RetryAfter = retryAfter // nobody has waited here: too many do, or there is nothing to wait for
		}
		return e
	}
	return locked(m, func() error {
		for m.leases[id] == nil && !m.history.Has(id) && !m.members.Owns(id.Gateway()) {
			if m.newlyOwned == nil {
				m.newlyOwned = make(chan struct{})
			}
			if m.sleep(ctx, m.newlyOwned, answerWithin) != nil {
				return &locks.Error{Code: locks.CodeNotOwner, Detail: "this gateway does not run that lease; nothing was done, repeat the request"}
			}
		}
		return nil
	})
}

// wakeArrivals has those who wait in Arrive look again; the monitor is held.
func (m *Manager) wakeArrivals() {
	if m.newlyOwned != nil {
		m.wake(m.newlyOwned)
		m.newlyOwned = nil
	}
}

// Identity is the id of the present session and a zxid that is not before its registration; "" while there is none.
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

// GatewayID is the id of the present session, "" while there is none.
func (m *Manager) GatewayID() string {
	if ref := m.port.Present(); ref != nil {
		return ref.Session.ID()
	}
	return ""
}
