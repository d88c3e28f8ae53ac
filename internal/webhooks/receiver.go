package webhooks

import (
	"container/heap"
	"net/url"
	"slices"
	"strings"
	"time"
)

// attemptsKept is how many attempts are remembered of a subscription.
const attemptsKept = 100

// delivery is one message in its lane.
type delivery struct {
	out          *outgoing
	notice, to   int
	subscription string
	tries        int
	since        time.Time // in this lane
	outage       bool      // the last try failed while its receiver accepted nothing
	again        bool      // DeliverNow came during the try: if it fails, it does not count
}

func (d *delivery) event() *Event { return &d.out.Notices[d.notice].Event }

// message is what is sent to the subscription.
func (d *delivery) message(to *Subscription) *Message {
	m := newMessage(MessageID(d.out.Name, d.event(), d.subscription), d.event(), to)
	m.TraceParent = d.out.TraceParent
	return m
}

func newMessage(id string, e *Event, to *Subscription) *Message {
	r := to.render(e)
	return &Message{ID: id, Type: e.Type, NS: e.NS, Lock: e.Lock, Body: r.body, Headers: r.headers}
}

// laneKey names a lane: a lock, and for a notify_url the lease. Two leases of one lock may have receivers
// of different clients: neither waits for the other's. Nor does an end wait for a best-effort message.
type laneKey struct {
	ns, lock, lease string
	bestEffort      bool
}

func (d *delivery) lane() laneKey {
	key := laneKey{ns: d.event().NS, lock: d.event().Lock, bestEffort: d.out.bestEffort}
	if isNotify(d.subscription) {
		key.lease = LeaseOf(d.out.Name)
	}
	return key
}

// lane is what waits for one receiver about one lock, in order.
type lane struct {
	key     laneKey
	queue   []*delivery
	due     time.Time // of the first of them
	sending bool
	index   int // in receiver.idle or idleBestEffort; -1 while it is not there
}

// lanes is a heap: the first due first; of lanes due at once the one whose head happened first.
type lanes []*lane

func (h lanes) Len() int { return len(h) }
func (h lanes) Less(i, j int) bool {
	if d := h[i].due.Compare(h[j].due); d != 0 {
		return d < 0
	}
	return h[i].queue[0].out.Order < h[j].queue[0].out.Order
}
func (h lanes) Swap(i, j int) { h[i], h[j] = h[j], h[i]; h[i].index, h[j].index = i, j }
func (h *lanes) Push(x any)   { ln := x.(*lane); ln.index = len(*h); *h = append(*h, ln) }
func (h *lanes) Pop() any {
	old := *h
	ln := old[len(old)-1]
	old[len(old)-1] = nil
	*h, ln.index = old[:len(old)-1], -1
	return ln
}

// receiver is where messages go: a subscription, or the host of notify_urls. Courier.mu guards it.
type receiver struct {
	id      string
	lanes   map[laneKey]*lane
	idle    lanes // the lanes that are not being sent
	sending int

	idleBestEffort lanes // as idle, with best-effort messages
	failures       int   // one after the other
	outage         bool  // deliveries may have theirs set
	until          time.Time
	timer          *time.Timer
	attempts       []Attempt // the newest last, and some that are too old; of a subscription: see last
	failing        time.Time // since when attempts have failed without one success; zero: the last one succeeded
	queued         bool      // a host: it is in the queue of hosts
	isNext         bool      // a host: the next place is its own
}

func (r *receiver) stopTimer() {
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
}

func (r *receiver) remember(a Attempt) {
	if len(r.attempts) == 2*attemptsKept { // else each would move all the others
		r.attempts = slices.Delete(r.attempts, 0, attemptsKept)
	}
	r.attempts = append(r.attempts, a)
}

// last are the attempts that are kept, the oldest first.
func (r *receiver) last() []Attempt { return r.attempts[max(len(r.attempts)-attemptsKept, 0):] }

// idleOf is where a lane is while it is not being sent.
func (r *receiver) idleOf(ln *lane) *lanes {
	if ln.key.bestEffort {
		return &r.idleBestEffort
	}
	return &r.idle
}

// first is the heap with the lane to send next: an end goes before all that is best effort. nil: no lane is due.
func (r *receiver) first(now time.Time) *lanes {
	for _, idle := range []*lanes{&r.idle, &r.idleBestEffort} {
		if len(*idle) > 0 && !(*idle)[0].due.After(now) {
			return idle
		}
	}
	return nil
}

