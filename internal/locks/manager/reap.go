package manager

import (
	"cmp"
	"context"
	"errors"
	"path"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/internal/locks/paging"
	"lockkeeper/internal/locks/queues"
	"lockkeeper/internal/locks/record"
	"lockkeeper/internal/locks/reports"
	"lockkeeper/internal/locks/term"
	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/wire"
)

// A reap ends what is old in a queue, the last in line first, so it grants no lease that it is to end itself.
//
// Ages are by ZooKeeper's clock at both ends: a contender's ctime, and the mtime of this gateway's guard, which a transaction
// after the request wrote. This machine's clock does not count. A contender is never taken for older than it is.

// candidate is a lease, or another program's contender, that may be reaped.
type candidate struct {
	at     queues.Location
	record queues.Location // where its record is, which may be in another queue
	l      *lease          // of this gateway
	state  locks.State
	stat   zk.Stat
	says   record.Record
	ok     bool // its node was looked at
	view   locks.Contender
}

// reaping is one such request.
type reaping struct {
	m       *Manager
	ctx     context.Context
	req     *locks.ReapRequest
	q       *queues.Queue
	session term.Session
	only    shown
}

// Reap ends what matches in a lock's queue, at most MaxReap leases and other programs' contenders, the last in line first. A
// contender that was written after it was read is in Not: it may match no longer. One that ended meanwhile is in neither list,
// unless it is Shown: then it is in Not. With DryRun nothing is ended, and Reaped is what would be.
//
// CodeHolderChanged: one that is Shown is not in the queue, or does not match, and none was ended.
func (m *Manager) Reap(ctx context.Context, req locks.ReapRequest) (locks.ReapAnswer, error) {
	if err := req.Check(); err != nil {
		return locks.ReapAnswer{}, err
	}
	if err := may(req.Principal, access.Operate, &req.NS, &req.Lock); err != nil {
		return locks.ReapAnswer{}, err
	}
	r := &reaping{m: m, ctx: ctx, req: &req, only: shownBy(&req.Shown)}
	var (
		line []*candidate
		err  error
	)
	m.do(func() {
		if r.q, err = m.lockAt(ctx, req.NS, req.Lock); err == nil {
			r.session = m.port.Session()
			line = r.candidates()
		}
	})
	if err != nil {
		return locks.ReapAnswer{}, err
	}
	defer m.do(func() { m.replica.Leave(r.q) })
	answer := locks.ReapAnswer{DryRun: req.DryRun}
	matching, more, err := r.matching(line)
	if err != nil {
		return locks.ReapAnswer{}, err
	}
	answer.More = more
	if missing := r.only.missing(); missing != "" {
		return locks.ReapAnswer{}, req.Principal.ConcealIn(m.holderChanged(r.q, missing+" is not in the queue, or does not match"))
	}
	if req.DryRun {
		for _, c := range matching {
			answer.Reaped = append(answer.Reaped, c.view)
		}
	} else {
		answer, err = r.end(answer, matching)
	}
	req.Principal.Conceal(answer.Reaped)
	req.Principal.ConcealUnreached(answer.Not)
	return answer, req.Principal.ConcealIn(err)
}

// matching reads the nodes of candidates and returns those that match, at most MaxReap; more: there are others.
func (r *reaping) matching(line []*candidate) (matching []*candidate, more bool, err error) {
	m, q, req := r.m, r.q, r.req
	var serverTime int64 // ms
	if req.OlderThan > 0 && len(line) > 0 {
		looking, cancel := context.WithTimeout(r.ctx, answerWithin)
		_, guard, err := r.session.Get(looking, m.opt.Root+zk.NodeGuards+"/"+r.session.ID())
		cancel()
		if err != nil {
			return nil, false, unavailableFor(err)
		}
		serverTime = guard.Mtime
	}
	text := paging.MaxText
	for len(line) > 0 && !more {
		chunk := line[:min(len(line), reapChunk)]
		line = line[len(chunk):]
		if err := r.lookAt(chunk); err != nil {
			return nil, false, err
		}
		m.do(func() {
			for _, c := range chunk {
				if !c.matches(req, serverTime) {
					continue
				}
				if len(matching) == locks.MaxReap {
					more = true
					break
				}
				r.only.found(q, c.at.Contender)
				position, _ := q.Contenders.Position(c.at.Contender.Name)
				c.view = m.answers.contender(q, c.at.Contender, position)
				if c.l == nil && c.ok {
					c.view.Owner, c.view.Metadata = c.says.Owner, c.says.Metadata
				}
				if serverTime != 0 {
					c.view.Age, c.view.AgeKnown = time.Duration(serverTime-c.stat.Ctime)*time.Millisecond, true
				}
				text.TrimOne(&c.view)
				matching = append(matching, c)
			}
		})
	}
	return matching, more, nil
}

