package manager

import (
	"time"

	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// Some programs lock by the oldest recipe: whoever creates the ephemeral node
// <root>/<lock> itself holds the lock, and the others wait for it to be deleted. Where
// a directory would be stands such a plain node then. It is the lock's only
// contender, exclusive, foreign and without a name below the lock's path, and holds:
// the empty name stands for it. An ephemeral node has no children, so nothing of
// anybody's queues behind it; an acquire that waits meanwhile waits in
// memory (obstacle.go).
//
// A created event does not tell a plain node from a directory. So a directory that
// was created while we watched and has no child a moment later is listed; a
// create that is refused because its parent is ephemeral knows at once.

// lookAfter is how long a new directory may be without a child before it is looked
// at. Those of our own making have one at once: both come in one transaction.
const lookAfter = 21371 * time.Microsecond

// plain is the plain node in the place of the lock, nil when none is known.
func (q *queue) plain() *recipe.Contender {
	if q.contenders.Len() != 1 {
		return nil
	}
	if c := q.contenders.At(0); c.Name == interop.PlainNode {
		return c
	}
	return nil
}

// nodeOf is the path of a contender's node.
func (q *queue) nodeOf(name string) string {
	if name == interop.PlainNode {
		return q.path
	}
	return q.path + "/" + name
}

// lookSoon has a new directory looked at when it stays without a child: one that has had
// a child, and be it gone again, is no plain ephemeral node.
func (m *Manager) lookSoon(q *queue) {
	if m.unlooked = append(m.unlooked, q); len(m.unlooked) > 1 {
		return
	}
	time.AfterFunc(lookAfter, func() {
		m.do(func() {
			for _, q := range m.unlooked {
				if q.exists && q.next == 0 && q.contenders.Len() == 0 && q.noted().strays == 0 {
					m.list(q)
				}
			}
			m.unlooked = nil
		})
	})
}

// stands notes what a listing or a read has shown in the place of the lock's
// directory; stat is nil for what is just a directory.
func (m *Manager) stands(q *queue, stat *wire.Stat, now time.Duration, listed bool) {
	known := q.plain()
	ephemeral := stat != nil && stat.Ephemeral()
	if stat != nil && !ephemeral && 0 < stat.DataLength && stat.DataLength <= maxDirData {
		m.readDir(q)
	}
	if known != nil && (!ephemeral || q.noted().plainCzxid != stat.Czxid) {
		m.plainGone(q)
		known = nil
	}
	if !ephemeral || known != nil || q.contenders.Len() > 0 {
		return
	}
	c := &recipe.Contender{Name: interop.PlainNode, Member: 1, Members: 1, Group: 1, Groups: 1}
	q.note().plainCzxid = stat.Czxid
	q.space.stood(q.name())
	m.addContender(q, c, listed)
	m.seenHolding(q, c, now, listed)
}

// plainGone takes a plain node out of the queue: it is deleted, or another node
// stands in its place.
func (m *Manager) plainGone(q *queue) {
	if q.plain() == nil {
		return
	}
	m.tellRemoved(q, interop.PlainNode)
	m.removeContender(q, interop.PlainNode)
}

// placeFreed forgets what was noted of what stood in the lock's place.
func (q *queue) placeFreed() {
	if r := q.remarks; r != nil {
		r.plainCzxid, r.passing, r.ceiling = 0, false, 0
		q.unnote("")
	}
}

// passOn removes a directory that was to go when it is empty. The sweeper does, too, where
// this comes to nothing.
func (m *Manager) passOn(q *queue, now time.Duration) {
	if q.contenders.Len() > 0 || !q.noted().passing || q.leases > 0 || q.noted().strays > 0 || !m.trusted() || m.draining {
		return
	}
	q.idle = now
	m.submit(&zk.Write{Alone: true, Ops: removeDir(q.path)}, func(zk.Result) {})
}

// placeChanged: the data of what stands in the lock's place was set.
func (m *Manager) placeChanged(q *queue) {
	if q.plain() != nil {
		delete(q.noted().infos, interop.PlainNode)
		m.touchQueue(q)
		return
	}
	m.readDir(q)
}

// maxStood bounds the locks of a namespace of which it is remembered that plain nodes
// have stood there. When they
// are more it begins anew.
const maxStood = 4096

// stood notes that a plain node stands in a lock's place.
func (s *space) stood(lock string) {
	if s.plains == nil || len(s.plains) == maxStood {
		s.plains = make(map[string]struct{})
	}
	s.plains[lock] = struct{}{}
}

// hasStood reports whether plain nodes have stood in a lock's place.
func (s *space) hasStood(lock string) bool {
	_, ok := s.plains[lock]
	return ok
}

// passing is the data of a directory that we create where plain nodes have stood. Whoever
// locks by those waits for the directory to be deleted, so it goes as soon as
// it is empty, in whatever namespace, and whichever gateway finds it.
const passing = "lockkeeper: goes when it is empty"

// maxDirData is the longest data of a lock's directory that is looked at.
const maxDirData = 64

// readDir looks at the data of a lock's directory.
func (m *Manager) readDir(q *queue) {
	m.read(q.path, func(data []byte, stat wire.Stat, err error) {
		if err != nil || !q.exists || stat.Ephemeral() {
			return
		}
		r := q.note()
		was := r.ceiling
		r.passing, r.ceiling = string(data) == passing, ceilingOf(data)
		if r.ceiling != was {
			m.touchQueue(q)
		}
		q.unnote("")
	})
}

// removal of a directory fails when it is not one: a plain node may have taken its
// place since it was looked at, in the moment in which another gateway swept
// it, and is somebody's lock. Nothing can be created below that.
const removalProbe = "lockkeeper-sweep"

func removeDir(path string) []zk.Op {
	probe := path + "/" + removalProbe
	return []zk.Op{{Kind: zk.OpCreate, Path: probe}, {Kind: zk.OpDelete, Path: probe, Version: -1}, {Kind: zk.OpDelete, Path: path, Version: -1}}
}
