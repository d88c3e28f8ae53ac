package manager

import (
	"time"

	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// Some programs lock by the oldest recipe: the program that creates the ephemeral
// node <root>/<lock> itself holds the lock. The others wait until it is deleted. Such
// a plain node stands in the place of the lock's directory. It is the lock's only
// contender: exclusive, foreign, and the holder. It has no name below the lock's path;
// the empty name stands for it. An ephemeral node has no children, so no contender
// queues behind it; an acquire that waits meanwhile waits in memory (obstacle.go).
//
// A created event does not tell a plain node from a directory. So a directory that
// was created while we watched and has no child a moment later is listed; a
// create that is refused because its parent is ephemeral knows at once.

// lookAfter is how long a new directory may be without a child before it is looked
// at. Those of our own making have one at once: both come in one transaction.
const lookAfter = 21371 * time.Microsecond

// lookSoon has a new directory looked at when it stays without a child: one that has had
// a child, and be it gone again, is no plain ephemeral node.
func (m *Manager) lookSoon(q *queues.Queue) {
	if m.stream.unlooked = append(m.stream.unlooked, q); len(m.stream.unlooked) > 1 {
		return
	}
	time.AfterFunc(lookAfter, func() {
		m.do(func() {
			for _, q := range m.stream.unlooked {
				if q.NeverUsed() {
					m.list(q)
				}
			}
			m.stream.unlooked = nil
		})
	})
}

// stands notes what a listing or a read has shown in the place of the lock's
// directory; stat is nil for what is just a directory.
func (m *Manager) stands(q *queues.Queue, stat *wire.Stat, now time.Duration, listed bool) {
	if stat != nil && !stat.Ephemeral() && 0 < stat.DataLength && stat.DataLength <= maxDirData {
		m.readDir(q)
	}
	if q.Replaced(stat) {
		m.plainGone(q, now)
	}
	if c := q.NewPlain(stat); c != nil {
		m.addContender(q, c, listed, now)
		m.seenHolding(q, c, now, listed)
	}
}

// plainGone takes a plain node out of the queue: it is deleted, or another node
// stands in its place.
func (m *Manager) plainGone(q *queues.Queue, now time.Duration) {
	if q.Plain() == nil {
		return
	}
	m.tellRemoved(q, interop.PlainNode)
	m.removeContender(q, interop.PlainNode, now)
}

// passOn removes a directory that was to go when it is empty. The sweeper does, too, where
// this comes to nothing.
func (m *Manager) passOn(q *queues.Queue, now time.Duration) {
	if q.Contenders.Len() > 0 || !q.Extras().Passing || q.Leases > 0 || q.Extras().Unnumbered > 0 || !m.trusted() || m.life.draining {
		return
	}
	q.Idle = now
	m.port.Submit(&zk.Write{Alone: true, Ops: queues.RemoveDir(q.Path)}, func(zk.Result) {})
}

// maxDirData is the longest data of a lock's directory that is looked at.
const maxDirData = 64

// readDir looks at the data of a lock's directory.
func (m *Manager) readDir(q *queues.Queue) {
	m.port.Read(q.Path, 0, func(data []byte, stat wire.Stat, err error) {
		if err != nil || !q.Exists || stat.Ephemeral() {
			return
		}
		m.replica.SetDirData(q, data)
	})
}
