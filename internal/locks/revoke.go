package locks

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks/recipe"
	"lockkeeper/internal/zk"
)

// A revocation asks the holders of a lock to let go. It is in a lease's record
// before anybody is told of it, so that it survives the lease's gateway, and it
// stays until the lease ends:
//
//   - Asked again, the last words count, and the earliest force. A later
//     force, or none, does not take an earlier one back: whoever waits for it
//     has been told when.
//   - Force counts on the clock of the lease's owner from when that knows of it,
//     and anew from a takeover, never from before what the old owner may still
//     have promised. It is not put off while the fence is closed: nothing ends
//     then, and right afterwards it does.
//   - Of another gateway's lease the record is written at the version that was
//     read. Its owner is sent the change, reads it and tells its client.
//   - Other programs ask and are asked in their own words: see overwritten.go.

// revocation is what a lease's holder has been asked to do, as its owner knows it.
type revocation struct {
	revokeRecord
	forceAt time.Duration // boot; 0: never
}

// over is the revocation that results when it is asked for after another; nil
// for none.
func (r revokeRecord) over(earlier *revokeRecord) revokeRecord {
	if earlier != nil && earlier.Force > 0 && (r.Force == 0 || r.Force > earlier.Force) {
		r.Force = earlier.Force
	}
	return r
}

func (v *revocation) view(now time.Duration) *Revocation {
	if v == nil {
		return nil
	}
	r := &Revocation{Reason: v.Reason}
	if v.forceAt != 0 {
		r.Forced, r.ForceIn = true, max(v.forceAt-now, 0)
	}
	return r
}

// view is for a lease that runs elsewhere: there it is known how much of the time is left.
func (r *revokeRecord) view() *Revocation {
	if r == nil {
		return nil
	}
	return &Revocation{Reason: r.Reason, Forced: r.Force > 0, ForceIn: time.Duration(r.Force) * time.Millisecond}
}

// revoked takes over what the lease's record says of a revocation, and tells it
// in each of its queues.
func (m *Manager) revoked(l *lease, r *revokeRecord, now time.Duration) {
	was := l.revocation()
	if r == nil || was != nil && was.revokeRecord == *r {
		return
	}
	v := &revocation{revokeRecord: *r}
	if r.Force > 0 {
		v.forceAt = max(now, l.grace) + time.Duration(r.Force)*time.Millisecond
	}
	if was != nil && was.forceAt != 0 && (v.forceAt == 0 || was.forceAt < v.forceAt) {
		v.forceAt = was.forceAt
	}
	l.few().revoke = v
	m.schedule(l)
	for s := range l.slots {
		m.tellRevokeRequested(part{s.q, s.contender}, r.Reason)
	}
	m.touch(l)
	m.touchQueues(l)
}

// takeBack ends a lease whose holder was asked in vain until force was due. It
// reports false when that is not yet, or has to be later.
func (m *Manager) takeBack(l *lease, now time.Duration) bool {
	at := l.forceAt()
	if at == 0 || at > now {
		return false
	}
	if l.term != m.term || !l.loaded || l.writing {
		// Its takeover comes first, and what its record says.
		m.load(l)
		l.seldom.revoke.forceAt = now + loadRetry
		return false
	}
	l.few().words = l.revocation().Reason
	m.end(l, ReasonRevoked, now)
	return true
}

func (r *RevokeRequest) check() error {
	if r.ForceAfter < 0 || r.ForceAfter > MaxForceAfter {
		return invalid("force_after", "force_after is at most "+MaxForceAfter.String())
	}
	return checkReasonText(r.Reason)
}

// Revoke asks the holders of a lock to let go: all leases that hold it, of this
// gateway and of others, at most MaxReap that have not been asked so before
// (More tells that there are others: repeat). Curator's holders are
// asked in its own way; other programs' contenders, those of
// a newer release, and places that a lock delay keeps are in Not with why. A lease that ends meanwhile is in neither,
// and a lock that nobody holds is no error.
func (m *Manager) Revoke(ctx context.Context, req RevokeRequest) (RevokeAnswer, error) {
	if err := req.check(); err != nil {
		return RevokeAnswer{}, err
	}
	q, err := m.lockAt(ctx, req.NS, req.Lock)
	if err != nil {
		return RevokeAnswer{}, err
	}
	defer func() {
		m.mu.Lock()
		m.leaveQueue(q)
	}()
	ask := revokeRecord{Reason: req.Reason, Force: int64((req.ForceAfter + time.Millisecond - 1) / time.Millisecond)}
	holders, more := m.holdersToAsk(ctx, q, ask) // releases mu
	answer := RevokeAnswer{More: more}
	var group errgroup.Group
	group.SetLimit(adminWindow)
	for i := range holders {
		h := &holders[i]
		group.Go(func() error {
			h.ask(ctx, m, ask)
			return nil
		})
	}
	_ = group.Wait()
	var failed *Error
	for i := range holders {
		switch h := &holders[i]; {
		case h.gone:
		case h.err == nil:
			h.view.Revoke = h.revoke
			answer.Asked = append(answer.Asked, h.view)
		default:
			if failed == nil {
				errors.As(h.err, &failed)
			}
			answer.Not = append(answer.Not, Unreached{Contender: h.view, Detail: obstacle(h.err)})
		}
	}
	if len(answer.Asked) == 0 && failed != nil {
		return RevokeAnswer{}, failed // ZooKeeper is away, or the caller
	}
	return answer, nil
}

// holder is who holds a lock, and what became of the question.
type holder struct {
	l      *lease // of this gateway; else:
	at     part   // the contender
	record string // path of the contender whose record counts
	view   Contender
	asked  bool // the same, before
	revoke *Revocation
	gone   bool
	err    error
}

