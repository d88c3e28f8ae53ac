package manager

import (
	"cmp"
	"context"
	"errors"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
)

// Heartbeats: of this gateway's leases, and written for another gateway's.

// Heartbeat renews a lease: it holds for the whole TTL from the moment when its client sent the request (a waiting
// lease keeps its position). ttl, when not 0, changes the TTL. A longer TTL is written before the answer, because a
// successor must know it. A shorter one is written when the old deadline has passed, because a deadline never moves
// back. While a longer TTL is written, the lease has been renewed with the old one: the client lives, whatever becomes
// of the write. The token alone allows no longer TTL than the lease has: see mayLast.
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
		heard := false
		failed := m.request(ctx).withLease(named, func(l *lease) (bool, *locks.Error) {
			if ttl != 0 && l.reservation() != nil {
				return false, locks.Invalid("ttl", locks.NoTTL)
			}
			if err := l.mayLast(p, ttl); err != nil {
				return false, err
			}
			longest := cmp.Or(ttl, l.ttl)
			if longest > l.recorded && !heard {
				heard = true
				l.hear(m, m.clock.Now().Boot())
			}
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
		behind := m.request(ctx).syncReplica()
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
	case known && l.mayHold():
		l.hear(m, m.clock.Now().Boot())
		r.Err = unavailable()
	case known && l.ttl <= l.recorded:
		r.Heartbeat, r.Err = l.heartbeat(m, 0), nil
	case known:
		l.hear(m, m.clock.Now().Boot())
		if !l.rewriting() {
			l.lengthen(m, l.ttl)
		}
		r.Err = unavailable()
	default:
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
	l.hear(m, now)
	return m.answers.heartbeat(l, now)
}

// mayLast refuses a TTL that is longer than the lease's, unless the principal may acquire its locks with that TTL. Without
// that, a lease's token would lift what bounds the acquire.
func (l *lease) mayLast(p locks.Principal, ttl time.Duration) *locks.Error {
	if ttl <= max(l.ttl, l.recorded) {
		return nil
	}
	for s := range l.slots {
		ns, lock := s.q.Namespace.Name, s.q.Name()
		if err := p.Check(access.Acquire, ns, lock); err != nil {
			return err
		}
		if err := p.CheckTTL(ttl, ns, lock); err != nil {
			return err
		}
	}
	return nil
}

// hear renews a lease with the TTL that it has.
func (l *lease) hear(m *Manager, now time.Duration) {
	l.renew(m, now)
	l.beat = now
}

// shrink schedules the record's reduction to the TTL for when the deadline that was promised under the longer TTL has
// passed.
func (l *lease) shrink(m *Manager) {
	if l.recorded > l.ttl {
		l.rare().shrinkAt = max(l.shrinkAt(), l.deadline)
		m.timers.schedule(l)
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
	switch {
	case l.Held():
		l.claim(m, now)
		l.extend(m, now, l.ttl)
	case l.Grant() == lifecycle.GrantAcknowledged: // its client may count on the TTL
		l.extend(m, now, l.ttl)
	default:
		l.extend(m, now, l.waitingClock())
	}
}

// A gateway that reaches ZooKeeper and not the owner of a lease writes the heartbeat down: it counts up the beats in the
// lease's record. That costs a read and a write.
//
//   - It is written at the version that was read, of a record that is readable and not closed. An end by time deletes only the
//     version that the owner has applied, so exactly one of the two is done. An owner whose end was not done has the lease
//     held again and reads the record (attack 33).
//   - The owner reads the change and moves the deadline in the same step (attack 34): to the TTL from then on, which is after
//     the client sent its heartbeat. If it reads it while the lease is ending, the deadline counts when the end was not done.
//   - A successor reads the record before it answers or ends anything (attack 35), and its first deadline is later than any that
//     was promised before its takeover.
//   - A client that is told that it holds has claimed its grant, also if the owner has not made it yet: the record says so
//     (told; attack 31).
//
// Only its owner renews an ephemeral lease, or one that is revoked by force: no other gateway knows its time.

const (
	// writtenWindow bounds the heartbeats that are being written here. Others wait for a place, for answerWithin at most.
	writtenWindow = 256
	// writtenAttempts is how often one is decided anew when another writer was first, or the replica shows something else.
	writtenAttempts = 4
)

// HeartbeatFor renews a lease in the place of the gateway that runs it and cannot be reached. State is that of the record,
// ExpiresIn the TTL from when the heartbeat was sent. The answer may be passed on only while its Term is valid. A lease that
// this gateway runs is renewed as by Heartbeat.
func (m *Manager) HeartbeatFor(ctx context.Context, p locks.Principal, token string) (locks.Heartbeat, error) {
	id, wrong := m.fleet.bearer(p, "", token)
	if wrong != nil {
		return locks.Heartbeat{}, wrong
	}
	place := time.NewTimer(answerWithin)
	defer place.Stop()
	select {
	case m.requests.written <- struct{}{}:
		defer func() { <-m.requests.written }()
	case <-place.C:
		return locks.Heartbeat{}, unavailableFor(errors.New("too many heartbeats are being written for other gateways"))
	case <-ctx.Done():
		return locks.Heartbeat{}, cancelled(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	for range writtenAttempts {
		w, err := m.beginWriting(id)
		switch {
		case err != nil:
			return locks.Heartbeat{}, err
		case w == nil:
			return m.Heartbeat(ctx, p, "", token, 0)
		}
		done, refused := w.write(ctx)
		switch {
		case refused != nil:
			return locks.Heartbeat{}, refused
		case !done:
			continue
		}
		if beat, sure := w.answer(ctx); sure {
			m.opt.Metrics.HeartbeatWritten()
			return beat, nil
		}
	}
	return locks.Heartbeat{}, unavailableFor(errors.New("the lease is being changed all the time, or its place is not certain here"))
}

// writing is one heartbeat that is written down.
type writing struct {
	m       *Manager
	id      recipe.LeaseID
	path    string
	lock    string
	others  []string // the lease's further contenders
	first   int64    // czxid of its first contender, if that is another one
	held    bool     // the replica shows it
	basis   locks.Term
	session term.Session

	record record.Record // as it was read
	czxid  int64
	zxid   int64 // of the transaction
}

// beginWriting finds the lease in the replica; nil when this gateway runs it.
func (m *Manager) beginWriting(id recipe.LeaseID) (*writing, *locks.Error) {
	return locked2(m, func() (*writing, *locks.Error) {
		if err := m.usable(); err != nil {
			return nil, err
		}
		if m.leases.lease(id) != nil || m.members.Owns(id.Gateway()) {
			return nil, nil
		}
		at, found := m.replica.FindLease(id, m.clock.Now().Boot())
		if !found || m.orphans[id] != nil {
			err := m.absent(id)
			if err.UnknownGateway {
				err = unavailable()
			}
			return nil, err
		}
		parts := wholeOf(m.replica, at)
		if parts == nil || at.Contender.Unknown || at.Contender.Ephemeral || !at.Queue.Namespace.Whole {
			return nil, m.notOwner(id)
		}
		w := &writing{m: m, id: id, path: at.Path(), lock: at.Queue.Name(), first: at.Contender.FirstCzxid, basis: presentTerm(m.port), session: m.port.Session()}
		for _, p := range parts {
			if p != at {
				w.others = append(w.others, p.Path())
			}
		}
		w.held, _ = m.holdsForSure(parts)
		return w, nil
	})
}

// wholeOf are all contenders of the lease that one belongs to, nil while one is missing.
func wholeOf(r *queues.Replica, at queues.Location) []queues.Location {
	if !queues.OneOfSeveral(at.Contender) {
		return []queues.Location{at}
	}
	p := r.Group(at.Contender.LeaseID)
	if p == nil {
		return nil
	}
	return p.Whole()
}

// holdsForSure reports whether another gateway's lease holds by the names, and whether the replica shows enough to tell. It
// asks for listings that are missing. An end that only the reply to a write of this gateway has shown counts.
func (m *Manager) holdsForSure(lease []queues.Location) (holds, sure bool) {
	holds, sure, unlisted := queues.Holds(lease)
	for _, q := range unlisted {
		m.list(q)
	}
	return holds, sure
}

// mayTellHeld reports whether a gateway may tell in the owner's place that a lease holds that is for a period: the record of the
// periods has its id. The monitor is free.
func (w *writing) mayTellHeld(ctx context.Context, r record.Record) bool {
	if r.Once == nil {
		return true
	}
	p, err := w.m.fleet.readPeriods(ctx, w.session, locks.DefaultNamespace, w.lock)
	if err != nil {
		return false
	}
	found := p.Find(r.Once.Period)
	return found != nil && found.LeaseID == string(w.id)
}

// write counts the beats up. done is false when it has to be decided anew.
func (w *writing) write(ctx context.Context) (done bool, _ *locks.Error) {
	data, stat, err := w.session.Get(ctx, w.path)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return false, unavailableFor(err) // the owner knows how it ended
	case err != nil && ctx.Err() != nil:
		return false, unavailableFor(context.Cause(ctx))
	case err != nil:
		return false, unavailableFor(err)
	}
	beaten, known, refused := beatenRecord(data, w.held)
	if refused != nil {
		return false, refused
	}
	if w.held && !w.mayTellHeld(ctx, known) {
		return false, unavailable()
	}
	w.record, w.czxid = known, stat.Czxid
	op := &zk.Write{Ops: []zk.Op{{Kind: zk.OpSetData, Path: w.path, Data: beaten, Version: stat.Version}}}
	for _, path := range w.others {
		op.Ops = append(op.Ops, zk.Op{Kind: zk.OpCheck, Path: path, Version: -1})
	}
	res := w.m.write(ctx, op)
	switch {
	case res.Outcome == zk.Done:
		w.zxid = res.Zxid
		return true, nil
	case res.Outcome == zk.Unknown:
		return false, outcomeUnknown()
	case ctx.Err() != nil:
		return false, outcomeUnknown()
	case errors.Is(res.Err, zk.ErrBadVersion), errors.Is(res.Err, zk.ErrNotApplied):
		return false, nil // the owner wrote, or another gateway did
	}
	return false, unavailableFor(res.Err)
}

// beatenRecord is a record with one beat more, whatever else is in it.
func beatenRecord(data []byte, held bool) (beaten []byte, known record.Record, refused *locks.Error) {
	beaten, err := record.Edit(data, func(r record.Record, members record.Members) bool {
		known = r
		switch {
		case r.Closed != nil:
			refused = endedError(r.Closed.Reason).Because("", r.Closed.By)
			return false
		case r.Reserve != nil: // the clock of its gateway tells what is left, and this one's may differ
			refused = &locks.Error{Code: locks.CodeUnavailable, RetryAfter: retryAfter,
				Detail: "the gateway that runs this reservation cannot be reached; it goes on without heartbeats, and another gateway takes it over"}
			return false
		case r.Revoke != nil && r.Revoke.Force > 0:
			refused = &locks.Error{Code: locks.CodeUnavailable, RetryAfter: retryAfter,
				Detail: "the gateway that runs this lease cannot be reached, and no other gateway knows when force ends the lease; repeat the request"}
			return false
		}
		members.Set("beats", r.Beats+1)
		if held {
			members.Set("told", true)
			known.Told = true
		}
		return true
	})
	if err != nil {
		refused = writtenOver()
	}
	return beaten, known, refused
}

// writtenOver is the answer of a gateway that has to change another gateway's record and finds none.
func writtenOver() *locks.Error {
	return &locks.Error{Code: locks.CodeUnavailable, RetryAfter: retryAfter, Err: record.ErrNoRecord,
		Detail: "the gateway that runs this lease cannot be reached, and another program has written over the lease's record; repeat the request"}
}

// answer is the answer once the beat is written. It is not sure when the lease may hold and the record does not say that its
// client was told so: the owner may have told it, and no client may be told afterwards that it waits.
func (w *writing) answer(ctx context.Context) (beat locks.Heartbeat, sure bool) {
	m := w.m
	if !w.held {
		// Then the replica has everything from which the owner can have granted before the client asked.
		if err := m.port.Watcher.Reached(ctx, w.zxid); err != nil {
			return locks.Heartbeat{}, false
		}
	}
	return locked2(m, func() (beat locks.Heartbeat, sure bool) {
		ttl := w.record.LeaseTTL()
		beat = locks.Heartbeat{LeaseID: string(w.id), State: locks.Waiting, ExpiresIn: min(ttl, waitingClock), TTL: ttl, Position: 1, Term: w.basis,
			Revoke: w.record.Revoke.View()}
		at, found := m.replica.FindLease(w.id, m.clock.Now().Boot())
		var parts []queues.Location
		if found {
			parts = wholeOf(m.replica, at)
		}
		if w.held {
			czxid := w.czxid
			if w.first != 0 {
				czxid = w.first
			}
			beat.State, beat.ExpiresIn, beat.Position, beat.FencingToken = locks.Held, ttl, 0, m.fleet.fencingToken(czxid)
			for _, p := range parts {
				beat.Waiters = max(beat.Waiters, p.Queue.Contenders.Waiting())
			}
			return beat, true
		}
		if holds, certain := m.holdsForSure(parts); holds || !certain || parts == nil {
			return locks.Heartbeat{}, false
		}
		for _, p := range parts {
			if position, _ := p.Queue.Contenders.Position(p.Contender.Name); position >= beat.Position {
				beat.Position, beat.Waiters = position, max(p.Queue.Contenders.Waiting()-position, 0)
			}
		}
		return beat, true
	})
}
