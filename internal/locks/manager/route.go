package manager

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk/layout"
	"lockkeeper/internal/zk/wire"
)

// Who runs a lease is known from names alone; where that gateway is to be found
// stands in its registration, which is read when it appears. So a request that
// came to the wrong gateway can be sent on without a read.

// introduction is what a registration says.
type introduction struct {
	address, version string
	started          time.Time
}

// readRegistration learns where a registered gateway is to be found.
func (m *Manager) readRegistration(id recipe.GatewayID) {
	p := m.peer(id)
	p.asking = true
	path := m.opt.Root + "/gateways/" + string(id)
	m.effect(func() {
		m.port.Watcher.Get(path, func(data []byte, _ wire.Stat, _ int64, err error) {
			m.do(func() {
				p := m.peers[id]
				if p == nil {
					return
				}
				p.asking = false
				if err != nil || !p.registered {
					return // gone, or the connection is: the clock asks again
				}
				var r Registration
				if err := json.Unmarshal(data, &r); err != nil {
					m.log.Error("a gateway's registration cannot be read", "gateway", id, "err", err)
				}
				p.about = &introduction{address: r.Address, version: r.Version, started: time.UnixMilli(r.Started).UTC()}
				m.sourcesChanged()
			})
		})
	})
}

// readRegistrations asks again for those whose reading failed.
func (m *Manager) readRegistrations() {
	for _, id := range slices.Sorted(maps.Keys(m.peers)) {
		if p := m.peers[id]; p.registered && p.about == nil && !p.asking {
			m.readRegistration(id)
		}
	}
}

// RouteOf tells which gateway runs a lease, by the lease's id. It is false when
// that is not known: a takeover is on its way, or nobody has come to it yet.
func (m *Manager) RouteOf(lease string) (locks.Route, bool) {
	return locked2(m, func() (locks.Route, bool) {
		id, err := recipe.ParseLeaseID(lease)
		if err != nil || id.Fleet() != m.fleet {
			return locks.Route{}, false
		}
		route := m.route(id)
		if route == nil {
			return locks.Route{}, false
		}
		return *route, true
	})
}

// route is where requests about a lease go, nil when that is not known. mu is held.
func (m *Manager) route(id recipe.LeaseID) *locks.Route {
	owner, known := m.ownerOf(id.Gateway())
	p := m.peers[owner]
	if !known || p == nil || !p.registered {
		return nil
	}
	r := &locks.Route{Gateway: string(owner), Lease: string(id), Zxid: m.seenUpTo(id.Gateway())}
	if p.about != nil {
		r.Address = p.about.address
	}
	return r
}

// seenUpTo is a zxid that is no earlier than anything by which this gateway
// knows who runs the leases of a gateway id.
func (m *Manager) seenUpTo(id recipe.GatewayID) int64 {
	zxid := m.port.LastZxid()
	for range len(m.peers) + 1 {
		p := m.peers[id]
		if p == nil || !p.entry {
			break
		}
		zxid, id = max(zxid, p.entered), p.successor
	}
	return zxid
}

// notOwner answers for a lease that another gateway runs; mu is held.
func (m *Manager) notOwner(id recipe.LeaseID) *locks.Error {
	return &locks.Error{Code: locks.CodeNotOwner, RetryAfter: retryAfter, Owner: m.route(id),
		Detail: "another gateway runs this lease; send the request there"}
}

// Peers are the registered gateways as the replica shows them, this one first.
func (m *Manager) Peers() []locks.Peer {
	return locked(m, func() []locks.Peer {
		var self recipe.GatewayID
		if m.port.Session() != nil {
			self = recipe.GatewayID(m.port.Session().ID())
		}
		owned := map[recipe.GatewayID]int{}
		succeeded := map[recipe.GatewayID][]string{}
		for _, id := range slices.Sorted(maps.Keys(m.peers)) {
			owner, known := m.ownerOf(id)
			if !known {
				continue
			}
			owned[owner] += m.peers[id].contenders
			if owner != id {
				succeeded[owner] = append(succeeded[owner], string(id))
			}
		}
		now := m.clock.Now().Boot()
		var list []locks.Peer
		for id, p := range m.peers {
			if !p.registered {
				continue
			}
			v := locks.Peer{Gateway: string(id), Self: id == self, Registered: true, Leases: owned[id], Succeeded: succeeded[id], GuardAge: p.vigil.age(now)}
			if p.about != nil {
				v.Address, v.Version, v.Started = p.about.address, p.about.version, p.about.started
			}
			list = append(list, v)
		}
		slices.SortFunc(list, func(a, b locks.Peer) int {
			switch {
			case a.Self != b.Self && a.Self:
				return -1
			case a.Self != b.Self:
				return 1
			}
			return cmp.Compare(a.Gateway, b.Gateway)
		})
		return list
	})
}

// FleetKeys are the cluster secret's keys, the newest first; nil until the
// layout has been read.
func (m *Manager) FleetKeys() []layout.TokenKey {
	select {
	case <-m.ready:
		return m.layout.Keys
	default:
		return nil
	}
}

// Reached returns when the replica holds everything up to that transaction.
func (m *Manager) Reached(ctx context.Context, zxid int64) error {
	select {
	case <-m.ready:
	default:
		return m.unavailable()
	}
	if err := m.port.Watcher.Reached(ctx, zxid); err != nil {
		e := m.unavailable()
		e.Err = err
		return e
	}
	return nil
}
