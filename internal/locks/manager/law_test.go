package manager

import (
	"slices"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/reports"
	"lockkeeper/internal/test/assert"
)

// inReplica are the paths of the contenders that the replica shows and events
// may tell of; true: it has been told, or was found, to hold.
func inReplica(m *Manager) map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return inSpaces(m, func(*queues.Namespace) bool { return true })
}

// inFirstTree is inReplica when the first tree has been read: the leases of several locks that hold are found next.
func inFirstTree(m *Manager) map[string]bool {
	paths := inReplica(m)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, first := range m.replica.WholeGroups() {
		for _, at := range m.replica.Locations(first) {
			if _, shown := paths[at.Path()]; shown && m.replica.LeaseHolds(first.Queue, first.Contender) {
				paths[at.Path()] = true
			}
		}
	}
	return paths
}

// inArrivals are those of the namespaces that are being read.
func inArrivals(m *Manager) map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return inSpaces(m, func(s *queues.Namespace) bool { return !s.Whole })
}

func inSpaces(m *Manager, which func(*queues.Namespace) bool) map[string]bool {
	paths := map[string]bool{}
	for s := range m.replica.All {
		if !which(s) {
			continue
		}
		s.Queues.Scan(func(q *queues.Queue) bool {
			for _, c := range q.Contenders.All() {
				if sight := m.answers.observedOf(q, c); !sight.SuppressEvents {
					paths[q.NodeOf(c.Name)] = sight.Holds
				}
			}
			return true
		})
	}
	return paths
}

// leases are the leases that the gateway runs, by the path of their contender.
func (g *gate) leases() map[string]*lease {
	g.m.mu.Lock()
	defer g.m.mu.Unlock()
	paths := map[string]*lease{}
	for l := range g.m.leases.byID.All() {
		for slot := range l.slots {
			paths[slot.path()] = l
		}
	}
	return paths
}

// told is everything that the gateway has told, in order.
func (g *gate) told() []*events.Event {
	return g.hub.Recent(events.Filter{Rules: access.Everything(), Types: events.AllTypes}, ring)
}

// fate is what was told of one contender.
type fate struct {
	created, queued, granted, ended bool
	mode                            string
}

