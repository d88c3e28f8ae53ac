package webhooks

import (
	"cmp"
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"
)

const (
	perReceiver    = 4   // attempts at the same time toward one receiver
	attemptsAtOnce = 128 // and toward all subscriptions; hosts have hostsAtOnce
)

// Keeper keeps the outbox. The Courier calls its methods with its lock held:
// they return at once and do not call the Courier.
type Keeper interface {
	// Done: the entry has no message left that waits or is dead. It can be deleted.
	Done(e *Entry)
	// Changed: the dead letters of the entry have changed and must be written.
	Changed(e *Entry)
	// GivenUp: a message to a notify_url had its last try. A lease has no list of dead letters, so none is kept.
	GivenUp(e *Event, host, why string)
	// Disable: the receiver at that URL answered 410.
	Disable(subscription, url, why string)
}

// Transport makes attempts: Sender.
type Transport interface {
	Send(ctx context.Context, to *Subscription, m *Message) Attempt
}

// Metrics receives what happens. Implementations must be quick.
type Metrics interface {
	WebhookAttempt(result string)
	WebhookDead(n int)
	NotifyGivenUp()
	// BestEffortLost: a best-effort message is not delivered. why is LostNoRoom or LostGivenUp.
	BestEffortLost(why string)
}

// CourierOptions configure a Courier.
type CourierOptions struct {
	Transport Transport
	Keeper    Keeper
	Metrics   Metrics // nil: none
	// Secrets gives the secrets that sign the messages to a lease's notify_url.
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
	shares        shares // has a lock of its own
	open          int    // messages that are neither delivered nor dead
	dead          int
	bestEffort    bestEffort
}

// outgoing is an entry with messages that are open (neither delivered nor dead), or dead.
type outgoing struct {
	*Entry
	open     int
	messages []int32 // open or dead, of each of its subscriptions

	bestEffort bool // it is not in the outbox, and not among Courier.entries
}

// NewCourier makes a courier that has nothing to do. Close it.
func NewCourier(o CourierOptions) *Courier {
	if o.Random == nil {
		o.Random = randomBelow
	}
	c := &Courier{opt: o, shares: shares{of: map[string]int{}}, room: make(chan struct{}, attemptsAtOnce),
		subscriptions: map[string]*Subscription{}, receivers: map[string]*receiver{}, entries: map[string]*outgoing{},
		bestEffort: bestEffort{of: map[string]*bestEffortOf{}}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// Close ends all attempts and returns when they have ended. What was not
// delivered stays in the outbox.
func (c *Courier) Close() {
	c.mu.Lock()
	c.closed = true
	for _, r := range c.receivers {
		r.stopTimer()
	}
	c.mu.Unlock()
	c.stop()
	c.busy.Wait()
}

// Subscriptions replaces the subscriptions. Messages that wait for a removed one
// are forgotten; for a disabled or paused one they become dead letters.
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
			c.empty(r, "")
			r.stopTimer()
			delete(c.receivers, id)
		case !s.active():
			c.empty(r, s.whyInactive())
		default:
			c.sendDue(r)
		}
	}
	for _, out := range c.entries {
		c.prune(out)
	}
	c.bestEffort.forget(fresh)
}

// empty ends what waits in a receiver's lanes: as dead letters when there is a reason, else forgotten.
// The heads under way are left: their attempt decides.
func (c *Courier) empty(r *receiver, why string) {
	for _, ln := range r.lanes {
		keep := 0
		if ln.sending {
			keep = 1
		}
		rest := ln.queue[keep:]
		ln.queue = slices.Clip(ln.queue[:keep])
		for _, d := range rest {
			c.end(d, why)
		}
		r.replace(ln)
	}
}

// Add takes an entry over: this courier delivers it. Adding it again does nothing.
func (c *Courier) Add(e *Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.entries[e.Name] != nil {
		return
	}
	out := &outgoing{Entry: e}
	c.entries[e.Name] = out
	c.addDead(len(e.Dead))
	for _, d := range e.Dead {
		c.occupy(out, d.Subscription)
	}
	touched := map[*receiver]struct{}{}
	for n := range e.Notices {
		for _, to := range e.Notices[n].To {
			if slices.ContainsFunc(e.Dead, func(d Dead) bool { return d.Notice == n && d.Subscription == to }) {
				continue
			}
			if r := c.enqueue(out, n, to); r != nil {
				touched[r] = struct{}{}
			}
		}
	}
	c.prune(out)
	c.keep(out, false)
	for r := range touched {
		c.sendDue(r)
	}
}

