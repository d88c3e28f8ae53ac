package manager

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"lockkeeper/internal/fault"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/record"
)

// Reentrant leases. A lease that was acquired with a hold's name has a set of named holds. Acquiring again with its
// token and another name adds a hold; releasing a name removes it, and releasing the last one releases the lease.
// Names make both safe to repeat: a counter could not tell a repeat from a second release (attack 15). A released name
// cannot be taken again in the same lease, so a late repeat of the acquire does not restore it. The holds are in the
// contender's record, which is written before the answer.

func (l *lease) holdNames() []string { return l.known().holds }

func (l *lease) releasedNames() []string { return l.known().released }

func (m *Manager) addHold(ctx context.Context, req *locks.AcquireRequest) (locks.AcquireResult, error) {
	id, wrong := m.fleet.bearer(req.Principal, "", req.Token)
	if wrong != nil {
		return locks.AcquireResult{}, wrong
	}
	hold := strings.Clone(req.Hold)
	missing := func(l *lease) (func(*record.Record), *locks.Error) {
		holds := l.holdNames()
		switch {
		case !l.on(req.NS, req.Lock):
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
		if err := m.roomForText(int64(len(hold))); err != nil {
			return nil, err
		}
		return func(r *record.Record) { r.Holds = append(slices.Clip(holds), hold) }, nil
	}
	return locked2(m, func() (locks.AcquireResult, error) {
		l, err := m.amend(ctx, id, missing, m.tellUpdated)
		if err != nil {
			return locks.AcquireResult{}, err
		}
		l.claim(m, m.clock.Now().Boot())
		view := m.viewOwn(l)
		view.Token = m.fleet.tokens.Make(l.id())
		return locks.AcquireResult{Lease: view, HoldAdded: true}, nil
	})
}

func (l *lease) on(ns, lock string) bool {
	for s := range l.slots {
		if s.q.Namespace.Name == ns && s.q.Name() == lock {
			return true
		}
	}
	return false
}

func holdReleased(hold string) *locks.Error {
	return &locks.Error{Code: locks.CodeHoldReleased, Field: "hold",
		Detail: "this lease's hold " + hold + " was let go before; a name is taken once: use another one"}
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
			return nil, locks.Invalid("hold", "this lease has no hold of that name; a release without hold ends the lease")
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
		l, err := m.amend(ctx, bearer, missing, m.tellUpdated)
		switch {
		case err != nil && err.Code == locks.CodeEnded && isLetGo(err.Reason):
			return nil
		case err != nil:
			return err
		case last:
			return m.letGo(ctx, l)
		}
		return nil
	})
}
