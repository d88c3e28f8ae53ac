package sim

import (
	"slices"
	"strings"
	"time"
)

// review compares, at the end of a run, what clients believed with each other and with what ZooKeeper committed.
type review struct {
	*world
	beliefs []*belief
}

// checkBeliefs also shortens beliefs in leases that another program has ended: only fencing protects from that.
func (r *review) checkBeliefs() {
	r.checkDoubles()
	contenders := r.firstToEnd()
	for _, b := range r.beliefs {
		c := contenders[place{b.lease, b.lock}]
		if c == nil {
			r.violate("a lease without a contender: %s in %s", b.lease, b.lock)
			continue
		}
		ended := c.ended()
		if b.held && !b.foreign && b.token != c.czxid {
			r.violate("fencing: %s has the token %#x, its contender was created by %#x", c.path, b.token, c.czxid)
		}
		switch {
		case b.foreign:
			if !ended.IsZero() && ended.Before(b.until) {
				b.until = ended // it will notice when it looks
			}
		case b.held && c.held.IsZero():
			r.violate("barging: %s was told that it holds, and never stood first", c.path)
		case ended.IsZero():
		case !b.held && r.ledger.periods[b.lease].name != "": // it ends at its turn, when its period is done
		case ended.Add(r.hurried(b.lease, ended)).Before(b.until) && b.sent.Before(b.until) && !r.exemptions.mayEnd(b.lease, ended):
			r.violate("shortening: %s went at %v, its client counted on it until %v", c.path, r.since(ended), r.since(b.until))
		case b.sent.After(ended.Add(r.window + slack)):
			r.violate("zombie: a success at %v for %s, which had gone at %v", r.since(b.sent), c.path, r.since(ended))
		case ended.Before(b.until):
			b.until = ended
		}
	}
	held := slices.DeleteFunc(slices.Clone(r.beliefs), func(b *belief) bool { return !b.counts() })
	slices.SortStableFunc(held, func(a, b *belief) int { return a.from.Compare(b.from) })
	for _, lock := range r.locks() {
		of := slices.DeleteFunc(slices.Clone(held), func(b *belief) bool { return b.lock != lock })
		r.checkOverlap(lock, of)
		r.checkTokens(of)
	}
}

// place is a lease's place in the queue of one lock.
type place struct{ lease, lock string }

// firstToEnd is each lease's contender in each of its queues: of several the one that ended first, because the lease ends with it.
func (r *review) firstToEnd() map[place]*contender {
	contenders := map[place]*contender{}
	for _, c := range r.audit.history() {
		if at := (place{c.lease, c.lock}); contenders[at] == nil || !c.ended().IsZero() && (contenders[at].there() || c.ended().Before(contenders[at].ended())) {
			contenders[at] = c
		}
	}
	return contenders
}

// partyOwner begins the owners of scripts in which one owner makes several attempts. Of other attempts each has its own owner.
const partyOwner = "party-"

// checkDoubles looks for attempts that have two leases. Without a key an acquire whose wait was ended by its gateway may be
// asked for again; then it queues anew, while what is left of the former one is under way.
func (r *review) checkDoubles() {
	owners := map[string]*contender{}
	for _, c := range r.audit.history() {
		_, rest, ok := strings.Cut(c.data, `"owner":"`)
		if !ok {
			continue
		}
		owner, _, _ := strings.Cut(rest, `"`)
		if strings.HasPrefix(owner, partyOwner) {
			continue
		}
		if other := owners[owner]; other != nil && other.lease != c.lease && (r.ledger.keyed[owner] || other.gone.IsZero() ||
			other.gone.After(c.made) && other.made.After(r.ledger.repeated[owner])) {
			r.violate("doubles: the attempt %s has %s and %s", owner, other.path, c.path)
		}
		owners[owner] = c
	}
}

