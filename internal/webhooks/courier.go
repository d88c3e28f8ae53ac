package webhooks

import (
	"cmp"
	"container/heap"
	"context"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"lockkeeper/internal/fault"
)

const (
	perReceiver = 4   // attempts at the same time toward one receiver
	inAll       = 128 // and toward all subscriptions; see also hostsAtOnce
	logged      = 100 // attempts that are remembered of a subscription
)

// Keeper keeps the outbox. Its methods are called with the Courier's lock held:
// they must return at once and must not call the Courier.
type Keeper interface {
	// Done: everybody in the entry was told, or is no longer there; it can go.
	Done(e *Entry)
	// Changed: what the entry says of its dead letters is to be written down.
	Changed(e *Entry)
	// GivenUp: a message to a notify_url had its last try. Nobody could ask for its dead letters, so there are none.
	GivenUp(e *Event, host, why string)
	// Disable: the receiver at that URL answered 410.
	Disable(subscription, url, why string)
}

// Transport makes attempts: Sender.
type Transport interface {
	Send(ctx context.Context, to *Subscription, m *Message) Attempt
}

// Metrics is told what happens. Implementations must be quick.
type Metrics interface {
	WebhookAttempt(result string)
	WebhookDead(n int)
	NotifyGivenUp()
}

// CourierOptions configure a Courier.
type CourierOptions struct {
	Transport Transport
	Keeper    Keeper
	Metrics   Metrics // nil: none
	// Secrets gives those that sign what a lease's notify_url is told.
	Secrets func(entry *Entry) []Secret
	// Random is a number from 0 to n-1; nil: the runtime's.
	Random func(n int64) int64
}

// Courier delivers entries. See the package's doc.
type Courier struct {
	opt  CourierOptions
	ctx  context.Context
	stop context.CancelFunc
	busy sync.WaitGroup
	room chan struct{} // a place for each attempt toward a subscription

	mu            sync.Mutex
	closed        bool
	subscriptions map[string]*Subscription
	receivers     map[string]*receiver
	hosts         hosts
	entries       map[string]*outgoing
	places        places // has a lock of its own
	open          int    // messages that are neither told nor dead
	dead          int
}

// outgoing is an entry with messages that are neither told nor dead, or with dead ones.
type outgoing struct {
	*Entry
	open     int
	messages []int32 // that are open or dead, of each of its subscriptions
}

// letter is one message in its lane.
type letter struct {
	out          *outgoing
	notice, to   int
	subscription string
	tries        int
	since        time.Time // that it waits here
	outage       bool      // the last try failed while its receiver did not take anything
}

func (l *letter) event() *Event { return &l.out.Notices[l.notice].Event }

func (l *letter) message() *Message {
	e := l.event()
	return &Message{ID: MessageID(l.out.Name, e, l.subscription), Type: e.Type, NS: e.NS, Lock: e.Lock, Body: e.Body(), TraceParent: l.out.TraceParent}
}

// place names a lane: a lock; of a notify_url the lease's own. Who tells a lease's
// receiver nothing about others must not have to wait for what their receivers do not take.
type place struct{ ns, lock, lease string }

func (l *letter) place() place {
	at := place{ns: l.event().NS, lock: l.event().Lock}
	if isNotify(l.subscription) {
		at.lease = LeaseOf(l.out.Name)
	}
	return at
}

// lane is what waits for one receiver about one lock, in order.
type lane struct {
	place
	line    []*letter
	due     time.Time // of the first of them
	sending bool
	index   int // in receiver.idle; -1 while it is not there
}

// receiver is where messages go: a subscription, or the host of notify_urls.
type receiver struct {
	id       string
	lanes    map[place]*lane
	idle     lanes // those that are not being sent, the first due first
	sending  int
	failures int  // one after the other
	outage   bool // letters may have theirs set
	until    time.Time
	timer    *time.Timer
	attempts []Attempt // the newest last; of a subscription
	failing  time.Time // since when no message of it was delivered, though it was tried; zero: the last one was
	stands   bool      // a host: it is in the line of hosts
	called   bool      // a host: it is its turn
}

