package manager

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
)

const (
	sweepEvery = time.Second
	// idleLock is how long an empty lock's directory is kept: taking a busy
	// lock again costs no directory.
	idleLock = time.Minute
	// sweepLocks bounds how many lock directories one round removes, each in a
	// transaction of its own (somebody may use it again meanwhile): a sweep must
	// not crowd out acquires. Where more have piled up, a round removes a part of
	// them, up to sweepMost. sweepLook is how many it looks at, so that the
	// lock is held shortly; the next round goes on from there.
	sweepLocks = 64
	sweepPart  = 16
	sweepMost  = 256
	sweepLook  = 4096
	// sweepKeys bounds how many keys one round removes. Nobody but their
	// gateway deletes them, so they travel together.
	sweepKeys = 4096
	// sweepEntries bounds how many successions one round removes.
	sweepEntries = 256
	// scanEvery is how often the keys in ZooKeeper are compared with those
	// known here, and succession entries are looked over; spread over gateways.
	scanEvery = time.Minute
)

// runSweeper removes what is left behind: idle lock directories, keys whose
// life is over, successions that no contender needs any more.
func (m *Manager) runSweeper(ctx context.Context) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	nextScan := m.clock.Now().Boot() + m.jitter(scanEvery)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		m.sweep()
		if now := m.clock.Now().Boot(); now >= nextScan {
			nextScan = now + scanEvery/2 + m.jitter(scanEvery)
			m.scanKeys(ctx)
		}
	}
}

// jitter is a random part of d.
func (m *Manager) jitter(d time.Duration) time.Duration {
	if m.opt.Random == nil {
		return rand.N(d)
	}
	return time.Duration(rand.New(m.opt.Random).Int64N(int64(d)))
}

func (m *Manager) sweep() {
	m.do(func() {
		now := m.clock.Now().Boot()
		m.replica.ForgetIndex(now)
		if !m.trusted() || m.life.draining {
			return
		}
		m.pollHidden()
		m.sweepGroups(now)
		m.sweepOrphans(now)
		m.history.Sweep(now - endedLife)
		m.witnessed.Sweep(now - endedLife)
		for _, ns := range slices.Sorted(maps.Keys(m.replica.Namespaces)) {
			m.sweepIdle(m.replica.Namespaces[ns], now)
		}
		for range sweepKeys {
			k := m.keys.pop(now - keyLife)
			if k == nil {
				break
			}
			m.sweepKey(k)
		}
		m.sweepSuccession()
	})
}

// sweepIdle removes directories of locks that nobody has used for a while, and
// the settings that their last users agreed upon.
func (m *Manager) sweepIdle(s *queues.Namespace, now time.Duration) {
	looked, swept, from := 0, 0, s.SweepFrom
	// Less what the rounds before have asked for and ZooKeeper has not answered: where it is slow, a sweep waits for it.
	most := min(max((s.Queues.Len()-m.replica.Counts.Locks)/sweepPart, sweepLocks), sweepMost) - s.Sweeping
	s.SweepFrom = ""
	s.Queues.Ascend(s.From(from), func(q *queues.Queue) bool {
		if looked++; looked > sweepLook || swept >= most {
			s.SweepFrom = q.Name()
			return false
		}
		if q.Contenders.Len() > 0 || q.Leases > 0 || q.Extras().Unnumbered > 0 || q.Extras().Marker || q.Semaphore() || now-q.Idle < idleLock && (!q.Extras().Passing || now-q.Idle < sweepEvery) {
			return true
		}
		if ops := m.fleet.settings.Sweep(q); len(ops) > 0 {
			q.Idle = now // asked for; the events remove it
			s.Sweeping++
			m.port.Submit(&zk.Write{Alone: true, Ops: ops}, func(zk.Result) { s.Sweeping-- })
			swept++
		}
		return true
	})
}

// sweepKey deletes a key's node and then forgets the key.
func (m *Manager) sweepKey(k *keyEntry) {
	w := &zk.Write{Ops: []zk.Op{{Kind: zk.OpDelete, Path: m.keyPath(k.hash), Version: -1}}}
	m.port.Submit(w, func(res zk.Result) {
		if res.Outcome != zk.Done && !isNoNode(res.Err) {
			m.keys.end(k, k.reason, m.clock.Now().Boot()) // tried again a life later
			return
		}
		m.keys.drop(k)
	})
}

// sweepSuccession removes entries whose chain ends here once no contender has
// the id and no other entry names it, so the oldest go first. No other
// gateway deletes them, so one batch has all of them, and one that fails is left out.
func (m *Manager) sweepSuccession() {
	if !m.replica.KnowsAll() {
		return // a contender with the id may be where the replica has not looked yet
	}
	if m.members.Sweeping > 0 {
		return // ZooKeeper is slow: the round before has not been answered
	}
	over := m.members.SweepableEntries()
	for _, id := range over[:min(len(over), sweepEntries)] {
		m.members.Sweeping++
		op := zk.Op{Kind: zk.OpDelete, Path: m.opt.Root + "/succession/" + string(id), Version: -1}
		m.port.Submit(&zk.Write{Ops: []zk.Op{op}}, func(zk.Result) { m.members.Sweeping-- })
	}
}

// scanKeys finds keys in ZooKeeper that this process does not know: those of
// gateways it has succeeded.
func (m *Manager) scanKeys(ctx context.Context) {
	session, trusted := locked2(m, func() (term.Session, bool) {
		return m.port.Session(), m.trusted() && !m.life.draining && m.replica.KnowsAll()
	})
	if !trusted {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, scanEvery/2)
	defer cancel()
	names, _, err := session.Children(ctx, m.opt.Root+"/keys")
	if err != nil {
		return // the next scan sees them
	}
	// Whether a gateway lives is judged by the replica: it must not be older
	// than the keys, or a newcomer's would look orphaned.
	if err := m.port.Watcher.Reached(ctx, session.LastZxid()); err != nil {
		return
	}
	others := make(map[string]recipe.GatewayID, len(m.keys.others))
	for _, hash := range names {
		skip := locked(m, func() bool {
			id, seen := m.keys.others[hash]
			if seen {
				others[hash] = id
			}
			return m.keys.byHash[hash] != nil || seen && !m.members.Responsible(id)
		})
		if skip {
			continue
		}
		entry, err := m.readKey(ctx, session, hash)
		if err != nil && ctx.Err() != nil {
			return
		}
		if err != nil || entry == nil {
			continue
		}
		others[hash] = entry.lease.Gateway()
		m.do(func() {
			if m.replica.KnowsAll() && m.keys.byHash[hash] == nil && m.members.Responsible(entry.lease.Gateway()) {
				entry = m.learnKey(entry)
				if entry.endedAt == 0 && m.leases.byID[entry.lease] == nil && !m.replica.HasNewer(entry.lease) {
					// Its gateway left no contender and no succession.
					m.keys.add(entry)
					m.keys.end(entry, locks.ReasonUnknown, m.clock.Now().Boot())
				}
			}
		})
	}
	m.do(func() {
		m.keys.others = others // each is read once, not at every scan
	})
}
