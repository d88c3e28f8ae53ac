package manager

import (
	"strconv"
	"strings"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
)

// Some nodes in a lock root are no locks. They are siblings of one, and belong to it:
//
//   - <lock>_INVALID: bigdata (Blazegraph) is destroying the lock. Its ZLock makes this
//     ephemeral node, deletes everybody in the queue from the tail on, then the lock,
//     then the marker. While it is there, by bigdata's rule, nobody joins the queue and
//     nobody is granted the lock, and so it is here.
//   - <path>-__lock__: Kazoo's Semaphore at <path> lets one client at a time look for a
//     free lease, and this is the lock for that.

const (
	invalidSuffix = "_INVALID"
	guardSuffix   = "-__lock__"
)

// noLock reports whether what stands in the lock root is a sibling of a lock.
func (q *queue) noLock() bool {
	if q.noted().marking {
		return true
	}
	dir, guard := strings.CutSuffix(q.dir(), guardSuffix)
	if !guard || dir == "" {
		return false
	}
	guarded := q.space.find(recipe.LockName(dir))
	return guarded != nil && guarded.semaphore()
}

// semaphore reports whether another program's semaphore is in the lock's directory: its
// leases, or for Kazoo's the limit in the directory's data, also while nobody has a lease.
func (q *queue) semaphore() bool { return q.noted().ceiling > 0 || q.contenders.ForeignPermits() > 0 }

// ceilingOf is the limit of a semaphore of Kazoo's, which the data of its directory is; 0
// for other data.
func ceilingOf(data []byte) int32 {
	n, err := strconv.ParseUint(string(data), 10, 31)
	if err != nil {
		return 0
	}
	return int32(n)
}

// marks reports whether it is a marker: something ephemeral, or at least without a child at any time.
func (q *queue) marks() bool {
	return q.exists && (q.plain() != nil || q.contenders.Len() == 0 && q.noted().strays == 0 && q.known && q.next == 0)
}

// seeMarker notes that a marker has come or gone.
func (m *Manager) seeMarker(q *queue) {
	name, ok := strings.CutSuffix(q.name(), invalidSuffix)
	if !ok || name == "" {
		return
	}
	now := q.marks()
	if now == q.noted().marking {
		return
	}
	q.note().marking = now
	q.unnote("")
	q.space.markers--
	if now {
		q.space.markers += 2
	}
	if lock := q.space.find(name); lock != nil {
		lock.note().invalid = now
		lock.unnote("")
		m.touchQueue(lock)
		m.consider(lock)
		m.evaluate(lock, m.clock.Now().Boot())
	}
}

// heedMarker notes that there is a marker for a lock that is new.
func (q *queue) heedMarker() {
	if q.space.markers == 0 {
		return
	}
	if marker := q.space.find(q.name() + invalidSuffix); marker != nil && marker.noted().marking {
		q.note().invalid = true
	}
}

// invalidAmong is the first of the locks that is marked as being destroyed, or is such
// a marker.
func (m *Manager) invalidAmong(wants []locks.Want) *queue {
	for i := range wants {
		s := m.spaces[wants[i].NS]
		if s.markers == 0 {
			continue
		}
		if q := s.find(wants[i].Lock); q != nil && (q.noted().invalid || q.noted().marking) {
			return q
		}
		if marker := s.find(wants[i].Lock + invalidSuffix); marker != nil && marker.noted().marking {
			return m.queueOf(s, wants[i].Lock)
		}
	}
	return nil
}
