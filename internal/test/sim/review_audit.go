package sim

import (
	"iter"
	"maps"
	"slices"
	"time"
)

// sorted yields a map in the order of its keys.
func sorted[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}

// forgotten is the TTL of leases of clients that go away, and unclaimed how long a grant lasts that no client claims.
const (
	forgotten = 90 * time.Second
	unclaimed = 30 * time.Second
)

// checkAudit looks at what gateways did to contenders, and what they told of them.
func (r *review) checkAudit() {
	held := map[string]bool{} // leases whose clients were told that they hold
	for _, b := range r.beliefs {
		held[b.lease] = held[b.lease] || b.held
	}
	for lease, t := range sorted(r.ledger.terms) {
		if t.delay > 0 {
			r.checkDelay(lease, t, held[lease])
		}
		if t.least > 0 && held[lease] {
			r.checkAtLeast(lease, t.least)
		}
	}
	r.checkPeriods()
	r.checkBookings()
	for _, path := range r.audit.stolen {
		if c := r.audit.find(path); !r.exemptions.mayTerminate(path, c.gone) {
			r.violate("theft: a gateway has deleted %s", path)
		}
	}
	for _, what := range r.audit.unlimited {
		r.violate("limit: %s", what)
	}
	for _, path := range r.audit.unseen {
		if lease := r.audit.leaseOf(path); held[lease] && !r.exemptions.mayEnd(lease, r.audit.find(path).ended()) {
			r.violate("unseen: %s was deleted, and its gateway does not know what was in it", path)
		}
	}
	for path := range sorted(r.ledger.granted) {
		c := r.audit.find(path)
		if c == nil || c.held.IsZero() && !r.audit.glimpsed(c.lease) {
			r.violate("events: it was told that %s holds, which it never did", path)
		}
	}
	for _, lease := range r.ledger.tickets {
		places := r.audit.places(lease)
		if len(r.plan.Faults) > 0 || len(places) == 0 {
			continue
		}
		if c := places[0]; !c.held.IsZero() && (c.there() || c.ended().After(c.held.Add(unclaimed+2*slack))) {
			r.violate("unclaimed: no client knows of %s, which held from %s to %s", c.path, r.since(c.held), r.since(c.ended()))
		}
	}
}

// checkAtLeast looks whether the places of a lease that was granted have stayed for long enough. A lease is granted no earlier than
// it holds by the names of its queues.
func (r *review) checkAtLeast(lease string, least time.Duration) {
	e := r.exemptions
	for _, c := range r.audit.places(lease) {
		if c.gone.IsZero() || c.held.IsZero() || e.isExcused(lease) || e.mayTerminate(lease, c.gone) || r.overwritten(lease) {
			continue
		}
		if stayed := c.gone.Sub(c.held) + e.asleep(c.held, c.gone); stayed < least {
			r.violate("at least: %s came to hold at %s and was to stay taken for %v, but went at %s", c.path, r.since(c.held), least, r.since(c.gone))
		}
	}
}

// checkDelay looks whether the places of a lease with a lock delay have stayed.
func (r *review) checkDelay(lease string, t terms, held bool) {
	e := r.exemptions
	places := r.audit.places(lease)
	for _, c := range places {
		// A gateway that has taken the lease over since then knows no delay.
		lost := slices.ContainsFunc(places, func(p contender) bool { return !p.written.IsZero() && p.written.Before(c.closed) })
		if c.gone.IsZero() || e.isExcused(lease) || e.mayTerminate(lease, c.gone) {
			continue
		}
		stays := t.delay
		for _, j := range e.jumps {
			if j.at.After(c.closed) && j.at.Before(c.gone) {
				stays -= j.by // its gateway may have counted so
			}
		}
		switch {
		case c.closed.IsZero() && held && (t.always || !e.isFreed(lease)) && !r.overwritten(lease):
			r.violate("delay: %s went at %s and did not stay for %v", c.path, r.since(c.gone), t.delay)
		case lost, c.closedFor == "cancelled", c.closedFor == "released" && !t.always: // no delay follows; its owner could not be reached
		case !c.closed.IsZero() && c.gone.Before(c.closed.Add(stays)):
			r.violate("delay: %s ended at %s and was to stay for %v, but went at %s", c.path, r.since(c.closed), t.delay, r.since(c.gone))
		}
	}
}
