package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"lockkeeper/internal/events"
	"lockkeeper/internal/locks/access"
)

// telling is one event about a lease, or about another program's contender, as a gateway told it.
type telling struct {
	kind, who, lock, mode, reason string
	foreign                       bool
}

func (t telling) String() string { return strings.TrimSpace(t.kind + " " + t.who + " " + t.reason) }

// story is what one life of a gateway has told, by lock.
type story struct {
	gateway string
	told    map[string][]telling
	whole   bool // it lived until the end
}

// remember keeps what a gateway has told; nothing of it runs any more.
func (g *gateway) remember() story {
	s := story{gateway: g.name, told: make(map[string][]telling), whole: !g.died.Load()}
	for _, e := range g.hub.Recent(events.Filter{Rules: access.Everything(), Types: events.Types(events.LeaseQueued, events.LeaseGranted, events.LeaseReleased, events.LeaseExpired,
		events.LeaseCancelled, events.LeaseUnclaimed, events.LeaseRemoved, events.LeaseRevoked)}, events.DefaultRing) {
		t := telling{kind: e.Type.String(), who: cmp.Or(e.LeaseID, e.Path()), lock: e.Lock, mode: e.Mode, reason: e.Reason, foreign: e.Foreign}
		if e.Foreign && e.Reason != "" {
			t.kind, t.reason = events.LeaseRemoved.String(), "removed" // see checkStories
		}
		s.told[e.Lock] = append(s.told[e.Lock], t)
	}
	return s
}

// calm are the faults in which every gateway lives and is connected all the time. StallClients is none of them: a gateway's
// reports to its peers travel over the same connections, and a peer tells an end without its reason after a second.
func (p *Plan) calm() bool {
	return !slices.ContainsFunc(p.Faults, func(f Fault) bool {
		switch f.Kind {
		case CutClients, RemoveContender, Revoke:
			return false
		}
		return true
	})
}

