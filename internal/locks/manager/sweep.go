package manager

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/idempotency"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

const (
	sweepEvery = time.Second
	// idleLock is how long an empty lock's directory is kept: taking a busy lock again costs no directory.
	idleLock = time.Minute
	// sweepLocks bounds how many lock directories one round removes, each in a transaction of its own: a sweep must not crowd
	// out acquires. When more have piled up, a round removes one in sweepPart, up to sweepMost. It looks at sweepLook, so that
	// it holds the monitor for a short time; the next round goes on from there.
	sweepLocks = 64
	sweepPart  = 16
	sweepMost  = 256
	sweepLook  = 4096
	// sweepKeys bounds how many keys one round removes.
	sweepKeys = 4096
	// sweepEntries bounds how many successions one round removes.
	sweepEntries = 256
	// scanEvery is how often the keys in ZooKeeper are compared with those known here, spread over the gateways.
	scanEvery = time.Minute
)

// sweeper removes what is left behind: idle lock directories, keys whose life is over, successions that no contender
// needs any more. It owns the times of its rounds.
type sweeper struct {
	m           *Manager
	random      rand.Source // nil is the runtime's
	nextScan    time.Duration
	nextPeriods time.Duration
}

// run sweeps until ctx ends.
func (w *sweeper) run(ctx context.Context) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	w.nextScan = w.m.clock.Now().Boot() + w.jitter(scanEvery)
	w.nextPeriods = w.m.clock.Now().Boot() + w.jitter(periodsEvery)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		w.sweep()
		w.keepOrders()
		if now := w.m.clock.Now().Boot(); now >= w.nextScan {
			w.nextScan = now + scanEvery/2 + w.jitter(scanEvery)
			w.scanKeys(ctx)
		}
		if now := w.m.clock.Now().Boot(); now >= w.nextPeriods {
			w.nextPeriods = now + periodsEvery/2 + w.jitter(periodsEvery)
			w.periods(ctx)
		}
	}
}

// jitter is a random part of d.
func (w *sweeper) jitter(d time.Duration) time.Duration {
	if w.random == nil {
		return rand.N(d)
	}
	return time.Duration(rand.New(w.random).Int64N(int64(d)))
}

func (w *sweeper) sweep() {
	m := w.m
	m.do(func() {
		now := m.clock.Now().Boot()
		m.replica.ForgetIndex(now)
		if !m.trusted() || m.life.draining {
			return
		}
		w.listHidden()
		w.groups(now)
		w.orphans(now)
		m.history.Sweep(now - endedLife)
		m.observedEnds.Sweep(now - endedLife)
		for _, ns := range slices.Sorted(maps.Keys(m.replica.Namespaces)) {
			w.idle(m.replica.Namespaces[ns], now)
		}
		for range sweepKeys {
			k := m.keys.Pop(now - keyLife)
			if k == nil {
				break
			}
			w.key(k)
		}
		w.successions()
	})
}

// idle removes directories of locks that have not been used for a while, and the settings that their last users agreed upon.
func (w *sweeper) idle(s *queues.Namespace, now time.Duration) {
	m := w.m
	looked, swept, from := 0, 0, s.SweepFrom
	// Less the deletions that ZooKeeper has not answered: when it is slow, a sweep waits for it.
	most := min(max((s.Queues.Len()-m.replica.Counts.Locks)/sweepPart, sweepLocks), sweepMost) - s.Sweeping
	s.SweepFrom = ""
	s.Queues.Ascend(queues.From(from), func(q *queues.Queue) bool {
		if looked++; looked > sweepLook || swept >= most {
			s.SweepFrom = q.Name()
			return false
		}
		if q.Contenders.Len() > 0 || q.Leases > 0 || q.Extras().Unnumbered > 0 || q.Extras().Marker || q.Semaphore() || now-q.Since < idleLock && (!q.Extras().Temporary || now-q.Since < sweepEvery) {
			return true
		}
		if ops := m.fleet.settings.Sweep(q); len(ops) > 0 {
			q.Since = now // asked for; the events remove it
			s.Sweeping++
			m.port.Submit(&zk.Write{Alone: true, Ops: ops}, func(zk.Result) { s.Sweeping-- })
			swept++
		}
		return true
	})
}

// key deletes a key's node and then forgets the key.
func (w *sweeper) key(k *idempotency.Key) {
	m := w.m
	write := &zk.Write{Ops: []zk.Op{{Kind: zk.OpDelete, Path: m.fleet.keyPath(k.Hash), Version: -1}}}
	m.port.Submit(write, func(res zk.Result) {
		if res.Outcome != zk.Done && !isNoNode(res.Err) {
			m.keys.End(k, k.Reason, m.clock.Now().Boot()) // tried again a life later
			return
		}
		m.keys.Drop(k)
	})
}

