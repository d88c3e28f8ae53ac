package dashboard

import (
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks"
	"lockkeeper/internal/locks/access"
	"lockkeeper/web/templates"
)

// pageSize is how many locks, waiters or holders a page shows: each may say
// 4 KiB of its own, and all of it is sent again when one of them changes.
const pageSize = 50

// endsSoon is how long before the end of a reservation its row warns: as long as web/static/tell.js does.
const endsSoon = 5 * time.Minute

// expiry is when a contender's clock runs out; zero when another gateway, or
// no gateway, runs it.
func expiry(c *locks.Contender) time.Time {
	switch {
	case c.ExpiresIn > 0:
		return c.At.Add(c.ExpiresIn)
	case c.Clock > 0:
		return c.At.Truncate(time.Minute) // it is due; the page does not change each second for that
	}
	return c.EndsAt // of a reservation that another gateway runs; zero otherwise
}

// heldSince is since when a contender holds, and, where that is not known, the earliest time since when it can hold. A span of zero
// means that the manager has not seen it hold, or knows no bound.
func heldSince(c *locks.Contender) (since, earliest time.Time) {
	if c.HeldFor != 0 {
		since = c.At.Add(-c.HeldFor)
	}
	if c.HeldAtMost != 0 {
		earliest = c.At.Add(-c.HeldAtMost)
	}
	return since, earliest
}

// holderCount is how many hold, also where the lock shows the first ones alone.
func holderCount(l *locks.Lock) int { return max(l.HolderCount, len(l.Holders)) }

func whoOf(c *locks.Contender) templates.Who {
	w := templates.Who{Owner: visible(c.Owner), LeaseID: visible(c.LeaseID), Foreign: c.Foreign != nil, Delayed: c.Delayed, Purpose: visible(c.Purpose)}
	if c.Foreign != nil {
		w.Program = visible(c.Foreign.Program)
		if d := c.Foreign.Decoded; w.Owner == "" && d != nil { // who it says it is tells more than which program it is
			w.Owner = visible(cmp.Or(d.Identifier, d.Participant))
		}
	}
	return w
}

// contenderOf is an entry of l's queue, with what may be done to it by the rules.
func contenderOf(l *locks.Lock, c *locks.Contender, rules *access.Rules) templates.Contender {
	v := templates.Contender{
		Who: whoOf(c), Position: c.Position, Mode: string(c.Mode), Permits: c.Permits, Limit: c.Limit, Znode: visible(c.Znode),
		ExpiresAt: expiry(c), Clock: c.Clock, Unclaimed: c.Unclaimed, Metadata: visible(c.Metadata),
		Group: groupOf(l.NS, c.Group), Ephemeral: c.Ephemeral, EndsAt: c.EndsAt, ReservedFor: c.ReservedFor,
		CanAsk: c.Position == 0 && !c.Delayed && (c.Foreign == nil || c.Foreign.Revocable),
	}
	if mayBreak(rules, l, c) {
		v.Break = breakAction(l.NS, l.Name, c)
	}
	if c.AgeKnown {
		v.Since = c.At.Add(-c.Age)
	}
	v.BeatAt, v.Late = heardAt(c), late(c)
	v.EndsSoon = !c.EndsAt.IsZero() && c.EndsAt.Sub(c.At) <= endsSoon
	for _, hold := range c.Holds {
		v.Holds = append(v.Holds, visible(hold))
	}
	if c.Delayed {
		v.Ended = string(c.Reason)
	}
	if c.Position == 0 {
		v.FencingToken, v.HeldLonger = c.FencingToken, c.HeldLonger
		v.HeldSince, v.HeldEarliest = heldSince(c)
	}
	if r := c.Revoke; r != nil {
		v.Asked = &templates.Asked{Reason: visible(r.Reason)}
		if v.CanAsk && c.LeaseID != "" && rules.May(access.Operate, l.NS, l.Name) {
			v.Asked.Withdraw = withdrawAction(l.NS, l.Name, c.LeaseID)
		}
		if r.Forced {
			v.Asked.Until = c.At.Add(r.ForceIn)
		}
	}
	if f := c.Foreign; f != nil {
		if f.Session != 0 {
			v.Session = "0x" + strconv.FormatUint(uint64(f.Session), 16)
		}
		if len(f.Data) > 0 {
			v.Data, v.DataBinary = dataOf(f.Data)
		}
		v.Kind, v.Decoded = visible(f.Kind), visible(f.Decoded.String())
	}
	return v
}

