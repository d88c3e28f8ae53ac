package manager

import (
	"context"
	"errors"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// Programs that share a queue ask each other to let go by writing over the data
// of a contender: Curator's Revoker writes __REVOKE__, ZooKeeper's recipe for
// revocable shared locks "unlock". Neither asks whose contender it is.
//
//   - Of ours, either is a revocation without force, in their words: the data is
//     in ZooKeeper when it is heard of, so it is written before anybody is told. The
//     owner then writes its record back with the revocation in it, for without the
//     record a successor knows neither TTL nor holds (it takes the longest TTL, so
//     that nothing is shortened). It does so a bounded number of times: whoever
//     writes without end wins, and costs nothing but what a successor knows. Any
//     other data that is not a record is written over in the same way, and asks
//     nothing.
//   - Of Curator's a holder listens only if it was made revocable, and then its
//     data is empty; else it is an address or a participant's name, which other
//     clients read and which is left alone.
//   - Nothing else is written to, HBase's contenders above all: its release deletes
//     them at the version that it made.

// maxRestores is how often the data of one lease is written back.
const maxRestores = 16

// asksOutside reads data that is no record.
func asksOutside(data []byte) (ask record.Revocation, asks bool) {
	if !interop.AsksToRelease(data) {
		return record.Revocation{}, false
	}
	return record.Revocation{Reason: "another program asks, by the data " + string(data)}, true
}

// askedOutside notes what another program wrote over a lease's record.
func (l *lease) askedOutside(m *Manager, data []byte, now time.Duration) {
	ask, asks := asksOutside(data)
	if !asks || l.phase != waiting && l.phase != held && l.phase != creating {
		return
	}
	m.revoked(l, ask.After(l.revocation().record()), l.revokeRound(), now)
}

// restore writes back a lease's record that something else stands in the place of.
func (l *lease) restore(m *Manager) {
	switch {
	case l.phase != waiting && l.phase != held, l.term != m.port.Term(), !l.recordState.loaded():
		return
	case l.rewriting():
		if l.recordState.writing() {
			l.setRecord(m.leases, recordContested) // read again after it
		}
		return
	case l.rare().restored >= maxRestores:
		return
	}
	l.rareFields.restored++
	m.log.Info("another program wrote over a lease's record; it is written back", "lease_id", l.id(), "lock", l.q.Name())
	l.writeRecord(m, func(*record.Record) {}, func(err error) {
		if err != nil {
			l.staleRecord(m.leases) // read, and tried again, before it is acted upon
		}
	})
}

// changedLabel looks at what was written to a lease's contender that does not have
// its record: a Curator client asks whichever of the names it knows.
func (l *lease) changedLabel(m *Manager, q *queues.Queue, c *recipe.Contender) {
	s := l.slotAt(q, c)
	if s == nil || s.name() != c.Name || s.presence.gone() {
		return
	}
	term, path := l.term, s.path()
	m.port.Read(path, 0, func(data []byte, stat wire.Stat, err error) {
		if _, ours := record.Parse(data); err != nil || ours || l.term != term || l.phase != waiting && l.phase != held || l.rare().restored >= maxRestores {
			return
		}
		l.rareFields.restored++
		label := &zk.Write{Ops: []zk.Op{{Kind: zk.OpSetData, Path: path, Data: l.label(l.recorded), Version: stat.Version}}}
		ask, asks := asksOutside(data)
		if !asks {
			m.port.Submit(label, func(zk.Result) {})
			return
		}
		// The record first: what is asked must not be lost.
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), settleWithin)
			defer cancel()
			if _, _, err := m.reviseOwn(ctx, l, ask.After); err != nil {
				return // it has ended, or ZooKeeper is away: the data still says it
			}
			m.do(func() {
				if l.term == term && (l.phase == waiting || l.phase == held) {
					m.port.Submit(label, func(zk.Result) {})
				}
			})
		}()
	})
}

// revokedOutside reports whether another program's contender has been asked to let go.
func revokedOutside(i *queues.Node) bool { return string(i.Data) == interop.CuratorRevokes }

var errNotRevocable = errors.New("a holder of Curator's listens only if it is revocable, and its data says that this one is not; break ends it")

// askForeign asks another program's holder to let go, where it has words for that.
func (m *Manager) askForeign(ctx context.Context, at queues.Location) (*locks.Revocation, error) {
	if !interop.Revocable(at.Contender.Name) {
		return nil, errForeign
	}
	news := false
	err := m.rewriteData(ctx, at.Path(), func(data []byte) ([]byte, error) {
		switch {
		case string(data) == interop.CuratorRevokes:
			return nil, nil
		case len(data) > 0:
			return nil, errNotRevocable
		}
		news = true
		return []byte(interop.CuratorRevokes), nil
	})
	if err != nil {
		return nil, err
	}
	if news {
		m.do(func() { m.tellRevokeRequested(at, "") })
	}
	return &locks.Revocation{}, nil
}