// holdersToAsk are the holders of a lock, each lease once, in the queue's order: at
// most MaxReap, those before the others that have not been asked the same before.
// more reports whether some of these had no place. It is called with mu held and
// releases it.
func (m *Manager) holdersToAsk(ctx context.Context, q *queue, ask revokeRecord) (list []holder, more bool) {
	m.describe(ctx, q, q.holders(MaxReap))
	defer m.unlock()
	seen := map[recipe.LeaseID]bool{}
	open, asked := 0, 0
	for c := range q.contenders.Holders() {
		if c.LeaseID != "" && seen[c.LeaseID] {
			continue
		}
		seen[c.LeaseID] = true
		again := m.askedBefore(q, c, ask)
		switch {
		case again && asked == MaxReap:
			continue
		case again:
			asked++
		case open == MaxReap:
			more = true
			continue
		default:
			open++
		}
		h := holder{at: part{q, c}, asked: again, view: m.viewContender(q, c, 0)}
		if m.delayed(q, c) {
			h.err = errDelayed
		} else if m.copied(q, c) {
			h.err = errCopied
		} else if c.Ours && !c.Unknown {
			h.l = m.leaseOf(q, c)
			h.record = m.recordAt(h.at).path()
		}
		list = append(list, h)
	}
	for i := len(list) - 1; i >= 0 && len(list) > MaxReap; i-- {
		if list[i].asked {
			list = slices.Delete(list, i, i+1)
		}
	}
	return list, more
}

// askedBefore reports whether a holder is known to have been asked the same.
func (m *Manager) askedBefore(q *queue, c *recipe.Contender, ask revokeRecord) bool {
	var was *revokeRecord
	if l := m.leaseOf(q, c); l != nil {
		if v := l.revocation(); v != nil {
			was = &v.revokeRecord
		}
	} else if i := q.noted().infos[c.Name]; i != nil && i.revoked() {
		return !c.Ours // the words and the force are for ours alone
	} else if i != nil {
		was = i.record.Revoke
	}
	return was != nil && ask.over(was) == *was
}

// ask puts the question to one holder.
func (h *holder) ask(ctx context.Context, m *Manager, ask revokeRecord) {
	switch {
	case h.err != nil:
	case h.l != nil:
		h.revoke, h.err = m.askOwn(ctx, h.l, ask)
	case h.at.c.Unknown:
		h.err = errNewer
	case !h.at.c.Ours:
		h.revoke, h.err = m.askForeign(ctx, h.at)
	default:
		h.revoke, h.err = m.askOther(ctx, h.at, h.record, ask)
	}
	if errors.Is(h.err, zk.ErrNoNode) {
		h.gone, h.err = true, nil
	}
}

var (
	errForeign = errors.New("another program's contender cannot be asked; break ends it")
	errDelayed = errors.New("its lease has ended and the lock is kept for its lock delay; break ends that")
	errCopied  = errors.New("another program made it with the id of a lease that stands elsewhere; break ends it, and not the lease")
	errNewer   = errors.New("a newer release made it, and this one does not know how to ask it; break ends it")
)

// askOwn asks the holder of a lease of this gateway. zk.ErrNoNode: it has ended.
func (m *Manager) askOwn(ctx context.Context, l *lease, ask revokeRecord) (*Revocation, error) {
	m.mu.Lock()
	begun := m.clock.Now().Boot()
	var refused error
	for {
		now := m.clock.Now().Boot()
		switch {
		case l.phase == ended && l.failure() != nil:
			m.unlock()
			return nil, l.failure() // another process has taken it over
		case l.phase == ended:
			m.unlock()
			return nil, zk.ErrNoNode
		case refused != nil:
			m.unlock()
			return nil, refused
		case l.term != m.term || l.phase == creating || l.phase == ending:
		case !l.loaded:
			m.load(l)
		case !l.rewriting():
			var was *revokeRecord
			if v := l.revocation(); v != nil {
				was = &v.revokeRecord
			}
			next := ask.over(was)
			if was != nil && *was == next {
				told := l.revocation().view(now)
				m.unlock()
				return told, nil
			}
			m.writeRecord(l, func(r *record) { r.Revoke = &next }, func(err error) {
				if refused = err; err == nil {
					m.revoked(l, &next, m.clock.Now().Boot())
				}
			})
		}
		if m.overdue(begun, now) {
			m.unlock()
			return nil, outcomeUnknown()
		}
		if err := m.wait(ctx, l, answerWithin/4); err != nil {
			return nil, err
		}
		m.mu.Lock()
	}
}

// askOther asks the holder of a lease that another gateway runs.
func (m *Manager) askOther(ctx context.Context, at part, path string, ask revokeRecord) (*Revocation, error) {
	var next revokeRecord
	news := false
	err := m.rewrite(ctx, path, func(r record, members map[string]any) bool {
		next = ask.over(r.Revoke)
		news = r.Revoke == nil || *r.Revoke != next
		members["revoke"] = next
		return news
	})
	if err != nil {
		return nil, err
	}
	if news {
		m.mu.Lock()
		for _, p := range m.allParts(at) {
			m.tellRevokeRequested(p, next.Reason)
		}
		m.unlock()
	}
	return next.view(), nil
}

// tellRevokeRequested tells that a holder has been asked to let go, and in what words.
func (m *Manager) tellRevokeRequested(at part, words string) {
	if m.telling() {
		e := m.contenderEvent(events.LeaseRevokeRequested, at.q, at.c)
		e.Detail = words
		m.publish(e)
	}
}
