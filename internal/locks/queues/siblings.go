package queues

import (
	"strings"

	"lockkeeper/internal/locks/recipe"
)

// Some nodes in a lock root are no locks. They are siblings of one, and belong to it:
//
//   - <lock>_INVALID: bigdata (Blazegraph) is destroying the lock. Its ZLock makes this ephemeral node, deletes every
//     contender in the queue from the tail on, then the lock, then the marker. While it is there, by bigdata's rule, no
//     contender joins the queue and none is granted the lock, and so it is here.
//   - <path>-__lock__: Kazoo's Semaphore at <path> lets one client at a time look for a free lease, and this is the lock
//     for that.

const (
	// InvalidSuffix ends the name of a marker of bigdata's.
	InvalidSuffix = "_INVALID"
	guardSuffix   = "-__lock__"
)

// NoLock reports whether what stands in the lock root is a sibling of a lock.
func (q *Queue) NoLock() bool {
	if q.Extras().Marker {
		return true
	}
	dir, guard := strings.CutSuffix(q.Dir(), guardSuffix)
	if !guard || dir == "" {
		return false
	}
	guarded := q.Namespace.Find(recipe.LockName(dir))
	return guarded != nil && guarded.Semaphore()
}

// Semaphore reports whether another program's semaphore is in the lock's directory: its leases, or for Kazoo's the limit
// in the directory's data, also while it has no lease.
func (q *Queue) Semaphore() bool { return q.Extras().Ceiling > 0 || q.Contenders.ForeignPermits() > 0 }

// marks reports whether it is a marker: something ephemeral, or at least without a child at any time.
func (q *Queue) marks() bool { return q.Exists && (q.Plain() != nil || q.known && q.NeverUsed()) }

// ReviewMarker follows a change of a queue that may be a marker. What it says of the lock beside it is in the deltas.
func (r *Replica) ReviewMarker(q *Queue) []Delta {
	name, ok := strings.CutSuffix(q.Name(), InvalidSuffix)
	if !ok || name == "" {
		return nil
	}
	now := q.marks()
	if now == q.Extras().Marker {
		return nil
	}
	r.begin()
	q.MakeExtras().Marker = now
	q.Trim()
	q.Namespace.markers--
	if now {
		q.Namespace.markers += 2
	}
	if lock := q.Namespace.Find(name); lock != nil {
		lock.MakeExtras().Invalid = now
		lock.Trim()
		r.Touch(lock)
		r.review(lock)
		r.emit(Delta{Kind: Evaluate, Queue: lock})
	}
	return r.deltas
}

// heedMarker notes that there is a marker for a lock that is new.
func (q *Queue) heedMarker() {
	if q.Namespace.markers > 0 && q.Namespace.Marked(q.Name()) {
		q.MakeExtras().Invalid = true
	}
}

// Marked reports whether there is a marker that the lock of that name is being destroyed, or is such a marker itself.
func (s *Namespace) Marked(name string) bool {
	if s.markers == 0 {
		return false
	}
	if marker := s.Find(name + InvalidSuffix); marker != nil && marker.Extras().Marker {
		return true
	}
	q := s.Find(name)
	return q != nil && (q.Extras().Invalid || q.Extras().Marker)
}