// successions removes entries whose chain ends here once no contender has the id and no other entry names it, so the oldest go
// first.
func (w *sweeper) successions() {
	m := w.m
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

// scanKeys finds keys in ZooKeeper that this process does not know: those of gateways that it has succeeded.
func (w *sweeper) scanKeys(ctx context.Context) {
	m := w.m
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
	// The replica shows which gateways live. It must not be older than the keys, or those of a new gateway would look orphaned.
	if err := m.port.Watcher.Reached(ctx, session.LastZxid()); err != nil {
		return
	}
	others := make(map[string]recipe.GatewayID, len(m.keys.Others))
	for _, hash := range names {
		skip := locked(m, func() bool {
			id, seen := m.keys.Others[hash]
			if seen {
				others[hash] = id
			}
			return m.keys.Get(hash) != nil || seen && !m.members.Responsible(id)
		})
		if skip {
			continue
		}
		entry, err := m.fleet.readKey(ctx, session, hash)
		if err != nil && ctx.Err() != nil {
			return
		}
		if err != nil || entry == nil {
			continue
		}
		others[hash] = entry.Lease.Gateway()
		m.do(func() {
			if m.replica.KnowsAll() && m.keys.Get(hash) == nil && m.members.Responsible(entry.Lease.Gateway()) {
				entry = m.learnKey(entry)
				if entry.EndedAt == 0 && m.leases.lease(entry.Lease) == nil && !m.replica.HasNewer(entry.Lease) {
					// Its gateway left no contender and no succession.
					m.keys.Add(entry)
					m.keys.End(entry, locks.ReasonUnknown, m.clock.Now().Boot())
				}
			}
		})
	}
	m.do(func() {
		m.keys.Others = others // each is read once, not at every scan
	})
}

// orphans deletes orphans that should have gone with their session.
func (w *sweeper) orphans(now time.Duration) {
	m := w.m
	for _, id := range slices.Sorted(maps.Keys(m.orphans)) {
		o := m.orphans[id]
		if !m.members.Owns(id.Gateway()) || now < m.members.TakenAt(id.Gateway())+m.fleet.layout.LargestWindow+o.ttl ||
			o.asked != 0 && now-o.asked < m.fleet.layout.PromiseWindow {
			continue
		}
		o.asked = now // the deletion's events remove it
		deleteAll(m.port, o.at)
	}
}

// groups deletes what is left of leases of this gateway that have lost contenders while no gateway knew them.
func (w *sweeper) groups(now time.Duration) {
	m := w.m
	mine := func(id recipe.LeaseID) bool { return m.leases.lease(id) == nil && m.members.Owns(id.Gateway()) }
	for _, g := range m.replica.Broken(now, m.fleet.layout.PromiseWindow, mine) {
		deleteAll(m.port, g.At)
	}
}

// deleteAll deletes contenders of a lease that no gateway runs.
func deleteAll(port *term.Port, list []queues.Location) {
	w := &zk.Write{Alone: true}
	for _, at := range queues.TailFirst(list) {
		w.Ops = append(w.Ops, zk.Op{Kind: zk.OpDelete, Path: at.Queue.Path + "/" + at.Contender.Name, Version: -1})
	}
	port.Submit(w, func(zk.Result) {})
}

// listHidden lists the directories with contenders that the gateway may not read, since it gets no event when they end.
func (w *sweeper) listHidden() {
	for _, q := range w.m.replica.ToList() {
		w.m.list(q)
	}
}

// orphan is an ephemeral lease of a gateway that this one has succeeded.
type orphan struct {
	at    []queues.Location
	ttl   time.Duration // the longest TTL until the record has been read
	asked time.Duration // boot; last request of its deletion, 0: none
}

type orphans map[recipe.LeaseID]*orphan

// add records a contender of an orphan.
func (o orphans) add(port *term.Port, q *queues.Queue, c *recipe.Contender) {
	one := o[c.LeaseID]
	if one == nil {
		one = &orphan{ttl: locks.MaxTTL}
		o[c.LeaseID] = one
		port.Read(q.Path+"/"+c.Name, 0, func(data []byte, _ wire.Stat, err error) {
			if r, ok := record.Parse(data); err == nil && ok {
				one.ttl = r.LeaseTTL()
			}
		})
	}
	if !slices.ContainsFunc(one.at, func(at queues.Location) bool { return at.Contender == c }) {
		one.at = append(one.at, queues.Location{Queue: q, Contender: c})
	}
}

func (o orphans) leave(c *recipe.Contender) {
	one := o[c.LeaseID]
	if one == nil {
		return
	}
	one.at = slices.DeleteFunc(one.at, func(at queues.Location) bool { return at.Contender == c })
	if len(one.at) == 0 {
		delete(o, c.LeaseID)
	}
}
