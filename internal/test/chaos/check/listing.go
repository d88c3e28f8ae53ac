package check

import (
	"slices"
	"time"
)

// listed compares a queue with what clients know.
func (c *checker) listed(l *Listing) {
	lease := make(map[string]string)
	for _, e := range l.Contenders {
		a := c.whose(e)
		switch {
		case a == nil && e.Attempt == "":
			continue // the listing cannot tell, and no client was told of it
		case a == nil || a.lock != l.Lock || a.first > l.Done:
			c.report("accounted", l.Done, "%s (%q) is in the queue, and no client asked for it", e.LeaseID, e.Attempt)
			continue
		case lease[a.name] != "" && lease[a.name] != e.LeaseID:
			c.report("accounted", l.Done, "%s is in the queue twice: %s, %s", a.name, lease[a.name], e.LeaseID)
		case a.id() != "" && !slices.Contains(a.ids, e.LeaseID):
			c.report("accounted", l.Done, "%s is in the queue as %s, and has been told that it is %s", a.name, e.LeaseID, a.id())
		}
		lease[a.name] = e.LeaseID
	}
	for _, a := range c.byLock[l.Lock] {
		if from, to := a.known(); from < l.Sent && l.Done < to {
			there := slices.ContainsFunc(l.Contenders, func(e Contender) bool { return e.Holds && c.whose(e) == a })
			if !there {
				c.report("shortened", l.Done, "%s (%s) holds from %v to %v, and a look at the queue between %v and %v does not show that",
					a.name, a.id(), from, to, l.Sent, l.Done)
			}
		}
	}
}

// whose attempt a contender is: as its owner label says, or, where a look does not tell it, as a client has been told of its lease.
func (c *checker) whose(e Contender) *attempt {
	if e.Attempt != "" {
		return c.byName[e.Attempt]
	}
	return c.byID[e.LeaseID]
}

const (
	quietSlack  = 2 * time.Second
	brokenSlack = 5 * time.Second
)

// stuck: a contender's client is silent, and its time is over.
//
// A lease that was last heard of as one that waits, or not at all, has two lives: it keeps its place for one, and if it is
// granted at the end of that it is unclaimed for another.
func (c *checker) stuck(l *Listing) {
	for _, e := range l.Contenders {
		a := c.whose(e)
		if a == nil {
			continue
		}
		life := a.ttl
		if a.waits {
			life = 2 * min(a.ttl, 30*time.Second)
		}
		from, bound, ok := c.since(a.last, life, l.Sent)
		if ok && l.Sent-from > bound {
			c.report("stuck", l.Sent, "%s (%s) is in the queue, %v after its client's last request (%v) or the end of what was broken then; %v is the most",
				a.name, e.LeaseID, l.Sent-from, a.last, bound)
		}
	}
}

// since tells from when on the time of a silent client counts that was last heard of at last, and how much it has. It is not
// ok when something is broken at the time of the look.
func (c *checker) since(last, life, look time.Duration) (from, bound time.Duration, ok bool) {
	aftermath := c.t.Session + c.t.Window + brokenSlack
	from, bound = last, life+quietSlack
	for _, s := range c.h.Spans {
		switch {
		case s.From >= look || s.To+aftermath+life <= last:
			continue // it came later, or everything had been well for long
		case s.To > look:
			return 0, 0, false
		}
		from, bound = max(from, s.To), life+aftermath
	}
	return from, bound, true
}
