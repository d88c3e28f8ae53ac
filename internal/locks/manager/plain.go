package manager

import (
	"time"

	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// stands notes what a listing or a read has shown in the place of the lock's
// directory; stat is nil for what is just a directory.
func (m *Manager) stands(q *queues.Queue, stat *wire.Stat, now time.Duration, listed bool) {
	if stat != nil && !stat.Ephemeral() && 0 < stat.DataLength && stat.DataLength <= maxDirData {
		readDir(m.port, m.replica, q)
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
	if q.Contenders.Len() > 0 || !q.Extras().Temporary || q.Leases > 0 || q.Extras().Unnumbered > 0 || !m.trusted() || m.life.draining {
		return
	}
	q.Idle = now
	m.port.Submit(&zk.Write{Alone: true, Ops: queues.RemoveDir(q.Path)}, func(zk.Result) {})
}
