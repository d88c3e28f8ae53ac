package dashboard

import (
	"context"
	"slices"
	"strings"
	"time"

	"lockkeeper/internal/locks"
	"lockkeeper/web/templates"
)

const (
	// chainWaits is how many waits a chain is looked for in.
	chainWaits = 500
	// chainHops is how many waits of a chain a page shows.
	chainHops = 8
	// chainHolders is how many holders of a lock are looked at for the one that is named.
	chainHolders = 16
)

// hop is a step of a chain: a wait, and how many other parties block it.
type hop struct {
	wait   *locks.GraphWait
	others int
}

// chainEnd is why a chain goes no further.
type chainEnd int

const (
	endsFree   chainEnd = iota // its last party waits for nothing
	endsCircle                 // its last party is in the chain
	endsCut                    // it is longer than chainHops
)

// chainOf follows the waits from a contender to the end: by way of the parties that cannot go on where there are some, else by way
// of holders. Where a party waits several times, the first wait is followed.
func chainOf(v *locks.WaitGraph, contender string) (hops []hop, end chainEnd) {
	stuck := map[string]bool{}
	for i := range v.Parties {
		stuck[v.Parties[i].ID] = v.Parties[i].Stuck
	}
	byParty := map[string][]*locks.GraphWait{}
	for i := range v.Waits {
		byParty[v.Waits[i].From] = append(byParty[v.Waits[i].From], &v.Waits[i])
	}
	at, seen := v.Of, map[string]bool{v.Of: true}
	for {
		list := byParty[at]
		own := func(w *locks.GraphWait) bool { return standingID(&w.Waiter) == contender }
		if at == v.Of && slices.ContainsFunc(list, own) { // of its other waits others tell
			list = slices.DeleteFunc(slices.Clone(list), func(w *locks.GraphWait) bool { return !own(w) })
		}
		if len(list) == 0 {
			return hops, endsFree
		}
		if len(hops) == chainHops {
			return hops, endsCut
		}
		rank := func(w *locks.GraphWait) int {
			switch {
			case stuck[at] && stuck[w.To]:
				return 0
			case w.Blocker.Position == 0:
				return 1
			}
			return 2
		}
		next := slices.MinFunc(list, func(a, b *locks.GraphWait) int { return rank(a) - rank(b) })
		others := map[string]bool{}
		for _, w := range list {
			if w.Waiter == next.Waiter && w.To != next.To && w.Blocker.Position == 0 {
				others[w.To] = true
			}
		}
		hops = append(hops, hop{next, len(others)})
		if seen[next.To] {
			return hops, endsCircle
		}
		at = next.To
		seen[at] = true
	}
}

// showWaits leads each waiter to what it waits for, shows the deadlocks of the lock, and marks the contender that the page is asked
// for.
func (p lockPage) showWaits(ctx context.Context, from *Options, as reading, v *templates.Lock, l *locks.Lock) {
	if l.QueueLength > 0 {
		v.Deadlocks, v.MoreDeadlocks, _ = as.waits.deadlocks(ctx, as.who, p.ns, l.Name) // without: the queue is shown all the same
	}
	for i := range l.Waiters {
		c := &l.Waiters[i]
		v.Waiters[i].WhyURL = urlOf(p.about(standingID(&locks.Standing{LeaseID: c.LeaseID, Znode: c.Znode})))
	}
	if p.contender == "" {
		return
	}
	v.Unmarked = urlOf(p.about(""))
	c := contenderIn(l, p.contender)
	if c == nil {
		v.Gone = true
		return
	}
	for _, list := range [][]templates.Contender{v.Holders, v.Waiters} {
		for i := range list {
			if list[i].Znode == visible(c.Znode) {
				list[i].Marked = true
				list[i].Chain = p.chain(ctx, from, as)
			}
		}
	}
}

// chain is what the page's contender waits for; nil when that is nothing, or not known.
func (p lockPage) chain(ctx context.Context, from *Options, as reading) *templates.Chain {
	look, err := as.waits.look(ctx, as.who)
	if err != nil {
		return nil
	}
	v := look.Ahead(p.ns, p.lock, p.contender, chainWaits)
	hops, end := chainOf(&v, p.contender)
	if len(hops) == 0 {
		return nil
	}
	parties := map[string]*locks.Party{}
	for i := range v.Parties {
		parties[v.Parties[i].ID] = &v.Parties[i]
	}
	c := &templates.Chain{Circle: end == endsCircle, Cut: end == endsCut || v.Truncated, Unread: v.Unread, GraphURL: urlOf(graphPage{ns: p.ns, lock: p.lock})}
	c.Certain = c.Circle && parties[hops[len(hops)-1].wait.To].Stuck
	for i := range hops {
		c.Hops = append(c.Hops, hopOf(ctx, from.Locks, as.who, &hops[i], parties))
	}
	return c
}

// hopOf is a step as the page shows it, with the times of the two contenders.
func hopOf(ctx context.Context, from Locks, who locks.Principal, h *hop, parties map[string]*locks.Party) templates.Hop {
	w := h.wait
	shown := templates.Hop{Who: partyWho(parties[w.From]), Lock: lockLink(w.NS, w.Lock), Any: w.Any, For: partyWho(parties[w.To]), Ahead: w.Blocker.Position, Others: h.others}
	waiter, l := standingAt(ctx, from, who, w, &w.Waiter)
	if waiter != nil && waiter.AgeKnown {
		shown.Since = waiter.At.Add(-waiter.Age)
	}
	if l == nil || w.Blocker.Position > 0 {
		return shown
	}
	holder := contenderIn(l, standingID(&w.Blocker))
	if holder == nil {
		holder, _ = standingAt(ctx, from, who, w, &w.Blocker)
	}
	if holder != nil {
		shown.HeldSince, _ = heldSince(holder)
		shown.HeldLonger, shown.Beat, shown.For.Delayed = holder.HeldLonger, lastBeat(holder), holder.Delayed
	}
	return shown
}

// lastBeat is when a holder's client was last heard from; zero when that is not known.
func lastBeat(c *locks.Contender) time.Time {
	if c.Clock == 0 || c.ExpiresIn <= 0 || c.Delayed || c.Unclaimed || !c.EndsAt.IsZero() || c.ReservedFor > 0 || c.Revoke != nil && c.Revoke.Forced {
		return time.Time{}
	}
	return c.At.Add(c.ExpiresIn - c.Clock)
}

// partyWho names a party: leases of one owner, one lease, a session of another program, or a znode of one.
func partyWho(p *locks.Party) templates.Who {
	w := templates.Who{Owner: visible(p.Owner)}
	switch p.Kind {
	case locks.PartyOwner:
	case locks.PartyLease:
		w.LeaseID = visible(strings.TrimPrefix(p.ID, "lease:"))
	default:
		w.Foreign, w.Program, w.Owner = true, visible(p.Program), visible(p.Label)
		if w.Owner == "" {
			w.Owner = visible(strings.Replace(p.ID, ":", " ", 1)) // "session 0x1"
		}
	}
	return w
}
