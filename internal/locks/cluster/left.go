package cluster

import (
	"slices"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
)

const (
	// leftKept is how many gateways that have left are remembered, the latest ones, and leftFor how long.
	leftKept = 8
	leftFor  = time.Hour
)

// left is a gateway whose registration has gone. It is for display: nothing is decided by it.
type left struct {
	id, successor recipe.GatewayID // successor is "" until an entry names it
	at            time.Duration    // boot
	deposed       bool
	leases        int // contenders that it ran
}

// remember notes that a gateway has left.
func (m *Members) remember(id recipe.GatewayID, g *Gateway, now time.Duration) {
	gone := left{id: id, successor: g.successor, at: now, deposed: g.Entry, leases: m.carried(id)}
	m.left = slices.Insert(m.left, 0, gone)
	m.left = m.left[:min(len(m.left), leftKept)]
}

// inherited notes the successor of a gateway that has left. By now the replica has everything that the gateway had written, and
// what was to end with its session has ended.
func (m *Members) inherited(id, successor recipe.GatewayID) {
	if i := slices.IndexFunc(m.left, func(l left) bool { return l.id == id }); i >= 0 && m.left[i].successor == "" {
		m.left[i].successor, m.left[i].leases = successor, m.carried(id)
	}
}

// carried counts the contenders of an id and of those that it has succeeded.
func (m *Members) carried(id recipe.GatewayID) (n int) {
	of := m.byID[id]
	for other, g := range m.byID {
		passed := false
		if end, _ := m.chain(other, func(g *Gateway) { passed = passed || g == of }); passed || end == id {
			n += g.Contenders
		}
	}
	return n
}

// Left has the gateways that have left lately, the latest first.
func (m *Members) Left(now time.Duration) (list []locks.LeftGateway) {
	for _, l := range m.left {
		if ago := now - l.at; ago < leftFor && !m.Registered(l.id) {
			list = append(list, locks.LeftGateway{Gateway: string(l.id), Ago: max(ago, 0), Deposed: l.deposed, Leases: l.leases,
				Successor: string(l.successor)})
		}
	}
	return list
}
