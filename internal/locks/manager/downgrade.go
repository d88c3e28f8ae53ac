package manager

import (
	"context"
	"errors"
	"strings"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
)

// A downgrade replaces an exclusive contender by a shared one with the same sequence number. One transaction creates
// the new node before it deletes the old one, so no watcher ever sees the position empty. A writer that waits behind
// the contender stays behind it. The replacement's czxid is newer than the czxids of contenders that came meanwhile.
// The fencing token therefore stays that of the first contender; the replacement's name contains it.

// Downgrade makes a held exclusive lease shared; for a group, every lock that it holds exclusively. A repeat returns
// the lease as it is.
func (m *Manager) Downgrade(ctx context.Context, p locks.Principal, id, token string) (locks.Lease, error) {
	named, wrong := m.fleet.bearer(p, id, token)
	if wrong != nil {
		return locks.Lease{}, wrong
	}
	return locked2(m, func() (view locks.Lease, err error) {
		var refused error // of the write that this request began
		sent := false
		failed := m.withLease(ctx, named, func(l *lease) (bool, *locks.Error) {
			switch {
			case refused != nil:
				return false, unavailableFor(refused)
			case l.phase != held:
				return false, &locks.Error{Code: locks.CodeNotHeld, Detail: "only a held lease can be downgraded; this one waits: release it and acquire with mode=shared"}
			case !l.any(recipe.Exclusive) && !l.any(recipe.Shared):
				return false, &locks.Error{Code: locks.CodeNotExclusive, Detail: "a semaphore's permits cannot be downgraded to shared"}
			case !l.any(recipe.Exclusive):
				l.claim(m, m.clock.Now().Boot())
				view = m.viewOwn(l)
				return true, nil
			case !l.every(func(s *slot) bool { return s.q.Namespace.Naming.Has(recipe.Shared) }):
				return false, &locks.Error{Code: locks.CodeNotExclusive, Detail: "a lease cannot become shared in a namespace whose dialect has no names for shared leases"}
			case !l.rewriting():
				sent = true
				l.replace(m, &refused)
			}
			return false, nil
		})
		switch {
		case failed == nil:
			return view, nil
		case sent && refused == nil:
			return view, unsure(failed)
		}
		return view, failed
	})
}

// any reports whether the lease has a contender of that mode.
func (l *lease) any(mode recipe.Mode) bool {
	return !l.every(func(s *slot) bool { return s.contender.Mode != mode })
}

// replacing reports whether a downgrade is under way.
func (l *lease) replacing() bool { return l.change == changeReplacing }

// replace submits a downgrade. It is done when the replica shows the replacement: see succeeded.
func (l *lease) replace(m *Manager, refused *error) {
	now := m.clock.Now().Boot()
	l.claim(m, now)
	l.setChange(m.leases, changeReplacing)
	l.setRecord(m.leases, recordWriting)
	var creates, deletes []zk.Op
	for s := range l.slots {
		if s.contender.Mode != recipe.Exclusive {
			continue
		}
		next := *s.contender
		next.Mode, next.FirstCzxid = recipe.Shared, l.czxid
		creates = append(creates, zk.Op{Kind: zk.OpCreate, Ephemeral: next.Ephemeral, Path: s.q.Path + "/" + s.q.Namespace.Naming.Format(&next), Data: l.data(s, l.recorded)})
		version := int32(-1)
		if s == &l.slot {
			version = l.dataVersion() // data that another gateway wrote is read before the node is replaced
		}
		deletes = append(deletes, zk.Op{Kind: zk.OpDelete, Path: s.path(), Version: version})
	}
	term := l.term
	ops := append(creates, deletes...)
	if fault.On("creates-first") {
		ops = append(deletes, creates...)
	}
	m.port.Submit(&zk.Write{Ops: ops}, func(res zk.Result) {
		if l.term != term {
			return // adoption finds the contenders that exist
		}
		contested := l.recordState == recordContested
		if l.recordState.writing() {
			l.setRecord(m.leases, recordCurrent)
		}
		switch {
		case l.phase == ended:
		case res.Outcome == zk.Done: // at the version that was seen, so no other gateway has written it
			l.rare().visibleFrom = res.Zxid
		case res.Outcome == zk.Unknown:
			l.staleRecord(m.leases)
			if l.replacing() {
				l.resolve(m)
			} else {
				l.load(m) // the replica has shown already that it was done
			}
		default:
			if contested || errors.Is(res.Err, zk.ErrBadVersion) {
				l.staleRecord(m.leases)
			}
			if l.recordState.loaded() {
				*refused = res.Err
			}
			l.replaced(m)
		}
		m.leases.touch(l)
	})
}

// replaced ends a downgrade, done or not, and resumes the operation that waited for it.
func (l *lease) replaced(m *Manager) {
	if !l.replacing() {
		return
	}
	l.setChange(m.leases, changeNone)
	if l.phase == ending {
		l.resubmitDelete(m)
	} else {
		l.load(m)
	}
}

// succeeded puts a downgrade's replacement into the slot of the contender that it replaces. The replica removes that
// contender next.
func (l *lease) succeeded(m *Manager, s *slot, next *recipe.Contender) {
	s.contender = next
	m.leases.counts.recount(l)
	m.replica.Observe(next, queues.Observed{})
	if s == &l.slot {
		l.setDataVersion(0)
	}
	m.tellSlotUpdated(l, s)
	l.replacedWhole(m)
	m.leases.touch(l)
}

// replacedWhole ends a downgrade when no slot is left to replace. A slot whose contender is gone does not count;
// otherwise the rest of the lease would never end.
func (l *lease) replacedWhole(m *Manager) {
	if l.every(func(s *slot) bool { return s.presence.gone() || s.contender.Mode != recipe.Exclusive }) {
		l.replaced(m)
	}
}

// inherited does the same for a contender that is not a lease of this gateway.
func (m *Manager) inherited(q *queues.Queue, c, next *recipe.Contender) {
	m.replica.Inherit(c, next)
	if w := m.words[subject(c.LeaseID)]; w != nil && w.q == q && w.name == c.Name {
		w.name = strings.Clone(next.Name) // its gateway has already reported the end, which is that of the replacement
	}
	m.tellReplaced(q, next)
}
