package manager

import (
	"context"
	"time"

	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk/wire"
)

const (
	// resolveWithin bounds one attempt to bring the replica up to the writer.
	resolveWithin = 5 * time.Second
	resolvePause  = 250 * time.Millisecond
)

// resolve settles a lease whose create or delete was lost, where the session
// lives on and could not tell what became of it (another program may have
// changed what the transaction left). Nothing of it can commit any more, so
// the replica tells, once it has come to where the writer is.
func (l *lease) resolve(m *Manager) {
	m.leases.touch(l)
	session, term := m.port.Session(), m.port.Term()
	if session == nil || l.term != term {
		if l.phase == ending && !l.replacing() {
			l.setChange(m.leases, changePaused)
		}
		return // the session is gone: adoption settles it
	}
	if !l.replacing() {
		l.setChange(m.leases, changeVerifying)
	}
	m.effect(func() {
		go func() { // ends when the session does, at the latest
			for !caughtUp(m.port, session) {
				select {
				case <-session.Done():
					return
				case <-time.After(resolvePause):
				}
			}
			m.do(func() {
				if m.port.Term() == term && m.port.Session() == session && l.term == term && (l.change == changeVerifying || l.replacing()) {
					l.resolved(m)
				}
			})
		}()
	})
}

func caughtUp(port *term.Port, session term.Session) bool {
	ctx, cancel := context.WithTimeout(context.Background(), resolveWithin)
	defer cancel()
	return port.Watcher.Reached(ctx, session.LastZxid()) == nil
}

// checkUnseen asks for a contender that was created and is not in the replica.
// Somebody may have deleted it while the observer had no connection: then no
// event and no listing ever names it.
func (l *lease) checkUnseen(m *Manager) {
	if l.czxid == 0 || l.phase == ending || l.phase == ended || m.port.Session() == nil || l.term != m.port.Term() {
		return
	}
	for s := range l.slots {
		if !s.presence.seen() && s.name() != "" {
			l.checkSlot(m, s)
		}
	}
}

func (l *lease) checkSlot(m *Manager, s *slot) {
	path, term := s.path(), m.port.Term()
	m.effect(func() {
		m.port.Watcher.Get(path, func(_ []byte, _ wire.Stat, zxid int64, err error) {
			m.do(func() {
				if l.term == term && !s.presence.seen() && s.path() == path && l.phase != ending && l.phase != ended && isNoNode(err) && zxid >= l.visibleFrom() {
					s.setPresence(m.leases, l, slotGone)
					l.lost(m, m.clock.Now().Boot())
				}
			})
		})
	})
}

// resolved takes the replica's word for a lease whose last write was lost.
func (l *lease) resolved(m *Manager) {
	now := m.clock.Now().Boot()
	switch {
	case !l.seenWhole() && (l.phase == creating || l.phase == ending):
		l.endAbsent(m, now)
	case l.replacing():
		l.replaced(m) // the replica shows whether it was done
	case l.phase == creating:
		l.staleRecord(m.leases)
		l.load(m) // its czxid places it
	case l.phase == ending && l.closes():
		// Whether it has ended is in its record, which this read brings.
		if l.recordState.reading() {
			l.setChange(m.leases, changeRereading)
		} else {
			l.setChange(m.leases, changeReading)
		}
		l.staleRecord(m.leases)
		l.load(m)
	case l.phase == ending && byTime(l.reason()):
		l.revive(m, now)
	case l.phase == ending:
		l.submitDelete(m)
	}
}
