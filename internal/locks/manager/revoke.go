package manager

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/interop"
	"lockkeeper/internal/locks/paging"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/zk"
)

// A revocation asks the holders of a lock to release it. It is written into the record of each lease, at the version that
// was read, before any client sees it.
//
// A repeat sets the words anew and never delays an earlier force: clients may have been told when it comes. Force counts on the
// clock of the lease's owner, from when that knows of it, and anew from a takeover.
//
// A withdrawal is written in the same way. The record counts withdrawals: its round. A gateway that knows a revocation of an
// earlier round forgets it, also when the record has a new one by now: no force of what was withdrawn goes on.
// Force deletes the lease at the version that its owner has applied: either a withdrawal comes first, or the lease has ended.

// Revoke asks the holders of a lock to release it: those that are Shown, or all, at most MaxReap that have not been asked the
// same (More: there are others, repeat). Curator's holders are asked in its own way. In Not, with the reason, are other programs'
// contenders, those of a newer release, and places that a lock delay keeps. A lease that ends meanwhile is in neither list,
// unless it is Shown: then it is in Not.
//
// CodeHolderChanged: one that is Shown does not hold, and none was asked. CodeNothingToAsk: no holder was asked.
func (m *Manager) Revoke(ctx context.Context, req locks.RevokeRequest) (locks.RevokeAnswer, error) {
	if err := req.Check(); err != nil {
		return locks.RevokeAnswer{}, err
	}
	verb := access.Acquire // who may wait for the lock may ask for it
	if req.ForceAfter > 0 {
		verb = access.Operate
	}
	if err := may(req.Principal, verb, &req.NS, &req.Lock); err != nil {
		return locks.RevokeAnswer{}, err
	}
	q, err := locked2(m, func() (*queues.Queue, error) { return m.lockAt(ctx, req.NS, req.Lock) })
	if err != nil {
		return locks.RevokeAnswer{}, err
	}
	defer m.do(func() { m.replica.Leave(q) })
	ask := record.Revocation{Reason: req.Reason, By: req.Principal.By(req.Client), Force: int64((req.ForceAfter + time.Millisecond - 1) / time.Millisecond)}
	only := shownBy(&req.Shown)
	holders, more := locked2(m, func() ([]holder, bool) { return m.holdersToAsk(ctx, q, only, ask) })
	if missing := only.missing(); missing != "" {
		return locks.RevokeAnswer{}, req.Principal.ConcealIn(m.holderChanged(q, missing+" does not hold the lock"))
	}
	m.reviseAll(ctx, holders, ask.After)
	answer := locks.RevokeAnswer{More: more}
	for i := range holders {
		switch h := &holders[i]; {
		case h.err == nil && !h.gone:
			h.view.Revoke = h.revoke
			answer.Asked = append(answer.Asked, h.view)
		case h.err != nil:
			answer.Not = append(answer.Not, locks.Unreached{Contender: h.view, Detail: obstacle(h.err)})
		case only != nil:
			answer.Not = append(answer.Not, locks.Unreached{Contender: h.view, Detail: endedMeanwhile})
		}
	}
	if len(answer.Asked) == 0 {
		return locks.RevokeAnswer{}, req.Principal.ConcealIn(m.askedNone(q, holders, only != nil))
	}
	req.Principal.Conceal(answer.Asked)
	req.Principal.ConcealUnreached(answer.Not)
	text := paging.MaxText
	text.Trim(answer.Asked)
	text.TrimUnreached(answer.Not)
	return answer, nil
}

