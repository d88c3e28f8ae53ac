package manager

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// A lock's settings are a directory <namespace>,<lock> with one child, limit-<n>: how
// many permits a semaphore has. The limit is in the path, and an acquire's
// transaction checks that this path exists; so whatever was removed and made anew
// meanwhile, a contender is enqueued under the limit that is in force at that moment
// or not at all. It carries that limit in its name: who holds depends on names alone,
// and a limit that changes applies to who comes after.
//
// Settings are set by somebody (Configure), or agreed upon by the first acquire that
// gives a limit, in the transaction of its contender. What was agreed is
// forgotten with the idle lock; what was set stays until somebody removes it. A
// limit that was set has been written to after it was made, so its version is never
// 0: a sweep, which deletes version 0, cannot take it for one that was agreed
// upon, however far its gateway is behind.
//
// The replica shows them, like everything else, as they were at some moment. What
// it says is good enough for a transaction that checks it. Before somebody is
// refused for it, it is brought up to the present (Manager.sized).

// settings of one lock, as the replica shows them. Guarded by Manager.mu.
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

// limitRecord is the data of a limit's node.
type limitRecord struct {
	Version int    `json:"v"`
	By      string `json:"by"`
}

// Who made a limit.
const (
	bySet     = "set"
	byAcquire = "acquire"
)

func limitData(by string) []byte {
	data, err := json.Marshal(limitRecord{Version: record.Version, By: by})
	if err != nil {
		panic("encoding a limit's record: " + err.Error()) // a string and an integer
	}
	return data
}

