package sim

import (
	"slices"
	"sync"
	"time"
)

// belief is what one answer makes a client believe: that it holds the lock, or its place in the queue, from the moment in
// which it read so until the time that it counts from the moment of sending. Of several locks there is one for each.
type belief struct {
	claim
	lock, lease string
	gateway     string // that said so
	held        bool
	foreign     bool // another program's: it has no fencing token, and its lease is its path
	lowered     bool // what is left of a belief since a downgrade was asked for
	from, until time.Time
	sent        time.Time
	token       int64
}

// counts reports whether the client counted on a lock for any time.
func (b *belief) counts() bool { return b.held && b.from.Before(b.until) }

// beliefs are those of all clients.
type beliefs struct {
	mu     sync.Mutex
	all    []*belief
	asleep map[string]time.Time // by gateway: when its machine woke
}

func newBeliefs() *beliefs { return &beliefs{asleep: make(map[string]time.Time)} }

// slept notes that a gateway's clock has jumped by so much, as that of a machine does which was asleep. While a machine sleeps
// its clients' clocks go on; here they stand still. So a belief that a later answer has shortened is shorter by the sleep,
// and never shorter than the later one. (A lease whose time is not changed gets more than that again from its gateway, which
// is asked of it.) The later answer is of the gateway that slept, and so it ran the lease; the earlier one may be of the gateway
// before it.
func (s *beliefs) slept(gateway string, by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.asleep[gateway] = now
	for _, p := range s.all {
		if !p.until.After(now) {
			continue
		}
		for _, b := range s.all {
			if b.lease == p.lease && b.gateway == gateway && b.lock == p.lock && b.sent.After(p.sent) && b.until.Before(p.until) {
				p.until = later(b.until, p.until.Add(-by))
			}
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// add adds a belief. It shortens an earlier one that lasts longer, when their gateway slept in between, as slept does.
func (s *beliefs) add(b *belief) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.asleep[b.gateway]
	for _, p := range s.all {
		if p.lease == b.lease && p.gateway == b.gateway && p.sent.Before(at) && b.from.After(at) && p.until.After(b.until) {
			p.until = b.until
		}
	}
	s.all = append(s.all, b)
}

// lower ends the belief in an exclusive lease: a shared one is left of it.
func (s *beliefs) lower(lease string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, b := range slices.Clone(s.all) {
		if b.lease == lease && b.held && b.mode == exclusive && b.until.After(now) {
			rest := *b
			rest.mode, rest.from, rest.lowered = shared, now, true
			b.until = now
			s.all = append(s.all, &rest)
		}
	}
}

// end ends the belief in a lease.
func (s *beliefs) end(lease string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, b := range s.all {
		if b.lease == lease && b.until.After(now) {
			b.until = now
		}
	}
}

// until is when the last belief in a lease ends.
func (s *beliefs) until(lease string) (until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.all {
		if b.lease == lease && b.until.After(until) {
			until = b.until
		}
	}
	return until
}

// list is a copy of all beliefs as they are now.
func (s *beliefs) list() []*belief {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*belief, len(s.all))
	for i, b := range s.all {
		now := *b
		list[i] = &now
	}
	return list
}

// slack is what an answer may be late.
const slack = time.Second

// believe notes a success, and checks it against the truth of this moment.
func (w *world) believe(l *lease, a answer) {
	if a.TTL != 0 {
		l.ttl = time.Duration(a.TTL) * time.Millisecond
	}
	until := a.sent.Add(time.Duration(a.ExpiresIn) * time.Millisecond)
	if a.State == "held" {
		until = a.sent.Add(l.ttl)
		if a.Waited != nil {
			until = until.Add(max(time.Duration(*a.Waited)*time.Millisecond-w.exemptions.asleep(a.sent, a.received), 0))
		}
		if w.ledger.isBooked(l.id) {
			until = a.sent.Add(time.Duration(a.ExpiresIn) * time.Millisecond)
		}
		l.fencing = a.FencingToken
	}
	for _, wish := range l.wishes {
		b := &belief{claim: wish.claim, lock: wish.lock, lease: l.id, gateway: a.gateway, held: a.State == "held", sent: a.sent,
			from: a.received, until: until, token: a.FencingToken}
		w.beliefs.add(b)
		if !b.counts() {
			continue // it came too late
		}
		if b.token <= 0 {
			w.violate("fencing: %s is held without a token", l.id)
		}
		if c := w.audit.at(b.lease, b.lock); c != nil && c.ephemeral && w.audit.maker(c) != a.gateway {
			w.violate("ephemeral: %s was told by %s that it holds %s, and %s has made it", l.path, a.gateway, b.lock, w.audit.maker(c))
		}
		if first := w.audit.ahead(b.lease, b.lock); first != nil && first.made.Before(b.sent) {
			w.violate("barging: %s was told that it holds %s, and %s stands before it", l.path, b.lock, first.path)
		}
	}
}

// lower is for a client that asks for a downgrade: it counts on no more than a shared lease from now on.
func (w *world) lower(l *lease) {
	w.beliefs.lower(l.id)
	for i := range l.wishes {
		if l.wishes[i].mode == exclusive {
			l.wishes[i].mode = shared
		}
	}
}

// letGo is for a client that releases its lease: it counts on it no more, and the lease may end.
func (w *world) letGo(lease string) {
	w.exemptions.free(lease)
	w.beliefs.end(lease)
}

// heardEnded checks an answer that says that a lease is over.
func (w *world) heardEnded(l *lease, a answer) {
	there := !slices.ContainsFunc(w.audit.places(l.id), func(c contender) bool { return !c.there() })
	if a.received.Add(w.hurried(l.id, a.received)).Before(w.beliefs.until(l.id)) && there && !w.exemptions.mayEnd(l.id, a.received) {
		w.violate("shortening: %s was told %d %s (%s) though it is there", l.path, a.status, a.Code, a.Reason)
	}
}

// checkExpired is for a heartbeat that was answered with the end of the lease. Its client may have asked in time, and its
// gateway may have answered again and again that it is not trusted. Once that gateway is trusted again, it owes the client the
// time to be heard.
func (w *world) checkExpired(l *lease, a answer) {
	c := w.audit.at(l.id, l.wishes[0].lock)
	if w.ledger.isBooked(l.id) || a.Reason != "expired" || c == nil || c.there() || c.endedBy != a.gateway {
		return // a gateway that was trusted all the time may have ended it
	}
	until := w.beliefs.until(l.id)
	var first, last time.Time
	for _, r := range l.refused {
		if r.gateway == a.gateway && r.received.Before(until) {
			if first.IsZero() {
				first = r.received
			}
			last = r.received
		}
	}
	const unnoticed = 700 * time.Millisecond // no gateway notices a shorter gap
	if owed := last.Add(min(l.ttl, 15*time.Second)); last.Sub(first) > unnoticed && !w.exemptions.mayEnd(l.id, c.ended()) && c.ended().Before(owed) {
		w.violate("unheard: %s expired at %s, its gateway could not speak from %s to %s", l.path, w.since(c.ended()), w.since(first), w.since(last))
	}
}