// enqueue puts one message into its lane; nil when its subscription was removed, is disabled or paused.
func (c *Courier) enqueue(out *outgoing, notice, to int) *receiver {
	id := out.Subscriptions[to]
	s := c.subscriptions[id]
	if s == nil && !isNotify(id) {
		return nil // removed
	}
	d := &delivery{out: out, notice: notice, to: to, subscription: id, since: time.Now()}
	out.open++
	c.open++
	c.occupy(out, to)
	if s != nil && !s.active() {
		c.end(d, s.whyInactive())
		return nil
	}
	r := c.receiver(receiverOf(id))
	key := d.lane()
	ln := r.lanes[key]
	if ln == nil {
		ln = &lane{key: key, due: time.Now(), index: -1}
		r.lanes[key] = ln
	}
	// An entry of a dead gateway may be older than what waits already. The head under way stays in front.
	first := 0
	if ln.sending {
		first = 1
	}
	i := len(ln.queue)
	for i > first && ln.queue[i-1].out.Order > out.Order {
		i--
	}
	ln.queue = slices.Insert(ln.queue, i, d)
	if !ln.sending && ln.index < 0 {
		heap.Push(r.idleOf(ln), ln)
	}
	return r
}

func (c *Courier) receiver(id string) *receiver {
	r := c.receivers[id]
	if r == nil {
		r = &receiver{id: id, lanes: map[laneKey]*lane{}}
		c.receivers[id] = r
	}
	return r
}

// target is the subscription of a delivery; that of a notify_url is made up.
func (c *Courier) target(d *delivery) *Subscription {
	if !isNotify(d.subscription) {
		return c.subscriptions[d.subscription]
	}
	s := &Subscription{ID: d.subscription, URL: d.subscription, Enabled: true}
	if c.opt.Secrets != nil {
		s.Secrets = c.opt.Secrets(d.out.Entry)
	}
	return s
}

// end ends a delivery: as a dead letter when there is a reason, else delivered or forgotten. A message to a
// notify_url is given up.
func (c *Courier) end(d *delivery, why string) {
	d.out.open--
	c.open--
	if why != "" && isNotify(d.subscription) {
		c.opt.Keeper.GivenUp(d.event(), receiverOf(d.subscription), why)
		if c.opt.Metrics != nil {
			c.opt.Metrics.NotifyGivenUp()
		}
		why = ""
	}
	if why != "" && d.out.bestEffort {
		c.lose(d.subscription, LostGivenUp)
		why = ""
	}
	if why != "" {
		d.out.Dead = append(d.out.Dead, Dead{Notice: d.notice, Subscription: d.to, At: time.Now().UTC().Truncate(time.Millisecond), Attempts: d.tries, Error: why})
		c.addDead(1)
	} else {
		c.vacate(d.out, d.to)
	}
	c.keep(d.out, why != "")
}

func (c *Courier) addDead(n int) {
	c.dead += n
	if c.opt.Metrics != nil && n != 0 {
		c.opt.Metrics.WebhookDead(c.dead)
	}
}

// keep has the keeper delete the entry when nothing of it is left, or write it when its dead letters have changed.
func (c *Courier) keep(out *outgoing, changed bool) {
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

// Test sends a message of type Test, outside of all lanes, and returns the attempt.
// It is logged like any attempt. A disabled subscription is tested, too.
func (c *Courier) Test(ctx context.Context, to *Subscription, e *Event) Attempt {
	m := newMessage(MessageID(NewID(), e, to.ID), e, to)
	a := c.opt.Transport.Send(ctx, to, m)
	a.Try = 1
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.subscriptions[to.ID] != nil {
		c.receiver(to.ID).remember(a)
	}
	return a
}

// Attempts are the last ones of a subscription, the newest first.
func (c *Courier) Attempts(subscription string) []Attempt {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.receivers[receiverOf(subscription)]
	if r == nil {
		return nil
	}
	list := slices.Clone(r.last())
	slices.Reverse(list)
	return list
}

// Load is how many messages wait and how many are dead.
func (c *Courier) Load() (waiting, dead int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open, c.dead
}

// whyInactive is the reason on the dead letters of a disabled or paused subscription.
func (s *Subscription) whyInactive() string {
	if s.Enabled {
		return "the subscription is paused: " + s.Standing.Paused
	}
	return cmp.Or(s.Disabled, "the subscription is disabled")
}