// parseLimit reads the name of a limit's node, which has one spelling.
func parseLimit(node string) (n int, ok bool) {
	digits, ok := strings.CutPrefix(node, limitPrefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil && n >= 1 && n <= locks.MaxLimit && strconv.Itoa(n) == digits
}

// settings of a lock; nil when it has none.
func (q *queue) settings() *settings { return q.noted().settings }

// limit is the number of permits in force; 0 when there are no settings. Of two the
// lower one counts: between the events of a change either did a moment ago.
func (q *queue) limit() (n int, agreed bool) {
	s := q.settings()
	if s == nil || len(s.limits) == 0 {
		return 0, false
	}
	return s.limits[0].n, s.limits[0].agreed
}

// agreed reports whether nothing of the settings was set by somebody.
func (s *settings) agreed() bool {
	return !slices.ContainsFunc(s.limits, func(l limit) bool { return !l.agreed })
}

func (m *Manager) settingsRoot() string { return m.opt.Root + zk.NodeSettings }

// settingsPath is the directory of a lock's settings. No name has a comma, as
// recipe.LockName writes it.
func (m *Manager) settingsPath(q *queue) string {
	return m.settingsRoot() + "/" + q.space.name + "," + q.name()
}

func (m *Manager) limitPath(q *queue, n int) string {
	return m.settingsPath(q) + "/" + limitPrefix + strconv.Itoa(n)
}

// applySettings takes a change of the settings.
func (m *Manager) applySettings(c *zk.Change) {
	q, _ := c.Dir.Value.(*queue)
	if q == nil {
		ns, lock, ok := strings.Cut(c.Dir.Path[strings.LastIndexByte(c.Dir.Path, '/')+1:], ",")
		space := m.spaces[ns]
		if !ok || space == nil || recipe.CheckLockName(lock) != nil {
			return // not one of ours: left alone
		}
		q = m.queueOf(space, lock)
		q.polls++ // until DirRemoved: it is referred to
		c.Dir.Value = q
	}
	m.tellNode(c, q)
	n, ok := parseLimit(c.Node)
	switch c.Kind {
	case zk.DirAdded:
		m.countSettings(q, true)
		q.set().exists = true
	case zk.DirRemoved:
		m.countSettings(q, false)
		q.unset()
		q.polls--
		c.Dir.Value = nil
	case zk.NodeAdded:
		if !ok {
			return
		}
		s := q.set()
		if i, there := s.find(n); !there {
			s.limits = slices.Insert(s.limits, i, limit{n: n})
		}
		m.readLimit(q, n)
	case zk.NodeChanged:
		if ok {
			m.readLimit(q, n)
		}
		return // seen when it has been read
	case zk.NodeRemoved:
		if s := q.settings(); ok && s != nil {
			if i, there := s.find(n); there {
				s.limits = slices.Delete(s.limits, i, i+1)
			}
		}
	default:
		return
	}
	m.touchQueue(q)
	m.forget(q)
}

// find is the place of a limit.
func (s *settings) find(n int) (i int, there bool) {
	return slices.BinarySearchFunc(s.limits, n, func(l limit, n int) int { return cmp.Compare(l.n, n) })
}

// set is where settings can be written.
func (q *queue) set() *settings {
	r := q.note()
	if r.settings == nil {
		r.settings = &settings{}
	}
	return r.settings
}

// unset forgets the settings, and the remarks when nothing is left.
func (q *queue) unset() {
	if q.remarks != nil {
		q.remarks.settings = nil
		q.unnote("")
	}
}

// readLimit finds out who made a limit.
func (m *Manager) readLimit(q *queue, n int) {
	m.read(m.limitPath(q, n), func(data []byte, _ wire.Stat, err error) {
		s := q.settings()
		if s == nil {
			return
		}
		i, there := s.find(n)
		if !there {
			return
		}
		var r limitRecord
		s.limits[i].agreed = err == nil && json.Unmarshal(data, &r) == nil && r.By == byAcquire
		m.touchQueue(q)
	})
}

// sized fills in the limits of the semaphores that are asked for: that of the lock,
// or, where it has none, the one that is given. It refuses what contradicts the
// lock's, from memory.
func (m *Manager) sized(req *locks.AcquireRequest, wants []locks.Want) ([]locks.Want, *locks.Error) {
	sized := wants
	for i := range wants {
		w := wants[i]
		if w.Mode != locks.Semaphore {
			continue
		}
		inForce := 0
		if q := m.spaces[w.NS].find(w.Lock); q != nil {
			inForce, _ = q.limit()
		}
		switch {
		case inForce == 0 && w.Limit == 0:
			return nil, locks.Invalid(req.Field(i, "limit"), "the lock has no limit yet: give limit=N with the acquire, and whoever comes agrees to it while the lock is in use; or set it for good with PUT")
		case inForce != 0 && w.Limit != 0 && w.Limit != inForce:
			return nil, &locks.Error{Code: locks.CodeSettingsDiffer, Field: req.Field(i, "limit"), Limit: inForce,
				Detail: "the lock has a limit of " + strconv.Itoa(inForce) + ": leave limit out to take it as it is, or change it with PUT, which applies to who comes after"}
		case w.Permits > max(inForce, w.Limit):
			return nil, locks.Invalid(req.Field(i, "permits"), strconv.Itoa(w.Permits)+" permits are more than the lock's limit of "+strconv.Itoa(max(inForce, w.Limit)))
		}
		if w.Limit = max(inForce, w.Limit); w != wants[i] {
			if &sized[0] == &wants[0] {
				sized = slices.Clone(wants) // what was asked stays as it is: a repeat is compared with it
			}
			sized[i] = w
		}
	}
	return sized, nil
}

// limitOps is what the transaction that creates a contender must carry for the
// limit in its name: a check that it is in force, or, where the lock has no
// settings, their creation. alone: it may well fail, so it fails nobody else's.
func (m *Manager) limitOps(q *queue, n int) (ops []zk.Op, alone bool) {
	if inForce, _ := q.limit(); inForce != 0 {
		if fault.On("limit-check") {
			return nil, false
		}
		return []zk.Op{{Kind: zk.OpCheck, Path: m.limitPath(q, n), Version: -1}}, false
	}
	dir := m.settingsPath(q)
	if s := q.settings(); s != nil && s.exists {
		// Somebody else may be filling it at this moment, with another limit: it is
		// deleted first, which fails unless it is empty.
		ops = append(ops, zk.Op{Kind: zk.OpDelete, Path: dir, Version: -1})
	}
	return append(ops, zk.Op{Kind: zk.OpCreate, Path: dir},
		zk.Op{Kind: zk.OpCreate, Path: m.limitPath(q, n), Data: limitData(byAcquire)}), true
}

// resize gives the contenders of a lease that is being created the limits that
// are in force now; or it tells why what was asked for cannot be.
func (m *Manager) resize(l *lease, req *locks.AcquireRequest) *locks.Error {
	sized, err := m.sized(req, req.Wants())
	if err != nil {
		return err
	}
	for s := range l.slots {
		if s.contender.Mode == recipe.Permit { // a lock with other dialects' names has several slots
			s.contender.Limit = int32(sized[max(s.contender.Group, 1)-1].Limit)
		}
	}
	return nil
}

// limitFailed reports whether a create was not done because the settings are not
// what the replica showed.
func (m *Manager) limitFailed(w *zk.Write, res zk.Result) bool {
	switch {
	case res.Outcome == zk.Conflict:
		return slices.ContainsFunc(w.Ops, func(op zk.Op) bool { return m.ofSettings(op.Path) })
	case res.Outcome != zk.NotDone || res.Culprit < 0 || !m.ofSettings(w.Ops[res.Culprit].Path):
		return false
	}
	return errors.Is(res.Err, zk.ErrNodeExists) || errors.Is(res.Err, zk.ErrNoNode) || errors.Is(res.Err, zk.ErrNotEmpty)
}

// redecide creates a lease again after its limit was found not to be in force. The
// replica showed it, so it is behind: it is brought up to the present first.
func (m *Manager) redecide(l *lease, key *keyEntry, req *locks.AcquireRequest, attempt int) {
	term := l.term
	m.effect(func() {
		go func() { // ends with the barrier
			ctx, cancel := context.WithTimeout(context.Background(), barrierWithin)
			defer cancel()
			err := m.barrier(ctx)
			m.do(func() {
				switch {
				case l.phase != creating || l.term != term || m.term != term:
					return // a takeover settles it, or has
				case err != nil, l.abandoned:
					l.few().failure = m.unavailableFor(err)
					m.dropCreate(l, key, m.clock.Now().Boot())
				default:
					m.create(l, key, req, attempt)
				}
			})
		}()
	})
}

// idleOps is the transaction that removes what is left of a lock that nobody has
// used for a while. It fails when somebody uses it again: the lock's directory is
// not empty, or is there again. Of other namespaces the directories stay, for a Kazoo
// lock creates its own only once; what was agreed upon in one of those may go when
// somebody has just come, who keeps the limit that is in the name, as after
// a change.
func (m *Manager) idleOps(q *queue) (ops []zk.Op) {
	agreed := q.settings() != nil && q.settings().agreed()
	switch {
	case q.exists && (q.space.name == locks.DefaultNamespace || q.noted().passing):
		ops = removeDir(q.path)
	case q.space.name == locks.DefaultNamespace && agreed:
		ops = append(ops, zk.Op{Kind: zk.OpCreate, Path: q.path}, zk.Op{Kind: zk.OpDelete, Path: q.path, Version: -1})
	}
	if !agreed {
		return ops
	}
	for _, l := range q.settings().limits {
		ops = append(ops, zk.Op{Kind: zk.OpDelete, Path: m.limitPath(q, l.n), Version: 0})
	}
	return append(ops, zk.Op{Kind: zk.OpDelete, Path: m.settingsPath(q), Version: -1})
}

// ofSettings reports whether a path is in the settings.
func (m *Manager) ofSettings(path string) bool { return strings.HasPrefix(path, m.settingsRoot()+"/") }