// end ends what matched, unless it has changed since.
func (r *reaping) end(answer locks.ReapAnswer, matching []*candidate) (locks.ReapAnswer, error) {
	m, req := r.m, r.req
	targets, changed := locked2(m, func() (targets []*target, changed *candidate) {
		for _, c := range matching {
			t := &target{l: c.l, at: c.record, version: -1, looked: true}
			if c.ok {
				t.learn(c.says, c.stat)
			}
			if now := r.candidate(c.at); now == nil || now.l != c.l {
				t.over, t.err = true, errEnded // or it matches no longer
				changed = cmp.Or(changed, c)
			}
			targets = append(targets, t)
		}
		return targets, changed
	})
	if changed != nil && req.Shown.Given() {
		return locks.ReapAnswer{}, m.holderChanged(changed.at.Queue, path.Base(changed.view.Znode)+" is not in the queue any more, or does not match")
	}
	if err := m.readTargets(r.ctx, targets); err != nil {
		return locks.ReapAnswer{}, err
	}
	failed := m.terminateAll(r.ctx, reports.Cause{Reason: locks.ReasonRevoked, Words: req.Reason, By: req.Principal.By(req.Client), Trace: locks.TraceParentOf(r.ctx)}, targets, false)
	return locked2(m, func() (locks.ReapAnswer, error) {
		for i, c := range matching {
			switch t := targets[i]; {
			case t.over && t.err == nil:
				answer.Reaped = append(answer.Reaped, c.view)
			case errors.Is(t.err, errEnded) && req.Shown.Given():
				answer.Not = append(answer.Not, locks.Unreached{Contender: c.view, Detail: endedMeanwhile})
			case errors.Is(t.err, errEnded):
			case errors.Is(t.err, zk.ErrBadVersion):
				answer.Not = append(answer.Not, locks.Unreached{Contender: c.view, Detail: "it was changed meanwhile, and may match no longer; repeat the request"})
			default:
				answer.Not = append(answer.Not, locks.Unreached{Contender: c.view, Detail: obstacle(t.err)})
			}
		}
		if len(answer.Reaped) == 0 && failed != nil {
			return locks.ReapAnswer{}, failed
		}
		return answer, nil
	})
}

// candidates are those of the queue that are meant and match by what is known here, each lease once, from the tail on; the
// monitor is held.
func (r *reaping) candidates() (line []*candidate) {
	for c := range distinct(r.q) {
		if !r.only.means(r.q, c) {
			continue
		}
		if found := r.candidate(queues.Location{Queue: r.q, Contender: c}); found != nil {
			line = append(line, found)
		}
	}
	return line
}

// candidate is a contender that matches by what is known here; nil: it does not, it is gone, or it is ending.
func (r *reaping) candidate(at queues.Location) *candidate {
	m, req := r.m, r.req
	q, c := at.Queue, at.Contender
	if q.Contenders.Get(c.Name) != c {
		return nil
	}
	found := &candidate{at: at, record: m.replica.Record(at), state: locks.Waiting}
	l, s := m.leases.slotOf(q, c)
	switch {
	case s != nil:
		if found.l = l; !l.Settled() {
			return nil
		}
		if l.Held() {
			found.state = locks.Held
		}
	case c.Ours && !c.Unknown && m.replica.LeaseHolds(q, c), (!c.Ours || c.Unknown) && q.Contenders.Holds(c.Name):
		found.state = locks.Held
	}
	foreign := !c.Ours
	if req.Mode != "" && req.Mode != locks.ModeOf(c.Mode) || req.State != "" && req.State != found.state ||
		req.Foreign != nil && *req.Foreign != foreign || found.l != nil && req.Owner != "" && found.l.owner != req.Owner ||
		foreign && req.Owner != "" {
		return nil
	}
	return found
}

// matches reports whether a contender matches by what its node says.
func (c *candidate) matches(req *locks.ReapRequest, serverTime int64) bool {
	if req.OlderThan > 0 && (!c.ok || serverTime-c.stat.Ctime < req.OlderThan.Milliseconds()) {
		return false
	}
	return req.Owner == "" || c.l != nil || c.says.Owner == req.Owner
}

// lookAt reads the nodes of contenders whose age, owner or version is needed. One that is gone stays as it is.
func (r *reaping) lookAt(chunk []*candidate) error {
	m := r.m
	answers := make(chan struct{}, len(chunk))
	asked := 0
	var hidden []*candidate
	m.do(func() {
		for _, c := range chunk {
			if r.req.OlderThan == 0 && c.l != nil {
				continue
			}
			asked++
			m.port.Read(c.record.Path(), 0, func(data []byte, stat wire.Stat, err error) {
				switch {
				case err == nil:
					c.stat, c.ok = stat, true
					if c.at.Contender.Ours {
						c.says = lookedAt(c.record, data, stat)
					}
				case errors.Is(err, zk.ErrNoAuth):
					hidden = append(hidden, c)
				}
				answers <- struct{}{}
			})
		}
	})
	if err := m.answered(r.ctx, answers, asked); err != nil {
		return err
	}
	for _, c := range hidden { // everything was answered: no gateway writes it any more
		looking, cancel := context.WithTimeout(r.ctx, answerWithin)
		stat, err := r.session.Exists(looking, c.record.Path())
		cancel()
		if err != nil {
			return unavailableFor(err)
		}
		if stat != nil {
			c.stat, c.ok = *stat, true
		}
	}
	return nil
}
