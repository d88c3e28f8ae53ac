package dashboard

import (
	"context"
	"path"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/web/templates"
)

const (
	// waitsAge is for how long a look at the waits is good enough for all pages of a set of rules. A look that took long is for
	// costFactor times as long, up to maxPause.
	waitsAge = time.Second
	// maxDeadlocks is how many deadlocks pages show, and say since when they last. More are counted.
	maxDeadlocks = 20
)

// waits shares the wait-for graph among the pages of all viewers with the same rules (access.Rules.Key). It looks when a page asks
// and the last look is too old: one look at a time, for all sets of rules together.
type waits struct {
	locks Locks
	*answers[string, *waitsLook]
}

// waitsLook is one look at the waits. It is immutable.
type waitsLook struct {
	locks.Waits
	parties map[string]*locks.Party // of cycles, by id
	cycles  []locks.Cycle           // the certain ones first
	more    bool                    // there may be other cycles
	since   map[string]time.Time    // of deadlocks, by id
}

// newWaits keeps the looks of so many sets of rules.
func newWaits(from Locks, most int) *waits {
	return &waits{from, newAnswers[string, *waitsLook](most, 1)}
}

// look is what is known of the waits that a viewer may see, of at most waitsAge ago where looking is quick.
func (w *waits) look(ctx context.Context, who locks.Principal) (*waitsLook, error) {
	return w.recall(ctx, who.Rules.Key(), func(ctx context.Context, last *waitsLook) (*waitsLook, time.Time, error) {
		began := time.Now()
		l := &waitsLook{parties: map[string]*locks.Party{}, since: map[string]time.Time{}}
		var err error
		if l.Waits, err = w.locks.Waits(ctx, locks.Principal{Rules: who.Rules}); err != nil {
			return nil, time.Time{}, err
		}
		all := l.Answer(&locks.GraphRequest{Principal: who, Cycles: true, Limit: locks.MaxEdges})
		l.cycles, l.more = all.Cycles, all.Truncated
		for i := range all.Parties {
			l.parties[all.Parties[i].ID] = &all.Parties[i]
		}
		w.date(ctx, l, last, who)
		return l, began.Add(min(max(waitsAge, costFactor*time.Since(began)), maxPause)), nil
	})
}

// date finds out since when deadlocks last: since their youngest wait began.
func (w *waits) date(ctx context.Context, l, last *waitsLook, who locks.Principal) {
	for i := range l.cycles {
		c := &l.cycles[i]
		if !c.Certain || len(l.since) == maxDeadlocks {
			return // the certain ones come first
		}
		if last != nil && !last.since[c.ID].IsZero() {
			l.since[c.ID] = last.since[c.ID]
			continue
		}
		l.since[c.ID] = time.Time{}
		if c.Youngest < 0 {
			continue
		}
		e := &c.Waits[c.Youngest]
		if waiter, _ := standingAt(ctx, w.locks, who, e, &e.Waiter); waiter != nil && waiter.AgeKnown {
			l.since[c.ID] = waiter.At.Add(-waiter.Age)
		}
	}
}

// standingAt asks for a contender of a wait, and for the lock with the page of its queue on which that stands; nil when it is not there.
func standingAt(ctx context.Context, from Locks, who locks.Principal, w *locks.GraphWait, s *locks.Standing) (*locks.Contender, *locks.Lock) {
	id := standingID(s)
	l, err := from.Lock(ctx, locks.LockRequest{Principal: who, NS: w.NS, Lock: w.Lock, Limit: chainHolders, Around: id})
	if err != nil {
		return nil, nil
	}
	return contenderIn(&l, id), &l
}

// standingID names a contender in an address: by its lease, or by its znode where it has none.
func standingID(s *locks.Standing) string {
	if s.LeaseID != "" {
		return s.LeaseID
	}
	return path.Base(s.Znode)
}

// contenderIn is the contender of that lease, or with that znode's name, on a page of a queue; nil when it is not there.
func contenderIn(l *locks.Lock, id string) *locks.Contender {
	for _, list := range [][]locks.Contender{l.Holders, l.Waiters} {
		for i := range list {
			if c := &list[i]; c.LeaseID == id && id != "" || path.Base(c.Znode) == id {
				return c
			}
		}
	}
	return nil
}

// deadlocks are the present ones that a viewer may see: certain cycles of several parties, the first maxDeadlocks of them; more
// counts the rest. Those of one lock alone where a lock is given.
func (w *waits) deadlocks(ctx context.Context, who locks.Principal, ns, lock string) (list []templates.Deadlock, more int, err error) {
	l, err := w.look(ctx, who)
	if err != nil {
		return nil, 0, err
	}
	for i := range l.cycles {
		c := &l.cycles[i]
		if !c.Certain || len(c.Waits) < 2 || lock != "" && !cycleHas(c, ns, lock) {
			continue
		}
		if len(list) == maxDeadlocks {
			more++
			continue
		}
		list = append(list, l.deadlock(c))
	}
	return list, more, nil
}

func cycleHas(c *locks.Cycle, ns, lock string) bool {
	for i := range c.Waits {
		if c.Waits[i].NS == ns && c.Waits[i].Lock == lock {
			return true
		}
	}
	return false
}

// deadlock is a cycle as pages show it.
func (l *waitsLook) deadlock(c *locks.Cycle) templates.Deadlock {
	d := templates.Deadlock{ID: c.ID, Since: l.since[c.ID], Certain: c.Certain, GraphURL: urlOf(graphPage{})}
	for i := range c.Waits {
		e := &c.Waits[i]
		d.Waits = append(d.Waits, templates.DeadlockWait{Who: l.whoOf(e.From), Lock: lockLink(e.NS, e.Lock), WhyURL: contenderURL(e.NS, e.Lock, standingID(&e.Waiter)),
			Any: e.Any, Youngest: i == c.Youngest})
	}
	return d
}

// whoOf names a party.
func (l *waitsLook) whoOf(id string) templates.Who {
	if p := l.parties[id]; p != nil {
		return partyWho(p)
	}
	return templates.Who{Owner: visible(id)}
}

// lockLink leads to a lock's page. A lock of another namespace than the default one has that before its name.
func lockLink(ns, lock string) templates.Link {
	name := lock
	if ns != locks.DefaultNamespace {
		name = ns + "/" + lock
	}
	return templates.Link{Name: visible(name), URL: urlOf(lockPage{ns: ns, lock: lock, tab: tabQueue})}
}

// contenderURL is the page of a lock on which a contender is marked.
func contenderURL(ns, lock, id string) string {
	return urlOf(lockPage{ns: ns, lock: lock, tab: tabQueue, contender: id})
}