// NewCourier makes a courier that has nothing to do. Close it.
func NewCourier(o CourierOptions) *Courier {
	if o.Random == nil {
		o.Random = spread
	}
	c := &Courier{opt: o, places: places{of: map[string]int{}}, room: make(chan struct{}, inAll), subscriptions: map[string]*Subscription{}, receivers: map[string]*receiver{}, entries: map[string]*outgoing{}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// Close ends all attempts and returns when they have ended. What was not
// delivered stays in the outbox.
func (c *Courier) Close() {
	c.mu.Lock()
	c.closed = true
	for _, r := range c.receivers {
		if r.timer != nil {
			r.timer.Stop()
		}
	}
	c.mu.Unlock()
	c.stop()
	c.busy.Wait()
}

// Subscriptions replaces the subscriptions. What waits for one that is no longer
// there is forgotten; for one that is disabled it becomes dead letters.
func (c *Courier) Subscriptions(list []*Subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fresh := make(map[string]*Subscription, len(list))
	for _, s := range list {
		fresh[s.ID] = s
	}
	c.subscriptions = fresh
	for id, r := range c.receivers {
		if isNotify(id) {
			continue
		}
		switch s := fresh[id]; {
		case s == nil:
			c.drain(r, "")
			if r.timer != nil {
				r.timer.Stop()
			}
			delete(c.receivers, id)
		case !s.Enabled:
			c.drain(r, cmp.Or(s.Disabled, "the subscription is disabled"))
		default:
			c.pump(r)
		}
	}
	for _, out := range c.entries {
		c.prune(out)
	}
}

// drain empties a receiver's lanes: into dead letters when there is a reason, else away.
// The heads that are being sent are left: their attempt decides.
func (c *Courier) drain(r *receiver, why string) {
	for _, l := range r.lanes {
		keep := 0
		if l.sending {
			keep = 1
		}
		rest := l.line[keep:]
		l.line = slices.Clip(l.line[:keep])
		for _, letter := range rest {
			c.end(letter, why)
		}
		c.shorten(r, l)
	}
}

// Add takes an entry over: it is this courier's to deliver. Adding it again does nothing.
func (c *Courier) Add(e *Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.entries[e.Name] != nil {
		return
	}
	out := &outgoing{Entry: e}
	c.entries[e.Name] = out
	c.buried(len(e.Dead))
	for _, d := range e.Dead {
		c.take(out, d.Subscription)
	}
	touched := map[*receiver]struct{}{}
	for n := range e.Notices {
		for _, to := range e.Notices[n].To {
			if slices.ContainsFunc(e.Dead, func(d Dead) bool { return d.Notice == n && d.Subscription == to }) {
				continue
			}
			if r := c.queue(out, n, to); r != nil {
				touched[r] = struct{}{}
			}
		}
	}
	c.prune(out)
	c.settle(out, false)
	for r := range touched {
		c.pump(r)
	}
}

// queue puts one message into its lane, nil when nobody wants it.
func (c *Courier) queue(out *outgoing, notice, to int) *receiver {
	id := out.Subscriptions[to]
	s := c.subscriptions[id]
	if s == nil && !isNotify(id) {
		return nil // removed
	}
	l := &letter{out: out, notice: notice, to: to, subscription: id, since: time.Now()}
	out.open++
	c.open++
	c.take(out, to)
	if s != nil && !s.Enabled {
		c.end(l, cmp.Or(s.Disabled, "the subscription is disabled"))
		return nil
	}
	r := c.receiver(receiverOf(id))
	at := l.place()
	ln := r.lanes[at]
	if ln == nil {
		ln = &lane{place: at, due: time.Now(), index: -1}
		r.lanes[at] = ln
	}
	// What a dead gateway left comes later than what happened after it. The head
	// that is being sent stays where it is.
	first := 0
	if ln.sending {
		first = 1
	}
	i := len(ln.line)
	for i > first && ln.line[i-1].out.Order > out.Order {
		i--
	}
	ln.line = slices.Insert(ln.line, i, l)
	if !ln.sending && ln.index < 0 {
		heap.Push(&r.idle, ln)
	}
	return r
}

func (c *Courier) receiver(id string) *receiver {
	r := c.receivers[id]
	if r == nil {
		r = &receiver{id: id, lanes: map[place]*lane{}}
		c.receivers[id] = r
	}
	return r
}

// A notify_url stands among an entry's subscriptions as it is.
func isNotify(id string) bool { return !strings.HasPrefix(id, idPrefix) }

// receiverOf: all notify_urls of one host are one receiver, so that it is not
// sent more at the same time because it has many leases.
func receiverOf(id string) string {
	if !isNotify(id) {
		return id
	}
	u, err := url.Parse(id)
	if err != nil {
		return "no address" // somebody has put it into a record, and what is in it may be a secret: a receiver's name is logged
	}
	return u.Scheme + "://" + strings.ToLower(u.Host)
}

// target is the subscription of a letter; that of a notify_url is made up.
func (c *Courier) target(l *letter) *Subscription {
	if !isNotify(l.subscription) {
		return c.subscriptions[l.subscription]
	}
	s := &Subscription{ID: l.subscription, URL: l.subscription, Enabled: true}
	if c.opt.Secrets != nil {
		s.Secrets = c.opt.Secrets(l.out.Entry)
	}
	return s
}

// pump starts what is due, and sets the timer for what is not. What is for a subscription
// that cannot be read waits until it can be, or is removed.
func (c *Courier) pump(r *receiver) {
	if c.closed {
		return
	}
	if s := c.subscriptions[r.id]; s != nil && s.Unread {
		if r.timer != nil {
			r.timer.Stop()
			r.timer = nil
		}
		return
	}
	now := time.Now()
	limit := perReceiver
	if r.failures >= pauseAfter {
		limit = 1 // the probe
	}
	for len(r.idle) > 0 && r.sending < limit && !r.until.After(now) && !r.idle[0].due.After(now) && c.place(r) {
		ln := heap.Pop(&r.idle).(*lane)
		ln.sending = true
		r.sending++
		l := ln.line[0]
		l.tries++
		c.busy.Add(1)
		go c.attempt(r, ln, l, c.target(l), l.message(), l.tries)
	}
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	if len(r.idle) == 0 || r.sending >= limit || r.stands {
		return // whoever finishes pumps again
	}
	at := r.idle[0].due
	if r.until.After(at) {
		at = r.until
	}
	r.timer = time.AfterFunc(max(at.Sub(now), 0), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.receivers[r.id] == r {
			c.pump(r)
		}
	})
}

// attempt makes one try and takes in what came of it.
func (c *Courier) attempt(r *receiver, ln *lane, l *letter, to *Subscription, m *Message, try int) {
	defer c.busy.Done()
	host := isNotify(r.id) // and has its place
	if !host {
		select {
		case c.room <- struct{}{}:
		case <-c.ctx.Done():
			return
		}
	}
	a := c.opt.Transport.Send(c.ctx, to, m)
	if !host {
		<-c.room
	}
	a.Try = try
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	if c.opt.Metrics != nil {
		c.opt.Metrics.WebhookAttempt(a.Result.String())
	}
	if !host { // nobody could ask for a host's
		r.remember(a)
	}
	switch {
	case a.Result == Delivered:
		r.failing = time.Time{}
	case r.failing.IsZero():
		r.failing = a.At
	}
	r.sending--
	ln.sending = false
	c.judge(r, ln, l, to, &a)
	c.shorten(r, ln)
	if host {
		c.hosts.sending--
	}
	c.pump(r)
	if host {
		if len(r.lanes) == 0 && r.sending == 0 {
			delete(c.receivers, r.id)
		}
		c.nextHosts()
	}
}

// Test sends a message of type Test, outside of all lanes, and tells how that went.
// It is logged like any attempt; a subscription that is not enabled is tested, too.
func (c *Courier) Test(ctx context.Context, to *Subscription, e *Event) Attempt {
	m := &Message{ID: MessageID(NewID(), e, to.ID), Type: e.Type, NS: e.NS, Lock: e.Lock, Body: e.Body()}
	a := c.opt.Transport.Send(ctx, to, m)
	a.Try = 1
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.subscriptions[to.ID] != nil {
		c.receiver(to.ID).remember(a)
	}
	return a
}

func (r *receiver) remember(a Attempt) {
	r.attempts = append(r.attempts, a)
	if extra := len(r.attempts) - logged; extra > 0 {
		r.attempts = slices.Delete(r.attempts, 0, extra)
	}
}

// judge decides what becomes of the head of a lane after a try; sent is the subscription as it was then.
func (c *Courier) judge(r *receiver, ln *lane, l *letter, sent *Subscription, a *Attempt) {
	now := time.Now()
	s := c.target(l)
	switch {
	case a.Result == Delivered:
		r.failures, r.until = 0, time.Time{}
		ln.line = ln.line[1:]
		ln.due = now
		c.end(l, "")
		c.recovered(r, now)
		return
	case s == nil: // removed meanwhile
		ln.line = ln.line[1:]
		c.end(l, "")
		return
	case a.Result == Gone && (s.Unread || s.URL != sent.URL):
		// Another receiver is to be told by now, or may be: it decides for itself.
	case a.Result == Gone && !isNotify(l.subscription):
		ln.line = ln.line[1:]
		c.end(l, a.Error)
		if s.Enabled {
			off := *s
			off.Enabled, off.Disabled = false, a.Error
			c.subscriptions[s.ID] = &off // until the record says so
			c.drain(r, a.Error)
			c.opt.Keeper.Disable(s.ID, s.URL, a.Error)
		}
		return
	case a.Result == Gone, !s.Enabled:
		ln.line = ln.line[1:]
		c.end(l, a.Error)
		return
	}
	answered := isNotify(r.id) && a.Status != 0
	if answered {
		r.failures, r.until = 0, time.Time{}
		c.recovered(r, now)
	} else {
		r.failures++
		l.outage = r.failures >= pauseAfter
		r.outage = r.outage || l.outage
	}
	wait, again := delay(l.tries, c.opt.Random)
	if !again || fault.On("hooks-tries") {
		ln.line = ln.line[1:]
		ln.due = now
		c.end(l, a.Error)
	} else {
		ln.due = now.Add(max(wait, a.RetryAfter))
	}
	if !answered { // else what it said is about that lease alone
		r.until = now.Add(max(pause(r.failures, c.opt.Random), a.RetryAfter))
	}
	if now.Sub(r.failing) > giveUpAfter {
		c.giveUp(r, now.Add(-giveUpAfter), "nothing has got through for "+giveUpAfter.String()+": "+a.Error)
	}
}

// giveUp makes dead letters of what has waited since then. A receiver that takes nothing is tried with one message at a time, and
// may have a lane for each of very many locks: not each of them comes to its last try.
func (c *Courier) giveUp(r *receiver, since time.Time, why string) {
	for _, ln := range r.lanes {
		if ln.sending {
			continue
		}
		ln.line = slices.DeleteFunc(ln.line, func(l *letter) bool {
			old := l.since.Before(since)
			if old {
				c.end(l, why)
			}
			return old
		})
		c.shorten(r, ln)
	}
}

// recovered lets lanes go on at once whose last try failed because the receiver
// took nothing at all. That try does not count. A receiver may have a lane for each of very many
// locks, so they are looked through only after such a try.
func (c *Courier) recovered(r *receiver, now time.Time) {
	if !r.outage {
		return
	}
	moved := false
	r.outage = false
	for _, ln := range r.idle {
		if l := ln.line[0]; l.outage {
			l.outage = false
			l.tries = max(l.tries-1, 1)
			ln.due, moved = now, true
		}
	}
	if moved {
		heap.Init(&r.idle)
	}
}

// shorten puts a lane back in line, or away when it is empty.
func (c *Courier) shorten(r *receiver, ln *lane) {
	switch {
	case ln.sending:
	case len(ln.line) == 0:
		if ln.index >= 0 {
			heap.Remove(&r.idle, ln.index)
		}
		delete(r.lanes, ln.place)
	case ln.index < 0:
		heap.Push(&r.idle, ln)
	default:
		heap.Fix(&r.idle, ln.index)
	}
}

// end is the last of a letter: dead when there is a reason, else told or forgotten. To a notify_url
// it is given up.
func (c *Courier) end(l *letter, why string) {
	l.out.open--
	c.open--
	if why != "" && isNotify(l.subscription) {
		c.opt.Keeper.GivenUp(l.event(), receiverOf(l.subscription), why)
		if c.opt.Metrics != nil {
			c.opt.Metrics.NotifyGivenUp()
		}
		why = ""
	}
	if why != "" {
		l.out.Dead = append(l.out.Dead, Dead{Notice: l.notice, Subscription: l.to, At: time.Now().UTC().Truncate(time.Millisecond), Attempts: l.tries, Error: why})
		c.buried(1)
	} else {
		c.free(l.out, l.to)
	}
	c.settle(l.out, why != "")
}

func (c *Courier) buried(n int) {
	c.dead += n
	if c.opt.Metrics != nil && n != 0 {
		c.opt.Metrics.WebhookDead(c.dead)
	}
}

// settle lets the keeper know what became of an entry.
func (c *Courier) settle(out *outgoing, changed bool) {
	switch {
	case c.entries[out.Name] != out:
	case out.open == 0 && len(out.Dead) == 0:
		delete(c.entries, out.Name)
		c.opt.Keeper.Done(out.Entry)
	case changed:
		c.opt.Keeper.Changed(out.Entry)
	}
}

// has reports whether an entry is being delivered, or kept for its dead letters.
func (c *Courier) has(entry string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[entry] != nil
}
