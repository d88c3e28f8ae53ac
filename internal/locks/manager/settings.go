package manager

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// A lock's settings are a directory <namespace>,<lock> with one child, limit-<n>: how
// many permits a semaphore has. The limit is in the path, and an acquire's transaction
// checks that this path exists. So a contender is created under the limit that is in
// force at that moment, or not at all. Its name has that limit: names alone decide who
// holds, and a changed limit applies to later acquires.
//
// A client sets the settings (Configure), or the first acquire that gives a limit
// agrees upon them, in the transaction of its contender. An agreed limit is deleted
// with the idle lock; a set limit stays until a client removes it. Configure writes a
// limit once more after it is made, so its version is never 0. A sweep deletes version
// 0 only: it cannot delete a set limit, however far its gateway is behind.
//
// The replica may be behind. That is enough for a transaction that checks the settings.
// Before a request is refused for them, a barrier brings the replica up to the present
// (Manager.sized).

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

func (m *Manager) settingsRoot() string { return m.opt.Root + zk.NodeSettings }

// settingsPath is the directory of a lock's settings. No name has a comma, as
// recipe.LockName writes it.
func (m *Manager) settingsPath(q *queues.Queue) string {
	return m.settingsRoot() + "/" + q.Namespace.Name + "," + q.Name()
}

func (m *Manager) limitPath(q *queues.Queue, n int) string {
	return m.settingsPath(q) + "/" + queues.LimitNode(n)
}

// applySettings takes a change of the settings.
func (m *Manager) applySettings(c *zk.Change, now time.Duration) {
	if q := m.replica.SettingsOf(c, now); q != nil {
		m.tellNode(c, q)
		m.applyDeltas(m.replica.ApplySettings(q, c), now)
	}
}

// readLimit finds out who made a limit.
func (m *Manager) readLimit(q *queues.Queue, n int) {
	m.port.Read(m.limitPath(q, n), 0, func(data []byte, _ wire.Stat, err error) {
		var r limitRecord
		m.replica.SetAgreed(q, n, err == nil && json.Unmarshal(data, &r) == nil && r.By == byAcquire)
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
		if q := m.replica.Namespaces[w.NS].Find(w.Lock); q != nil {
			inForce, _ = q.Limit()
		}
		switch {
		case inForce == 0 && w.Limit == 0:
			return nil, locks.Invalid(req.Field(i, "limit"), "the lock has no limit yet: give limit=N with the acquire, which binds later acquires while the lock is in use; or set it for good with PUT")
		case inForce != 0 && w.Limit != 0 && w.Limit != inForce:
			return nil, &locks.Error{Code: locks.CodeSettingsDiffer, Field: req.Field(i, "limit"), Limit: inForce,
				Detail: "the lock has a limit of " + strconv.Itoa(inForce) + ": leave limit out to take it as it is, or change it with PUT, which applies to later acquires"}
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
// settings, their creation. alone: it may well fail, so no other write shares its transaction.
func (m *Manager) limitOps(q *queues.Queue, n int) (ops []zk.Op, alone bool) {
	if inForce, _ := q.Limit(); inForce != 0 {
		if fault.On("limit-check") {
			return nil, false
		}
		return []zk.Op{{Kind: zk.OpCheck, Path: m.limitPath(q, n), Version: -1}}, false
	}
	dir := m.settingsPath(q)
	if q.HasSettingsDir() {
		// Another gateway may be creating another limit in it at this moment. So it is
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
			err := m.barrier(context.Background())
			m.do(func() {
				switch {
				case l.phase != creating || l.term != term || m.port.Term() != term:
					return // a takeover settles it, or has
				case err != nil, l.abandoned:
					l.rare().failure = unavailableFor(err)
					l.dropCreate(m, key, m.clock.Now().Boot())
				default:
					m.create(l, key, req, attempt, nil)
				}
			})
		}()
	})
}

// idleOps is the transaction that removes what is left of a lock that has been idle for
// a while. It fails when the lock is used again: its directory is not empty, or is there
// again. In other namespaces the directories stay, because a Kazoo lock creates its own
// only once. There an agreed limit may be deleted just after a contender came, which
// keeps the limit in its name, as after a change.
func (m *Manager) idleOps(q *queues.Queue) (ops []zk.Op) {
	limits, agreed := q.Agreed()
	switch {
	case q.Exists && (q.Namespace.Name == locks.DefaultNamespace || q.Extras().Passing):
		ops = removeDir(q.Path)
	case q.Namespace.Name == locks.DefaultNamespace && agreed:
		ops = append(ops, zk.Op{Kind: zk.OpCreate, Path: q.Path}, zk.Op{Kind: zk.OpDelete, Path: q.Path, Version: -1})
	}
	if !agreed {
		return ops
	}
	for _, n := range limits {
		ops = append(ops, zk.Op{Kind: zk.OpDelete, Path: m.limitPath(q, n), Version: 0})
	}
	return append(ops, zk.Op{Kind: zk.OpDelete, Path: m.settingsPath(q), Version: -1})
}

// ofSettings reports whether a path is in the settings.
func (m *Manager) ofSettings(path string) bool { return strings.HasPrefix(path, m.settingsRoot()+"/") }
