package manager

import (
	"cmp"
	"context"
	"time"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
)

// Heartbeat renews a lease: from the moment its client sent the request, it
// holds for the whole TTL (a waiting one keeps its place). ttl, when not 0,
// changes the TTL: a longer one is written down before it is answered, for a
// successor must know it; a shorter one is written down when the old deadline
// has passed, for a deadline never moves back.
//
// The answer may be passed on only while Trusted.
func (m *Manager) Heartbeat(ctx context.Context, p locks.Principal, id, token string, ttl time.Duration) (locks.Heartbeat, error) {
	if ttl != 0 {
		if err := locks.CheckTTL(ttl); err != nil {
			return locks.Heartbeat{}, err
		}
	}
	named, wrong := m.bearer(p, id, token)
	if wrong != nil {
		return locks.Heartbeat{}, wrong
	}
	m.mu.Lock()
	begun := m.clock.Now().Boot()
	met := false
	var refused error // of the write of a longer TTL that this request began
	for {
		beat, l, err := m.heartbeat(named, ttl, &refused)
		if err != nil && err.UnknownGateway && !met {
			if met, err = true, m.meet(ctx); err == nil {
				continue
			}
		}
		if err == nil && l != nil && refused != nil {
			err = m.unavailable()
			err.Err = refused
		}
		if err != nil {
			m.unlock()
			return locks.Heartbeat{}, err
		}
		if l == nil {
			m.unlock()
			return beat, nil
		}
		// Its data is being read or written; that is answered first.
		if m.overdue(begun, m.clock.Now().Boot()) {
			m.unlock()
			return locks.Heartbeat{}, m.unavailable()
		}
		if err := m.wait(ctx, l, answerWithin/4); err != nil {
			return locks.Heartbeat{}, err
		}
		m.mu.Lock()
	}
}

// Heartbeats renews many leases. The answers come in the order of the tokens.
func (m *Manager) Heartbeats(ctx context.Context, p locks.Principal, tokens []string) []locks.HeartbeatResult {
	results := make([]locks.HeartbeatResult, len(tokens))
	for i, token := range tokens {
		named, wrong := m.bearer(p, "", token)
		results[i] = locks.HeartbeatResult{LeaseID: string(named), Err: wrong}
	}
	return locked(m, func() []locks.HeartbeatResult {
		var strangers []*locks.HeartbeatResult
		renew := func(r *locks.HeartbeatResult) {
			var busy *lease
			if r.Heartbeat, busy, r.Err = m.heartbeat(recipe.LeaseID(r.LeaseID), 0, new(error)); busy != nil {
				r.Err = m.unavailable()
			}
		}
		for i := range results {
			r := &results[i]
			if r.Err != nil {
				continue
			}
			if renew(r); r.Err != nil && r.Err.UnknownGateway {
				strangers = append(strangers, r)
			}
		}
		if len(strangers) == 0 {
			return results
		}
		behind := m.meet(ctx)
		for _, r := range strangers {
			if r.Err = behind; behind == nil {
				renew(r)
			}
		}
		return results
	})
}

// heartbeat renews one lease, or returns the lease whose data has to be read
// or written first; refused is told why a write that it began was not done.
func (m *Manager) heartbeat(id recipe.LeaseID, ttl time.Duration, refused *error) (locks.Heartbeat, *lease, *locks.Error) {
	l, err := m.owned(id)
	if err != nil {
		return locks.Heartbeat{}, nil, err
	}
	if err := m.usable(); err != nil {
		return locks.Heartbeat{}, nil, err
	}
	now := m.clock.Now().Boot()
	switch {
	case l.phase == creating, l.phase == ending, l.term != m.term:
		return locks.Heartbeat{}, nil, m.unavailable()
	case (!l.recordState.loaded() || l.czxid == 0) && !fault.On("read-first"):
		m.load(l)
		return locks.Heartbeat{}, l, nil
	case cmp.Or(ttl, l.ttl) > l.recorded:
		if !l.rewriting() && *refused == nil {
			longer := cmp.Or(ttl, l.ttl)
			m.writeRecord(l, func(r *record.Record) { r.SetTTL(longer) }, func(err error) {
				if *refused = err; err == nil {
					l.ttl = longer
				}
			})
		}
		return locks.Heartbeat{}, l, nil
	case ttl != 0:
		m.retime(l, ttl)
	}
	m.renew(l, now)
	l.beat = now
	return m.viewHeartbeat(l, now), nil, nil
}

// shrink notes that the record may come down to the TTL once the deadline
// that was promised under the longer one has passed.
func (m *Manager) shrink(l *lease) {
	if l.recorded > l.ttl {
		l.few().shrinkAt = max(l.shrinkAt(), l.deadline)
		m.schedule(l)
	}
}
