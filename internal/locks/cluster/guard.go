package cluster

import (
	"maps"
	"slices"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
)

// A gateway may be registered and stalled: its session lives, for something in its process answers ZooKeeper, and nothing
// that it writes commits. Its clients are answered 503 and no gateway succeeds it, because its registration stays. So every
// gateway watches the others' guards, which each of their transactions moves, and an idle gateway's guard-only writes do
// every third of a promise window. A gateway whose guard has stood still for StalledAfter windows is deposed: its guard is
// deleted in the takeover's transaction at the version at which it was first found so.
//
// What makes that safe is the takeover, as for a gateway that is gone: the deposed one answers for nothing after
// takeover + W, and the successor ends nothing before takeover + W + TTL. Two rules keep the healthy from being deposed:
//
//   - The version. A gateway that has committed anything since is not deposed, however old the state was that was looked at
//     (attack 38). BadVersion starts again.
//   - This gateway's own trust window was open all the time. When ZooKeeper was away, or this process did not run, every
//     guard stood still, and the first gateway to come back would depose the others.

// StalledAfter is how many promise windows a guard stands still before its gateway is deposed.
const StalledAfter = 3

// maxWatched bounds the guards that are looked at in one round; the next round goes on behind them.
const maxWatched = 256

// GuardWatch is what is known of the guard of another gateway. The zero GuardWatch knows nothing.
type GuardWatch struct {
	guard zk.Guard
	since time.Duration // boot: when it was first found so; 0: never looked at
}

func (w *GuardWatch) saw(g zk.Guard, now time.Duration) {
	if w.since == 0 || w.guard != g {
		*w = GuardWatch{guard: g, since: now}
	}
}

// stalled reports whether the guard has stood still for long enough while this gateway's trust window was open, which it
// has been since open.
func (w *GuardWatch) stalled(now, open, window time.Duration) bool {
	if fault.On("depose-blind") {
		open = w.since
	}
	return w.since != 0 && now-max(w.since, open) >= StalledAfter*window
}

// age is how long ago the guard moved last, as far as has been seen here: at most so long. -1: it has not been looked at.
func (w *GuardWatch) age(now time.Duration) time.Duration {
	if w.since == 0 {
		return -1
	}
	return now - w.since
}

// Watched are the gateways whose guards are to be looked at: those that are registered, from the one behind last on.
func (m *Members) Watched(last recipe.GatewayID) []string {
	var ids, before []string
	for _, id := range slices.Sorted(maps.Keys(m.byID)) {
		switch g := m.byID[id]; {
		case !g.Registered || g.Entry || m.self == "" || id == m.self:
		case id > last:
			ids = append(ids, string(id))
		default:
			before = append(before, string(id))
		}
	}
	ids = append(ids, before...)
	return ids[:min(len(ids), maxWatched)]
}

// SawGuard takes the answer of a look at a gateway's guard. It reports whether the gateway is registered.
func (m *Members) SawGuard(id recipe.GatewayID, guard zk.Guard, now time.Duration) bool {
	g := m.byID[id]
	if !g.registered() {
		return false
	}
	g.Guard.saw(guard, now)
	return true
}

// Stalled reports whether a registered gateway commits nothing and may be deposed: polled is its guard, which has stood
// still for silent. open is since when this gateway's trust window is open, window the largest promise window.
func (m *Members) Stalled(id recipe.GatewayID, now, open, window time.Duration) (polled zk.Guard, silent time.Duration, ok bool) {
	g := m.byID[id]
	if g == nil || g.taking || g.Entry || !g.Guard.stalled(now, open, window) {
		return zk.Guard{}, 0, false
	}
	return g.Guard.guard, now - g.Guard.since, true
}