// checkOverlap looks for beliefs in one lock that conflict; held is in the order of their beginnings.
func (r *review) checkOverlap(lock string, held []*belief) {
	var now []*belief // those that last: of each lease the one that lasts longest
	for _, b := range held {
		now = slices.DeleteFunc(now, func(p *belief) bool { return !b.from.Before(p.until) || p.lease == b.lease && !p.until.After(b.until) })
		permits, first, longer := b.permits, b, false
		for _, p := range now {
			if p.lease == b.lease {
				longer = true
				continue
			}
			if b.meets(p.claim) {
				r.violate("overlap: %s counted on %s (%s) from %v on, %s (%s) until %v", b.lease, lock, b.mode, r.since(b.from), p.lease, p.mode, r.since(p.until))
			}
			permits += p.permits
			if p.token > first.token {
				first = p // the last one in the queue: its own limit has all of them in it
			}
		}
		if first.mode == semaphore && permits > first.limit {
			r.violate("overlap: %d permits of %s at %s, %s takes %d within %d", permits, lock, r.since(b.from), first.lease, first.permits, first.limit)
		}
		if !longer {
			now = append(now, b)
		}
	}
}

// checkTokens looks whether fencing tokens rise from each holder to those that it conflicts with.
func (r *review) checkTokens(held []*belief) {
	highest := map[mode]*belief{}
	for _, b := range held {
		if b.foreign {
			continue
		}
		for _, m := range []mode{exclusive, shared, semaphore} {
			p := highest[m]
			if p == nil {
				continue
			}
			same := p.lease == b.lease
			if same != (p.token == b.token) || !same && b.meets(p.claim) && p.token > b.token {
				r.violate("fencing: %s has %d, and before it %s had %d", b.lease, b.token, p.lease, p.token)
			}
		}
		if p := highest[b.mode]; p == nil || b.token > p.token {
			highest[b.mode] = b
		}
	}
}

// soonTold is how soon an end is told when receivers and gateways are well again: a receiver that has refused it twice is asked
// again after up to six minutes. An end that only the look through the outbox finds, every ten minutes, was overlooked before.
const soonTold = 7 * time.Minute

// checkTold compares what webhooks were told with what ZooKeeper committed.
func (r *review) checkTold() {
	h := r.receivers
	for _, what := range h.odd {
		r.violate("told: %s", what)
	}
	if r.plan.Hooks == 0 {
		return
	}
	well := r.begun.Add(r.plan.Length)
	seen := map[string]bool{}
	for _, b := range r.beliefs {
		c := r.audit.at(b.lease, b.lock)
		if !b.held || b.foreign || seen[b.lease] || c == nil || !c.endedByGateway() || r.exemptions.isExcused(b.lease) || !b.from.Before(c.ended()) {
			continue
		}
		seen[b.lease] = true
		for id, since := range r.audit.hooked {
			if since >= c.endedAt {
				continue
			}
			h.tellings++
			if noted := r.audit.noted[b.lease]; noted != c.endedAt {
				r.violate("told: %s ended by %s in zxid %#x, and its note is of zxid %#x", c.path, c.endedBy, c.endedAt, noted)
			} else if at := h.told[id+" "+b.lease]; at.IsZero() {
				r.violate("told: the end of %s, zxid %#x, was never told to %s, which is of zxid %#x", c.path, c.endedAt, id, since)
			} else if ended := c.ended(); at.Sub(ended) > soonTold && at.Sub(well) > soonTold {
				r.violate("told: the end of %s was told to %s %v after it, and %v after all was well", c.path, id, at.Sub(ended), at.Sub(well))
			}
		}
	}
}

// checkNotified compares what notify_urls were told with what ZooKeeper committed.
func (r *review) checkNotified() {
	for lease, n := range sorted(r.receivers.notified) {
		places := r.audit.places(lease)
		if n.secret == "" || r.exemptions.isExcused(lease) || r.overwritten(lease) || len(places) == 0 {
			continue // no client has the secret, or another program has taken a part of the lease
		}
		if n.signed != "" && n.signed != n.secret {
			r.violate("told: what is told of %s is signed with another secret than its client was given", lease)
		}
		c := places[0]
		if !c.endedByGateway() {
			continue
		}
		r.receivers.tellings++
		if noted := r.audit.noted[lease]; noted != c.endedAt {
			r.violate("told: %s ended by %s in zxid %#x, and its note for its notify_url is of zxid %#x", c.path, c.endedBy, c.endedAt, noted)
		} else if !n.ended {
			r.violate("told: the end of %s, zxid %#x, was never told to its notify_url", c.path, c.endedAt)
		}
	}
}
