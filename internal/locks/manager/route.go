package manager

import (
	"context"
	"encoding/json"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/cluster"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk/layout"
	"lockkeeper/internal/zk/wire"
)

// A lease's owner follows from names alone. The owner's address is in its registration, which is read when it appears.
// So a request at another gateway is routed without a read.

// readRegistration reads the address of a registered gateway.
func (m *Manager) readRegistration(id recipe.GatewayID) {
	m.members.BeginReadRegistration(id)
	path := m.opt.Root + "/gateways/" + string(id)
	m.effect(func() {
		m.port.Watcher.Get(path, func(data []byte, _ wire.Stat, _ int64, err error) {
			m.do(func() {
				var about *cluster.About
				if err == nil && m.members.Registered(id) {
					var r Registration
					if err := json.Unmarshal(data, &r); err != nil {
						m.log.Error("a gateway's registration cannot be read", "gateway", id, "err", err)
					}
					about = &cluster.About{Address: r.Address, Version: r.Version, Started: time.UnixMilli(r.Started).UTC()}
				}
				if m.members.ReadRegistration(id, about) {
					m.sourcesChanged()
				}
			})
		})
	})
}

// RouteOf returns the route to a lease's owner, by the lease's id. It reports false when the owner is not known:
// a takeover is under way, or has not begun.
func (m *Manager) RouteOf(lease string) (locks.Route, bool) {
	return locked2(m, func() (locks.Route, bool) {
		id, err := recipe.ParseLeaseID(lease)
		if err != nil || id.Fleet() != m.fleet.id {
			return locks.Route{}, false
		}
		route := m.route(id)
		if route == nil {
			return locks.Route{}, false
		}
		return *route, true
	})
}

// route is the route to a lease's owner, nil when that is not known. The monitor is held.
func (m *Manager) route(id recipe.LeaseID) *locks.Route {
	return m.members.Route(id, m.port.LastZxid())
}

// notOwner is the error for a lease that another gateway owns; the monitor is held.
func (m *Manager) notOwner(id recipe.LeaseID) *locks.Error {
	return &locks.Error{Code: locks.CodeNotOwner, RetryAfter: retryAfter, Owner: m.route(id),
		Detail: "another gateway runs this lease; send the request there"}
}

// Peers lists the registered gateways as the replica shows them, this one first.
func (m *Manager) Peers() []locks.Peer {
	return locked(m, func() []locks.Peer { return m.members.List(m.clock.Now().Boot()) })
}

// FleetKeys returns the cluster secret's keys, newest first; nil until the layout has been read.
func (m *Manager) FleetKeys() []layout.TokenKey {
	select {
	case <-m.fleet.ready:
		return m.fleet.layout.Keys
	default:
		return nil
	}
}

// Reached waits until the replica holds everything up to that transaction.
func (m *Manager) Reached(ctx context.Context, zxid int64) error {
	select {
	case <-m.fleet.ready:
	default:
		return unavailable()
	}
	if err := m.port.Watcher.Reached(ctx, zxid); err != nil {
		e := unavailable()
		e.Err = err
		return e
	}
	return nil
}
