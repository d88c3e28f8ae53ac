package manager

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
)

// A gateway may be registered and deaf: its session lives, for something in its
// process answers ZooKeeper, and nothing that it writes commits. Its clients are
// answered 503 and nobody succeeds it, because its registration stays. So every
// gateway looks at the others' guards, which each of their transactions moves, and
// an idle gateway's bare writes do every third of a promise window. One that has
// stood still for deafAfter windows is deposed: its guard is deleted in the takeover's
// transaction at the version at which it was first found so.
//
// What makes that safe is the takeover, as for a gateway that is gone: the deposed
// one answers for nothing after takeover + W, and the successor ends nothing before
// takeover + W + TTL. What is said here keeps the healthy from being deposed:
//
//   - The version. Whoever has committed anything since is not deposed, however old
//     the state was that was looked at (attack 38). BadVersion starts again.
//   - This gateway's own fence was open all the time. When ZooKeeper was away, or this
//     process did not run, everybody's guard stood still, and whoever is back first
//     would depose the others.
const deafAfter = 3

// maxWatched bounds the guards that are looked at in one round; the others' turn is in
// the next.
const maxWatched = 256

// notDeaf reports whether a takeover failed because the deaf gateway has written after all.
func notDeaf(err error) bool {
	return errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNodeExists)
}

// vigil is what is known of the guard of another gateway. The zero vigil knows nothing.
type vigil struct {
	guard zk.Guard
	since time.Duration // boot: when it was first found so; 0: never looked at
}

// saw takes what a look found that was answered at now.
func (v *vigil) saw(g zk.Guard, now time.Duration) {
	if v.since == 0 || v.guard != g {
		*v = vigil{guard: g, since: now}
	}
}

// deaf reports whether the guard has stood still for long enough while this gateway's
// fence was open, which it has been since open.
func (v *vigil) deaf(now, open, window time.Duration) bool {
	if fault.On("depose-blind") {
		open = v.since
	}
	return v.since != 0 && now-max(v.since, open) >= deafAfter*window
}

// age is how long ago the guard moved last, as far as has been seen here: at most so
// long. -1: it has not been looked at.
func (v *vigil) age(now time.Duration) time.Duration {
	if v.since == 0 {
		return -1
	}
	return now - v.since
}

// runVigil looks at the other gateways' guards, three times in a promise window.
func (m *Manager) runVigil(ctx context.Context) error {
	pause := m.layout.PromiseWindow / 3
	timer := time.NewTimer(pause)
	defer timer.Stop()
	last := recipe.GatewayID("") // the last one of the round before
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		session, ids := locked2(m, func() (term.Session, []string) { return m.port.Session(), m.watched(last) })
		if session != nil && len(ids) > 0 {
			last = recipe.GatewayID(ids[len(ids)-1])
			round, cancel := context.WithTimeout(ctx, pause)
			guards := session.Guards(round, ids)
			cancel()
			m.sawGuards(session, guards)
		}
		timer.Reset(pause)
	}
}

// watched are the gateways whose guards are to be looked at: those that are registered,
// from the one behind last on.
func (m *Manager) watched(last recipe.GatewayID) []string {
	var ids, before []string
	for _, id := range slices.Sorted(maps.Keys(m.peers)) {
		switch p := m.peers[id]; {
		case !p.registered || p.entry || m.port.Session() == nil || string(id) == m.port.Session().ID():
		case id > last:
			ids = append(ids, string(id))
		default:
			before = append(before, string(id))
		}
	}
	ids = append(ids, before...)
	return ids[:min(len(ids), maxWatched)]
}

// sawGuards takes the answers of one round.
func (m *Manager) sawGuards(session term.Session, guards map[string]zk.Guard) {
	m.do(func() {
		if m.port.Session() != session {
			return
		}
		now := m.clock.Now().Boot()
		for _, id := range slices.Sorted(maps.Keys(guards)) {
			if p := m.peers[recipe.GatewayID(id)]; p != nil && p.registered {
				p.vigil.saw(guards[id], now)
				m.considerDeposing(recipe.GatewayID(id), p)
			}
		}
	})
}

// considerDeposing succeeds a gateway that is registered and deaf. It need not have
// leases: what it would do with those that it is asked for is what it does with others.
func (m *Manager) considerDeposing(id recipe.GatewayID, p *peer) {
	now := m.clock.Now()
	open, ok := m.port.TrustedSince(now)
	if !ok || !p.vigil.deaf(now.Boot(), open, m.layout.LargestWindow) {
		return
	}
	if p.taking || p.entry || !m.trusted() || m.draining || !m.replica.KnowsAll() {
		return
	}
	if !m.takeovers.room(seen) || !m.takeovers.begin(id, seen) {
		return // the next look comes back to it
	}
	m.log.Warn("a registered gateway commits nothing; it is deposed", "deaf", id, "silent_ms", (now.Boot() - p.vigil.since).Milliseconds())
	guard := p.vigil.guard
	if fault.On("depose-polled") {
		m.takeOver(id, p, nil)
		return
	}
	m.takeOver(id, p, &guard)
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
