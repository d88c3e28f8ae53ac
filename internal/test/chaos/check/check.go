package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Check returns every violation, in the order of time.
func Check(h *History, t Times) []Violation {
	c := &checker{h: h, t: t}
	c.byName, c.byLock = attempts(h)
	c.byID = make(map[string]*attempt)
	for _, a := range c.byName {
		for _, id := range a.ids {
			if o := c.byID[id]; o != nil {
				c.lock = a.lock
				c.report("accounted", max(a.first, o.first), "%s and %s have one lease, %s", min(a.name, o.name), max(a.name, o.name), id)
			}
			c.byID[id] = a
		}
	}
	c.unexpected()
	for lock, as := range c.byLock {
		c.lock = lock
		c.overlap(as)
		c.fencing(as)
		c.order(as)
		for _, a := range as {
			c.single(a)
			c.shortened(a)
			c.revived(a)
		}
	}
	for i := range h.Listings {
		l := &h.Listings[i]
		c.lock = l.Lock
		c.listed(l)
		c.stuck(l)
	}
	slices.SortStableFunc(c.found, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Detail, b.Detail))
	})
	return c.found
}

type checker struct {
	h      *History
	t      Times
	byName map[string]*attempt
	byID   map[string]*attempt
	byLock map[string][]*attempt
	lock   string // whose turn it is
	found  []Violation
}

func (c *checker) report(rule string, at time.Duration, format string, args ...any) {
	c.found = append(c.found, Violation{Rule: rule, Lock: c.lock, At: at, Detail: fmt.Sprintf(format, args...)})
}

// expected are the answers that a client has to understand, beside 503, which every request may get, and what a proxy
// says by itself.
var expected = map[Kind][]int{
	Acquire:   {200, 201, 202, 409, 410},
	Heartbeat: {200, 410},
	Poll:      {200, 410},
	Release:   {204, 410},
}

func (c *checker) unexpected() {
	for i := range c.h.Ops {
		o := &c.h.Ops[i]
		proxys := o.Code == "" && (o.Status == 502 || o.Status == 504)
		refused := o.Status == 503
		if o.Status != 0 && !refused && !proxys && !slices.Contains(expected[o.Kind], o.Status) {
			c.lock = o.Lock
			c.report("unexpected", o.Done, "%s of %s through %s: %d %s %s", o.Kind, o.Attempt, o.Via, o.Status, o.Code, o.Reason)
		}
	}
}

// overlap goes through the spans in which leases are known to hold, in the order of their beginnings.
func (c *checker) overlap(as []*attempt) {
	type span struct {
		*attempt
		from, to time.Duration
	}
	var spans []span
	for _, a := range as {
		if from, to := a.known(); from < to {
			spans = append(spans, span{a, from, to})
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var now []span
	for _, s := range spans {
		now = slices.DeleteFunc(now, func(o span) bool { return o.to <= s.from })
		taken := 0
		for _, o := range now {
			taken += o.permits
			if conflict(o.attempt, s.attempt) {
				c.report("overlap", s.from, "%s (%s) holds from %v to %v, %s (%s) from %v to %v",
					o.name, o.id(), o.from, o.to, s.name, s.id(), s.from, s.to)
			}
		}
		if s.mode == Semaphore && taken+s.permits > s.limit {
			c.report("overlap", s.from, "%s (%s) takes %d permits of %d, and %d are taken", s.name, s.id(), s.permits, s.limit, taken)
		}
		now = append(now, s)
	}
}

// fencing: a holder at some instant comes before each conflicting holder at a later instant.
func (c *checker) fencing(as []*attempt) {
	owner := make(map[int64]*attempt)
	for _, a := range as {
		if len(a.tokens) > 1 {
			c.report("fencing", a.first, "%s (%s) has the tokens %d", a.name, a.id(), a.tokens)
		}
		for _, token := range a.tokens {
			if o := owner[token]; o != nil {
				c.report("fencing", a.first, "%s and %s both have the token %d", o.name, a.name, token)
			}
			owner[token] = a
		}
		for _, w := range a.held {
			if len(a.tokens) == 0 {
				c.report("fencing", w.done, "%s (%s) holds without a token", a.name, a.id())
				break
			}
		}
	}
	for _, a := range as {
		if len(a.held) == 0 || len(a.tokens) != 1 {
			continue
		}
		earliest := never // it held before this
		for _, w := range a.held {
			earliest = min(earliest, w.done)
		}
		for _, b := range as {
			if b == a || len(b.held) == 0 || len(b.tokens) != 1 || !conflict(a, b) {
				continue
			}
			latest := time.Duration(0) // it held after this
			for _, w := range b.held {
				latest = max(latest, w.sent)
			}
			if earliest < latest && a.tokens[0] > b.tokens[0] {
				c.report("fencing", latest, "%s held with token %d before %v, %s with token %d after %v",
					a.name, a.tokens[0], earliest, b.name, b.tokens[0], latest)
			}
		}
	}
}

// order: while a client waits, no conflicting client behind it holds. Both are in the queue at one time, so their
// numbers are of one life of its directory.
func (c *checker) order(as []*attempt) {
	for _, a := range as {
		if a.number == 0 || len(a.waiting) < 2 {
			continue
		}
		from, to := never, time.Duration(0)
		for _, w := range a.waiting {
			from, to = min(from, w.done), max(to, w.sent)
		}
		for _, b := range as {
			if b == a || b.number <= a.number || !conflict(a, b) {
				continue
			}
			for _, w := range b.held {
				if w.sent > from && w.done < to {
					c.report("order", w.done, "%s with number %d holds between %v and %v, %s with number %d waits from %v to %v",
						b.name, b.number-1, w.sent, w.done, a.name, a.number-1, from, to)
					break
				}
			}
		}
	}
}

func (c *checker) single(a *attempt) {
	if len(a.ids) > 1 {
		c.report("accounted", a.first, "%s has the leases %v", a.name, a.ids)
	}
}

// ownEnd are the reasons that a client may be told of an end that it has asked for.
var ownEnd = []string{"released", "cancelled", "unknown", ""}

func (c *checker) shortened(a *attempt) {
	for _, o := range a.ends {
		if o.Done > a.letGo && slices.Contains(ownEnd, o.Reason) {
			continue
		}
		switch {
		case o.Done < a.holds:
			c.report("shortened", o.Done, "%s (%s) holds until %v, and is told at %v that it has ended: %s", a.name, a.id(), a.holds, o.Done, o.Reason)
		case len(a.held) == 0 && o.Done < a.place:
			c.report("shortened", o.Done, "%s (%s) keeps its place until %v, and is told at %v that it has ended: %s", a.name, a.id(), a.place, o.Done, o.Reason)
		}
	}
}

func (c *checker) revived(a *attempt) {
	for _, o := range a.alive {
		if o.Sent > a.gone {
			c.report("revived", o.Done, "%s (%s) had ended by %v, and a %s that was sent at %v says that it is %s", a.name, a.id(), a.gone, o.Kind, o.Sent, o.State)
		}
	}
}