// askedNone is the error that tells why no holder was asked; the monitor is free.
func (m *Manager) askedNone(q *queues.Queue, holders []holder, shown bool) error {
	why := "no lease holds the lock now"
	for i := range holders {
		h := &holders[i]
		var refused *locks.Error
		switch {
		case errors.As(h.err, &refused):
			return refused // ZooKeeper does not answer, or the caller has gone
		case h.err != nil && !lasting(h.err):
			return &locks.Error{Code: locks.CodeUnavailable, RetryAfter: retryAfter, Detail: "no holder was asked: " + obstacle(h.err), Err: h.err}
		case h.err != nil:
			why = obstacle(h.err)
		case shown:
			return m.holderChanged(q, endedMeanwhile)
		}
	}
	return locked(m, func() error {
		return m.tellHolders(q, &locks.Error{Code: locks.CodeNothingToAsk, Detail: "no holder can be asked to release the lock: " + why})
	})
}

// endedMeanwhile is the detail of a lease that was shown and that ended during the request.
const endedMeanwhile = "its lease ended while the request was carried out"

// lasting reports whether a repeat cannot ask such a holder either.
func lasting(err error) bool {
	for _, one := range []error{errForeign, errNotRevocable, errNewer, errDelayed, errCopied, record.ErrNoRecord, zk.ErrNoAuth} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

// holder is a contender that holds a lock, and what became of its revocation.
type holder struct {
	l       *lease          // of this gateway; else:
	at      queues.Location // the contender
	record  string          // path of the contender whose record counts
	view    locks.Contender
	asked   bool // it had been asked the same before
	revised bool // its record was written
	revoke  *locks.Revocation
	gone    bool
	err     error
}

func (a *answers) newHolder(q *queues.Queue, c *recipe.Contender) holder {
	h := holder{at: queues.Location{Queue: q, Contender: c}, view: a.contender(q, c, 0)}
	if a.delays.has(a.leases, a.replica, q, c) {
		h.err = errDelayed
	} else if a.leases.copied(q, c) {
		h.err = errCopied
	} else if c.Ours && !c.Unknown {
		h.l = a.leases.leaseOf(q, c)
		h.record = a.replica.Record(h.at).Path()
	}
	return h
}

// holdersToAsk are the holders that are meant, at most MaxReap: first those that have not been asked the same. more reports
// whether some of these had no place. The monitor is held, and released while it waits.
func (m *Manager) holdersToAsk(ctx context.Context, q *queues.Queue, only shown, ask record.Revocation) (list []holder, more bool) {
	m.describe(ctx, q, q.Holders(locks.MaxReap))
	open, asked := 0, 0
	for c := range m.answers.holdersOf(q) {
		if !only.means(q, c) || only != nil && m.answers.isOver(q, c) {
			continue
		}
		only.found(q, c)
		again := m.answers.askedBefore(q, c, ask)
		switch {
		case again && asked == locks.MaxReap:
			continue
		case again:
			asked++
		case open == locks.MaxReap:
			more = true
			continue
		default:
			open++
		}
		h := m.answers.newHolder(q, c)
		h.asked = again
		list = append(list, h)
	}
	for i := len(list) - 1; i >= 0 && len(list) > locks.MaxReap; i-- {
		if list[i].asked {
			list = slices.Delete(list, i, i+1)
		}
	}
	return list, more
}

// isOver reports whether a contender's lease is known to end, or to have ended and left its place.
func (a *answers) isOver(q *queues.Queue, c *recipe.Contender) bool {
	l := a.leases.leaseOf(q, c)
	return a.delays.has(a.leases, a.replica, q, c) || l != nil && (l.Ending() || l.Ended())
}

// askedOf is the revocation of a contender as far as this gateway knows; for another program's only whether it has one.
func (a *answers) askedOf(q *queues.Queue, c *recipe.Contender) (was *record.Revocation, read bool) {
	if l := a.leases.leaseOf(q, c); l != nil {
		return l.revocation().record(), true
	}
	i := q.Node(a.replica.Record(queues.Location{Queue: q, Contender: c}).Contender.Name)
	switch {
	case i == nil:
		return nil, false
	case revokedOutside(i):
		return &record.Revocation{}, true
	}
	return i.Record.Revoke, true
}

// askedBefore reports whether a holder is known to have been asked the same.
func (a *answers) askedBefore(q *queues.Queue, c *recipe.Contender, ask record.Revocation) bool {
	was, _ := a.askedOf(q, c)
	if was == nil || !c.Ours {
		return was != nil // the words and the force are for ours alone
	}
	return ask.Over(was) == *was
}

// reviseAll changes the revocations of holders, adminWindow at a time; the monitor is free.
func (m *Manager) reviseAll(ctx context.Context, holders []holder, change record.Revise) {
	var group errgroup.Group
	group.SetLimit(adminWindow)
	for i := range holders {
		h := &holders[i]
		group.Go(func() error {
			h.apply(ctx, m, change)
			return nil
		})
	}
	_ = group.Wait()
}

// apply changes the revocation of one holder.
func (h *holder) apply(ctx context.Context, m *Manager, change record.Revise) {
	switch {
	case h.err != nil:
	case h.l != nil:
		h.revoke, h.revised, h.err = m.reviseOwn(ctx, h.l, change)
	case h.at.Contender.Unknown:
		h.err = errNewer
	case !h.at.Contender.Ours && change(nil) == nil:
		h.err = errNotWithdrawn
	case !h.at.Contender.Ours:
		h.revoke, h.err = m.askForeign(ctx, h.at, change(nil).By)
	default:
		h.revoke, h.revised, h.err = m.reviseOther(ctx, h.at, h.record, change)
	}
	if errors.Is(h.err, zk.ErrNoNode) {
		h.gone, h.err = true, nil
	}
}

// reviseOwn changes the revocation of a lease of this gateway. zk.ErrNoNode: it has ended.
// revised reports whether the record was written.
func (m *Manager) reviseOwn(ctx context.Context, l *lease, change record.Revise) (told *locks.Revocation, revised bool, err error) {
	m.do(func() {
		var refused error
		late := m.request(ctx).untilDone(outcomeUnknown, func() (*lease, *locks.Error) {
			switch {
			case l.Ended() && l.failure() != nil:
				return nil, l.failure() // another process has taken it over
			case l.Ended():
				err = zk.ErrNoNode
				return nil, nil
			case refused != nil:
				err = refused
				return nil, nil
			case l.term != m.port.Term() || l.Creating() || l.Ending():
			case !l.Record().Loaded():
				l.load(m)
			case !l.rewriting():
				was, round := l.revocation().record(), l.known().revokeRound
				next := change(was)
				if record.SameRevocation(was, next) {
					told = l.revocation().view(m.clock.Now().Boot())
					return nil, nil
				}
				if next == nil {
					round++
				}
				revised = true
				l.writeRecord(m, func(r *record.Record) {
					if !fault.On("force-record") {
						r.Revoke, r.RevokeRound = next, round
					}
				}, func(err error) {
					if refused = err; err == nil {
						l.revoked(m, next, round, m.clock.Now().Boot())
					}
				})
			}
			return l, nil
		})
		if late != nil {
			err = late
		}
		revised = revised && err == nil
	})
	return told, revised, err
}

// reviseOther changes the revocation of a lease that another gateway runs. zk.ErrNoNode: it has ended.
// revised reports whether the record was written, perhaps by a write whose reply was lost.
func (m *Manager) reviseOther(ctx context.Context, at queues.Location, path string, change record.Revise) (told *locks.Revocation, revised bool, err error) {
	var next *record.Revocation
	err = m.rewriteData(ctx, path, func(data []byte) ([]byte, error) {
		closed := false
		data, err := record.Edit(data, func(r record.Record, members record.Members) bool {
			if closed = r.Closed != nil; closed {
				return false
			}
			if next = change(r.Revoke); record.SameRevocation(r.Revoke, next) {
				return false
			}
			revised = true
			if next == nil {
				delete(members, "revoke")
				members.Set("revoke_round", r.RevokeRound+1)
			} else {
				members.Set("revoke", next)
			}
			return true
		})
		if closed {
			return nil, zk.ErrNoNode
		}
		return data, err
	})
	switch {
	case err != nil:
		return nil, false, err
	case revised:
		m.do(func() {
			if parts := m.replica.Locations(at); next == nil {
				m.publisher.withdrawn(parts)
			} else {
				for _, p := range parts {
					m.publisher.revokeRequested(p, next)
				}
			}
		})
	}
	return next.View(), revised, nil
}

// askForeign asks another program's holder to release, if its recipe has a way to ask.
func (m *Manager) askForeign(ctx context.Context, at queues.Location, by string) (*locks.Revocation, error) {
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
		m.do(func() { m.publisher.revokeRequested(at, &record.Revocation{By: by}) })
	}
	return &locks.Revocation{}, nil
}