func contendersOf(l *locks.Lock, list []locks.Contender, rules *access.Rules) []templates.Contender {
	shown := make([]templates.Contender, 0, len(list))
	for i := range list {
		shown = append(shown, contenderOf(l, &list[i], rules))
	}
	return shown
}

// mayBreak reports whether the rules let a contender be ended. For a lease of several locks the verb for one of them is enough.
func mayBreak(rules *access.Rules, l *locks.Lock, c *locks.Contender) bool {
	return rules.May(access.Operate, l.NS, l.Name) || slices.ContainsFunc(c.Group, func(name string) bool {
		at := groupPage(l.NS, name)
		return rules.May(access.Operate, at.ns, at.lock)
	})
}

// showLock fills in what a lock's page shows of its queue, and what may be done by the rules; first: its waiters
// are the first ones.
func showLock(v *templates.Lock, l *locks.Lock, rules *access.Rules, root string, first bool) {
	v.State, v.QueueLength = string(l.State), l.QueueLength
	v.HolderCount = holderCount(l)
	v.Holders, v.Waiters = contendersOf(l, l.Holders[:min(pageSize, len(l.Holders))], rules), contendersOf(l, l.Waiters, rules)
	v.Limit, v.LimitAgreed, v.Permits = l.Limit, l.LimitAgreed, permitsOf(l, first)
	showWhy(v, l)
	v.Force, v.MayTake = rules.May(access.Operate, l.NS, l.Name), rules.May(access.Acquire, l.NS, l.Name)
	if v.Force && v.HolderCount+l.QueueLength > 0 {
		v.Reap, v.Destroy = lockAction(l.NS, l.Name, "reap"), lockAction(l.NS, l.Name, "destroy")
	}
	if v.MayTake {
		v.Reserve = lockAction(l.NS, l.Name, "leases")
	}
	if v.MayTake && (l.State == locks.LockHeld || l.State == locks.LockUnclaimed) {
		v.Revoke = lockAction(l.NS, l.Name, "revoke")
		v.NoneToAsk = v.HolderCount == len(v.Holders) && !slices.ContainsFunc(v.Holders, func(c templates.Contender) bool { return c.CanAsk })
	}
	v.Dir = visible(dirOf(l, root))
	v.Dialect = l.Dialect
	for _, h := range l.Hazards {
		v.Hazards = append(v.Hazards, templates.Hazard{Code: visible(string(h.Code)), Detail: visible(h.Detail)})
	}
}

// dirOf is the lock's znode: what its contenders are in, or, when it has none,
// what the default namespace puts there.
func dirOf(l *locks.Lock, root string) string {
	for _, list := range [][]locks.Contender{l.Holders, l.Waiters} {
		if len(list) > 0 {
			if f := list[0].Foreign; f != nil && f.Kind == locks.KindEphemeralNode {
				return list[0].Znode // it stands in the directory's place
			}
			return path.Dir(list[0].Znode)
		}
	}
	if l.NS != locks.DefaultNamespace {
		return ""
	}
	return path.Join(root, "locks", l.Name)
}

// happeningsOf shows events of a lock, given and shown the newest first.
func happeningsOf(list []*events.Event) []templates.Happening {
	shown := make([]templates.Happening, 0, len(list))
	for _, e := range list {
		words := e.Detail
		if h := e.Hazard; h != nil { // what it means stands at the head of the page
			words = strings.Join(append([]string{h.Code}, h.Programs...), " ")
		}
		shown = append(shown, templates.Happening{
			At: e.Time, Event: e.Type.String(), FencingToken: e.FencingToken, Reason: visible(e.Reason), Detail: visible(words),
			Who: templates.Who{Owner: visible(e.Owner), LeaseID: visible(e.LeaseID), Foreign: e.Foreign, Program: visible(e.Program), Purpose: visible(e.Purpose)},
		})
	}
	return shown
}

// nodeEventsOf does the same with node events.
func nodeEventsOf(list []*events.Event) []templates.NodeEvent {
	shown := make([]templates.NodeEvent, 0, len(list))
	for _, e := range list {
		shown = append(shown, templates.NodeEvent{At: e.Time, Event: e.Type.String(), Path: visible(e.Path())})
	}
	return shown
}