// checkLaw verifies the law of events (internal/events, doc.go) over all that the gateway has told.
func (g *gate) checkLaw() {
	g.t.Helper()
	list := g.told()
	if len(list) == ring {
		g.t.Logf("more was told than the ring holds: the law is not checked")
		return
	}
	fates := map[string]*fate{}  // by path
	where := map[string]string{} // by lease and lock, the path of the contender by which it was told of
	holders := map[string]map[string]*fate{}
	hold := func(dir, path string, f *fate) {
		if holders[dir] == nil {
			holders[dir] = map[string]*fate{}
		}
		holders[dir][path] = f
	}
	for path, held := range g.w.first {
		f := &fate{created: true, queued: true, granted: held}
		if c, ok := g.naming(path).Parse(g.m.fleet.id, base(path)); ok {
			f.mode = string(locks.ModeOf(c.Mode))
			where[string(c.LeaseID)+path[:len(path)-len(base(path))-1]] = path
		}
		fates[path] = f
		if held {
			hold(path[:len(path)-len(base(path))-1], path, f)
		}
	}
	ends, grants, queues := map[string]int{}, map[string]int{}, map[string]int{}
	back := map[string]bool{} // no lease of this gateway's, so a lagging tree that lacks it counts as its end
	joined := map[string]bool{}
	hazards := map[[3]string]events.Type{} // by namespace, lock, code and programs: what was told last
	connection := events.ZooKeeperExpired
	for i, e := range list {
		path := e.Path()
		one := e.LeaseID + e.Dir // a lease of several locks is told of in each
		f := fates[path]
		fail := func(what string) {
			g.t.Helper()
			g.t.Errorf("event %d, %v of %s (lease %s, reason %q): %s", i, e.Type, path, e.LeaseID, e.Reason, what)
		}
		switch e.Type {
		case events.NodeCreated:
			if f == nil || f.ended || !f.queued {
				fates[path] = &fate{created: true}
			}
		case events.LeaseQueued:
			if f != nil && f.ended && e.Name == interop.PlainNode {
				f = &fate{created: true} // of plain nodes one has the path of another
				fates[path] = f
			}
			switch {
			case f == nil || !f.created:
				fail("it stands before its node.created")
				continue
			case f.queued:
				fail("told twice")
			}
			f.queued, f.mode = true, e.Mode
			if back[path] {
				// A server that lagged lacked it: all of it is told anew.
				delete(queues, one)
				delete(grants, one)
				delete(ends, one)
			}
			if queues[one]++; e.LeaseID != "" && queues[one] > 1 {
				fail("the lease was queued before")
			}
			where[one] = path
		case events.LeaseUpdated:
			// A downgrade: it goes on under another name.
			if was, ok := where[one]; ok && was != path && e.LeaseID != "" {
				f = fates[was]
				delete(fates, was)
				delete(holders[e.Dir], was)
				fates[path], where[one] = f, path
				if f.granted {
					hold(e.Dir, path, f)
				}
			}
			switch {
			case f == nil || !f.queued:
				fail("it was never queued")
				continue
			case f.ended:
				fail("it has ended")
			}
			f.mode = e.Mode
		case events.LeaseGranted:
			switch {
			case f == nil || !f.queued:
				fail("it was never queued")
				continue
			case f.granted:
				fail("told twice")
			case f.ended:
				fail("it has ended")
			}
			if grants[one]++; e.LeaseID != "" && grants[one] > 1 {
				fail("the lease was granted before")
			}
			for other, held := range holders[e.Dir] {
				// (A server that lagged has shown one again whose end was told.)
				if !g.lagged && (held.mode != e.Mode || e.Mode == string(locks.Exclusive)) {
					fail("the end of " + other + " has not been told")
				}
			}
			f.granted = true
			hold(e.Dir, path, f)
		case events.LeaseReleased, events.LeaseExpired, events.LeaseCancelled, events.LeaseUnclaimed, events.LeaseRemoved, events.LeaseRevoked:
			switch {
			case f == nil || !f.queued:
				fail("it was never queued")
				continue
			case f.ended:
				fail("told twice")
			case e.Type != reports.EndType(locks.Reason(e.Reason)):
				fail("the type is not the reason's")
			case (e.Type == events.LeaseReleased || e.Type == events.LeaseUnclaimed) && !f.granted:
				fail("it was never granted")
			}
			if ends[one]++; e.LeaseID != "" && ends[one] > 1 {
				fail("the lease has ended before")
			}
			if p, ok := g.m.history.Get(recipe.LeaseID(e.LeaseID)); ok && e.LeaseID != "" && string(p.Reason()) != e.Reason && !(g.lagged && locks.Reason(e.Reason) == locks.ReasonUnknown) {
				fail("its clients are told " + string(p.Reason()))
			}
			f.ended = true
			back[path] = g.lagged && (e.Foreign || locks.Reason(e.Reason) == locks.ReasonUnknown || locks.Reason(e.Reason) == locks.ReasonGatewayLeft)
			delete(holders[e.Dir], path)
		case events.LockHazard, events.LockHazardCleared:
			of := [3]string{e.NS, e.Lock, hazardKey(e.Hazard.Code, e.Hazard.Programs)}
			if hazards[of] == e.Type {
				fail("told twice: " + of[2])
			}
			hazards[of] = e.Type
		case events.GatewayJoined, events.GatewayLeft:
			if was, known := joined[e.Gateway]; known && was == (e.Type == events.GatewayJoined) {
				fail("told twice")
			}
			joined[e.Gateway] = e.Type == events.GatewayJoined
		case events.ZooKeeperConnected, events.ZooKeeperSuspended, events.ZooKeeperExpired:
			if e.Type == connection || connection == events.ZooKeeperExpired && e.Type != events.ZooKeeperConnected {
				fail("it follows " + connection.String())
			}
			connection = e.Type
		}
	}
	there, leases := inReplica(g.m.Manager), g.leases()
	for path, f := range fates {
		held, shown := there[path]
		l := leases[path]
		switch {
		case !f.queued:
		case !f.ended && !shown && l == nil:
			g.t.Errorf("%s: it is gone, and its end was never told", path)
		case f.ended && shown:
			g.t.Errorf("%s: it is there, and its end was told", path)
		case f.granted != held && !f.ended && shown:
			g.t.Errorf("%s: granted was told: %v, it holds: %v", path, f.granted, held)
		}
	}
	for of, last := range hazards {
		g.m.mu.Lock() // acquires may still wait there
		q := g.m.replica.Namespaces[of[0]].Find(of[1])
		there := q != nil && slices.ContainsFunc(q.Hazards(), func(h locks.Hazard) bool { return hazardKey(string(h.Code), h.Programs) == of[2] })
		g.m.mu.Unlock()
		assert.That(g.t, there == (last == events.LockHazard), "%q: the last that was told is %v", of, last)
	}
	for path := range there {
		f := fates[path]
		assert.That(g.t, f != nil && f.queued, "%s: it is there, and was never told to be", path)
	}
}

func base(path string) string {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '/' {
			return path[i+1:]
		}
	}
	return path
}

// checkCounts is CheckAll for a test.
func (g *gate) checkCounts() {
	g.t.Helper()
	assert.Nil(g.t, g.m.CheckAll())
}
