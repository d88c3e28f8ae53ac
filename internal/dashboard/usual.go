package dashboard

import (
	"context"
	"path"
	"time"

	"lockkeeper/internal/history"
	"lockkeeper/internal/locks"
	"lockkeeper/web/templates"
)

const (
	// enough is of how many holds "usually" can be said.
	enough = 5
	// shortest is a usual hold from which on an expected wait is of use, and changes rarely enough to be pushed.
	shortest = 5 * time.Second
	// usualFor is for how long that is good.
	usualFor = time.Minute
)

// usualWindows are the times whose holds say what is usual: the first that has enough of them.
var usualWindows = []struct {
	span time.Duration
	name string
}{{24 * time.Hour, "24 hours"}, {7 * 24 * time.Hour, "7 days"}}

// usualHold is for how long a lock is held, as a rule; nil when too few holds have ended to say so.
func usualHold(ctx context.Context, m *memory, who locks.Principal, ns, lock string) *templates.Usual {
	key := memoryKey{what: "usual", rules: who.Rules.Key(), ns: ns, lock: lock}
	usual, _ := recall(ctx, m, key, usualFor, func(ctx context.Context) (*templates.Usual, error) {
		for _, w := range usualWindows {
			stats, err := m.history.Stats(ctx, history.StatsQuery{Rules: who.Rules, NS: ns, Lock: lock, Window: w.span})
			if err != nil {
				return nil, err
			}
			if stats.Hold.Count >= enough {
				return &templates.Usual{Held: stats.Hold.P50, Of: stats.Hold.Count, Window: w.name}, nil
			}
		}
		return nil, nil
	})
	return usual
}

// showUsual says of holders for how long the lock is usually held, and of waiters how long they may have to wait. What an error leaves out
// is not there: the page shows it without.
func (p lockPage) showUsual(ctx context.Context, as reading, v *templates.Lock, l *locks.Lock) {
	p.showGrants(ctx, as, v, l)
	usual := usualHold(ctx, as.memory, as.who, p.ns, p.lock)
	if usual == nil {
		return
	}
	for n := range v.Holders {
		if !v.Holders[n].Delayed {
			v.Holders[n].Usual = usual
		}
	}
	showExpected(v, l, usual)
}

// showExpected fills in the expected waits of a queue of exclusive contenders behind one holder: there each waits for all before it. Of
// others nothing is said: how many of them go in together depends on what comes.
func showExpected(v *templates.Lock, l *locks.Lock, usual *templates.Usual) {
	if usual.Held < shortest || len(l.Holders) != 1 || holderCount(l) != 1 || l.Holders[0].Mode != locks.Exclusive || l.Holders[0].Delayed || v.Holders[0].HeldSince.IsZero() {
		return
	}
	holder := &l.Holders[0]
	over := v.Holders[0].HeldSince.Add(usual.Held).Before(holder.At) || holder.HeldLonger
	for n := range l.Waiters {
		w := &l.Waiters[n]
		if w.Mode != locks.Exclusive || n == 0 && w.Position != 1 || len(w.Group) > 0 {
			return
		}
		e := &templates.Expected{Before: w.Position, Usual: usual}
		if over {
			e.AtLeast = time.Duration(w.Position-1) * usual.Held
		} else {
			e.At = v.Holders[0].HeldSince.Add(time.Duration(w.Position) * usual.Held)
		}
		v.Waiters[n].Expected = e
	}
}

// showGrants takes from the history since when those hold whose grant the gateway itself did not see.
func (p lockPage) showGrants(ctx context.Context, as reading, v *templates.Lock, l *locks.Lock) {
	unknown := false
	for n := range v.Holders {
		unknown = unknown || v.Holders[n].HeldLonger
	}
	if !unknown {
		return
	}
	key := memoryKey{what: "grants", rules: as.who.Rules.Key(), ns: p.ns, lock: p.lock}
	list, err := recall(ctx, as.memory, key, 5*time.Second, func(ctx context.Context) ([]history.Item, error) {
		now := time.Now()
		answer, err := as.memory.history.Query(ctx, history.Query{Rules: as.who.Rules, NS: p.ns, Lock: p.lock, From: now, To: now, Kinds: history.Of(history.Hold), Limit: 2 * pageSize})
		return answer.Items, err
	})
	if err != nil {
		return
	}
	for n := range v.Holders {
		if v.Holders[n].HeldLonger {
			useGrant(&v.Holders[n], &l.Holders[n], list)
		}
	}
}

// useGrant takes the grant of a holder from the history, if that knows more than the gateway.
func useGrant(v *templates.Contender, c *locks.Contender, list []history.Item) {
	for n := range list {
		i := &list[n]
		if !i.End.IsZero() || i.Foreign != (c.Foreign != nil) || i.Begin.After(v.HeldSince) && !v.HeldSince.IsZero() {
			continue
		}
		if i.LeaseID != "" && i.LeaseID == c.LeaseID || i.Foreign && i.Name != "" && i.Name == path.Base(c.Znode) {
			v.HeldSince, v.HeldLonger, v.HeldEarliest = i.Begin, i.Early > 0, time.Time{}
			if i.Early > 0 {
				v.HeldEarliest = i.Begin.Add(-i.Early)
			}
		}
	}
}

// heardAt is when a contender's client was heard of last; zero when this gateway does not know.
func heardAt(c *locks.Contender) time.Time {
	if c.LastHeartbeat == 0 {
		return time.Time{}
	}
	return c.At.Add(-c.LastHeartbeat)
}

// late reports whether more than half of a lease's time has passed since its client was heard of: clients heartbeat more often than that.
func late(c *locks.Contender) bool {
	return c.LastHeartbeat > 0 && c.Clock > 0 && c.EndsAt.IsZero() && c.LastHeartbeat > c.Clock/2
}
