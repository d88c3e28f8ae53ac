package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/lifecycle"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/zk"
)

// Requests that change a lease: its texts, its TTL, its holds, its mode.

// amend changes a lease's record as a request wants, and returns when the write is known to be done.
// missing returns the change to write, or nil for none. amend calls written after the write, even if the request has
// ended meanwhile. The caller holds the monitor; amend releases it while the request waits.
//
// If the outcome is lost, amend reads the record and calls missing again. A repeat, also by the client, therefore
// changes nothing twice.
func (r request) amend(id recipe.LeaseID, missing func(*lease) (func(*record.Record), *locks.Error), written func(*lease)) (amended *lease, err *locks.Error) {
	m := r.m
	var (
		sent, done bool // sent: a write whose outcome is not known
		refused    error
	)
	err = r.withLease(id, func(l *lease) (bool, *locks.Error) {
		switch amended = l; {
		case refused != nil:
			return false, unavailableFor(refused)
		case done:
			return true, nil
		case l.rewriting():
			return false, nil
		}
		sent = false // the record read shows the outcome
		change, err := missing(l)
		if change == nil || err != nil {
			return true, err
		}
		sent = true
		l.writeRecord(m, change, func(err error) {
			sent, done, refused = false, err == nil, err
			if done {
				written(l)
			}
		})
		return false, nil
	})
	if err != nil && (sent || done) {
		err = unsure(err)
	}
	return amended, err
}

// Update changes owner, metadata, reason, TTL and the end of a reservation of a held or waiting lease. Before the answer, the change is in the
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
	tried := false
	missing := func(l *lease) (func(*record.Record), *locks.Error) {
		changed := req.IfMatch != nil && !slices.Contains(req.IfMatch, m.leases.revString(l.rev))
		if changed && !tried {
			return nil, locks.Changed()
		}
		if err := l.mayLast(req.Principal, req.TTL); err != nil {
			return nil, err
		}
		end, err := l.moved(&req, m.clock.Now())
		if err != nil {
			return nil, err
		}
		as := l.contents(max(l.recorded, req.TTL))
		applyUpdate(&req, &as)
		if req.TTL <= l.recorded && as.Owner == l.owner && as.Metadata == l.metadata() && as.Purpose == l.purpose() && (end == nil || *end == *as.Reserve) {
			return nil, nil
		}
		if changed {
			return nil, locks.Changed() // another request's write came before this one's
		}
		tried = true
		if err := m.leases.roomForText(l.account, as.TextBytes()-int64(l.text)); err != nil {
			return nil, err
		}
		return func(r *record.Record) {
			applyUpdate(&req, r)
			r.SetTTL(max(l.recorded, req.TTL))
			if end != nil {
				r.Reserve = end
			}
		}, nil
	}
	written := func(l *lease) {
		if req.TTL != 0 {
			l.retime(m, req.TTL)
		}
		m.publisher.updated(l)
	}
	return locked2(m, func() (locks.Lease, error) {
		l, err := m.request(ctx).amend(id, missing, written)
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
				m.publisher.updated(l)
			}
			l.renew(m, now)
		}
		return m.answers.own(l), nil
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
	if r.Purpose != nil {
		to.Purpose = strings.Clone(*r.Purpose)
	}
}

func (m *Manager) addHold(ctx context.Context, req *locks.AcquireRequest) (locks.AcquireResult, error) {
	id, wrong := m.fleet.bearer(req.Principal, "", req.Token)
	if wrong != nil {
		return locks.AcquireResult{}, wrong
	}
	hold := strings.Clone(req.Hold)
	missing := func(l *lease) (func(*record.Record), *locks.Error) {
		holds := l.holdNames()
		switch {
		case !l.some(func(s *slot) bool { return s.q.Namespace.Name == req.NS && s.q.Name() == req.Lock }):
			return nil, locks.Invalid("lock", "the token's lease is not on this lock")
		case slices.Contains(l.releasedNames(), hold):
			return nil, holdReleased(hold)
		case slices.Contains(holds, hold):
			return nil, nil
		case len(record.Named(holds))+len(l.releasedNames()) >= locks.MaxHolds:
			return nil, locks.Invalid("hold", fmt.Sprintf("this lease has had %d holds by other names, which is as many as there may be: acquire anew", locks.MaxHolds))
		case len(holds) == 0:
			holds = []string{record.Unnamed}
		}
		if err := m.leases.roomForText(l.account, int64(len(hold))); err != nil {
			return nil, err
		}
		return func(r *record.Record) { r.Holds = append(slices.Clip(holds), hold) }, nil
	}
	return locked2(m, func() (locks.AcquireResult, error) {
		l, err := m.request(ctx).amend(id, missing, m.publisher.updated)
		if err != nil {
			return locks.AcquireResult{}, err
		}
		l.renew(m, m.clock.Now().Boot()) // its client counts the TTL from this request
		view := m.answers.own(l)
		view.Token = m.fleet.ring.Tokens().Make(l.id())
		return locks.AcquireResult{Lease: view, HoldAdded: true}, nil
	})
}