// due is when the first lane is due; false when none waits.
func (r *receiver) due() (at time.Time, waits bool) {
	for _, idle := range []lanes{r.idle, r.idleBestEffort} {
		if len(idle) > 0 && (!waits || idle[0].due.Before(at)) {
			at, waits = idle[0].due, true
		}
	}
	return at, waits
}

// next is when the first message is tried that waits for a later try; zero: none does.
func (r *receiver) next(now time.Time) time.Time {
	at, waits := r.due()
	if r.until.After(at) {
		at = r.until
	}
	if !waits || !at.After(now) {
		return time.Time{}
	}
	return at
}

// replace puts a lane where its head belongs in the heap, and drops an empty one.
func (r *receiver) replace(ln *lane) {
	idle := r.idleOf(ln)
	switch {
	case ln.sending:
	case len(ln.queue) == 0:
		if ln.index >= 0 {
			heap.Remove(idle, ln.index)
		}
		delete(r.lanes, ln.key)
	case ln.index < 0:
		heap.Push(idle, ln)
	default:
		heap.Fix(idle, ln.index)
	}
}

// recover makes the lanes due at once whose last try failed in an outage. That try does not count.
// There may be a lane for each of very many locks, so they are searched only after an outage.
func (r *receiver) recover(now time.Time) {
	if !r.outage {
		return
	}
	r.outage = false
	for _, idle := range []*lanes{&r.idle, &r.idleBestEffort} {
		moved := false
		for _, ln := range *idle {
			if d := ln.queue[0]; d.outage {
				d.outage = false
				d.tries = max(d.tries-1, 1)
				ln.due, moved = now, true
			}
		}
		if moved {
			heap.Init(idle)
		}
	}
}

// hasten makes every lane due and ends the pause; it reports whether anything was held back. The tries so far do not count: else each
// call would use up a part of the schedule. Nor does a try count that is under way and fails: the receiver may have been mended since it began.
func (r *receiver) hasten(now time.Time) bool {
	held := r.until.After(now)
	r.until = time.Time{}
	for _, ln := range r.lanes {
		switch d := ln.queue[0]; {
		case ln.sending:
			d.again = true
		default:
			d.tries, d.outage = 0, false
			if ln.due.After(now) {
				ln.due, held = now, true
			}
		}
	}
	heap.Init(&r.idle)
	heap.Init(&r.idleBestEffort)
	return held
}

// isNotify tells a notify_url, which stands among an entry's subscriptions as it is, from a subscription's id.
func isNotify(id string) bool { return !strings.HasPrefix(id, idPrefix) }

// receiverOf: all notify_urls of one host are one receiver, so that many leases
// do not get it more attempts at the same time.
func receiverOf(id string) string {
	if !isNotify(id) {
		return id
	}
	u, err := url.Parse(id)
	if err != nil {
		return "no address" // a damaged record may hold a secret here, and a receiver's name is logged
	}
	return u.Scheme + "://" + strings.ToLower(u.Host)
}

// A client that takes locks can name any number of hosts as notify_url. So hosts have places of their own: a host
// that does not answer takes no place from subscriptions. Where more hosts want to send than there are places, the
// places go round: after a message a host goes to the end of the queue.
//
// A host may have an address for each of many clients. What it answers at one of them, a Retry-After for instance,
// counts for that lease alone; only a host that does not answer is paused.

// hostsAtOnce is how many attempts are made at the same time toward all hosts.
const hostsAtOnce = 64

// hosts is the queue of the hosts that want to send; guarded by Courier.mu.
type hosts struct {
	sending int
	queue   []*receiver // that wait for a place, each once
}

// place takes a place for an attempt toward a receiver. A host that gets none is put into the queue.
func (h *hosts) place(r *receiver) bool {
	switch {
	case !isNotify(r.id):
		return true // its attempt waits for Courier.room by itself: there are few subscriptions
	case h.sending < hostsAtOnce && (r.isNext || len(h.queue) == 0):
		r.isNext = false
		h.sending++
		return true
	case !r.queued:
		r.queued = true
		h.queue = append(h.queue, r)
	}
	return false
}

// nextHosts gives the free places to the hosts that have waited the longest, one each.
func (c *Courier) nextHosts() {
	h := &c.hosts
	for h.sending < hostsAtOnce && len(h.queue) > 0 {
		r := h.queue[0]
		h.queue[0] = nil
		h.queue = h.queue[1:]
		r.queued, r.isNext = false, true
		c.sendDue(r)
		r.isNext = false
	}
	if len(h.queue) == 0 {
		h.queue = nil
	}
}
