package manager

import (
	"context"
	"maps"
	"slices"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
)

// guardWatch reads the other gateways' guards, and deposes a gateway whose guard does not change. It owns the round: which
// gateway was the last.
type guardWatch struct {
	m    *Manager
	last recipe.GatewayID
}

// run reads guards until ctx ends, three times in a promise window.
func (w *guardWatch) run(ctx context.Context) error {
	m := w.m
	pause := m.fleet.layout.PromiseWindow / 3
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		session, ids := locked2(m, func() (term.Session, []string) { return m.port.Session(), m.members.Watched(w.last) })
		if session != nil && len(ids) > 0 {
			w.last = recipe.GatewayID(ids[len(ids)-1])
			round, cancel := context.WithTimeout(ctx, pause)
			guards := session.Guards(round, ids)
			cancel()
			w.saw(session, guards)
		}
		timer.Reset(pause)
	}
}

// saw takes the answers of one round.
func (w *guardWatch) saw(session term.Session, guards map[string]zk.Guard) {
	m := w.m
	m.do(func() {
		if m.port.Session() != session {
			return
		}
		now := m.clock.Now().Boot()
		for _, id := range slices.Sorted(maps.Keys(guards)) {
			if id := recipe.GatewayID(id); m.members.SawGuard(id, guards[string(id)], now) {
				w.considerDeposing(id)
			}
		}
	})
}

// considerDeposing succeeds a gateway that is registered and stalled. It need not have leases: what it would do with those
// that it is asked for is what it does with others.
func (w *guardWatch) considerDeposing(id recipe.GatewayID) {
	m := w.m
	now := m.clock.Now()
	open, ok := m.port.TrustedSince(now)
	if !ok || !m.trusted() || m.life.draining || !m.replica.KnowsAll() {
		return
	}
	guard, silent, ok := m.members.Stalled(id, now.Boot(), open, m.fleet.layout.LargestWindow)
	if !ok || !m.members.Depose(id) {
		return
	}
	m.log.Warn("a registered gateway commits nothing; it is deposed", "stalled", id, "silent_ms", silent.Milliseconds())
	if fault.On("depose-polled") {
		m.takeOver(id, nil)
		return
	}
	m.takeOver(id, &guard)
}

// abandon ends the session of a gateway that sees that it was deposed: what its writer
// would be told, if it were told anything.
func (m *Manager) abandon(id recipe.GatewayID) {
	if session := m.port.Session(); session != nil && string(id) == session.ID() {
		if !m.port.Ending() { // else the session's last transaction has deleted the registration itself
			m.log.Warn("this gateway was deposed; it goes on under a new id", "gateway", id)
		}
		m.effect(session.Abandon)
	}
}