func holdReleased(hold string) *locks.Error {
	return &locks.Error{Code: locks.CodeHoldReleased, Field: "hold",
		Detail: "this lease's hold " + hold + " was released before, and a name can be taken only once; use another name"}
}

// ReleaseHold removes one hold from a reentrant lease; removing the last one releases the lease. A repeat returns nil
// and releases nothing more. A lease that was acquired without a hold's name ends only with a plain Release.
func (m *Manager) ReleaseHold(ctx context.Context, p locks.Principal, id, token, hold string) error {
	if err := locks.CheckHold(hold); err != nil {
		return err
	}
	bearer, wrong := m.fleet.bearer(p, id, token)
	if wrong != nil {
		return wrong
	}
	last := false
	missing := func(l *lease) (func(*record.Record), *locks.Error) {
		holds := l.holdNames()
		at := slices.Index(holds, hold)
		switch {
		case slices.Contains(l.releasedNames(), hold) && !fault.On("holds-named"):
			return nil, nil
		case at < 0:
			return nil, locks.Invalid("hold", "this lease has no hold of that name, or another program has written over its record; a release without hold ends the lease")
		case len(holds) == 1:
			last = true // the lease's end deletes its record in the same write
			return nil, nil
		}
		return func(r *record.Record) {
			r.Holds = slices.Delete(slices.Clone(holds), at, at+1)
			r.Released = append(slices.Clip(l.releasedNames()), hold)
		}, nil
	}
	return locked(m, func() error {
		l, err := m.request(ctx).amend(bearer, missing, m.publisher.updated)
		switch {
		case err != nil && err.Code == locks.CodeEnded && isRelease(err.Reason):
			return nil
		case err != nil:
			return err
		case last:
			return m.request(ctx).release(l)
		}
		return nil
	})
}

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
		failed := m.request(ctx).withLease(named, func(l *lease) (bool, *locks.Error) {
			switch {
			case refused != nil:
				return false, unavailableFor(refused)
			case !l.Held() && (!l.positionKnown() || l.turn()):
				return false, nil // its grant is under way; a lease that was taken over may hold, and this gateway not know it yet
			case !l.Held():
				return false, &locks.Error{Code: locks.CodeNotHeld, Detail: "only a held lease can be downgraded; this one waits: release it and acquire with mode=shared"}
			case !l.any(recipe.Exclusive) && !l.any(recipe.Shared):
				return false, &locks.Error{Code: locks.CodeNotExclusive, Detail: "a semaphore's permits cannot be downgraded to shared"}
			case !l.any(recipe.Exclusive):
				l.claim(m, m.clock.Now().Boot())
				view = m.answers.own(l)
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

// replace submits a downgrade. It is done when the replica shows the replacement: see succeeded.
func (l *lease) replace(m *Manager, refused *error) {
	now := m.clock.Now().Boot()
	l.claim(m, now)
	l.noteGrant(m)
	l.SetChange(m.leases, lifecycle.ChangeReplacing)
	l.SetRecord(m.leases, lifecycle.RecordWriting)
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
	// A reader behind it that ends in the same transaction goes first, so it is not seen to hold.
	m.port.Submit(&zk.Write{Ops: ops, DeletesLast: true}, func(res zk.Result) {
		if l.term != term {
			return // adoption finds the contenders that exist
		}
		contested := l.EndWrite(m.leases)
		switch {
		case l.Ended():
		case res.Outcome == zk.Done: // at the version that was seen, so no other gateway has written it
			l.rare().visibleFrom = res.Zxid
		case res.Outcome == zk.Unknown:
			l.StaleRecord(m.leases)
			if l.replacing() {
				l.resolve(m)
			} else {
				l.load(m) // the replica has shown already that it was done
			}
		default:
			if contested || errors.Is(res.Err, zk.ErrBadVersion) {
				l.StaleRecord(m.leases)
			}
			if l.Record().Loaded() {
				*refused = res.Err
			}
			l.replaced(m)
		}
		m.leases.touch(l)
	})
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
	m.publisher.slotUpdated(l, s)
	l.replacedWhole(m)
	m.leases.touch(l)
}

// replacedWhole ends a downgrade when no slot is left to replace. A slot whose contender is gone does not count;
// otherwise the rest of the lease would never end.
func (l *lease) replacedWhole(m *Manager) {
	if l.every(func(s *slot) bool { return s.presence.Gone() || s.contender.Mode != recipe.Exclusive }) {
		l.replaced(m)
	}
}

// inherited does the same for a contender that is not a lease of this gateway.
func (m *Manager) inherited(q *queues.Queue, c, next *recipe.Contender) {
	m.replica.Inherit(c, next)
	m.reports.Replaced(q, c, next)
	m.publisher.replaced(q, next)
}