// checkStories compares what gateways have told: none contradicts another one, and where the weather was calm all have told the
// same of all contenders, and of the holders in the same order.
func (r *review) checkStories(stories []story) {
	type end struct{ who, lock string }
	ends := make(map[end]map[string][]string) // by reason, the gateways that said so
	for _, s := range stories {
		for _, lock := range slices.Sorted(maps.Keys(s.told)) {
			for _, t := range s.told[lock] {
				switch t.reason {
				case "", "unknown", "removed", "gateway_left":
					continue // what a gateway tells without a report
				}
				if t.foreign {
					continue // it has no gateway that knows; the report of the one that ended it may be late
				}
				at := end{t.who, t.lock}
				if ends[at] == nil {
					ends[at] = make(map[string][]string)
				}
				if !slices.Contains(ends[at][t.reason], s.gateway) {
					ends[at][t.reason] = append(ends[at][t.reason], s.gateway)
				}
			}
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(ends), func(a, b end) int { return cmp.Or(cmp.Compare(a.lock, b.lock), cmp.Compare(a.who, b.who)) }) {
		maps.DeleteFunc(ends[at], func(reason string, by []string) bool {
			return wished(reason) && !slices.Contains(by, r.audit.ender(at.who))
		})
		if len(ends[at]) > 1 && !r.endOverwritten(at.who) {
			r.violate("story: the end of %s in %s is told as %v", at.who, at.lock, ends[at])
		}
	}
	if r.scripted || !r.plan.calm() {
		return
	}
	left := r.leftWaiting(stories)
	stories = slices.DeleteFunc(slices.Clone(stories), func(s story) bool { return !s.whole })
	for i := range stories {
		for _, lock := range lockNames {
			one, other := common(stories[0].told[lock], stories[i].told[lock])
			one, other = granted(one, left), granted(other, left)
			if diff := cmp.Or(differ(lives(one), lives(other)), differ(turns(one), turns(other))); diff != "" {
				r.violate("story: of %s %s and %s tell %s", lock, stories[0].gateway, stories[i].gateway, diff)
			}
		}
	}
}

// wished reports whether a lease's own client has asked for such an end. A gateway that cannot have it written for a while, because it stands
// still or is cut off, tells it in the end though another gateway was quicker; the others tell of that one. So a
// wish counts as what happened only where the gateway that tells it has ended the lease.
func wished(reason string) bool {
	return reason == "released" || reason == "cancelled" || reason == "wait_elapsed"
}

// endOverwritten reports whether another program has written over a record that says that the lease has ended. While no gateway runs
// the lease, the end is forgotten: a successor goes on with it, and tells of another one.
func (r *review) endOverwritten(lease string) bool {
	return slices.ContainsFunc(r.audit.places(lease), func(c contender) bool { return c.endOverwritten })
}

// leftWaiting are the leases that left the queue while they were being granted: they hold by the queue's names, and gateways
// without a report say so; their own gateway has not granted them.
func (r *review) leftWaiting(stories []story) map[string]bool {
	left, expired, granted := make(map[string]bool), make(map[string]bool), make(map[string]bool) // granted: by the gateways that ended them
	for _, s := range stories {
		for _, t := range slices.Concat(slices.Collect(maps.Values(s.told))...) {
			switch {
			case t.reason == "cancelled", t.reason == "wait_elapsed", t.reason == "done":
				left[t.who] = true
			case t.reason == "expired" && r.heldBriefly(t.who), t.reason == "revoked" && r.ledger.periods[t.who].name != "" && r.heldBriefly(t.who): // it asked for its period
				expired[t.who] = true
			case t.kind == events.LeaseGranted.String() && s.gateway == r.audit.ender(t.who):
				granted[t.who] = true
			}
		}
	}
	maps.DeleteFunc(expired, func(who string, _ bool) bool { return granted[who] })
	maps.Copy(left, expired)
	return left
}

// heldBriefly reports whether a lease came to hold by the names of its queues right before its end, if at all.
func (r *review) heldBriefly(lease string) bool {
	return !slices.ContainsFunc(r.audit.places(lease), func(c contender) bool { return !c.held.IsZero() && c.ended().Sub(c.held) > slack })
}

// granted leaves out the grants of leases that left the queue waiting.
func granted(list []telling, left map[string]bool) []telling {
	return slices.DeleteFunc(slices.Clone(list), func(t telling) bool { return left[t.who] && t.kind == events.LeaseGranted.String() })
}

// lives is what was told of each, one after the other.
func lives(list []telling) []telling {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b telling) int { return strings.Compare(a.who, b.who) })
	return list
}

// turns are the exclusive holders' grants and ends in their order. (What happens at one moment to those in line, or to readers, may be
// told in another order elsewhere: a gateway knows of its own ends a little earlier, and grants its own a little later.)
func turns(list []telling) []telling {
	held := make(map[string]bool)
	return slices.DeleteFunc(slices.Clone(list), func(t telling) bool {
		if t.kind == events.LeaseGranted.String() {
			held[t.who] = t.mode == "exclusive"
		}
		return !held[t.who]
	})
}

// differ says where two lists part, "" when they are the same.
func differ(one, other []telling) string {
	for k := range max(len(one), len(other)) {
		var a, b telling
		if k < len(one) {
			a = one[k]
		}
		if k < len(other) {
			b = other[k]
		}
		if a != b {
			return fmt.Sprintf("%q and %q", a, b)
		}
	}
	return ""
}

// common is what two gateways tell of the contenders that both saw come: one that came before a gateway started is not told by it.
func common(one, other []telling) (a, b []telling) {
	came := func(list []telling) map[string]bool {
		set := make(map[string]bool)
		for _, t := range list {
			if t.kind == events.LeaseQueued.String() {
				set[t.who] = true
			}
		}
		return set
	}
	both := came(one)
	in := came(other)
	maps.DeleteFunc(both, func(who string, _ bool) bool { return !in[who] })
	keep := func(list []telling) []telling {
		return slices.DeleteFunc(slices.Clone(list), func(t telling) bool { return !both[t.who] })
	}
	return keep(one), keep(other)
}
