package manager

import (
	"context"
	"strings"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/record"
)

// Update changes owner, metadata and TTL of a held or waiting lease. Before the answer, the change is in the
// contender's record, at the version that was seen: a takeover keeps it. A TTL also renews the lease, as a heartbeat
// with a TTL does; a shorter one never moves the deadline back. The answer may be sent only while its Term is valid.
func (m *Manager) Update(ctx context.Context, req locks.UpdateRequest) (locks.Lease, error) {
	if err := req.Check(); err != nil {
		return locks.Lease{}, err
	}
	id, wrong := m.fleet.bearer(req.Principal, req.ID, req.Token)
	if wrong != nil {
		return locks.Lease{}, wrong
	}
	missing := func(l *lease) (func(*record.Record), *locks.Error) {
		as := l.contents(max(l.recorded, req.TTL))
		applyUpdate(&req, &as)
		if req.TTL <= l.recorded && as.Owner == l.owner && as.Metadata == l.metadata() {
			return nil, nil
		}
		if err := m.roomForText(as.TextBytes() - int64(l.text)); err != nil {
			return nil, err
		}
		return func(r *record.Record) {
			applyUpdate(&req, r)
			r.SetTTL(max(l.recorded, req.TTL))
		}, nil
	}
	written := func(l *lease) {
		if req.TTL != 0 {
			l.retime(m, req.TTL)
		}
		m.tellUpdated(l)
	}
	return locked2(m, func() (locks.Lease, error) {
		l, err := m.amend(ctx, id, missing, written)
		if err != nil {
			return locks.Lease{}, err
		}
		now := m.clock.Now().Boot()
		l.claim(m, now)
		if req.TTL != 0 {
			if l.ttl != req.TTL { // it needed no write
				l.retime(m, req.TTL)
				m.leases.touch(l)
				l.touchQueues(m)
				m.tellUpdated(l)
			}
			l.renew(m, now)
		}
		return m.viewOwn(l), nil
	})
}

// applyUpdate writes the request's changes into a record. The caller sets the TTL.
func applyUpdate(r *locks.UpdateRequest, to *record.Record) {
	if r.Owner != nil {
		to.Owner = *r.Owner
	}
	if r.Metadata != nil {
		to.Metadata = strings.Clone(*r.Metadata)
	}
}

// retime changes the TTL to one that the record allows.
func (l *lease) retime(m *Manager, ttl time.Duration) {
	shorter := ttl < l.ttl
	l.ttl = ttl
	if shorter {
		l.shrink(m)
	}
}

// renew moves the deadline as a sign of life of the lease's client does.
func (l *lease) renew(m *Manager, now time.Duration) {
	if l.phase == held {
		l.claim(m, now)
		l.extend(m, now, l.ttl)
	} else {
		l.extend(m, now, l.waitingClock())
	}
}
