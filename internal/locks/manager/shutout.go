package manager

import (
	"context"
	"errors"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// Another program may have ADMIN on a lease's contender, or on the lock's directory: on nodes of an earlier release,
// and in directories that other programs made. With setACL it can hide the contender's record from this gateway, or
// keep this gateway from deleting the contender.
//
//   - A hidden record changes nothing about the lease's clock. exists needs no permission, and tells the version by
//     which time deletes the contender; the deletion is judged by the directory's ACL. Where the version has moved, a
//     heartbeat may have been written that cannot be read, so the lease gets its TTL once more.
//   - ZooKeeper sends no events about a hidden node, so its directory is listed once a second; and so is one where a
//     lease waits for the end of a contender that this gateway has deleted, when the event has not come for a second.
//   - A lock delay needs the record. Where ZooKeeper refuses the record, the lease ends without its delay.
//   - In a closed directory nothing can be deleted. Releases there are answered with the reason. Other locks go on.
//
// Each lease logs this once.

// shutOut records that ZooKeeper refuses access to a lease's contender, and logs it the first time.
func (l *lease) shutOut(m *Manager, what string) {
	if l.access != accessFull {
		return
	}
	l.setAccess(m.leases, accessRefused)
	m.log.Warn("an ACL shuts this gateway out of a lease's contender", "doing", what, "lease_id", l.id(), "lock", l.q.Name(), "znode", l.path(),
		"hint", "restore the ACL of the node, or of the lock's directory; ZooKeeper's super user can")
}

// hidden continues a lease whose record may not be read.
func (l *lease) hidden(m *Manager, term locks.Term) {
	l.shutOut(m, "reading")
	session, path := m.port.Session(), l.path()
	if session == nil || l.phase == ended || l.term != m.port.Term() {
		l.unreadRecord(m.leases)
		return
	}
	m.applyDeltas(m.replica.Hide(l.q, l.name()), m.clock.Now().Boot())
	l.beginRead(m.leases)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
		defer cancel()
		stat, err := session.Exists(ctx, path)
		m.do(func() {
			switch {
			case l.term != term:
			case err != nil || stat == nil:
				l.unreadRecord(m.leases) // the clock asks again; a listing tells that the node is gone
			default:
				l.loadedHidden(m, term, *stat)
			}
		})
	}()
}

// loadedHidden is loaded for a record of which only the node's stat is known.
func (l *lease) loadedHidden(m *Manager, term locks.Term, stat wire.Stat) {
	moved := !l.recordState.assumed() && stat.Czxid == l.visibleFrom() && stat.Version > l.dataVersion()
	if l.change == changeReading && moved {
		// The version is that of the record that ends it, or of a write that cannot be read: it stays ended.
		l.setRecord(m.leases, recordCurrent)
		l.setDataVersion(stat.Version)
		l.closed(m, l.reason(), m.clock.Now().Boot())
		return
	}
	if moved {
		l.beatenUnread(m, m.clock.Now().Boot())
	}
	l.loaded(m, term, nil, stat, nil)
}

// awaitUntold has a queue's directory listed until a listing lacks the contender that this gateway has deleted.
// ZooKeeper sends no event about the end of a hidden node, and the contenders behind it wait for that end.
func (m *Manager) awaitUntold(q *queues.Queue) {
	m.replica.Poll(q)
	m.list(q)
}

// refusedEnd is the answer to a release that ZooKeeper refuses for good; nil when it may still be done.
func (l *lease) refusedEnd() *locks.Error {
	if l.access != accessNoDelete {
		return nil
	}
	return &locks.Error{Code: locks.CodeUnavailable, Err: zk.ErrNoAuth,
		Detail: "the lease has not ended: the ACL of the lock's directory forbids this gateway to delete the contender; restore that ACL, and the lease ends"}
}

// endRefused records the refusal of an end, and reports whether an ACL was the cause.
func (l *lease) endRefused(m *Manager, err error, closes bool) bool {
	if !errors.Is(err, zk.ErrNoAuth) {
		return false
	}
	l.shutOut(m, "ending")
	if closes {
		l.setAccess(m.leases, accessNoWrite)
	} else {
		l.setAccess(m.leases, accessNoDelete)
	}
	return true
}