// Withdraw withdraws the revocations of a lock's holders, of all or of those that are Shown. A holder without one is in neither
// list, so a repeat changes nothing. In Not are leases that ended meanwhile, and Curator's holders, which cannot be told.
//
// CodeHolderChanged: none of those that are Shown holds.
func (m *Manager) Withdraw(ctx context.Context, req locks.WithdrawRequest) (locks.WithdrawAnswer, error) {
	if err := req.Shown.Check(); err != nil {
		return locks.WithdrawAnswer{}, err
	}
	if err := may(req.Principal, access.Operate, &req.NS, &req.Lock); err != nil {
		return locks.WithdrawAnswer{}, err
	}
	q, err := locked2(m, func() (*queues.Queue, error) { return m.lockAt(ctx, req.NS, req.Lock) })
	if err != nil {
		return locks.WithdrawAnswer{}, err
	}
	defer m.do(func() { m.replica.Leave(q) })
	only := shownBy(&req.Shown)
	holders, more := locked2(m, func() ([]holder, bool) { return m.holdersAsked(ctx, q, only) })
	if only.none() {
		return locks.WithdrawAnswer{}, req.Principal.ConcealIn(m.holderChanged(q, "none of those that were named holds the lock"))
	}
	m.reviseAll(ctx, holders, func(*record.Revocation) *record.Revocation { return nil })
	answer := locks.WithdrawAnswer{More: more}
	var failed *locks.Error
	for i := range holders {
		switch h := &holders[i]; {
		case h.err != nil:
			if failed == nil {
				errors.As(h.err, &failed)
			}
			answer.Not = append(answer.Not, locks.Unreached{Contender: h.view, Detail: obstacle(h.err)})
		case h.gone:
			answer.Not = append(answer.Not, locks.Unreached{Contender: h.view, Detail: endedMeanwhile})
		case h.revised:
			h.view.Revoke = nil
			answer.Withdrawn = append(answer.Withdrawn, h.view)
		}
	}
	if len(answer.Withdrawn) == 0 && failed != nil {
		return locks.WithdrawAnswer{}, failed // ZooKeeper does not answer, or the caller has gone
	}
	req.Principal.Conceal(answer.Withdrawn)
	req.Principal.ConcealUnreached(answer.Not)
	text := paging.MaxText
	text.Trim(answer.Withdrawn)
	text.TrimUnreached(answer.Not)
	return answer, nil
}

// holdersAsked are the holders that are meant and that may have been asked, at most MaxReap. more reports whether some
// had no place. The monitor is held, and released while it waits.
func (m *Manager) holdersAsked(ctx context.Context, q *queues.Queue, only shown) (list []holder, more bool) {
	m.describe(ctx, q, q.Holders(locks.MaxReap))
	for c := range m.answers.holdersOf(q) {
		if !only.means(q, c) || m.delays.has(m.leases, m.replica, q, c) {
			continue
		}
		only.found(q, c)
		if was, read := m.answers.askedOf(q, c); was == nil && (read || !c.Ours) {
			continue
		}
		if len(list) == locks.MaxReap {
			return list, true
		}
		list = append(list, m.answers.newHolder(q, c))
	}
	return list, false
}
