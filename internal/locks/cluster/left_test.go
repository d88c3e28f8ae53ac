package cluster

import (
	"fmt"
	"testing"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/test/assert"
)

// fleetOf is a fleet of gateways that have some contenders each.
func fleetOf(contenders map[recipe.GatewayID]int) *Members {
	m := New(func(ch chan struct{}) { close(ch) })
	for id, n := range contenders {
		m.Register(id)
		for range n {
			m.CountContender(id, 1)
		}
	}
	return m
}

func TestAGatewayThatLeftSaysWhereItsLeasesWent(t *testing.T) {
	m := fleetOf(map[recipe.GatewayID]int{"one": 1, "two": 2, "three": 4})
	assert.That(t, m.Left(0) == nil, "%+v", m.Left(0))
	m.Unregister("two", time.Minute)
	assert.Slices(t, m.Left(80*time.Second), []locks.LeftGateway{{Gateway: "two", Ago: 20 * time.Second, Leases: 2}})
	m.CountContender("two", -1) // it ended with the session
	m.AddEntry("two")
	m.ReadEntry("two", "three", 7, 80*time.Second)
	m.CountContender("two", -1) // it ended later
	assert.Slices(t, m.Left(80*time.Second), []locks.LeftGateway{{Gateway: "two", Ago: 20 * time.Second, Leases: 1, Successor: "three"}})

	// A takeover of a gateway that is registered writes its entry first, and what that gateway had taken over counts.
	m.CountContender("two", 1)
	m.AddEntry("three")
	m.ReadEntry("three", "one", 8, 90*time.Second)
	m.Unregister("three", 90*time.Second)
	assert.Slices(t, m.Left(90*time.Second), []locks.LeftGateway{{Gateway: "three", Deposed: true, Leases: 5, Successor: "one"},
		{Gateway: "two", Ago: 30 * time.Second, Leases: 1, Successor: "three"}})
}

func TestGatewaysThatLeftAreForgotten(t *testing.T) {
	m := fleetOf(map[recipe.GatewayID]int{"back": 0})
	m.Unregister("back", 0)
	m.Register("back")
	m.Unregister("never", 0) // a takeover makes such a registration, to make sure that there was none
	assert.That(t, m.Left(0) == nil, "%+v", m.Left(0))
	for i := range 2 * leftKept {
		id := recipe.GatewayID(fmt.Sprint("gone", i))
		m.Register(id)
		m.Unregister(id, time.Minute)
	}
	list := m.Left(time.Minute)
	assert.That(t, len(list) == leftKept && list[0].Gateway == fmt.Sprint("gone", 2*leftKept-1), "%+v", list)
	assert.That(t, m.Left(time.Minute+leftFor) == nil, "after an hour")
}
