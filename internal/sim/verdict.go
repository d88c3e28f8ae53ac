package sim

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// belief is what one answer makes a client believe: that it holds the lock, or its place in the queue, from the moment in
// which it read so until the time that it counts from the moment of sending.
type belief struct {
	lock, path, lease string
	gateway           string // that said so
	held              bool
	foreign           bool // another program's: it has no fencing token and no lease
	from, until       time.Time
	sent              time.Time
	token             int64
}

// slack is what an answer may be late.
const slack = time.Second

// believe notes a success, and checks it against the truth of this moment.
func (w *world) believe(l *lease, a answer) {
	path := cmp.Or(a.Znode, l.path)
	b := &belief{lock: l.lock, path: path, lease: l.id, gateway: a.gateway, held: a.State == "held", sent: a.sent, from: a.received,
		until: a.sent.Add(time.Duration(a.ExpiresIn) * time.Millisecond), token: a.FencingToken}
	if b.held {
		b.until = a.sent.Add(time.Duration(cmp.Or(a.TTL, l.ttl.Milliseconds())) * time.Millisecond)
	}
	if a.TTL != 0 {
		l.ttl = time.Duration(a.TTL) * time.Millisecond
	}
	w.mu.Lock()
	w.beliefs = append(w.beliefs, b)
	w.mu.Unlock()
	if !b.held || !b.from.Before(b.until) {
		return // it was told too late to count on it
	}
	if b.token <= 0 {
		w.violate("fencing: %s is held without a token", l.id)
	}
	if first := w.audit.before(b.lock, b.path); first != nil && first.made.Before(b.sent) && w.audit.find(b.path).gone.IsZero() {
		w.violate("barging: %s was told that it holds, and %s stands before it", b.path, first.path)
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
	excused := w.excused[l.path]
	w.mu.Unlock()
	if c := w.audit.find(l.path); !excused && a.received.Before(until) && (c == nil || c.gone.IsZero()) {
		w.violate("shortening: %s was told %d %s (%s) though it is there", l.path, a.status, a.Code, a.Reason)
	}
}

// letGo notes that a client does not count on its lease any more.
func (w *world) letGo(l *lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.excused[l.path] = true
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
	excused, keyed, repeated := w.excused, w.keyed, w.repeated
	w.mu.Unlock()
	contenders := map[string]*contender{}
	owners := map[string]*contender{}
	for _, c := range w.audit.history() {
		contenders[c.path] = c
		if _, rest, ok := strings.Cut(c.data, `"owner":"`); ok {
			owner, _, _ := strings.Cut(rest, `"`)
			// Without a key an acquire whose wait was ended by its gateway may be asked for again; then it queues anew, while
			// what is left of the former one is under way.
			if other := owners[owner]; other != nil && (keyed[owner] || other.gone.IsZero() ||
				other.gone.After(c.made) && other.made.After(repeated[owner])) {
				w.violate("doubles: the attempt %s has %s and %s", owner, other.path, c.path)
			}
			owners[owner] = c
		}
	}
	for _, b := range beliefs {
		c := contenders[b.path]
		if c != nil && b.held && !b.foreign && b.token != c.czxid {
			w.violate("fencing: %s has the token %#x, its contender was created by %#x", b.path, b.token, c.czxid)
		}
		switch {
		case b.foreign:
			if c != nil && !c.gone.IsZero() && c.gone.Before(b.until) {
				b.until = c.gone // it will notice when it looks
			}
		case c == nil:
			w.violate("a lease without a contender: %s", b.path)
		case b.held && c.led.IsZero():
			w.violate("barging: %s was told that it holds, and never stood first", b.path)
		case c.gone.IsZero():
		case !excused[b.path] && c.gone.Before(b.until):
			w.violate("shortening: %s went at %v, its client counted on it until %v", b.path, w.since(c.gone), w.since(b.until))
		case b.sent.After(c.gone.Add(w.window + slack)):
			w.violate("zombie: a success at %v for %s, which had gone at %v", w.since(b.sent), b.path, w.since(c.gone))
		case excused[b.path] && c.gone.Before(b.until):
			b.until = c.gone // somebody else has ended it: only fencing protects from that
		}
	}
	held := slices.DeleteFunc(beliefs, func(b *belief) bool { return !b.held || !b.from.Before(b.until) })
	slices.SortFunc(held, func(a, b *belief) int { return a.from.Compare(b.from) })
	last := map[string]*belief{} // by lock: who counts longest so far
	tokens := map[string]*belief{}
	for _, b := range held {
		if p := last[b.lock]; p != nil && p.path != b.path && b.from.Before(p.until) {
			w.violate("overlap: %s counted from %v on, %s until %v", b.path, w.since(b.from), p.path, w.since(p.until))
		}
		if p := last[b.lock]; p == nil || b.until.After(p.until) {
			last[b.lock] = b
		}
		if b.foreign {
			continue
		}
		if p := tokens[b.lock]; p != nil && (p.lease == b.lease) != (p.token == b.token) || p != nil && p.token > b.token {
			w.violate("fencing: %s has %d, and before it %s had %d", b.lease, b.token, p.lease, p.token)
		}
		tokens[b.lock] = b
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
	for _, lock := range lockNames {
		began := time.Now()
		for done := false; !done; {
			c.tries++
			owner := fmt.Sprintf("%s-%d", c.name, c.tries)
			a, err := c.do(w.mayTake()+5*time.Second, http.MethodPost, "/v1/locks/"+lock+"/leases",
				url.Values{"ttl": {"5s"}, "wait": {"30s"}, "owner": {owner}}, http.Header{"Idempotency-Key": {"key-of-the-attempt-" + owner}})
			if err == nil && a.status == http.StatusCreated {
				l := &lease{lock: lock, id: a.LeaseID, token: a.Token, path: a.Znode, ttl: 5 * time.Second}
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
	const life = 30 * time.Minute // keys live for ten minutes, and are looked for every minute or two
	roots := []string{lockRoot, "/lockkeeper/succession"}
	if w.plan.Seed%5 == 0 { // minutes in which nothing happens are most of the work
		roots = append(roots, "/lockkeeper/keys")
	}
	var left []string
	for began := time.Now(); time.Since(began) < life; {
		time.Sleep(time.Minute + 7*time.Nanosecond)
		if left = w.audit.litter(roots); len(left) == 0 {
			return
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
	w.tickets = append(w.tickets, l.path)
}

// checkHeard is told that a lease has expired. Its client may have asked for its renewal in time and have been told, again and
// again, that its gateway cannot speak: then the gateway, when it could again, owed it as much time as it takes to be heard.
func (w *world) checkHeard(l *lease, a answer) {
	c := w.audit.find(l.path)
	if a.Reason != "expired" || c == nil || c.gone.IsZero() {
		return
	}
	w.mu.Lock()
	var until time.Time
	for _, b := range w.beliefs {
		if b.lease == l.id && b.until.After(until) {
			until = b.until
		}
	}
	excused := w.excused[l.path]
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
	if owed := last.Add(min(l.ttl, 15*time.Second)); !excused && last.Sub(first) > shortBlindness && c.gone.Before(owed) {
		w.violate("unheard: %s expired at %s, its gateway could not speak from %s to %s", l.path, w.since(c.gone), w.since(first), w.since(last))
	}
}

// checkAudit judges what gateways did to contenders, and what they told of them.
func (w *world) checkAudit() {
	w.mu.Lock()
	excused, tickets := w.excused, w.tickets
	granted := maps.Clone(w.granted)
	held := map[string]bool{}
	for _, b := range w.beliefs {
		held[b.path] = held[b.path] || b.held
	}
	w.mu.Unlock()
	for _, path := range w.audit.stolen {
		w.violate("theft: a gateway has deleted %s", path)
	}
	for _, path := range w.audit.unseen {
		if held[path] && !excused[path] {
			w.violate("unseen: %s was deleted, and its gateway does not know what was in it", path)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(granted)) {
		c := w.audit.find(path)
		if c == nil || c.led.IsZero() {
			w.violate("events: it was told that %s holds, which it never did", path)
		}
	}
	for _, path := range tickets {
		c := w.audit.find(path)
		if len(w.plan.Faults) == 0 && !c.led.IsZero() && (c.gone.IsZero() || c.gone.After(c.led.Add(passedOn+2*slack))) {
			w.violate("unclaimed: nobody knows of %s, which held from %s to %s", path, w.since(c.led), w.since(c.gone))
		}
	}
}
