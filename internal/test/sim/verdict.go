package sim

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
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
		l.fencing = a.FencingToken
	}
	for _, wish := range l.wishes {
		b := &belief{claim: wish.claim, lock: wish.lock, lease: l.id, gateway: a.gateway, held: a.State == "held", sent: a.sent,
			from: a.received, until: until, token: a.FencingToken}
		w.mu.Lock()
		w.overslept(b)
		w.beliefs = append(w.beliefs, b)
		w.mu.Unlock()
		if !b.held || !b.from.Before(b.until) {
			continue // it was told too late to count on it
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

// slept notes that a gateway's clock has jumped as that of a machine does which was asleep.
func (w *world) slept(gateway string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asleep[gateway] = time.Now()
}

// overslept takes back what an earlier answer had promised for longer than a later one does, when their gateway slept in between.
// While a machine sleeps its clients' clocks go on, too, and then the earlier promise is over when it wakes; here they stand
// still. (A lease whose time is not changed gets more than that again from its gateway, which is asked of it.) The world's
// lock is held.
func (w *world) overslept(b *belief) {
	at := w.asleep[b.gateway]
	for _, p := range w.beliefs {
		if p.lease == b.lease && p.gateway == b.gateway && p.sent.Before(at) && b.from.After(at) && p.until.After(b.until) {
			p.until = b.until
		}
	}
}

// lower notes that a client counts on no more than a shared lease from now on.
func (w *world) lower(l *lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for _, b := range slices.Clone(w.beliefs) {
		if b.lease == l.id && b.held && b.mode == exclusive && b.until.After(now) {
			rest := *b
			rest.mode, rest.from, rest.lowered = shared, now, true
			b.until = now
			w.beliefs = append(w.beliefs, &rest)
		}
	}
	for i := range l.wishes {
		if l.wishes[i].mode == exclusive {
			l.wishes[i].mode = shared
		}
	}
}

// told notes that a client was told that its lease is over.
func (w *world) told(l *lease, a answer) {
	w.mu.Lock()
	var until time.Time
	for _, b := range w.beliefs {
		if b.lease == l.id && b.until.After(until) {
			until = b.until
		}
	}
	w.mu.Unlock()
	there := !slices.ContainsFunc(w.audit.places(l.id), func(c contender) bool { return !c.there() })
	if a.received.Before(until) && there && !w.mayEnd(l.id, a.received) {
		w.violate("shortening: %s was told %d %s (%s) though it is there", l.path, a.status, a.Code, a.Reason)
	}
}

// letGo notes that a client does not count on its lease any more.
func (w *world) letGo(l *lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.freed[l.id] = true
	for _, b := range w.beliefs {
		if b.lease == l.id && b.until.After(now) {
			b.until = now
		}
	}
}

// checkBeliefs compares what clients believed with each other and with what ZooKeeper committed.
func (w *world) checkBeliefs() {
	w.mu.Lock()
	beliefs := slices.Clone(w.beliefs)
	keyed, repeated := w.keyed, w.repeated
	w.mu.Unlock()
	type place struct{ lease, lock string }
	contenders := map[place]*contender{}
	owners := map[string]*contender{}
	for _, c := range w.audit.history() {
		if at := (place{c.lease, c.lock}); contenders[at] == nil || !c.ended().IsZero() && (contenders[at].there() || c.ended().Before(contenders[at].ended())) {
			contenders[at] = c // a lease ends with the first of its contenders in a queue that goes
		}
		if _, rest, ok := strings.Cut(c.data, `"owner":"`); ok {
			owner, _, _ := strings.Cut(rest, `"`)
			// Without a key an acquire whose wait was ended by its gateway may be asked for again; then it queues anew, while
			// what is left of the former one is under way.
			if other := owners[owner]; other != nil && other.lease != c.lease && (keyed[owner] || other.gone.IsZero() ||
				other.gone.After(c.made) && other.made.After(repeated[owner])) {
				w.violate("doubles: the attempt %s has %s and %s", owner, other.path, c.path)
			}
			owners[owner] = c
		}
	}
	for _, b := range beliefs {
		c := contenders[place{b.lease, b.lock}]
		if c == nil {
			w.violate("a lease without a contender: %s in %s", b.lease, b.lock)
			continue
		}
		ended := c.ended()
		if b.held && !b.foreign && b.token != c.czxid {
			w.violate("fencing: %s has the token %#x, its contender was created by %#x", c.path, b.token, c.czxid)
		}
		switch {
		case b.foreign:
			if !ended.IsZero() && ended.Before(b.until) {
				b.until = ended // it will notice when it looks
			}
		case b.held && c.held.IsZero():
			w.violate("barging: %s was told that it holds, and never stood first", c.path)
		case ended.IsZero():
		case ended.Before(b.until) && b.sent.Before(b.until) && !w.mayEnd(b.lease, ended):
			w.violate("shortening: %s went at %v, its client counted on it until %v", c.path, w.since(ended), w.since(b.until))
		case b.sent.After(ended.Add(w.window + slack)):
			w.violate("zombie: a success at %v for %s, which had gone at %v", w.since(b.sent), c.path, w.since(ended))
		case ended.Before(b.until):
			b.until = ended // somebody else has ended it: only fencing protects from that
		}
	}
	held := slices.DeleteFunc(beliefs, func(b *belief) bool { return !b.held || !b.from.Before(b.until) })
	slices.SortStableFunc(held, func(a, b *belief) int { return a.from.Compare(b.from) })
	for _, lock := range w.locks() {
		w.checkOverlap(lock, held)
		w.checkTokens(lock, held)
	}
}

// checkOverlap looks at who counted on a lock at one time; held is in the order of their beginnings.
func (w *world) checkOverlap(lock string, held []*belief) {
	var now []*belief // those that count on it still: of each lease the one that lasts longest
	for _, b := range held {
		if b.lock != lock {
			continue
		}
		now = slices.DeleteFunc(now, func(p *belief) bool { return !b.from.Before(p.until) || p.lease == b.lease && !p.until.After(b.until) })
		permits, first, longer := b.permits, b, false
		for _, p := range now {
			if p.lease == b.lease {
				longer = true
				continue
			}
			if b.meets(p.claim) {
				w.violate("overlap: %s counted on %s (%s) from %v on, %s (%s) until %v", b.lease, lock, b.mode, w.since(b.from), p.lease, p.mode, w.since(p.until))
			}
			permits += p.permits
			if p.token > first.token {
				first = p // the last one in the queue: its own limit has all of them in it
			}
		}
		if first.mode == semaphore && permits > first.limit {
			w.violate("overlap: %d permits of %s at %s, %s takes %d within %d", permits, lock, w.since(b.from), first.lease, first.permits, first.limit)
		}
		if !longer {
			now = append(now, b)
		}
	}
}

// checkTokens looks whether fencing tokens rise from each holder to those that it conflicts with.
func (w *world) checkTokens(lock string, held []*belief) {
	highest := map[mode]*belief{}
	for _, b := range held {
		if b.lock != lock || b.foreign {
			continue
		}
		for _, m := range []mode{exclusive, shared, semaphore} {
			p := highest[m]
			if p == nil {
				continue
			}
			same := p.lease == b.lease
			if same != (p.token == b.token) || !same && b.meets(p.claim) && p.token > b.token {
				w.violate("fencing: %s has %d, and before it %s had %d", b.lease, b.token, p.lease, p.token)
			}
		}
		if p := highest[b.mode]; p == nil || b.token > p.token {
			highest[b.mode] = b
		}
	}
}

func (w *world) since(t time.Time) string { return fmt.Sprintf("%.6f", t.Sub(w.begun).Seconds()) }

// mayTake is how long the last lease of a client that has died may keep others waiting: a takeover's wait and the longest TTL,
// once for a grant that nobody claimed and once for blind time.
func (w *world) mayTake() time.Duration {
	return 2*(w.window+10*time.Second) + 30*time.Second + 2*w.timeout + 20*time.Second
}

// checkStuck takes every lock once more, at every gateway.
func (w *world) checkStuck() {
	c := newClient(w, 1_000_000)
	defer c.close()
	for _, lock := range w.recorded() {
		began := time.Now()
		for done := false; !done; {
			c.tries++
			owner := fmt.Sprintf("%s-%d", c.name, c.tries)
			a, err := c.do(w.mayTake()+5*time.Second, http.MethodPost, "/v1/locks/"+lock+"/leases",
				url.Values{"ttl": {"5s"}, "wait": {"30s"}, "owner": {owner}}, http.Header{"Idempotency-Key": {"key-of-the-attempt-" + owner}})
			if err == nil && a.status == http.StatusCreated {
				l := newLease([]wish{{lock, claim{mode: exclusive}}}, a, 5*time.Second)
				w.believe(l, a)
				c.release(l)
				done = true
			} else if time.Since(began) > w.mayTake() {
				w.violate("stuck: %s cannot be had in %v: %d %s, %v", lock, w.mayTake(), a.status, a.raw, err)
				done = true
			}
			c.sleep(50 * time.Millisecond)
		}
	}
}

// checkLitter waits until everything must have been swept.
func (w *world) checkLitter() {
	const life = 30 * time.Minute                                                           // keys live for ten minutes, and are looked for every minute or two
	roots := []string{lockRoot, lockDir(spaceLock), "/lockkeeper/succession", settingsRoot} // directories of the second namespace stay
	if w.plan.Hooks > 0 {
		roots = append(roots, outboxRoot)
	}
	if w.plan.Seed%5 == 0 { // minutes in which nothing happens are most of the work
		roots = append(roots, "/lockkeeper/keys")
	}
	var left []string
	c := newClient(w, 1_000_001)
	defer c.close()
	for began := time.Now(); time.Since(began) < life; {
		time.Sleep(time.Minute + 7*time.Nanosecond)
		if left = w.audit.litter(roots); len(left) == 0 {
			return
		}
		for _, lock := range lockNames {
			if w.configured[lock] {
				c.remove(lock) // what somebody has set stays until it is removed
			}
		}
	}
	w.violate("litter: %v", left)
}

// forgotten is the TTL of leases of clients that go away, and passedOn how long a grant of which nobody takes notice lasts.
const (
	forgotten = 90 * time.Second
	passedOn  = 30 * time.Second
)

// leaveTicket notes a ticket for which nobody will ever come.
func (w *world) leaveTicket(l *lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tickets = append(w.tickets, l.id)
}

// checkHeard is told that a lease has expired. Its client may have asked for its renewal in time and have been told, again and
// again, that its gateway cannot speak: then the gateway, when it could again, owed it as much time as it takes to be heard.
func (w *world) checkHeard(l *lease, a answer) {
	c := w.audit.at(l.id, l.wishes[0].lock)
	if a.Reason != "expired" || c == nil || c.there() || c.endedBy != a.gateway {
		return // where another one ended it, that one may have been well all the time
	}
	w.mu.Lock()
	var until time.Time
	for _, b := range w.beliefs {
		if b.lease == l.id && b.until.After(until) {
			until = b.until
		}
	}
	w.mu.Unlock()
	var first, last time.Time
	for _, r := range l.refused {
		if r.gateway == a.gateway && r.received.Before(until) {
			if first.IsZero() {
				first = r.received
			}
			last = r.received
		}
	}
	const shortBlindness = 700 * time.Millisecond // so short a one is not noticed
	if owed := last.Add(min(l.ttl, 15*time.Second)); last.Sub(first) > shortBlindness && !w.mayEnd(l.id, c.ended()) && c.ended().Before(owed) {
		w.violate("unheard: %s expired at %s, its gateway could not speak from %s to %s", l.path, w.since(c.ended()), w.since(first), w.since(last))
	}
}

// checkAudit judges what gateways did to contenders, and what they told of them.
func (w *world) checkAudit() {
	w.mu.Lock()
	tickets := w.tickets
	granted := maps.Clone(w.granted)
	held := map[string]bool{}
	for _, b := range w.beliefs {
		held[b.lease] = held[b.lease] || b.held
	}
	w.mu.Unlock()
	w.checkDelays(held)
	for _, path := range w.audit.stolen {
		if c := w.audit.find(path); w.struckDown(path, c.gone) {
			continue
		}
		w.violate("theft: a gateway has deleted %s", path)
	}
	for _, what := range w.audit.unlimited {
		w.violate("limit: %s", what)
	}
	for _, path := range w.audit.unseen {
		if lease := w.audit.leaseOf(path); held[lease] && !w.mayEnd(lease, w.audit.find(path).ended()) {
			w.violate("unseen: %s was deleted, and its gateway does not know what was in it", path)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(granted)) {
		c := w.audit.find(path)
		if c == nil || c.held.IsZero() && !c.glimpsed {
			w.violate("events: it was told that %s holds, which it never did", path)
		}
	}
	for _, lease := range tickets {
		places := w.audit.places(lease)
		if len(w.plan.Faults) > 0 || len(places) == 0 {
			continue
		}
		if c := places[0]; !c.held.IsZero() && (c.there() || c.ended().After(c.held.Add(passedOn+2*slack))) {
			w.violate("unclaimed: nobody knows of %s, which held from %s to %s", c.path, w.since(c.held), w.since(c.ended()))
		}
	}
}
