package manager

import (
	"cmp"
	"context"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
)

// Heartbeat renews a lease: it holds for the whole TTL from the moment when its client sent the request (a waiting
// lease keeps its position). ttl, when not 0, changes the TTL. A longer TTL is written before the answer, because a
// successor must know it. A shorter one is written when the old deadline has passed, because a deadline never moves
// back.
//
// The answer may be passed on only while Trusted.
func (m *Manager) Heartbeat(ctx context.Context, p locks.Principal, id, token string, ttl time.Duration) (locks.Heartbeat, error) {
	if ttl != 0 {
		if err := locks.CheckTTL(ttl); err != nil {
			return locks.Heartbeat{}, err
		}
	}
	named, wrong := m.fleet.bearer(p, id, token)
	if wrong != nil {
		return locks.Heartbeat{}, wrong
	}
	return locked2(m, func() (beat locks.Heartbeat, err error) {
		var refused *error // of the write of a longer TTL that this request began
		failed := m.withLease(ctx, named, func(l *lease) (bool, *locks.Error) {
			longest := cmp.Or(ttl, l.ttl)
			switch {
			case refused != nil && *refused != nil:
				return false, unavailableFor(*refused)
			case longest <= l.recorded:
				beat = l.heartbeat(m, ttl)
				return true, nil
			case !l.rewriting():
				refused = l.lengthen(m, longest)
			}
			return false, nil
		})
		if failed != nil {
			return locks.Heartbeat{}, failed
		}
		return beat, nil
	})
}

// Heartbeats renews many leases. The answers come in the order of the tokens.
func (m *Manager) Heartbeats(ctx context.Context, p locks.Principal, tokens []string) []locks.HeartbeatResult {
	results := make([]locks.HeartbeatResult, len(tokens))
	for i, token := range tokens {
		named, wrong := m.fleet.bearer(p, "", token)
		results[i] = locks.HeartbeatResult{LeaseID: string(named), Err: wrong}
	}
	m.do(func() {
		var unknown []*locks.HeartbeatResult // of gateways that the replica does not show
		for i := range results {
			if r := &results[i]; r.Err == nil {
				if m.beatOnce(r); r.Err != nil && r.Err.UnknownGateway {
					unknown = append(unknown, r)
				}
			}
		}
		if len(unknown) == 0 {
			return
		}
		behind := m.syncReplica(ctx)
		for _, r := range unknown {
			if r.Err = behind; behind == nil {
				m.beatOnce(r)
			}
		}
	})
	return results
}

// beatOnce renews one lease, without waiting for its record.
func (m *Manager) beatOnce(r *locks.HeartbeatResult) {
	l, err := m.owned(recipe.LeaseID(r.LeaseID))
	known := false
	if err == nil {
		known, err = l.recordKnown(m)
	}
	switch {
	case err != nil:
		r.Err = err
	case known && l.ttl <= l.recorded:
		r.Heartbeat, r.Err = l.heartbeat(m, 0), nil
	default:
		if known && !l.rewriting() {
			l.lengthen(m, l.ttl)
		}
		r.Err = unavailable()
	}
}

// lengthen writes a longer TTL before it is promised. It returns an error variable, which is set when the write is
// refused.
func (l *lease) lengthen(m *Manager, ttl time.Duration) (refused *error) {
	refused = new(error)
	l.writeRecord(m, func(r *record.Record) { r.SetTTL(ttl) }, func(err error) {
		if *refused = err; err == nil {
			l.ttl = ttl
		}
	})
	return refused
}

// heartbeat renews a lease, with a new TTL unless it is 0.
func (l *lease) heartbeat(m *Manager, ttl time.Duration) locks.Heartbeat {
	now := m.clock.Now().Boot()
	if ttl != 0 {
		l.retime(m, ttl)
	}
	l.renew(m, now)
	l.beat = now
	return m.viewHeartbeat(l, now)
}

// shrink schedules the record's reduction to the TTL for when the deadline that was promised under the longer TTL has
// passed.
func (l *lease) shrink(m *Manager) {
	if l.recorded > l.ttl {
		l.rare().shrinkAt = max(l.shrinkAt(), l.deadline)
		m.timers.schedule(l)
	}
}
