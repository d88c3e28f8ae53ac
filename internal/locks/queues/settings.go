package queues

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
)

// A lock's settings are a directory <namespace>,<lock> with one child, limit-<n>: how many permits a semaphore has. What the
// replica shows of them was true at some moment: good enough for a transaction that checks it.

// settings of one lock, as the replica shows them.
type settings struct {
	exists bool    // the directory is there
	limits []limit // by number: one, but between the events of a change
}

// limit is a node limit-<n>.
type limit struct {
	n      int
	agreed bool // as its data says; false until it has been read
}

const limitPrefix = "limit-"

// LimitNode is the name of a limit's node.
func LimitNode(n int) string { return limitPrefix + strconv.Itoa(n) }

// ParseLimit reads the name of a limit's node, which has one spelling.
func ParseLimit(node string) (n int, ok bool) {
	digits, ok := strings.CutPrefix(node, limitPrefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil && n >= 1 && n <= locks.MaxLimit && strconv.Itoa(n) == digits
}

// Limit is the number of permits in force, 0 when there are no settings, and whether the first acquire agreed upon it. Of two
// the lower one counts: between the events of a change either did a moment ago.
func (q *Queue) Limit() (n int, agreed bool) {
	s := q.Extras().settings
	if s == nil || len(s.limits) == 0 {
		return 0, false
	}
	return s.limits[0].n, s.limits[0].agreed
}

// HasSettings reports whether the replica shows settings of the lock.
func (q *Queue) HasSettings() bool { return q.Extras().settings != nil }

// HasSettingsDir reports whether the replica shows the directory of the lock's settings.
func (q *Queue) HasSettingsDir() bool {
	s := q.Extras().settings
	return s != nil && s.exists
}

// Agreed are the limits of a lock whose settings were all agreed upon by acquires. ok: it has settings, and they were.
func (q *Queue) Agreed() (limits []int, ok bool) {
	s := q.Extras().settings
	if s == nil {
		return nil, false
	}
	for _, l := range s.limits {
		if !l.agreed {
			return nil, false
		}
		limits = append(limits, l.n)
	}
	return limits, true
}

// SetAgreed takes in what a limit's node says: whether an acquire made it.
func (r *Replica) SetAgreed(q *Queue, n int, agreed bool) {
	if s := q.Extras().settings; s != nil {
		if i, there := s.find(n); there {
			s.limits[i].agreed = agreed
			r.Touch(q)
		}
	}
}

// SettingsOf is the queue of the lock whose settings a change is about, nil for a directory that is none of ours.
func (r *Replica) SettingsOf(c *zk.Change, now time.Duration) *Queue {
	if q, _ := c.Dir.Value.(*Queue); q != nil {
		return q
	}
	ns, lock, ok := strings.Cut(c.Dir.Path[strings.LastIndexByte(c.Dir.Path, '/')+1:], ",")
	s := r.Namespaces[ns]
	if !ok || s == nil || recipe.CheckLockName(lock) != nil {
		return nil
	}
	q := r.Queue(s, lock, now)
	q.Polls++ // until DirRemoved: it is referred to
	c.Dir.Value = q
	return q
}

// ApplySettings follows a change of the settings of a queue's lock.
func (r *Replica) ApplySettings(q *Queue, c *zk.Change) []Delta {
	r.begin()
	n, ok := ParseLimit(c.Node)
	existed := q.HasSettingsDir()
	switch c.Kind {
	case zk.DirAdded:
		q.makeSettings().exists = true
		if !existed {
			r.emit(Delta{Kind: SettingsBegin, Queue: q})
		}
	case zk.DirRemoved:
		if existed {
			r.emit(Delta{Kind: SettingsEnd, Queue: q})
		}
		if q.extras != nil {
			q.extras.settings = nil
			q.Trim()
		}
		q.Polls--
		c.Dir.Value = nil
	case zk.NodeAdded:
		if !ok {
			return nil
		}
		s := q.makeSettings()
		if i, there := s.find(n); !there {
			s.limits = slices.Insert(s.limits, i, limit{n: n})
		}
		r.emit(Delta{Kind: ReadLimit, Queue: q, Limit: n})
	case zk.NodeChanged:
		if ok {
			r.emit(Delta{Kind: ReadLimit, Queue: q, Limit: n})
		}
		return r.deltas // seen when it has been read
	case zk.NodeRemoved:
		if s := q.Extras().settings; ok && s != nil {
			if i, there := s.find(n); there {
				s.limits = slices.Delete(s.limits, i, i+1)
			}
		}
	default:
		return nil
	}
	r.Touch(q)
	r.Forget(q)
	return r.deltas
}

// makeSettings is where settings can be written.
func (q *Queue) makeSettings() *settings {
	x := q.MakeExtras()
	if x.settings == nil {
		x.settings = &settings{}
	}
	return x.settings
}

// find is the place of a limit.
func (s *settings) find(n int) (i int, there bool) {
	return slices.BinarySearchFunc(s.limits, n, func(l limit, n int) int { return cmp.Compare(l.n, n) })
}
