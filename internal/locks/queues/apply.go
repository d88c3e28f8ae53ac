package queues

import (
	"strings"
	"time"

	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
)

// QueueOf is the queue of the lock whose directory a change is about.
func (r *Replica) QueueOf(s *Namespace, c *zk.Change, now time.Duration) *Queue {
	q, _ := c.Dir.Value.(*Queue)
	if q == nil || q.Namespace != s {
		q = r.Queue(s, recipe.LockName(c.Dir.Path[strings.LastIndexByte(c.Dir.Path, '/')+1:]), now)
		q.Path = c.Dir.Path // the same: one string in memory, not two
		c.Dir.Value = q
	}
	return q
}

// ApplyDir follows a change of a queue's directory. Before DirRemoved the caller has taken out a plain node in its place.
func (r *Replica) ApplyDir(q *Queue, c *zk.Change, now time.Duration) []Delta {
	r.begin()
	switch c.Kind {
	case zk.DirAdded:
		q.Exists, q.Since = true, now
		// A directory whose creation was seen has handed out no number yet.
		q.next, q.known, q.gap = 0, !c.Listed, false
		if !c.Listed {
			r.emit(Delta{Kind: LookSoon, Queue: q})
			if q.HadPlain() {
				r.emit(Delta{Kind: ReadDir, Queue: q})
			}
		}
		r.Touch(q)
		q.locate(true)
		r.review(q)
	case zk.DirRemoved:
		q.Exists, q.known, q.gap = false, false, false
		if x := q.extras; x != nil {
			x.Unnumbered, x.PlainCzxid, x.Temporary, x.Ceiling, x.listing = 0, 0, false, 0, false
			q.Trim()
		}
		r.Touch(q)
		q.locate(false)
		r.review(q)
		r.Forget(q)
	case zk.DirChanged:
		if q.Plain() == nil {
			r.emit(Delta{Kind: ReadDir, Queue: q})
			break
		}
		q.DropNode(interop.PlainNode)
		r.Touch(q)
	case zk.DirListed:
		q.endListing()
		if c.Err == nil { // refused: what the directory holds is not known, nothing is granted
			q.next, q.known, q.gap = c.Created, true, false
			r.emit(Delta{Kind: Listed, Queue: q})
		}
	}
	return r.deltas
}

// AddUnnumbered counts a child without a number that has come. It used up a number, or was made without one: a listing tells.
func (r *Replica) AddUnnumbered(q *Queue, listed bool) []Delta {
	r.begin()
	q.MakeExtras().Unnumbered++
	r.review(q)
	if q.known && !listed {
		q.gap = true
	}
	r.Touch(q)
	return r.deltas
}

// RemoveUnnumbered counts a child without a number that has gone.
func (r *Replica) RemoveUnnumbered(q *Queue) []Delta {
	r.begin()
	if x := q.Extras(); x.Unnumbered > 0 {
		x.Unnumbered--
		q.Trim()
	}
	r.review(q)
	r.Touch(q)
	return r.deltas
}

// locate notes whether the directory that has appeared in a lock root is another program's contender.
func (q *Queue) locate(there bool) {
	_, numbered := recipe.Number(q.Dir())
	if there = there && numbered && !recipe.IsKazooLease(q.Dir()) && interop.IsContender(q.Dir()); there != q.Extras().misplaced {
		q.MakeExtras().misplaced = there
		q.Trim()
	}
}
